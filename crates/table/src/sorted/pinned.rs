//! The metadata pages of an open table with bins, kept in memory.
//!
//! The index and the filter of such a table take a few bits per entry, so a cache would gain nothing by
//! evicting them. Every page is verified when the table is opened, and its index is checked, so a lookup
//! finds no damage in it. Charged to the account of the table's pinned memory (I10).
//!
//! A merge of a part of the table leaves partitions that no reader of the new version asks for: their pages
//! are given back at once ([`PinnedMeta::within`]). A reader of an older version reads them through the page
//! cache.

use std::ops::RangeInclusive;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, Result, invariant};
use media::Purpose;

use super::filter::Filter;
use super::layout::head_of;
use super::meta::MetaPage;
use super::read::read_pages;
use super::table::Table;
use super::top::Partition;
use crate::page::{Header, payload};
use crate::reread::reread;

/// Partitions on each side of the one that evenly spread hashes lead to, among which it is looked for first.
const NEAR: usize = 2;

/// The payloads of all metadata pages, one after the other.
#[derive(Debug)]
pub(crate) struct PinnedMeta {
    payloads: Box<[u8]>,
    partitions: Box<[PinnedPartition]>,
    /// The part of `payloads` that is filters, bytes.
    filter_bytes: u64,
    charge: Charge,
}

/// Where the metadata page of a partition lies, and its filter, which is the end of it.
#[derive(Clone, Copy, Debug)]
struct PinnedPartition {
    /// The first hash of the separator before the partition; 0 for the first one.
    first: u64,
    /// The end of the payload. A page that is lost or was given back has an empty payload.
    end: usize,
    seed: u32,
    filter_bytes: u16,
    filter_width: u8,
}

impl PinnedMeta {
    /// Reads the metadata pages of `table`. Also returns the error of the first page that could not be
    /// read.
    ///
    /// # Errors
    /// `Retry` if memory is short; the top level's if it is damaged.
    pub(crate) fn read(table: &Table, account: &Account) -> Result<(Self, Option<Error>)> {
        let partitions = table.top()?.partitions();
        // A full vector doubles.
        let bytes = partitions as u64 * (PAGE_BYTES + size_of::<PinnedPartition>()) as u64 * 2;
        let _charge = account.charge(bytes)?;
        let (mut payloads, mut ends, mut damage) = (Vec::new(), Vec::new(), None);
        for number in 0..partitions {
            let top = table.top()?;
            let partition = top.partition(number)?;
            let before = number.checked_sub(1).map(|before| top.separators().get(before));
            let first = before.transpose()?.map_or(0, |separator| head_of(&separator.key));
            match sound_page(table, partition, account, &mut damage) {
                Ok(content) => payloads.extend_from_slice(&content),
                Err(error) if error.is_retryable() => return Err(error),
                // Reads of the partition ask for its page, and get the error.
                Err(_) => {}
            }
            ends.push((first, payloads.len()));
        }
        let bytes = payloads.len() + ends.len() * size_of::<PinnedPartition>();
        let charge = account.charge(bytes as u64)?;
        Ok((Self::new(payloads.into(), &ends, charge), damage))
    }

    /// Pins these pages, for which `charge` is charged: of each partition the first hash, and the end of its
    /// payload.
    fn new(payloads: Box<[u8]>, ends: &[(u64, usize)], charge: Charge) -> Self {
        let unknown = |(first, end): &(u64, usize)| PinnedPartition {
            first: *first,
            end: *end,
            seed: 0,
            filter_bytes: 0,
            filter_width: 0,
        };
        let partitions: Box<[_]> = ends.iter().map(unknown).collect();
        invariant!(
            partitions.last().is_none_or(|last| last.end == payloads.len()),
            "the payloads of the partitions are all that is pinned"
        );
        let mut pinned = Self { payloads, partitions, filter_bytes: 0, charge };
        for number in 0..pinned.partitions.len() {
            let Some(meta) = pinned.get(number) else { continue };
            let Some(filter) = meta.filter() else { continue };
            let ((seed, width), bytes) = (filter.seed_and_width(), filter.planes().len());
            pinned.filter_bytes += bytes as u64;
            if let Some(partition) = pinned.partitions.get_mut(number) {
                // A filter lies within a page.
                (partition.seed, partition.filter_width) = (seed, width);
                partition.filter_bytes = bytes as u16;
            }
        }
        pinned
    }

