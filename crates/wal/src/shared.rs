//! The state of the log that callers read without a lane: the seqnos, the durable positions, the poison, and
//! the counters. One part belongs to the log, the other to each of its lanes.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Error, Result};

use crate::numbers::Numbers;
use crate::statistics::Statistics;

/// The part that all lanes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) numbers: Numbers,
    poison: OnceLock<Error>,
    /// Called when the next stores should be prepared.
    pub(crate) growth: GrowthListener,
    /// The entries of a keyspace stay in the log.
    pub(crate) has_resident: AtomicBool,
    /// Fewer segments are ready for moved records than are kept for them: those are made first.
    pub(crate) lacks_reserve: AtomicBool,
    /// Deletes may have been taken while puts found no space. A hint: `Relaxed`.
    pub(crate) has_deletes_on_full_device: AtomicBool,
}

/// The part of one lane. Only the caller that syncs advances the durable position, and only the leader
/// changes the rest. `Release` on advance, `Acquire` on read: a reader of a position sees the writes that led
/// to it.
#[derive(Debug)]
pub(crate) struct LaneShared {
    pub(crate) log: Arc<Shared>,
    /// The lane's number among those of the log.
    pub(crate) index: usize,
    durable_sequence: AtomicU64,
    /// Written bytes of the segment being written. A statistic: `Relaxed`.
    active_bytes: AtomicU64,
    /// The segment being written has space that is left to deletes. A hint: `Relaxed`.
    pub(crate) is_for_deletes: AtomicBool,
    pub(crate) counters: Counters,
}

/// The listener for growth of the log.
#[derive(Default)]
pub(crate) struct GrowthListener(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl GrowthListener {
    /// Installs the listener.
    pub(crate) fn listen(&self, listener: Box<dyn Fn() + Send + Sync>) {
        // The first listener stays: a log has one engine.
        let _ = self.0.set(listener);
    }

    pub(crate) fn notify(&self) {
        if let Some(listener) = self.0.get() {
            listener();
        }
    }
}

impl fmt::Debug for GrowthListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GrowthListener")
    }
}

/// Counters that statistics read. `Relaxed`: nothing is published through them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) records: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) fences: AtomicU64,
    pub(crate) marks: AtomicU64,
    pub(crate) gaps: AtomicU64,
    pub(crate) unlogged_ops: AtomicU64,
    pub(crate) record_bytes: AtomicU64,
    pub(crate) body_bytes: AtomicU64,
    pub(crate) padding_bytes: AtomicU64,
    pub(crate) segments_created: AtomicU64,
    pub(crate) segments_inline: AtomicU64,
    pub(crate) segments_freed: AtomicU64,
}

/// Adds `by`.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Adds `by` to a counter that only the leader changes: no locked instruction on the hot path.
pub(crate) fn count_exclusive(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

impl Shared {
    /// A log of `lanes` lanes; the seqnos as in [`Numbers::new`].
    pub(crate) fn new(lanes: usize, stored: u64, next: u64) -> Arc<Self> {
        let (numbers, poison, growth) =
            (Numbers::new(lanes, stored, next), OnceLock::new(), GrowthListener::default());
        Arc::new(Self {
            numbers,
            poison,
            growth,
            has_resident: AtomicBool::new(false),
            lacks_reserve: AtomicBool::new(false),
            has_deletes_on_full_device: AtomicBool::new(true),
        })
    }

    /// The first failure that made further writes unsafe.
    pub(crate) fn poison(&self) -> Option<&Error> {
        self.poison.get()
    }

    /// Poisons the log with `error` unless it is poisoned. Returns the error for the caller.
    #[cold]
    pub(crate) fn poisoned_by(&self, error: Error) -> Error {
        Error::poisoned_by("commit log", self.poison.get_or_init(|| error))
    }

    /// # Errors
    /// `Poisoned` if the log is.
    pub(crate) fn check(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(first) => Err(Error::poisoned_by("commit log", first)),
        }
    }
}

impl LaneShared {
    /// The part of lane number `index` of `log`.
    pub(crate) fn new(log: &Arc<Shared>, index: usize) -> Arc<Self> {
        Arc::new(Self {
            log: Arc::clone(log),
            index,
            durable_sequence: AtomicU64::new(0),
            active_bytes: AtomicU64::new(0),
            is_for_deletes: AtomicBool::new(false),
            counters: Counters::default(),
        })
    }

    /// The lane sequence below which every record is durable.
    pub(crate) fn durable_sequence(&self) -> u64 {
        self.durable_sequence.load(Ordering::Acquire)
    }

    pub(crate) fn set_durable_sequence(&self, sequence: u64) {
        self.durable_sequence.fetch_max(sequence, Ordering::AcqRel);
    }

    pub(crate) fn active_bytes(&self) -> u64 {
        self.active_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_active_bytes(&self, bytes: u64) {
        self.active_bytes.store(bytes, Ordering::Relaxed);
    }

    /// As [`Shared::check`].
    pub(crate) fn check(&self) -> Result<()> {
        self.log.check()
    }

    /// As [`Shared::poisoned_by`].
    #[cold]
    pub(crate) fn poisoned_by(&self, error: Error) -> Error {
        self.log.poisoned_by(error)
    }

    /// Adds the lane's counters to `sum`.
    pub(crate) fn add_to(&self, sum: &mut Statistics) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        sum.lanes += 1;
        sum.records += of(&counters.records);
        sum.groups += of(&counters.groups);
        sum.syncs += of(&counters.syncs);
        sum.fences += of(&counters.fences);
        sum.marks += of(&counters.marks);
        sum.gaps += of(&counters.gaps);
        sum.unlogged_ops += of(&counters.unlogged_ops);
        sum.record_bytes += of(&counters.record_bytes);
        sum.body_bytes += of(&counters.body_bytes);
        sum.padding_bytes += of(&counters.padding_bytes);
        sum.segments_live += u64::from(self.active_bytes() > 0);
        sum.segments_created += of(&counters.segments_created);
        sum.segments_inline += of(&counters.segments_inline);
        sum.segments_freed += of(&counters.segments_freed);
    }
}
