//! The seam between the drivers and whatever they measure: the engine here, other engines in the
//! comparison harness, a map in tests.
//!
//! An implementation hands values to a visitor instead of returning them, so that an engine whose
//! values live in a cache or a mapping is measured without a copy it would not make for its own
//! callers.

use std::collections::BTreeMap;
use std::ops::{AddAssign, ControlFlow};
use std::time::Duration;

use base::Result;
use serde::Serialize;

use crate::{Emulation, PageCounts, ScmCounts};

/// The way a scan walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Keys ascend.
    Forward,
    /// Keys descend.
    Reverse,
}

/// Sees one entry of a scan, key and value, and says whether to go on.
pub type ScanVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// What the drivers ask of a key-value store. Any number of threads call it at once.
///
/// Errors are the store's own and end a run; the drivers never retry.
pub trait Store: Send + Sync {
    /// Writes `value` under `key`. With `sync`, returns once the write survives a power cut;
    /// without, once it survives the death of the process, or as near to that as the store gets.
    ///
    /// # Errors
    /// As the store's.
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()>;

    /// Writes entries, keys and values, as one write that takes effect whole where the store has
    /// such writes; `sync` as for [`Store::put`].
    ///
    /// # Errors
    /// As the store's.
    fn put_batch(&self, entries: &[(&[u8], &[u8])], sync: bool) -> Result<()> {
        entries.iter().try_for_each(|(key, value)| self.put(key, value, sync))
    }

    /// Shows the value of `key` to `visit`, once, if there is one; says whether there is.
    ///
    /// # Errors
    /// As the store's.
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Looks `keys` up with at most `depth` lookups in flight, starting the next as soon as one
    /// ends. Calls `visit` once for each key, in any order and preferably as each lookup ends,
    /// with the key's place in `keys` and its value, or `None` where it has none. A store that has
    /// no such lookups gets one key after the other.
    ///
    /// # Errors
    /// As the store's.
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

    /// Removes `key`; `sync` as for [`Store::put`]. No error where there is none.
    ///
    /// # Errors
    /// As the store's.
    fn delete(&self, key: &[u8], sync: bool) -> Result<()>;

    /// Shows entries to `visit` in key order, from `from` on (that key included) or from the
    /// first in `direction`, until the visitor breaks, `limit` entries were shown, or none is
    /// left. One open iterator serves the whole call. `limit` also tells how far it pays to read
    /// ahead: 1 is a seek, `usize::MAX` a walk over everything. Returns the entries shown.
    ///
    /// # Errors
    /// As the store's.
    fn scan(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: &mut ScanVisitor<'_>,
    ) -> Result<usize>;

    /// Moves what is buffered in memory to the device.
    ///
    /// # Errors
    /// As the store's, background work's included.
    fn flush(&self) -> Result<()>;

    /// Waits until no background work is due, as if nobody wrote.
    ///
    /// # Errors
    /// As the store's, background work's included.
    fn settle(&self) -> Result<()>;

    /// Merges everything into as few files as hold it, and waits for it.
    ///
    /// # Errors
    /// As the store's, background work's included.
    fn compact(&self) -> Result<()>;

    /// Whether it is a cache: what was put may be gone again, so that a missing key is no mistake.
    fn may_drop(&self) -> bool {
        false
    }

    /// The counters as they stand. Cheap enough to call before and after every run.
    fn counters(&self) -> Counters;
}

/// Operations and bytes at a device.
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
    /// What was added since `earlier`.
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

/// Where reads were answered, fastest first. A lookup that no tier answered because the key does
/// not exist counts nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hits {
    /// From a single cached row, or a memtable: no page was looked at.
    pub row: u64,
    /// From a page cached in DRAM.
    pub page: u64,
    /// From a page in storage-class memory.
    pub scm: u64,
    /// From a page read from flash.
    pub flash: u64,
}

impl Hits {
    /// What was added since `earlier`.
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

/// What a store counts. The first four only grow, and a run reports their difference; the last
/// three are the state of the moment. A store that does not count something leaves it zero or
/// `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Device traffic by purpose; the names are the engine's (`log`, `data`, `flush`, ..).
    pub device: BTreeMap<&'static str, Traffic>,
    /// Device reads some caller waited for, metadata included, background work excluded.
    pub foreground_read_ops: u64,
    /// Where reads were answered.
    pub hits: Hits,
    /// How long writers were made to wait for background work, summed over writers, by reason; the
    /// names are the engine's.
    pub stalls: BTreeMap<&'static str, Duration>,
    /// Lookups of pages, where the store counts them.
    pub pages: Option<PageCounts>,
    /// What the tier of storage-class memory did, where there is one.
    pub scm: Option<ScmCounts>,
    /// What emulating it took.
    pub emulation: Option<Emulation>,
    /// Memory charged now, bytes.
    pub memory_bytes: u64,
    /// Device space taken now, bytes: logs, tables, everything.
    pub space_bytes: u64,
    /// Keys and values a full scan would show now, bytes, where the store knows it.
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

    /// How long writers were made to wait, for all reasons.
    #[must_use]
    pub fn stall(&self) -> Duration {
        self.stalls.values().sum()
    }

    /// What was counted since `earlier`; the state of the moment stays as it is here.
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
            ..self.clone()
        }
    }
}
