//! The flush of a resident keyspace's memtable: the newest version of each key goes into the index.
//!
//! Memtables are flushed oldest first, so the index changes in seqno order. Nothing is written to a device.
//! While a flush runs, readers still find the memtable in their view, and look there first.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{EntryKind, Result, Seqno};

use super::index::{SHARDS, shard_of};
use super::place::Place;
use super::places::SortedPlaces;
use super::{Resident, hash_of};
use crate::Memtable;

/// Keys per step: about a millisecond of work.
const STEP_KEYS: usize = 512;

/// Shards whose promises are redeemed together.
const REDEEMED_SHARDS: u16 = SHARDS as u16 / 16;

/// A flush in progress.
#[derive(Debug)]
pub(crate) struct ResidentFlush {
    resident: Arc<Resident>,
    memtable: Arc<Memtable>,
    places: SortedPlaces,
    /// As [`Resident::keep_tombstones_below`].
    keeps_tombstones: bool,
    /// Every copy of an older version of a key with a tombstone here is in the log before this seqno.
    log_end: Option<Seqno>,
    /// The promises of shards below this one are redeemed.
    redeemed_below: u16,
}

impl ResidentFlush {
    /// A flush of `memtable`, whose writes are visible and below `below`.
    /// `log_end` is the end of the log; `None` during its replay.
    pub(crate) fn new(
        resident: &Arc<Resident>,
        memtable: &Arc<Memtable>,
        below: Seqno,
        log_end: Option<Seqno>,
    ) -> Self {
        // Before the first change of the index.
        resident.indexed_up_to.fetch_max(below.before().get(), Ordering::AcqRel);
        let (resident, memtable) = (Arc::clone(resident), Arc::clone(memtable));
        let places = memtable.places().sorted();
        let kept_below = resident.tombstones_below.load(Ordering::Relaxed);
        let keeps_tombstones = memtable.first().get() < kept_below;
        Self { resident, memtable, places, keeps_tombstones, log_end, redeemed_below: 0 }
    }

    /// Does one step with the keys from `cursor` on. Returns whether it was the last one.
    pub(crate) fn step(&mut self, cursor: &mut arena::Cursor) -> Result<bool> {
        for _ in 0..STEP_KEYS {
            if !cursor.valid() {
                self.redeem(self.memtable.places().take_promises());
                return Ok(true);
            }
            let (key, trailer) = (cursor.key().to_vec(), cursor.trailer());
            cursor.next();
            // The others are older versions.
            let mut has_older = false;
            while cursor.valid() && cursor.key() == key {
                has_older = true;
                cursor.next();
            }
            let kind = trailer.kind()?;
            let needs_tombstone = has_older || self.keeps_tombstones;
            let place = self.places.of(trailer.seqno())?;
            self.resident.set(&key, kind, needs_tombstone, place, self.log_end)?;
        }
        if cursor.valid() {
            self.redeem_passed(cursor.key())?;
        }
        Ok(false)
    }

    /// Redeems promises of the shards that lie behind `next`, a part of all shards at a time. A key with a
    /// slot and a promise counts twice, and lets writers grow the index too early.
    fn redeem_passed(&mut self, next: &[u8]) -> Result<()> {
        // Keys are in the order of their hashes, and so in that of their shards.
        let shard = shard_of(hash_of(next)?) as u16;
        if shard >= self.redeemed_below + REDEEMED_SHARDS {
            self.redeem(self.memtable.places().take_promises_below(shard));
            self.redeemed_below = shard;
        }
        Ok(())
    }

    /// The keys are in the index: their promises are kept.
    fn redeem(&self, mut promises: Vec<u16>) {
        promises.sort_unstable();
        for same in promises.chunk_by(|a, b| a == b) {
            if let Some(shard) = same.first() {
                self.resident.index.redeem(usize::from(*shard), same.len());
            }
        }
    }
}

impl Resident {
    /// Makes the write at `place` the newest version of `key` in the index. A tombstone is kept only if the
    /// log may have an older version.
    pub(super) fn set(
        &self,
        key: &[u8],
        kind: EntryKind,
        needs_tombstone: bool,
        place: Place,
        log_end: Option<Seqno>,
    ) -> Result<()> {
        let is_delete = kind == EntryKind::Delete;
        // The log may have lost a version that the tombstone hides.
        let adds = needs_tombstone || !is_delete || self.lost_below(hash_of(key)?)?.is_some();
        let segment = self.segments.get(place)?;
        if let Some(end) = log_end.filter(|_| is_delete) {
            segment.raise_tombstones_end(end);
        }
        // First: a segment without entries may be freed.
        segment.add();
        let mut replaced = None;
        let before = self.index.set(hash_of(key)?, place, adds, |at| {
            replaced = self.head(at, key)?;
            Ok(replaced.is_some())
        });
        let before = before.inspect_err(|_| segment.drop_one())?;
        let is_in_index = adds || before.is_some();
        // A flush that failed is done again.
        if !is_in_index || before == Some(place) {
            segment.drop_one();
        }
        let mut was_delete = false;
        if let Some((before, head)) = before.zip(replaced).filter(|(before, _)| *before != place) {
            self.segments.get(before)?.drop_one();
            was_delete = head.kind == EntryKind::Delete;
        }
        if before != Some(place) {
            self.index.count_tombstone(was_delete, is_delete && is_in_index);
        }
        Ok(())
    }
}
