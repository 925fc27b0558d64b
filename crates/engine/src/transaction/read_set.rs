//! The read set of a transaction: the keys that it read and the parts of ranges that it scanned, by keyspace.
//!
//! A write to a key of the set between the transaction's snapshot and its commit is a conflict. A read that
//! found nothing counts as a read of a value does. A scan counts from its first bound as far as it went, so
//! that keys that did not exist are covered too (no phantoms).
//!
//! Memory is charged before it is allocated (I10). The set is bounded in number and bytes.

use std::sync::Arc;

use base::limits::BATCH_OPS_MAX;
use base::{Account, Charge, Error, Result, broken_invariant, format_bytes, invariant};
use tree::Tree;

use super::key_set::{KeySet, KeySpan};

/// The read keys and ranges of a transaction.
#[derive(Debug)]
pub struct ReadSet {
    keyspaces: Vec<(Arc<Tree>, KeySet)>,
    scans: Vec<Scan>,
    charge: Charge,
    bytes_max: u64,
}

/// How far a scan went, from both ends.
#[derive(Debug)]
struct Scan {
    /// Index of its keyspace in `ReadSet::keyspaces`.
    keyspace: usize,
    /// The first key of its range.
    start: Vec<u8>,
    /// The excluded end of its range.
    end: Option<Vec<u8>>,
    /// The last key visited from the front.
    front: Option<Vec<u8>>,
    /// The last key visited from the back.
    back: Option<Vec<u8>>,
    /// The whole range was visited.
    is_whole: bool,
}

/// Memory of a scan beyond its keys, bytes.
const SCAN_BYTES: u64 = 128;

/// Index of a scan in its read set.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanId(usize);

/// The end of a range from which an iterator steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The smallest keys first.
    Front,
    /// The largest keys first.
    Back,
}

impl ReadSet {
    /// An empty set that may charge up to `bytes_max` to `account`.
    #[must_use]
    pub fn new(account: &Account, bytes_max: u64) -> Self {
        let (keyspaces, scans) = Default::default();
        Self { keyspaces, scans, charge: account.empty_charge(), bytes_max }
    }

    /// The index of `tree`, which is added if it is new.
    fn keyspace(&mut self, tree: &Arc<Tree>) -> usize {
        let known = self.keyspaces.iter().position(|(known, _)| Arc::ptr_eq(known, tree));
        known.unwrap_or_else(|| {
            self.keyspaces.push((Arc::clone(tree), KeySet::default()));
            self.keyspaces.len() - 1
        })
    }

    /// Adds a read of `key`.
    ///
    /// # Errors
    /// `Invalid` if the set would exceed its bounds, `Retry` if memory is short.
    pub fn add_key(&mut self, tree: &Arc<Tree>, key: &[u8]) -> Result<()> {
        let number = self.keyspace(tree);
        if self.keyspaces.get(number).is_some_and(|(_, ranges)| ranges.contains(key)) {
            return Ok(());
        }
        // Twice the key, because a range stores both its ends.
        self.charge(SCAN_BYTES + 2 * key.len() as u64)?;
        self.keys_of(number)?.insert_key(key);
        Ok(())
    }

    /// Adds a scan of `range` that has not visited anything yet.
    ///
    /// # Errors
    /// As [`ReadSet::add_key`].
    pub(super) fn add_scan(&mut self, tree: &Arc<Tree>, range: KeySpan<'_>) -> Result<ScanId> {
        self.charge(SCAN_BYTES + (range.start.len() + range.end.map_or(0, <[u8]>::len)) as u64)?;
        let keyspace = self.keyspace(tree);
        let (start, end) = (range.start.to_vec(), range.end.map(<[u8]>::to_vec));
        self.scans.push(Scan { keyspace, start, end, front: None, back: None, is_whole: false });
        Ok(ScanId(self.scans.len() - 1))
    }

