//! What a transaction read: the keys it asked for and the parts of ranges it walked, by keyspace.
//!
//! Whoever writes to any of it between the transaction's snapshot and its commit is in conflict
//! with it. A read of nothing counts as much as a read of a value, and a walk counts from its first
//! bound as far as it went: what was not there is guarded too (no phantoms).
//!
//! Memory is charged before it is taken (I10); the set is bounded in number and bytes.

use std::sync::Arc;

use base::limits::BATCH_OPS_MAX;
use base::{Account, Charge, Error, Result, format_bytes};

use super::key_set::{KeySet, KeySpan};
use tree::Tree;

/// The keys and ranges read.
#[derive(Debug)]
pub struct ReadSet {
    keyspaces: Vec<(Arc<Tree>, KeySet)>,
    scans: Vec<Scan>,
    charge: Charge,
    bytes_max: u64,
}

/// How far an iterator went, from both ends.
#[derive(Debug)]
struct Scan {
    /// Which of the keyspaces.
    keyspace: usize,
    /// The bounds it was given.
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    /// The last key met from the front, and from the back.
    front: Option<Vec<u8>>,
    back: Option<Vec<u8>>,
    /// True where everything between the bounds was met.
    whole: bool,
}

/// What a scan takes beyond its keys, bytes.
const SCAN_BYTES: u64 = 128;

/// Names a scan of its read set.
#[derive(Clone, Copy, Debug)]
pub struct ScanId(usize);

/// The end of a range that an iterator moves from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Front,
    Back,
}

impl ReadSet {
    /// An empty set, that may take `bytes_max` of `account`.
    pub fn new(account: &Account, bytes_max: u64) -> Self {
        let (keyspaces, scans) = Default::default();
        Self { keyspaces, scans, charge: account.empty_charge(), bytes_max }
    }

    fn keyspace(&mut self, tree: &Arc<Tree>) -> usize {
        let known = self.keyspaces.iter().position(|(known, _)| Arc::ptr_eq(known, tree));
        known.unwrap_or_else(|| {
            self.keyspaces.push((Arc::clone(tree), KeySet::default()));
            self.keyspaces.len() - 1
        })
    }

    /// Notes that `key` is read.
    ///
    /// # Errors
    /// `Invalid` where the set grows past its bounds, `Retry` where memory is short.
    pub fn add_key(&mut self, tree: &Arc<Tree>, key: &[u8]) -> Result<()> {
        let number = self.keyspace(tree);
        if self.keyspaces.get(number).is_some_and(|(_, ranges)| ranges.contains(key)) {
            return Ok(());
        }
        // Twice the key: a range keeps both its ends.
        self.take(SCAN_BYTES + 2 * key.len() as u64)?;
        if let Some((_, ranges)) = self.keyspaces.get_mut(number) {
            ranges.insert_key(key);
        }
        Ok(())
    }

    /// Notes that an iterator over `range` was made; so far it met nothing.
    ///
    /// # Errors
    /// As [`ReadSet::add_key`].
    pub fn add_scan(&mut self, tree: &Arc<Tree>, range: KeySpan<'_>) -> Result<ScanId> {
        self.take(SCAN_BYTES + (range.start.len() + range.end.map_or(0, <[u8]>::len)) as u64)?;
        let keyspace = self.keyspace(tree);
        let (start, end) = (range.start.to_vec(), range.end.map(<[u8]>::to_vec));
        self.scans.push(Scan { keyspace, start, end, front: None, back: None, whole: false });
        Ok(ScanId(self.scans.len() - 1))
    }

    /// Notes that the iterator met `key` from `side`.
    ///
    /// # Errors
    /// As [`ReadSet::add_key`].
    pub fn met(&mut self, ScanId(number): ScanId, side: Side, key: &[u8]) -> Result<()> {
        let known =
            self.scans.get(number).map_or(0, |scan| scan.met(side).map_or(0, Vec::capacity));
        if let Some(more) = key.len().checked_sub(known).filter(|more| *more > 0) {
            self.take(more as u64)?;
        }
        let Some(scan) = self.scans.get_mut(number) else { return Ok(()) };
        let met = match side {
            Side::Front => scan.front.get_or_insert_default(),
            Side::Back => scan.back.get_or_insert_default(),
        };
        met.clear();
        met.reserve_exact(key.len());
        met.extend_from_slice(key);
        Ok(())
    }

    /// Notes that the iterator met everything there is.
    pub fn met_all(&mut self, ScanId(number): ScanId) {
        if let Some(scan) = self.scans.get_mut(number) {
            scan.whole = true;
        }
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        let ranges: usize = self.keyspaces.iter().map(|(_, ranges)| ranges.count()).sum();
        let (number, taken) = (ranges + self.scans.len() + 1, self.charge.bytes() + bytes);
        if number > BATCH_OPS_MAX || taken > self.bytes_max {
            return Err(Error::invalid("transaction's read set")
                .expected(format_args!(
                    "at most {BATCH_OPS_MAX} reads of {}; more are read by a snapshot",
                    format_bytes(self.bytes_max)
                ))
                .got(format_args!("{number} of {}", format_bytes(taken))));
        }
        self.charge.grow(bytes)
    }

    /// What was read of every keyspace.
    ///
    /// # Errors
    /// `Retry` where memory is short.
    pub fn finish(&mut self) -> Result<&[(Arc<Tree>, KeySet)]> {
        let bytes: u64 = self.scans.iter().map(Scan::bytes).sum();
        self.charge.grow(bytes)?;
        for scan in self.scans.drain(..) {
            if let Some((_, ranges)) = self.keyspaces.get_mut(scan.keyspace) {
                scan.add_to(ranges);
            }
        }
        Ok(&self.keyspaces)
    }
}

impl Scan {
    fn met(&self, side: Side) -> Option<&Vec<u8>> {
        match side {
            Side::Front => self.front.as_ref(),
            Side::Back => self.back.as_ref(),
        }
    }

    fn bytes(&self) -> u64 {
        let keys = [Some(&self.start), self.end.as_ref(), self.front.as_ref(), self.back.as_ref()];
        2 * SCAN_BYTES + keys.iter().flatten().map(|key| key.len() as u64 + 1).sum::<u64>()
    }

    fn add_to(self, ranges: &mut KeySet) {
        let end = self.end.as_deref();
        if self.whole {
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
