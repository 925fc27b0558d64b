//! The write buffers of a store: all memtables, their quota, when they are sealed, and when writers wait.
//!
//! Memory is charged before the log is written (I10): a write reserves memory in its memtable first, so
//! that applying it cannot fail. All memtables of a store stay within its quota, an equal share of the
//! write buffers of [`Resources`]; a writer that finds the quota used up stalls until a flush ends, or
//! gets the flush's error. If another account finds no memory left ([`Reclaim`]), the largest memtable is
//! sealed early.
//!
//! Called by writers on their own threads and by the flush and log tasks. Lock order: `sealing`, then the
//! log's lane. A write that fits its memtable takes no lock here.

mod admit;
mod flush_waits;
mod metadata_limits;
mod try_admit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arena::OrderedMap;
use base::{Account, Error, Reclaim, Result, Seqno, TaskHandle, format_bytes, invariant};
use parking_lot::Mutex;
use tree::{Memtable, Places, Tree, Trees};
use wal::{Batch, Log};

use crate::batch::BatchPart;
use crate::pace::Pace;
use crate::resources::Components as _;
use crate::{EncodedBatch, Resources};
pub(crate) use flush_waits::BlockedWaiters;
use flush_waits::{FlushWaits, SHORTAGES_MAX, Waiter};
use metadata_limits::MetadataLimits;

/// Admits writes to memtables and seals full memtables.
#[derive(Debug)]
pub struct Buffers {
    resources: Resources,
    account: Account,
    metadata: MetadataLimits,
    log: Arc<Log>,
    trees: Arc<Trees>,
    /// Held while a memtable is sealed, so that a full one is sealed once.
    sealing: Mutex<()>,
    waits: FlushWaits,
    /// An account found no memory since [`Buffers::relieve_pressure`] ran last. A hint: `Relaxed`.
    is_memory_short: AtomicBool,
    /// A write that did not wait took the memtables over the quota. A hint: `Relaxed`.
    is_over_quota: AtomicBool,
    /// The next flush waits for a batch that is logged and not visible yet. For reports: `Relaxed`.
    is_flush_held_up: AtomicBool,
    pace: Arc<Pace>,
    /// The store was closed: no write is admitted.
    is_closed: AtomicBool,
    /// The store is open for reading only: no write is ever admitted. Set before anybody uses the store.
    is_read_only: AtomicBool,
}

/// Bytes that a memtable is prefaulted ahead of writers: at 130 MB/s of writes, 60 ms of page faults.
const PREFAULT_BYTES: u64 = 8 << 20;

/// A writer retries this often, a millisecond each, while readers hold flushed memtables.
const READER_WAITS_MAX: usize = SHORTAGES_MAX;

/// A writer gives up after this many flushes that made no room for it: it needs too much, or other writers
/// take all the room.
const FLUSHES_AWAITED_MAX: u32 = 64;

/// Memory of a store's memtables, bytes.
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// Charged by active and sealed memtables.
    used: u64,
    /// Charged by active memtables.
    active: u64,
    /// The most that `used` may be; above zero.
    quota: u64,
}

impl Usage {
    /// The used share of the quota: 0 to 1, and a little over.
    fn fullness(self) -> f64 {
        self.used as f64 / self.quota as f64
    }
}

impl Buffers {
    /// Write buffers for `trees`, which log to `log`.
    pub(crate) fn new(
        resources: Resources,
        log: Arc<Log>,
        trees: Arc<Trees>,
        pace: Arc<Pace>,
    ) -> Self {
        Self {
            account: resources.account("memtables"),
            metadata: MetadataLimits::new(resources.clone()),
            waits: FlushWaits::new(resources.clone(), Arc::clone(&trees)),
            resources,
            log,
            trees,
            sealing: Mutex::new(()),
            is_memory_short: AtomicBool::new(false),
            is_over_quota: AtomicBool::new(false),
            is_flush_held_up: AtomicBool::new(false),
            pace,
            is_closed: AtomicBool::new(false),
            is_read_only: AtomicBool::new(false),
        }
    }

    /// Sets the task to wake when there is a memtable to flush. Called once, by open.
    pub(crate) fn set_flusher(&self, task: TaskHandle) {
        self.waits.set_flusher(task);
    }

