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

use super::meta::MetaPage;
use super::read::read_pages;
use super::table::Table;
use super::top::Partition;
use crate::page::{Header, payload};
use crate::reread::reread;

/// The payloads of all metadata pages, one after the other.
#[derive(Debug)]
pub(crate) struct PinnedMeta {
    payloads: Box<[u8]>,
    /// The end of each partition's payload. A page that is lost or was given back has an empty payload.
    ends: Box<[usize]>,
    /// The part of `payloads` that is filters, bytes.
    filter_bytes: u64,
    charge: Charge,
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
        let bytes = partitions as u64 * (PAGE_BYTES + size_of::<usize>()) as u64 * 2;
        let _charge = account.charge(bytes)?;
        let (mut payloads, mut ends, mut damage) = (Vec::new(), Vec::new(), None);
        for number in 0..partitions {
            let partition = table.top()?.partition(number)?;
            match sound_page(table, partition, account, &mut damage) {
                Ok(content) => payloads.extend_from_slice(&content),
                Err(error) if error.is_retryable() => return Err(error),
                // Reads of the partition ask for its page, and get the error.
                Err(_) => {}
            }
            ends.push(payloads.len());
        }
        let charge = account.charge((payloads.len() + size_of_val(&*ends)) as u64)?;
        Ok((Self::new(payloads.into(), ends.into(), charge), damage))
    }

    /// Pins these pages, for which `charge` is charged.
    fn new(payloads: Box<[u8]>, ends: Box<[usize]>, charge: Charge) -> Self {
        let mut pinned = Self { payloads, ends, filter_bytes: 0, charge };
        let metas = (0..pinned.ends.len()).filter_map(|number| pinned.get(number));
        pinned.filter_bytes = metas.map(|meta| meta.filter_bytes() as u64).sum();
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
        let bytes = (0..self.ends.len()).filter_map(kept).map(<[u8]>::len).sum();
        if bytes == self.payloads.len() {
            return Ok(None);
        }
        let charge = account.charge((bytes + size_of_val(&*self.ends)) as u64)?;
        let (mut payloads, mut ends) =
            (Vec::with_capacity(bytes), Vec::with_capacity(self.ends.len()));
        for number in 0..self.ends.len() {
            payloads.extend_from_slice(kept(number).unwrap_or_default());
            ends.push(payloads.len());
        }
        Ok(Some(Self::new(payloads.into(), ends.into(), charge)))
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
        let end = *self.ends.get(number)?;
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before));
        self.payloads.get(start.map_or(0, |start| *start)..end)
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
