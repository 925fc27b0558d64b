//! The tally of a table's versions: counted when they are written, and compared when they are checked.

use std::collections::BTreeMap;

use base::{EntryKind, Error, Result, Seqno, TableId, Trailer, hash64, invariant};

use super::properties::{Properties, VALUE_FILES_MAX};
use crate::pointer::Pointer;

/// The expiry of a version, Unix milliseconds; `None` if it never expires.
///
/// # Errors
/// `Invalid` if the value does not have the form of its kind.
pub(super) fn expiry_of(kind: EntryKind, value: &[u8]) -> Result<Option<u64>> {
    let wrong = |expected: &str| {
        Err(Error::invalid("version of a table")
            .expected(expected)
            .got(format_args!("{kind:?} with {} bytes", value.len())))
    };
    match kind {
        EntryKind::Put | EntryKind::Merge => Ok(None),
        EntryKind::Delete if value.is_empty() => Ok(None),
        EntryKind::Delete => wrong("a delete without a value"),
        EntryKind::PutExpiring => match value.first_chunk().map(|it| u64::from_le_bytes(*it)) {
            None | Some(0) => wrong("an expiry over 0 before the value"),
            expiry => Ok(expiry),
        },
        EntryKind::PutPointer => match Pointer::decode(value) {
            Ok(Pointer { expiry, .. }) => Ok((expiry > 0).then_some(expiry)),
            Err(_) => wrong("a pointer to pages of a value file"),
        },
        EntryKind::DeleteRange => wrong("a version of one key"),
    }
}

/// The hash of an entry. Sums of them (wrapping) show whether a merge lost, doubled or changed one: see
/// [`Properties::entry_sum`].
#[must_use]
pub fn entry_hash(key: &[u8], trailer: Trailer, value: &[u8]) -> u64 {
    hash64(hash64(trailer.word(), key), value)
}

/// Counts of versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) entries: u64,
    pub(super) deletes: u64,
    pub(super) merges: u64,
    pub(super) expiring: u64,
    pub(super) keys: u64,
    pub(super) raw_bytes: u64,
    /// The smallest and the largest seqno; `None` if nothing was counted.
    pub(super) seqnos: Option<(Seqno, Seqno)>,
    /// The earliest and the latest expiry; `None` if no version expires.
    pub(super) expiries: Option<(u64, u64)>,
    /// Bytes of values, by value file.
    pub(super) values: BTreeMap<TableId, u64>,
    /// Whether `entry_sum` is counted.
    pub(super) sums_entries: bool,
    /// The sum of the hashes of all entries, if it is counted.
    pub(super) entry_sum: u64,
}

impl Tally {
    /// Counts a version, part one of two: the counts that may be refused.
    ///
    /// # Errors
    /// `Invalid` if its value does not have the form of its kind, or the table would point into too many
    /// value files; then nothing is counted.
    pub(super) fn add_value(&mut self, kind: EntryKind, value: &[u8]) -> Result<()> {
        let expiry = expiry_of(kind, value)?;
        if kind == EntryKind::PutPointer {
            let Pointer { file, bytes, .. } = Pointer::decode(value)?;
            if self.values.len() == VALUE_FILES_MAX && !self.values.contains_key(&file) {
                return Err(too_many_files());
            }
            let sum = self.values.entry(file).or_default();
            *sum = sum.saturating_add(bytes);
        }
        if let Some(expiry) = expiry {
            self.expiring += 1;
            self.expiries = Some(join(self.expiries, (expiry, expiry)));
        }
        self.deletes += u64::from(kind == EntryKind::Delete);
        self.merges += u64::from(kind == EntryKind::Merge);
        Ok(())
    }

    /// Counts a version, part two of two: the counts that are the same for every kind.
    pub(super) fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8], new_key: bool) {
        self.entries += 1;
        self.keys += u64::from(new_key);
        self.raw_bytes += (key.len() + value.len()) as u64;
        if self.sums_entries {
            self.entry_sum = self.entry_sum.wrapping_add(entry_hash(key, trailer, value));
        }
        self.add_seqnos(trailer.seqno(), trailer.seqno());
    }

    /// Counts seqnos from `min` to `max`.
    pub(super) fn add_seqnos(&mut self, min: Seqno, max: Seqno) {
        invariant!(min <= max, "the smallest seqno is not above the largest");
        self.seqnos = Some(join(self.seqnos, (min, max)));
    }

    /// Adds the counts of `other`. With `shares_key`, its first key is already counted here.
    ///
    /// # Errors
    /// `Invalid` if the table would point into too many value files; then nothing is counted.
    pub(super) fn add_all(&mut self, other: &Self, shares_key: bool) -> Result<()> {
        let new = other.values.keys().filter(|file| !self.values.contains_key(file)).count();
        if self.values.len() + new > VALUE_FILES_MAX {
            return Err(too_many_files());
        }
        for (file, bytes) in &other.values {
            let sum = self.values.entry(*file).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        self.entries += other.entries;
        self.deletes += other.deletes;
        self.merges += other.merges;
        self.expiring += other.expiring;
        invariant!(other.keys >= u64::from(shares_key), "a key that is shared was counted");
        self.keys += other.keys - u64::from(shares_key);
        self.raw_bytes += other.raw_bytes;
        self.sums_entries &= other.sums_entries;
        self.entry_sum = self.entry_sum.wrapping_add(other.entry_sum);
        self.seqnos = other.seqnos.map(|seqnos| join(self.seqnos, seqnos)).or(self.seqnos);
        self.expiries = other.expiries.map(|it| join(self.expiries, it)).or(self.expiries);
        Ok(())
    }

    /// Sets the counted fields of `properties`. `range_deletes` is already set.
    pub(super) fn put(self, properties: &mut Properties) {
        invariant!(
            self.keys <= self.entries && self.deletes + self.merges <= self.entries,
            "keys, tombstones and operands are counted among the entries"
        );
        invariant!(
            self.expiring <= self.entries && self.expiries.is_some() == (self.expiring > 0),
            "expiring entries are counted, with their first and last expiry"
        );
        invariant!(
            self.seqnos.is_some() == (self.entries + properties.range_deletes > 0),
            "what a table holds has sequence numbers"
        );
        let never = properties.range_deletes > 0 || self.expiring < self.entries;
        let (earliest, latest) = self.expiries.unwrap_or_default();
        properties.entries = self.entries;
        properties.deletes = self.deletes;
        properties.merges = self.merges;
        properties.expiring = self.expiring;
        properties.keys = self.keys;
        properties.raw_bytes = self.raw_bytes;
        (properties.seqno_min, properties.seqno_max) = self.seqnos.unwrap_or_default();
        properties.earliest_expiry = earliest;
        properties.latest_expiry = if never { 0 } else { latest };
        properties.values = self.values.into_iter().collect();
        properties.entry_sum = if self.sums_entries { self.entry_sum } else { 0 };
    }
}

fn too_many_files() -> Error {
    Error::invalid("value files of a table").expected(format_args!("at most {VALUE_FILES_MAX}"))
}

fn join<T: Ord>(one: Option<(T, T)>, other: (T, T)) -> (T, T) {
    match one {
        Some((min, max)) => (min.min(other.0), max.max(other.1)),
        None => other,
    }
}