    /// The account that memtables are charged to.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Total time that writers stalled.
    #[must_use]
    pub fn stalled(&self) -> Duration {
        self.waits.waited(Waiter::Writer)
    }

    /// Total time that callers of flushes, compactions and ingests waited for flushes.
    #[must_use]
    pub fn flushes_awaited(&self) -> Duration {
        self.waits.waited(Waiter::Caller)
    }

    /// Makes the flush task look for work.
    pub(crate) fn wake_flusher(&self) {
        self.waits.wake_flusher();
    }

    /// Refuses entries while the metadata of open tables is at its limit.
    ///
    /// # Errors
    /// `Invalid`, naming the limit.
    pub(crate) fn check_tables(&self) -> Result<()> {
        self.metadata.check_tables()
    }

    /// Refuses a batch that needs more memory than the write buffers have: it could not be replayed.
    ///
    /// # Errors
    /// `Invalid`, naming the limit.
    pub(crate) fn check_batch(&self, batch: &EncodedBatch) -> Result<()> {
        let bytes = |part: &BatchPart| {
            let places = match part.tree.kind().is_resident() {
                true => Places::reserved_bytes(part.size.entries),
                false => 0,
            };
            Memtable::reserved_bytes(part.size) + places
        };
        let bytes = batch.parts().iter().map(bytes).sum();
        let most = self.resources.batch_bytes_max();
        if bytes > most {
            return Err(Error::invalid("write batch's memory")
                .expected(format_args!(
                    "at most {}, a share of the memory limit",
                    format_bytes(most)
                ))
                .got(format_bytes(bytes)));
        }
        batch.check_ranges()
    }

    /// The most memory that the indexes of resident keyspaces may take, bytes.
    pub(crate) fn index_bytes_max(&self) -> u64 {
        self.metadata.index_bytes_max()
    }

    /// A memtable of `tree` of this size is sealed. Each run of a window costs every lookup a probe, for as
    /// long as the run stays, so its runs are twice as long as others.
    fn memtable_bytes(&self, tree: &Tree) -> u64 {
        let bytes = self.resources.memtable_bytes();
        if tree.kind().is_window() { 2 * bytes } else { bytes }
    }

    fn is_full(&self, tree: &Tree, memtable: &Memtable) -> bool {
        memtable.is_full(self.memtable_bytes(tree))
    }

    fn seal_if_full(&self, tree: &Tree) -> Result<()> {
        let _sealing = self.sealing.lock();
        if self.is_full(tree, &tree.view().active) {
            self.seal_locked(tree)?;
        }
        Ok(())
    }

    /// Seals `tree`'s active memtable unless it is blank. Returns whether it was sealed.
    ///
    /// # Errors
    /// `Retry` if there is no memory for the next memtable.
    pub fn seal(&self, tree: &Tree) -> Result<bool> {
        let _sealing = self.sealing.lock();
        if tree.view().active.is_blank() {
            return Ok(false);
        }
        self.seal_locked(tree)?;
        Ok(true)
    }

    /// A map for the next memtable, which probably grows as large as the active one.
    fn next_map(&self, tree: &Tree) -> Result<Arc<OrderedMap>> {
        OrderedMap::pooled(self.resources.regions(), &self.account, tree.view().active.bytes())
    }

    /// Prefaults the memory that writers use next. For the log task.
    pub(crate) fn prefault(&self) {
        self.resources.regions().prepare();
        for tree in self.trees.all() {
            let most = self.memtable_bytes(&tree) + PREFAULT_BYTES / 4;
            tree.view().active.map().prefault(PREFAULT_BYTES, most);
        }
    }

    /// Gives back the memory kept for future memtables if none needed it for a while. Called by the flush
    /// task while it has nothing to flush.
    pub(crate) fn release_idle_memory(&self) {
        if self.resources.regions().release_when_idle() {
            self.release_prefaulted();
        }
    }

    fn release_prefaulted(&self) {
        self.trees.all().iter().for_each(|tree| tree.view().active.map().release_prefaulted());
    }

    /// Seals the active memtable between two batches of the log. The caller holds `sealing`.
    fn seal_locked(&self, tree: &Tree) -> Result<()> {
        debug_assert!(self.sealing.is_locked(), "one memtable is sealed at a time");
        let mut map = Some(self.next_map(tree)?);
        self.log.barrier(&mut |next| {
            if let Some(map) = map.take() {
                tree.seal(Memtable::with(map, &self.account, next));
            }
        });
        invariant!(map.is_none(), "the log's barrier seals the memtable");
        self.wake_flusher();
        Ok(())
    }

