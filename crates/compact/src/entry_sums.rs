//! Sums of the hashes of entries: whether a merge lost, doubled or changed an entry.
//!
//! Each entry has a hash ([`table::entry_hash`]), and sums of hashes do not depend on the order. A merge
//! reads, drops, makes (merged operands, expired values that become tombstones, values that move) and writes
//! entries, so `read - dropped + made = written`, modulo 2^64. Each of the four is counted at another place:
//! entries read as they are decoded or, by the process that checks, from the inputs' properties; entries
//! written as they are encoded, in the outputs' properties. So damage of memory between decoding and
//! encoding, which no checksum of a page covers, is found, and so is a merge that forgets an entry.
//!
//! Range deletes are not counted: a merge cuts and joins them.

use base::{Error, Result, Trailer};
use table::entry_hash;

use crate::Outcome;

/// Sums over the entries of a merge, modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntrySums {
    /// Entries read from the inputs.
    pub read: u64,
    /// Entries that were read or made, and not written.
    pub dropped: u64,
    /// Entries that no input holds.
    pub made: u64,
}

impl EntrySums {
    pub(crate) fn read(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        self.read = self.read.wrapping_add(entry_hash(key, trailer, value));
    }

    pub(crate) fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        self.dropped = self.dropped.wrapping_add(entry_hash(key, trailer, value));
    }

    pub(crate) fn made(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        self.made = self.made.wrapping_add(entry_hash(key, trailer, value));
    }

    /// Counts that the value of pointer entry `stored` was fetched, so that it is read as `fetched`.
    pub(crate) fn fetched(
        &mut self,
        key: &[u8],
        (pointer, stored): (Trailer, &[u8]),
        (put, value): (Trailer, &[u8]),
    ) {
        let hash = entry_hash(key, put, value);
        self.read(key, pointer, stored);
        self.dropped(key, pointer, stored);
        self.read = self.read.wrapping_sub(hash);
        self.made = self.made.wrapping_add(hash);
    }

    /// Counts a block that is copied unchanged.
    pub(crate) const fn passed(&mut self, sum: u64) {
        self.read = self.read.wrapping_add(sum);
    }

    /// The sum of the entries that must have been written.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.read.wrapping_sub(self.dropped).wrapping_add(self.made)
    }
}

impl Outcome {
    /// Checks that no entry was lost, doubled or changed. `inputs`: the sum of the inputs' entries; `None` if
    /// it is not known, because inputs are read in part, or were written without sums. Then the sum that the
    /// job read counts.
    ///
    /// # Errors
    /// `Corrupt` if a sum is missing or wrong.
    pub fn expect_conserved(&self, inputs: Option<u64>) -> Result<()> {
        let wrong = |what: &'static str| {
            Error::corrupt(what).at(format_args!("outcome of job {}", self.job))
        };
        let Some(sums) = self.sums else {
            return Err(wrong("sums of entries").expected("some").got("none"));
        };
        if let Some(inputs) = inputs.filter(|inputs| *inputs != sums.read) {
            return Err(wrong("sum of the entries that a job read")
                .expected(format_args!("{inputs:016x}, that of its inputs"))
                .got(format_args!("{:016x}", sums.read)));
        }
        self.expect_written()
    }

    /// Checks the sums of the output tables, if the outcome has sums.
    pub(crate) fn expect_written(&self) -> Result<()> {
        let Some(sums) = self.sums else { return Ok(()) };
        let tables = self.tables.iter().map(|table| &table.properties);
        let written = tables.fold(0u64, |sum, it| sum.wrapping_add(it.entry_sum));
        if written == sums.written() {
            return Ok(());
        }
        Err(Error::corrupt("sum of the entries that a job wrote")
            .at(format_args!("outcome of job {}", self.job))
            .expected(format_args!("{:016x}: read, less dropped, and made", sums.written()))
            .got(format_args!("{written:016x}")))
    }
}
