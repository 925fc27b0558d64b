//! The key range of a page: the keys that damage of the page affects.

use std::ops::Range;

use base::{Result, Trailer};
use media::Purpose;

use super::meta::MetaPage;
use super::read::read_pages;
use super::table::Table;
use super::top::{Partition, Top};
use crate::Bounds;

/// From the first key to the second, which is excluded unless it is the table's last key.
type Keys = (Vec<u8>, Vec<u8>);

/// The block of the partition of `meta` that contains `page`.
fn block_on<'a, 'b>(meta: &'a MetaPage<'b>, page: u32) -> Option<(&'a MetaPage<'b>, usize)> {
    let holds = |block: &usize| {
        let pages = meta.block_pages(*block);
        pages.is_ok_and(|(first, count)| (first..first + count).contains(&page))
    };
    let after = |block: &usize| meta.after(*block).ok().flatten();
    std::iter::successors(Some(0), after).find(holds).map(|block| (meta, block))
}

impl Table {
    /// The key range of `page`: that of its block, or of its partition if the page is a metadata page or
    /// the partition's metadata page is damaged. From the first key to the second, which is excluded
    /// unless it is the table's last key. `None` for a page after the partitions. Takes at most one
    /// read.
    ///
    /// # Errors
    /// `Corrupt` if the top level is inconsistent.
    pub fn keys_on(&self, page: u32) -> Result<Option<Keys>> {
        let top = self.top()?;
        for number in 0..top.partitions() {
            let partition = top.partition(number)?;
            if page > partition.meta_page {
                continue;
            }
            let from = partition.meta_page;
            let read = read_pages(&**self.file(), self.seed(), from, 1, Purpose::Scrub);
            let meta = read.as_deref().ok().and_then(|page| MetaPage::parse(page).ok());
            let Some(meta) = meta.filter(|_| page < partition.meta_page) else {
                return Ok(self.keys_of(&top, number, None));
            };
            return Ok(self.keys_of(&top, number, block_on(&meta, page)));
        }
        Ok(None)
    }

    /// As [`Table::keys_on`], for a data page of partition `number` with the metadata page `meta`. Takes
    /// no read.
    ///
    /// # Errors
    /// `Corrupt` if `meta` is no metadata page or inconsistent.
    pub fn keys_within(&self, number: usize, meta: &[u8], page: u32) -> Result<Option<Keys>> {
        let meta = MetaPage::parse(meta)?;
        let block = block_on(&meta, page);
        Ok(if block.is_some() { self.keys_of(&self.top()?, number, block) } else { None })
    }

    /// The numbers of the partitions that may contain keys of `bounds`. Takes no read.
    ///
    /// # Errors
    /// `Corrupt` if the top level is damaged.
    pub fn partitions_in(&self, bounds: &Bounds) -> Result<Range<usize>> {
        let top = self.top()?;
        let newest = |key: &[u8]| top.search(key, Trailer::from_word(u64::MAX));
        let first = bounds.first.as_deref().map_or(Ok(0), newest)?;
        let end = match &bounds.end {
            Some(end) => top.partitions().min(newest(end)? + 1),
            None => top.partitions(),
        };
        Ok(first..end)
    }

    /// The pages of partition `number`. Takes no read.
    ///
    /// # Errors
    /// `Corrupt` if there is no such partition.
    pub fn partition(&self, number: usize) -> Result<Partition> {
        self.top()?.partition(number)
    }

    /// The key range of a partition, or of one of its blocks.
    pub(super) fn keys_of(
        &self,
        top: &Top<'_>,
        number: usize,
        block: Option<(&MetaPage<'_>, usize)>,
    ) -> Option<Keys> {
        let properties = self.properties();
        let outer = |index: Option<usize>, otherwise: &[u8]| match index {
            Some(index) if index < top.separators().count() => {
                top.separators().get(index).ok().map(|separator| separator.key)
            }
            _ => Some(otherwise.to_vec()),
        };
        let from = outer(number.checked_sub(1), &properties.first_key)?;
        let to = outer(Some(number), &properties.last_key)?;
        let Some((meta, block)) = block else { return Some((from, to)) };
        let inner = |block: usize| meta.separator(block).ok().flatten().map(|it| it.key);
        let to = match meta.after(block).ok()? {
            Some(after) => inner(after)?,
            None => to,
        };
        Some((if block > 0 { inner(block)? } else { from }, to))
    }
}
