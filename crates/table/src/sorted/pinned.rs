//! The metadata pages of an open table with bins, kept in memory.
//!
//! The index and the filter of such a table take a few bits per entry, so a cache would gain nothing by
//! evicting them. Every page is verified when the table is opened, and its index is checked, so a lookup
//! finds no damage in it. Charged to the account of the table's pinned memory (I10).

use base::limits::PAGE_BYTES;
use base::{Account, Error, Result, invariant};
use media::Purpose;

use super::meta::MetaPage;
use super::read::read_pages;
use super::table::Table;
use super::top::Partition;
use crate::page::{Header, payload};
use crate::reread::reread;

/// The payloads of all metadata pages, one after the other.
#[derive(Debug, Default)]
pub(crate) struct PinnedMeta {
    payloads: Box<[u8]>,
    /// The end of each partition's payload. A page that is lost has an empty payload.
    ends: Box<[usize]>,
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
        Ok((Self { payloads: payloads.into(), ends: ends.into() }, damage))
    }

    /// Memory in use, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.payloads.len() + size_of_val(&*self.ends)) as u64
    }

    /// The metadata page of partition `number`; `None` if it is not kept.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<MetaPage<'_>> {
        let end = *self.ends.get(number)?;
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before));
        let payload = self
            .payloads
            .get(start.map_or(0, |start| *start)..end)
            .filter(|payload| !payload.is_empty())?;
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