    /// Seals `tree`'s active memtable and appends `record` in one step: the sealed memtables hold only
    /// writes below the record's seqno, the next memtable only writes from it on. Returns the seqno.
    ///
    /// # Errors
    /// Those of [`Log::append`]; `Retry` if there is no memory for the next memtable.
    pub(crate) fn append_sealing(&self, tree: &Tree, record: Batch<'_>) -> Result<Seqno> {
        let _sealing = self.sealing.lock();
        let mut map = Some(self.next_map(tree)?);
        let mut sealed_at = None;
        let appended = self.log.append_if(record, &mut |next| {
            if let Some(map) = map.take() {
                tree.seal(Memtable::with(map, &self.account, next));
                sealed_at = Some(next);
            }
            Ok(())
        })?;
        let first = appended.first;
        invariant!(sealed_at == Some(first), "the sealed memtable ends at the record's seqno");
        self.wake_flusher();
        Ok(first)
    }

    /// Seals the largest memtable if memory was short. Smaller than a quarter of a full memtable it is
    /// kept: the flush would give little back and write a small table.
    ///
    /// # Errors
    /// `Retry` if there is no memory for the next memtable.
    pub(crate) fn relieve_pressure(&self) -> Result<()> {
        if !self.is_memory_short.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.release_prefaulted();
        let bytes_min = self.resources.memtable_bytes() / 4;
        match self.largest_active().filter(|tree| active_bytes(tree) >= bytes_min) {
            Some(tree) => self.seal(&tree).map(drop),
            None => Ok(()),
        }
    }

    /// Makes the flush task relieve the pressure.
    fn flush_early(&self) {
        if !self.is_memory_short.swap(true, Ordering::Relaxed) {
            self.wake_flusher();
        }
    }

    /// The tree with the largest active memtable.
    fn largest_active(&self) -> Option<Arc<Tree>> {
        self.trees.all().into_iter().max_by_key(active_bytes)
    }

    /// The memory of all memtables, which flushes give back, and its quota.
    fn usage(&self) -> Usage {
        let (mut sealed, mut active) = (0, 0);
        for tree in self.trees.all() {
            let view = tree.view();
            active += view.active.bytes();
            sealed += view.sealed.iter().map(|memtable| memtable.bytes()).sum::<u64>();
        }
        let quota = self.resources.write_buffer_bytes();
        invariant!(quota > 0, "a store has a share of the write buffers");
        Usage { used: sealed + active, active, quota }
    }

    /// Seals the largest memtable if active memtables fill more than half the quota. Waits for flushes
    /// while all memtables exceed the quota.
    fn stay_within_quota(&self) -> Result<()> {
        loop {
            let usage = self.usage();
            self.pace.set_buffers(usage.fullness());
            if usage.active > usage.quota / 2 {
                self.seal_largest()?;
            }
            if usage.used <= usage.quota {
                return Ok(());
            }
            let full = || Error::retry("write buffers").expected("a flush to end");
            self.wait_for_flush(full)?;
        }
    }

    /// Seals the largest memtable, unless it is only reserved: then it is about to be written to.
    fn seal_largest(&self) -> Result<()> {
        match self.largest_active().filter(|tree| !tree.view().active.is_empty()) {
            Some(tree) => self.seal(&tree).map(drop),
            None => Ok(()),
        }
    }

    /// Has a writer wait until a flush succeeds or no sealed memtable is left. Seals every memtable first if
    /// none is sealed.
    ///
    /// # Errors
    /// The flush's; `no_room()` if there is no memtable to flush.
    fn wait_for_flush(&self, no_room: impl Fn() -> Error) -> Result<()> {
        let wait = self.waits.begin(Waiter::Writer);
        if !self.waits.is_any_sealed() {
            let mut is_any_sealed = false;
            for tree in self.trees.all() {
                // A seal fails for lack of memory only; another tree's memtable may still be sealed.
                is_any_sealed |= self.seal(&tree).unwrap_or(false);
            }
            if !is_any_sealed {
                return Err(no_room());
            }
        }
        self.wake_flusher();
        wait.until_progress(|| self.waits.is_any_sealed(), no_room)
    }