    /// The pages of the partitions in `live` alone, charged to `account`; `None` if no others are kept.
    ///
    /// # Errors
    /// `Retry` if memory is short.
    pub(crate) fn within(
        &self,
        live: &[RangeInclusive<usize>],
        account: &Account,
    ) -> Result<Option<Self>> {
        let is_live = |number: &usize| live.iter().any(|range| range.contains(number));
        let kept = |number: usize| self.payload(number).filter(|_| is_live(&number));
        let bytes = (0..self.partitions.len()).filter_map(kept).map(<[u8]>::len).sum();
        if bytes == self.payloads.len() {
            return Ok(None);
        }
        let charge = account.charge((bytes + size_of_val(&*self.partitions)) as u64)?;
        let (mut payloads, mut ends) =
            (Vec::with_capacity(bytes), Vec::with_capacity(self.partitions.len()));
        for (number, partition) in self.partitions.iter().enumerate() {
            payloads.extend_from_slice(kept(number).unwrap_or_default());
            ends.push((partition.first, payloads.len()));
        }
        Ok(Some(Self::new(payloads.into(), &ends, charge)))
    }

    /// Memory in use, bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.charge.bytes()
    }

    /// The part of the memory that is filters, bytes.
    pub(crate) const fn filter_bytes(&self) -> u64 {
        self.filter_bytes
    }

    /// The payload of the metadata page of partition `number`, empty if it is not kept.
    fn payload(&self, number: usize) -> Option<&[u8]> {
        let end = self.partitions.get(number)?.end;
        let before = number.checked_sub(1).and_then(|before| self.partitions.get(before));
        self.payloads.get(before.map_or(0, |before| before.end)..end)
    }

    /// The filter of the only partition with keys whose first hash is `hash`; `None` if it is not kept, or if
    /// a partition begins with that hash, so that two may have such keys.
    #[inline]
    pub(crate) fn filter_of(&self, hash: u64) -> Option<Filter<'_>> {
        let number = self.begun_at(hash).checked_sub(1)?;
        let partition = self.partitions.get(number)?;
        let is_only = partition.first < hash || number == 0;
        if !is_only || partition.filter_bytes == 0 {
            return None;
        }
        let start = partition.end.checked_sub(usize::from(partition.filter_bytes))?;
        let planes = self.payloads.get(start..partition.end)?;
        Some(Filter::new(partition.seed, partition.filter_width, planes))
    }

    /// The number of partitions that begin at or before `hash`.
    #[inline]
    fn begun_at(&self, hash: u64) -> usize {
        let count = self.partitions.len();
        // Where it is if the table has the whole range of hashes.
        let guess = ((u128::from(hash) * count as u128) >> u64::BITS) as usize;
        let (start, end) = (guess.saturating_sub(NEAR), (guess + NEAR + 1).min(count));
        let has_begun = |partition: &PinnedPartition| partition.first <= hash;
        let near = self.partitions.get(start..end).unwrap_or_default();
        let begun = near.partition_point(has_begun);
        let is_certain = (begun > 0 || start == 0) && (begun < near.len() || end == count);
        if is_certain { start + begun } else { self.partitions.partition_point(has_begun) }
    }

    /// The metadata page of partition `number`; `None` if it is not kept.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<MetaPage<'_>> {
        let payload = self.payload(number).filter(|payload| !payload.is_empty())?;
        let meta = MetaPage::parse_payload(payload);
        invariant!(meta.is_ok(), "a metadata page was checked when the table was opened");
        meta.ok()
    }
}

/// The payload of the metadata page of `partition`: as stored, or rebuilt if the stored one is damaged.
/// `damage` gets the error of the first damaged page.
fn sound_page(
    table: &Table,
    partition: Partition,
    account: &Account,
    damage: &mut Option<Error>,
) -> Result<Vec<u8>> {
    let page = partition.meta_page;
    let stored = || {
        let read = read_pages(&**table.file(), table.seed(), page, 1, Purpose::Meta)?;
        checked(table, partition, &read)
    };
    stored().or_else(|error| reread(error, stored)).or_else(|error| {
        if error.is_retryable() {
            return Err(error);
        }
        damage.get_or_insert(table.locate_error(error, page));
        checked(table, partition, &*table.rebuilt_meta(page, account)?)
    })
}

/// The payload of a metadata page, after a check of its content.
fn checked(table: &Table, partition: Partition, page: &[u8]) -> Result<Vec<u8>> {
    let meta = MetaPage::parse(page)?;
    meta.check(table.layout())?;
    let (found, expected) = (meta.data_pages(), (partition.first_page, partition.data_pages()));
    if found != expected {
        return Err(Error::corrupt("data pages of a partition")
            .expected(format_args!("{expected:?}"))
            .got(format_args!("{found:?}")));
    }
    payload(page, &Header::parse(page)?).map(<[u8]>::to_vec)
}
