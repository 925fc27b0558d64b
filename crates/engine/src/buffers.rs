//! The write buffers of a store: when memtables are sealed, and when writers wait.
//!
//! Memory is charged before the log is written (I10): a write reserves its memtable's memory
//! first, so that applying it cannot fail. All memtables of a store stay within its quota, its
//! part of the write buffers of [`Resources`]; a writer that finds the quota used up waits for a
//! flush, or gets the flush's error. Where others find no memory left ([`Reclaim`]), the largest
//! memtable is sealed early.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arena::OrderedMap;
use base::{Account, Error, ErrorKind, Executor, Reclaim, Result, Seqno, TaskHandle, format_bytes};
use parking_lot::{Condvar, Mutex};
use wal::{Batch, Log};

use crate::pace::Pace;
use crate::waiters::Waiters;
use crate::{EncodedBatch, Resources};
use base::WriteSize;
use tree::Trees;
use tree::{Memtable, Tree};

/// Admits writes to memtables and seals full ones.
#[derive(Debug)]
pub struct Buffers {
    resources: Resources,
    account: Account,
    log: Arc<Log>,
    trees: Arc<Trees>,
    flusher: OnceLock<TaskHandle>,
    /// Held while a memtable is sealed, so that a full one is sealed once.
    sealing: Mutex<()>,
    flush: Mutex<FlushState>,
    /// Whether the last flush failed. Only makes writers look before they reserve: `Relaxed`.
    failing: AtomicBool,
    /// Whether memory was short since it was looked at last.
    pressed: AtomicBool,
    /// Signalled when a flush ends, well or badly.
    flush_ended: Condvar,
    /// Whether the next flush waits for a batch that is logged and not visible yet. Only told: `Relaxed`.
    is_flush_held_up: AtomicBool,
    /// Writers that wait for a flush, and who asked for one, to flush, merge or ingest.
    writers: Waiters,
    callers: Waiters,
    pace: Arc<Pace>,
}

#[derive(Debug, Default)]
struct FlushState {
    /// Flushes that ended well, and badly.
    finished: u64,
    failed: u64,
    /// Why the last flush failed, until one succeeds.
    failure: Option<Error>,
    closed: bool,
}

/// Memory is taken so far ahead of writers: at 130 MB/s of writes, 60 ms of the kernel's time for it.
const WARM_BYTES: u64 = 8 << 20;

/// A writer that saw no flush end for this long gives up: the device does not answer.
const STALL_MAX: Duration = Duration::from_secs(60);

/// A writer waits this many milliseconds for readers to give memory back.
const READERS_WAITED_MAX: usize = 2000;

/// A flush that found no memory is tried again when a writer waited for it for so many milliseconds.
const FLUSH_AGAIN_AFTER: usize = 400;

/// A writer gives up after this many flushes that made no room for it: what it asks for is too
/// much, or others take all there is.
const FLUSHES_WAITED_MAX: u32 = 64;

impl Buffers {
    pub fn new(resources: Resources, log: Arc<Log>, trees: Arc<Trees>, pace: Arc<Pace>) -> Self {
        Self {
            account: resources.account("memtables"),
            resources,
            log,
            trees,
            flusher: OnceLock::new(),
            sealing: Mutex::new(()),
            flush: Mutex::default(),
            failing: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
            flush_ended: Condvar::new(),
            is_flush_held_up: AtomicBool::new(false),
            writers: Waiters::default(),
            callers: Waiters::default(),
            pace,
        }
    }

    /// Names the task to wake when there is something to flush.
    pub fn set_flusher(&self, task: TaskHandle) {
        // Called once, at open.
        let _ = self.flusher.set(task);
    }

    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Time writers have waited for memory.
    pub fn stalled(&self) -> Duration {
        self.writers.waited()
    }

    /// Time those have waited who asked for flushes.
    pub fn flushes_awaited(&self) -> Duration {
        self.callers.waited()
    }

    pub fn wake_flusher(&self) {
        if let Some(task) = self.flusher.get() {
            task.wake();
        }
    }

    /// Refuses a batch that the write buffers cannot hold: replaying it would need more memory than
    /// there is.
    pub fn check_batch(&self, batch: &EncodedBatch) -> Result<()> {
        let bytes = batch.parts().iter().map(|part| Memtable::reserved_bytes(part.size)).sum();
        let most = self.resources.batch_bytes_max();
        if bytes > most {
            return Err(Error::invalid("write batch's memory")
                .expected(format_args!(
                    "at most {}, a part of the memory number",
                    format_bytes(most)
                ))
                .got(format_bytes(bytes)));
        }
        batch.check_ranges()
    }

