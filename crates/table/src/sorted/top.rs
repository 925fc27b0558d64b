//! The top level: one separator and one metadata page number per partition.
//!
//! An open table keeps it in memory in its stored form, and searches it in place.

use base::{Cursor, Error, Result, Trailer, invariant};

use super::separator::{Separators, SeparatorsBuilder, Width};

/// Encodes the number of partitions, their metadata pages, and the separators between them.
pub(crate) fn encode_top(metas: &[u32], separators: &SeparatorsBuilder) -> Result<Vec<u8>> {
    invariant!(
        separators.len() == metas.len().saturating_sub(1),
        "there is a separator between every two partitions"
    );
    let mut out = Vec::new();
    out.extend_from_slice(&(metas.len() as u32).to_le_bytes());
    out.extend(metas.iter().flat_map(|page| page.to_le_bytes()));
    separators.encode(&mut out)?;
    Ok(out)
}

/// The pages of one partition: its data, then its metadata page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The first data page.
    pub first_page: u32,
    /// The metadata page, right after the last data page.
    pub meta_page: u32,
}

impl Partition {
    /// Number of data pages.
    #[must_use]
    pub const fn data_pages(&self) -> u32 {
        self.meta_page.saturating_sub(self.first_page)
    }
}

/// A view of the top level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Top<'a> {
    count: usize,
    metas: &'a [u8],
    separators: Separators<'a>,
}

impl<'a> Top<'a> {
    /// Views the top level; takes a few nanoseconds.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new("top level", bytes);
        let count = cursor.u32()? as usize;
        let Some(metas) = count.checked_mul(size_of::<u32>()) else {
            return Err(Error::corrupt("partitions of a table").got(count));
        };
        let metas = cursor.take(metas)?;
        let separators = Separators::parse(Width::Top, count.saturating_sub(1), cursor.rest())?;
        Ok(Self { count, metas, separators })
    }

    /// Checks that the partitions fill the pages before `end`, each with at least one data page.
    pub(crate) fn check(&self, end: u32) -> Result<()> {
        let mut next = 0;
        for index in 0..self.partitions() {
            let meta = self.meta_page(index)?;
            if meta <= next {
                return Err(Error::corrupt("metadata page of a partition")
                    .at(format_args!("partition {index}"))
                    .expected(format_args!("over {next}"))
                    .got(meta));
            }
            next = meta.saturating_add(1);
        }
        if next == end {
            return Ok(());
        }
        Err(Error::corrupt("end of the partitions, pages").expected(end).got(next))
    }

    /// Number of partitions; 0 in a table of only range deletes.
    pub(crate) const fn partitions(&self) -> usize {
        self.count
    }

    fn meta_page(&self, index: usize) -> Result<u32> {
        let page = self.metas.get(index * size_of::<u32>()..).and_then(<[u8]>::first_chunk);
        page.map(|page| u32::from_le_bytes(*page))
            .ok_or_else(|| Error::corrupt("metadata page of a partition").got(index))
    }

    /// The pages of partition `index`.
    pub(crate) fn partition(&self, index: usize) -> Result<Partition> {
        let first_page = match index.checked_sub(1) {
            Some(before) => self.meta_page(before)?.saturating_add(1),
            None => 0,
        };
        Ok(Partition { first_page, meta_page: self.meta_page(index)? })
    }

    /// The number of the partition that page `page` belongs to; the number of partitions for a page
    /// after them.
    pub(crate) fn holding(&self, page: u32) -> usize {
        let (metas, _) = self.metas.as_chunks();
        metas.partition_point(|meta| u32::from_le_bytes(*meta) < page)
    }

    /// The only partition that may contain the newest version of `key` at or below `at`.
    pub(crate) fn search(&self, key: &[u8], at: Trailer) -> Result<usize> {
        self.separators.search(key, at)
    }

    pub(crate) const fn separators(&self) -> Separators<'a> {
        self.separators
    }
}