    /// Notes that the scan visited `key` from `side`. No effect after [`ReadSet::finish`]: an iterator may
    /// outlive the commit of its transaction.
    ///
    /// # Errors
    /// As [`ReadSet::add_key`].
    pub(super) fn visited(&mut self, id: ScanId, side: Side, key: &[u8]) -> Result<()> {
        let Some(scan) = self.scan(id) else { return Ok(()) };
        let capacity = scan.last_key(side).as_ref().map_or(0, Vec::capacity);
        if let Some(more) = key.len().checked_sub(capacity).filter(|more| *more > 0) {
            self.charge(more as u64)?;
        }
        let Some(scan) = self.scan(id) else { return Ok(()) };
        let last_key = scan.last_key(side).get_or_insert_default();
        invariant!(
            last_key.is_empty() || (last_key.as_slice() < key) == (side == Side::Front),
            "a scan moves inwards from its side"
        );
        last_key.clear();
        last_key.reserve_exact(key.len());
        last_key.extend_from_slice(key);
        Ok(())
    }

    /// `None` after [`ReadSet::finish`].
    fn scan(&mut self, ScanId(number): ScanId) -> Option<&mut Scan> {
        self.scans.get_mut(number)
    }

    /// The read keys of the keyspace with this index.
    ///
    /// # Errors
    /// Only if an invariant is broken: keyspaces are never removed.
    fn keys_of(&mut self, number: usize) -> Result<&mut KeySet> {
        let keyspace = self.keyspaces.get_mut(number);
        let keyspace =
            keyspace.ok_or_else(|| broken_invariant!("a read's keyspace is in the read set"))?;
        Ok(&mut keyspace.1)
    }

    /// Notes that the scan visited its whole range. No effect after [`ReadSet::finish`].
    pub(super) fn visited_all(&mut self, id: ScanId) {
        if let Some(scan) = self.scan(id) {
            scan.is_whole = true;
        }
    }

    /// Charges `bytes` for one more read.
    fn charge(&mut self, bytes: u64) -> Result<()> {
        let ranges: usize = self.keyspaces.iter().map(|(_, ranges)| ranges.count()).sum();
        let (number, taken) = (ranges + self.scans.len() + 1, self.charge.bytes() + bytes);
        if number > BATCH_OPS_MAX || taken > self.bytes_max {
            return Err(Error::invalid("transaction's read set")
                .expected(format_args!(
                    "at most {BATCH_OPS_MAX} reads of {}; read more from a snapshot",
                    format_bytes(self.bytes_max)
                ))
                .got(format_args!("{number} of {}", format_bytes(taken))));
        }
        self.charge.grow(bytes)
    }

    /// Adds the scans to the key sets, and returns the read keys by keyspace.
    ///
    /// # Errors
    /// `Retry` if memory is short.
    pub fn finish(&mut self) -> Result<&[(Arc<Tree>, KeySet)]> {
        let bytes: u64 = self.scans.iter().map(Scan::bytes).sum();
        self.charge.grow(bytes)?;
        for scan in std::mem::take(&mut self.scans) {
            let keys = self.keys_of(scan.keyspace)?;
            scan.add_to(keys);
        }
        Ok(&self.keyspaces)
    }
}

impl Scan {
    /// The last key visited from `side`.
    fn last_key(&mut self, side: Side) -> &mut Option<Vec<u8>> {
        match side {
            Side::Front => &mut self.front,
            Side::Back => &mut self.back,
        }
    }

    /// Memory that the scan takes in a key set, bytes.
    fn bytes(&self) -> u64 {
        let keys = [Some(&self.start), self.end.as_ref(), self.front.as_ref(), self.back.as_ref()];
        2 * SCAN_BYTES + keys.iter().flatten().map(|key| key.len() as u64 + 1).sum::<u64>()
    }

    /// Adds the visited parts of the range to `ranges`.
    fn add_to(self, ranges: &mut KeySet) {
        let end = self.end.as_deref();
        if self.is_whole {
            ranges.insert(KeySpan { start: &self.start, end });
            return;
        }
        if let Some(mut front) = self.front {
            front.push(0);
            ranges.insert(KeySpan { start: &self.start, end: Some(&front) });
        }
        if let Some(back) = self.back {
            ranges.insert(KeySpan { start: &back, end });
        }
    }
}