    /// Makes room in `tree`'s memtable for writes of `size`.
    ///
    /// # Errors
    /// The last flush's error where there is no room because flushes fail, e.g. `NoSpace`;
    /// `Retry` where there is none for another reason.
    pub fn admit(&self, tree: &Tree, size: WriteSize) -> Result<()> {
        self.pace.pay(size.bytes, self.resources.executor());
        for _ in 0..READERS_WAITED_MAX {
            match self.try_admit(tree, size) {
                // A flush that found no memory was waited for long enough already.
                Err(error) if self.failing.load(Ordering::Relaxed) => return Err(error),
                // Readers that hold flushed memtables give them back when they are done.
                Err(error) if error.is_retryable() && self.is_held_by_readers() => {
                    self.wait_for_readers();
                }
                result => return result,
            }
        }
        self.try_admit(tree, size)
    }

    /// Whether readers hold memtables that were flushed.
    fn is_held_by_readers(&self) -> bool {
        self.trees.all().iter().any(|tree| tree.is_flushed_memtable_held())
    }

    fn wait_for_readers(&self) {
        let clock = self.resources.executor().clock();
        let start = clock.monotonic();
        self.resources.executor().help();
        self.flush_ended.wait_for(&mut self.flush.lock(), Duration::from_millis(1));
        self.writers.count(clock.monotonic().saturating_sub(start));
    }

    fn try_admit(&self, tree: &Tree, size: WriteSize) -> Result<()> {
        if self.failing.load(Ordering::Relaxed) {
            // What a refused write reserved stays reserved: no more of it than fits, or a flush
            // finds no memory once the device is well again.
            self.within_quota()?;
        }
        let mut waited = 0;
        loop {
            let view = tree.view();
            let active = &view.active;
            if self.is_full(active) && !active.is_empty() {
                // What was dropped is sealed no more: it stays full.
                tree.usable()?;
                self.seal_full(tree)?;
                continue;
            }
            let before = active.bytes();
            match active.reserve(size) {
                Ok(()) if active.bytes() == before => return Ok(()),
                Ok(()) => {
                    let first = active.first();
                    drop(view);
                    self.within_quota()?;
                    // One that was sealed meanwhile took what was reserved along.
                    if tree.view().active.first() == first || waited == FLUSHES_WAITED_MAX {
                        return Ok(());
                    }
                    waited += 1;
                }
                Err(error) if waited == FLUSHES_WAITED_MAX => return Err(error),
                Err(error) => {
                    drop(view);
                    self.wait_for_flush(&self.writers, || error.clone())?;
                    waited += 1;
                }
            }
        }
    }

    fn is_full(&self, memtable: &Memtable) -> bool {
        memtable.is_full(self.resources.memtable_bytes())
    }

    fn seal_full(&self, tree: &Tree) -> Result<()> {
        let _sealing = self.sealing.lock();
        if self.is_full(&tree.view().active) {
            self.seal_locked(tree)?;
        }
        Ok(())
    }

    /// Seals `tree`'s active memtable unless it is blank; whether it did.
    pub fn seal(&self, tree: &Tree) -> Result<bool> {
        let _sealing = self.sealing.lock();
        if tree.view().active.is_blank() {
            return Ok(false);
        }
        self.seal_locked(tree)?;
        Ok(true)
    }

    /// A map for the memtable after the active one, which will probably grow as large.
    fn next_map(&self, tree: &Tree) -> Result<Arc<OrderedMap>> {
        OrderedMap::pooled(self.resources.regions(), &self.account, tree.view().active.bytes())
    }

    /// Takes memory before writers get to it. For a task in the background.
    pub fn prepare(&self) {
        self.resources.regions().prepare();
        let most = self.resources.memtable_bytes() + WARM_BYTES / 4;
        for tree in self.trees.all() {
            tree.view().active.map().prefault(WARM_BYTES, most);
        }
    }

    /// To be called now and then while there is nothing to flush: gives back what is kept for
    /// memtables to come, where there have been none for a while.
    pub fn rest(&self) {
        if self.resources.regions().release_when_idle() {
            self.cool();
        }
    }

    fn cool(&self) {
        self.trees.all().iter().for_each(|tree| tree.view().active.map().release_prefaulted());
    }