    /// Records the outcome of a flush, and lets waiting threads go on. For the flush task.
    pub(crate) fn flush_ended(&self, outcome: Result<()>) {
        if outcome.is_ok() {
            self.pace.flush_ended(self.resources.clock().monotonic());
            self.pace.set_buffers(self.usage().fullness());
        }
        self.waits.record(outcome);
    }

    /// Notes that the flush of a memtable of `bytes` begins. For the flush task.
    pub(crate) fn flush_began(&self, bytes: u64) {
        self.pace.flush_began(self.resources.clock().monotonic(), bytes);
    }

    /// Notes whether the next flush waits for a batch that is logged and not visible yet.
    pub(crate) fn set_flush_held_up(&self, is_held_up: bool) {
        self.is_flush_held_up.store(is_held_up, Ordering::Relaxed);
    }

    /// See [`Buffers::set_flush_held_up`].
    pub(crate) fn is_flush_held_up(&self) -> bool {
        self.is_flush_held_up.load(Ordering::Relaxed)
    }

    /// The threads that wait for a flush, if none succeeded for too long.
    pub(crate) fn blocked(&self) -> Option<BlockedWaiters> {
        self.waits.blocked()
    }

    /// The error of the last flush if it failed.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.waits.failure()
    }

    /// Waits until every memtable of `trees` that is sealed now is flushed; later ones do not count.
    ///
    /// # Errors
    /// The flush's.
    pub(crate) fn wait_until_flushed(&self, trees: &[Arc<Tree>]) -> Result<()> {
        let ends = trees.iter().map(|tree| (tree, tree.view().active.first()));
        for (tree, end) in ends.collect::<Vec<_>>() {
            self.wait_until_flushed_below(tree, end)?;
        }
        Ok(())
    }

    /// Waits until every write to `tree` below `end` is in tables. `end` is the end of a memtable.
    ///
    /// # Errors
    /// The flush's.
    pub(crate) fn wait_until_flushed_below(&self, tree: &Tree, end: Seqno) -> Result<()> {
        let is_left = || {
            let oldest = tree.oldest_sealed().filter(|_| !tree.is_dropped());
            oldest.is_some_and(|(_, below)| below <= end)
        };
        while is_left() {
            let wait = self.waits.begin(Waiter::Caller);
            self.wake_flusher();
            // Only for this memtable: an ingest waits here while its seqno is not visible, which holds up the
            // flushes of other trees. Its own flush may have ended before the wait began.
            let waited = wait.until_progress(is_left, || Error::retry("flush"));
            waited.or_else(|error| if is_left() { Err(error) } else { Ok(()) })?;
        }
        Ok(())
    }

    /// Refuses every later write. Flushes still end. Returns whether writes were taken until now.
    pub(crate) fn refuse_writes(&self) -> bool {
        !self.is_closed.swap(true, Ordering::Relaxed)
    }

    /// Refuses every later write, and makes waiting threads return `Closed`.
    pub(crate) fn close(&self) {
        let _ = self.refuse_writes();
        self.waits.close();
    }

    /// Refuses every write from the beginning.
    pub(crate) fn make_read_only(&self) {
        self.is_read_only.store(true, Ordering::Relaxed);
    }

    /// `Invalid` if the store is open for reading only, `Closed` once it was closed. A write that is already
    /// admitted then is still committed; the last sync of the store comes after it (`Store::drop`).
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_read_only.load(Ordering::Relaxed) {
            return Err(Error::invalid("write")
                .expected("a store that is open for writing")
                .got("one that is open for reading only"));
        }
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::closed("store"));
        }
        Ok(())
    }
}

/// Bytes that the active memtable charges.
fn active_bytes(tree: &Arc<Tree>) -> u64 {
    tree.view().active.bytes()
}

impl Reclaim for Buffers {
    /// Makes the flush task seal and flush; nothing comes back at once. Sealing here could wait for locks
    /// that the caller holds.
    fn reclaim(&self, _bytes: u64) -> u64 {
        self.flush_early();
        0
    }

    /// Memory of a flush comes back late: so it begins while caches still have as much as the memtables.
    fn others_reclaimed(&self, spare: u64) {
        if spare < self.account.used() {
            self.flush_early();
        }
    }
}
