//! The interface between the drivers and the store that they measure: this engine, another engine in the
//! comparison harness, or a map in tests.
//!
//! An implementation passes values to a visitor instead of returning them. So an engine whose values lie in a
//! cache or a memory mapping is measured without a copy that it would not make for its own callers.

use std::collections::BTreeMap;
use std::ops::{AddAssign, ControlFlow};
use std::time::Duration;

use base::Result;
use serde::Serialize;

use crate::{CompactionPlaces, Emulation, PageCounts, ScmCounts};

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Keys ascend.
    Forward,
    /// Keys descend.
    Reverse,
}

/// Receives one entry of a scan, key and value, and decides whether the scan goes on.
pub type ScanVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// A key-value store as the drivers use it. Any number of threads call it at once.
///
/// Errors are the store's own and end a run; the drivers never retry.
pub trait Store: Send + Sync {
    /// Writes `value` under `key`. With `sync`, the write survives a power cut once this returns. Without, it
    /// survives the death of the process, or comes as close to that as the store can.
    ///
    /// # Errors
    /// Those of the store.
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()>;

    /// Writes entries of key and value as one write, atomically if the store has write batches; `sync` as for
    /// [`Store::put`].
    ///
    /// # Errors
    /// Those of the store.
    fn put_batch(&self, entries: &[(&[u8], &[u8])], sync: bool) -> Result<()> {
        entries.iter().try_for_each(|(key, value)| self.put(key, value, sync))
    }

    /// Passes the value of `key` to `visit`, once, if the key exists. Returns whether it exists.
    ///
    /// # Errors
    /// Those of the store.
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Looks up `keys` with at most `depth` lookups in flight, and starts the next one as soon as one ends.
    /// Calls `visit` once per key with its index in `keys` and its value or `None`, in any order, preferably
    /// as soon as each lookup ends. By default, looks up one key after the other.
    ///
    /// # Errors
    /// Those of the store.
    fn multi_get(
        &self,
        keys: &[&[u8]],
        _depth: usize,
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (at, key) in keys.iter().enumerate() {
            if !self.get(key, &mut |value| visit(at, Some(value)))? {
                visit(at, None);
            }
        }
        Ok(())
    }

    /// Deletes `key`; `sync` as for [`Store::put`]. A key that does not exist is no error.
    ///
    /// # Errors
    /// Those of the store.
    fn delete(&self, key: &[u8], sync: bool) -> Result<()>;

    /// Passes entries to `visit` in key order, from `from` (inclusive) or from the first in `direction`,
    /// until the visitor breaks, `limit` entries were passed, or no entry is left. One iterator serves the
    /// whole call. `limit` also tells the store how much read-ahead pays: 1 is a seek, `usize::MAX` a scan of
    /// everything. Returns the number of entries passed.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: &mut ScanVisitor<'_>,
    ) -> Result<usize>;

    /// Flushes all memtables.
    ///
    /// # Errors
    /// Those of the store and of its background work.
    fn flush(&self) -> Result<()>;

    /// Waits until no background work is due, assuming that nobody writes.
    ///
    /// # Errors
    /// Those of the store and of its background work.
    fn settle(&self) -> Result<()>;

    /// Compacts everything into as few files as possible, and waits for it.
    ///
    /// # Errors
    /// Those of the store and of its background work.
    fn compact(&self) -> Result<()>;

    /// Whether the store is a cache, which may evict what was put: a missing key then does not count as
    /// wrong.
    fn may_drop(&self) -> bool {
        false
    }

    /// Whether keys have an order: a store without one has no scans.
    fn is_ordered(&self) -> bool {
        true
    }

    /// Bytes of the index and filters of all tables, in memory or in a cache, if the store knows them.
    fn index_bytes(&self) -> Option<u64> {
        None
    }

    /// The current counters. Cheap enough to call before and after every run.
    fn counters(&self) -> Counters;
}

/// Operations and bytes of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Reads.
    pub read_ops: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub write_ops: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