    fn seal_locked(&self, tree: &Tree) -> Result<()> {
        let mut map = Some(self.next_map(tree)?);
        self.log.barrier(&mut |next| {
            if let Some(map) = map.take() {
                tree.seal(Memtable::with(map, &self.account, next));
            }
        });
        self.wake_flusher();
        Ok(())
    }

    /// Appends `record` with a number before which `tree`'s memtables end: they hold no later write,
    /// and the next one none before it.
    pub fn append_sealing(&self, tree: &Tree, record: Batch<'_>) -> Result<Seqno> {
        let _sealing = self.sealing.lock();
        let mut map = Some(self.next_map(tree)?);
        let first = self.log.append_if(record, &mut |next| {
            if let Some(map) = map.take() {
                tree.seal(Memtable::with(map, &self.account, next));
            }
            Ok(())
        })?;
        self.wake_flusher();
        Ok(first)
    }

    /// Seals the largest memtable where memory was short and flushing it gives a good part of a
    /// memtable back; a smaller one would be a table hardly worth its file.
    pub fn relieve(&self) -> Result<()> {
        if !self.pressed.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.cool();
        let filled = |tree: &Arc<Tree>| tree.view().active.filled_bytes();
        let largest = self.trees.all().into_iter().max_by_key(filled);
        match largest.filter(|tree| filled(tree) >= self.resources.memtable_bytes() / 4) {
            Some(tree) => self.seal(&tree).map(drop),
            None => Ok(()),
        }
    }

    /// What memtables take and flushing gives back: all of them, the active ones, and at most.
    ///
    /// The most is the quota less what empty memtables take, one a keyspace, which no flush gives
    /// back. A part of the quota is always left, however many keyspaces there are.
    fn sizes(&self) -> (u64, u64, u64) {
        let (mut sealed, mut active, mut empty) = (0, 0, 0);
        for tree in self.trees.all() {
            let view = tree.view();
            let filled = view.active.filled_bytes();
            active += filled;
            empty += view.active.bytes().saturating_sub(filled);
            sealed += view.sealed.iter().map(|memtable| memtable.bytes()).sum::<u64>();
        }
        let quota = self.resources.write_buffer_bytes();
        (sealed + active, active, quota.saturating_sub(empty).max(quota / 4))
    }

    /// Seals the largest memtable where active ones hold half the quota between them, and waits
    /// for flushes while all of them pass it.
    fn within_quota(&self) -> Result<()> {
        loop {
            let (all, active, quota) = self.sizes();
            self.pace.set_buffers(all as f64 / quota as f64);
            if active > quota / 2 {
                let filled = |tree: &Arc<Tree>| tree.view().active.filled_bytes();
                let largest = self.trees.all().into_iter().max_by_key(filled);
                // What is only reserved is about to be written.
                if let Some(tree) = largest.filter(|tree| !tree.view().active.is_empty()) {
                    self.seal(&tree)?;
                }
            }
            if all <= quota {
                return Ok(());
            }
            let full = || Error::retry("write buffers").expected("a flush to end");
            self.wait_for_flush(&self.writers, full)?;
        }
    }

    /// Waits, as one of `waiters`, until a flush ends, or nothing is left to flush. Flushes that failed
    /// before do not count: the device may be well again.
    ///
    /// # Errors
    /// The flush's; `none()` where there is nothing to flush and yet no room.
    fn wait_for_flush(&self, waiters: &Waiters, none: impl Fn() -> Error) -> Result<()> {
        let executor: &dyn Executor = self.resources.executor();
        let start = executor.clock().monotonic();
        let waited = || executor.clock().monotonic().saturating_sub(start);
        let _waiting = waiters.enter(start);
        let (finished, failed) = {
            let state = self.flush.lock();
            (state.finished, state.failed)
        };
        let is_any_sealed = || self.trees.all().iter().any(|tree| tree.oldest_sealed().is_some());
        if !is_any_sealed() {
            let mut any = false;
            for tree in self.trees.all() {
                any |= self.seal(&tree).unwrap_or(false);
            }
            if !any {
                return Err(none());
            }
        }
        self.wake_flusher();
        let mut short = 0;
        let ended = loop {
            // A keyspace that is dropped takes what was to be flushed with it.
            let is_left = is_any_sealed();
            {
                let mut state = self.flush.lock();
                if state.closed {
                    break Err(Error::closed("store"));
                }
                if self.flusher.get().is_some_and(TaskHandle::is_finished) {
                    break Err(Error::new(ErrorKind::Poisoned, "flushes").got("a panic"));
                }
                if state.finished != finished || !is_left {
                    break Ok(());
                }
                if let Some(failure) = state.failure.as_ref().filter(|_| state.failed != failed) {
                    // Short memory passes: readers give theirs back, and the flush is tried again.
                    if !failure.is_retryable() || short == READERS_WAITED_MAX {
                        break Err(failure.clone());
                    }
                    short += 1;
                }
                if waited() > STALL_MAX {
                    break Err(none().got(format_args!("none in {STALL_MAX:?}")));
                }
                self.flush_ended.wait_for(&mut state, Duration::from_millis(1));
            }
            executor.help();
            // Counted, not timed: a clock that stands still never lets the flusher try again.
            if short > 0 && short.is_multiple_of(FLUSH_AGAIN_AFTER) {
                self.wake_flusher();
            }
        };
        waiters.count(waited());
        ended
    }

    /// Tells waiting writers how a flush ended.
    pub fn flush_ended(&self, outcome: Result<()>) {
        if outcome.is_ok() {
            let now = self.resources.clock().monotonic();
            self.writers.moved(now);
            self.callers.moved(now);
            self.pace.flush_ended(now);
            let (all, _, quota) = self.sizes();
            self.pace.set_buffers(all as f64 / quota as f64);
        }
        let mut state = self.flush.lock();
        self.failing.store(outcome.is_err(), Ordering::Relaxed);
        match outcome {
            Ok(()) => {
                state.finished += 1;
                state.failure = None;
            }
            Err(error) => {
                state.failed += 1;
                state.failure = Some(error);
            }
        }
        drop(state);
        self.flush_ended.notify_all();
    }

    /// A flush of a memtable of `bytes` begins.
    pub fn flush_began(&self, bytes: u64) {
        self.pace.flush_began(self.resources.clock().monotonic(), bytes);
    }

    /// Whether the next flush waits for a batch that is logged and not visible yet.
    pub fn hold_flush_up(&self, is_held_up: bool) {
        self.is_flush_held_up.store(is_held_up, Ordering::Relaxed);
    }

    /// See [`Buffers::hold_flush_up`].
    pub fn is_flush_held_up(&self) -> bool {
        self.is_flush_held_up.load(Ordering::Relaxed)
    }

    /// How many wait for a flush, who, and for how long, where nothing moved for too long.
    pub fn blocked(&self) -> Option<(usize, &'static str, Duration)> {
        let now = self.resources.clock().monotonic();
        let [writers, callers] = [(&self.writers, "writer"), (&self.callers, "caller")]
            .map(|(who, name)| who.blocked(now).map(|(number, waited)| (number, name, waited)));
        writers.or(callers)
    }

    /// Why flushes fail, while they do.
    pub fn failure(&self) -> Option<Error> {
        self.flush.lock().failure.clone()
    }

    /// Waits until no memtable of `trees` that is sealed now is left, whatever is sealed since.
    pub fn wait_until_flushed(&self, trees: &[Arc<Tree>]) -> Result<()> {
        let awaited = trees.iter().map(|tree| (tree, tree.view().active.first()));
        for (tree, end) in awaited.collect::<Vec<_>>() {
            self.wait_until_flushed_below(tree, end)?;
        }
        Ok(())
    }

    /// Waits until every write to `tree` before `end`, where a memtable ends, is in tables.
    pub fn wait_until_flushed_below(&self, tree: &Tree, end: Seqno) -> Result<()> {
        let is_left = || {
            let oldest = tree.oldest_sealed().filter(|_| !tree.is_dropped());
            oldest.is_some_and(|(_, below)| below <= end)
        };
        while is_left() {
            let waited = self.wait_for_flush(&self.callers, || Error::retry("flush"));
            // The last flush may have ended before it was waited for.
            waited.or_else(|error| if is_left() { Err(error) } else { Ok(()) })?;
        }
        Ok(())
    }

    /// Sends waiting writers away.
    pub fn close(&self) {
        self.flush.lock().closed = true;
        self.flush_ended.notify_all();
    }
}

impl Reclaim for Buffers {
    /// Has the flush task seal and flush: nothing comes back at once. Sealing here could wait for
    /// locks of whoever asks.
    fn reclaim(&self, _bytes: u64) -> u64 {
        if !self.pressed.swap(true, Ordering::Relaxed) {
            self.wake_flusher();
        }
        0
    }
}