impl Traffic {
    /// The difference to an `earlier` reading.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            read_ops: self.read_ops.saturating_sub(earlier.read_ops),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            write_ops: self.write_ops.saturating_sub(earlier.write_ops),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
        }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.read_ops += other.read_ops;
        self.read_bytes += other.read_bytes;
        self.write_ops += other.write_ops;
        self.write_bytes += other.write_bytes;
    }
}

/// Reads by the tier that answered them, the fastest first. A lookup of a key that does not exist counts
/// nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hits {
    /// From a cached row or a memtable, without a page.
    pub row: u64,
    /// From a page cached in DRAM.
    pub page: u64,
    /// From a page in storage-class memory.
    pub scm: u64,
    /// From a page read from flash.
    pub flash: u64,
}

impl Hits {
    /// The difference to an `earlier` reading.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            row: self.row.saturating_sub(earlier.row),
            page: self.page.saturating_sub(earlier.page),
            scm: self.scm.saturating_sub(earlier.scm),
            flash: self.flash.saturating_sub(earlier.flash),
        }
    }
}

/// The counters of a store. Those from `device` to `compaction` only grow, and a run reports their
/// difference; the last three, `memory_bytes` to `logical_bytes`, are current values. A store leaves what it
/// does not count at zero or `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Device traffic by purpose; the names are the engine's (`log`, `data`, `flush`, ..).
    pub device: BTreeMap<&'static str, Traffic>,
    /// Device reads that a caller waited for: metadata included, background work excluded.
    pub foreground_read_ops: u64,
    /// Reads by the tier that answered them.
    pub hits: Hits,
    /// Write stalls and delays by reason, summed over writers; the names are the engine's.
    pub stalls: BTreeMap<&'static str, Duration>,
    /// Page lookups, if the store counts them.
    pub pages: Option<PageCounts>,
    /// Counters of the SCM tier, if the store has one.
    pub scm: Option<ScmCounts>,
    /// The cost of emulating the SCM device, if it is emulated.
    pub emulation: Option<Emulation>,
    /// Where merges were done, if the store counts them.
    pub compaction: Option<CompactionPlaces>,
    /// Memory charged now, bytes.
    pub memory_bytes: u64,
    /// Device space used now by logs, tables and all other files, bytes.
    pub space_bytes: u64,
    /// Bytes of all live keys and values, if the store knows it.
    pub logical_bytes: Option<u64>,
}

impl Counters {
    /// Traffic of all purposes together.
    #[must_use]
    pub fn total(&self) -> Traffic {
        let mut total = Traffic::default();
        for traffic in self.device.values() {
            total += *traffic;
        }
        total
    }

    /// Write stalls and delays of all reasons together.
    #[must_use]
    pub fn stall(&self) -> Duration {
        self.stalls.values().sum()
    }

    /// The difference to an `earlier` reading; current values stay as they are in `self`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let none = Traffic::default();
        let device = self.device.iter().map(|(name, traffic)| {
            (*name, traffic.since(earlier.device.get(name).unwrap_or(&none)))
        });
        let stalls = self.stalls.iter().map(|(name, stall)| {
            let before = earlier.stalls.get(name).copied().unwrap_or_default();
            (*name, stall.saturating_sub(before))
        });
        Self {
            device: device.collect(),
            foreground_read_ops: self
                .foreground_read_ops
                .saturating_sub(earlier.foreground_read_ops),
            hits: self.hits.since(&earlier.hits),
            stalls: stalls.collect(),
            pages: self.pages.map(|pages| pages.since(earlier.pages.unwrap_or_default())),
            scm: self.scm.map(|scm| scm.since(&earlier.scm.unwrap_or_default())),
            emulation: self.emulation.map(|emulation| emulation.since(earlier.emulation)),
            compaction: self
                .compaction
                .map(|compaction| compaction.since(&earlier.compaction.unwrap_or_default())),
            ..self.clone()
        }
    }
}
