//! The state of the log that callers read without the lane: the written and durable positions, the
//! poison, and the counters.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Error, Result, Seqno, invariant};

use crate::statistics::Statistics;

/// Only the leader advances `last`, and only the one caller that syncs advances the durable positions.
/// `Release` on advance, `Acquire` on read: a reader of a position sees the writes that led to it.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    last: AtomicU64,
    durable: AtomicU64,
    durable_sequence: AtomicU64,
    /// Written bytes of the segment being written. A statistic: `Relaxed`.
    active_bytes: AtomicU64,
    poison: OnceLock<Error>,
    /// Called when the next stores should be prepared.
    pub(crate) growth: GrowthListener,
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
    pub(crate) fn last(&self) -> Seqno {
        Seqno::new(self.last.load(Ordering::Acquire))
    }

    pub(crate) fn set_last(&self, last: u64) {
        invariant!(self.last.load(Ordering::Relaxed) <= last, "the last appended seqno only grows");
        self.last.store(last, Ordering::Release);
    }

    pub(crate) fn durable(&self) -> Seqno {
        Seqno::new(self.durable.load(Ordering::Acquire))
    }

    /// The lane sequence below which every record is durable.
    pub(crate) fn durable_sequence(&self) -> u64 {
        self.durable_sequence.load(Ordering::Acquire)
    }

    pub(crate) fn set_durable(&self, sequence: u64, durable: u64) {
        self.durable_sequence.fetch_max(sequence, Ordering::AcqRel);
        self.durable.fetch_max(durable, Ordering::AcqRel);
    }

    pub(crate) fn active_bytes(&self) -> u64 {
        self.active_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_active_bytes(&self, bytes: u64) {
        self.active_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The counters. `sealed` is the number of segments in use besides the one being written.
    pub(crate) fn statistics(&self, sealed: u64) -> Statistics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        Statistics {
            records: of(&counters.records),
            groups: of(&counters.groups),
            syncs: of(&counters.syncs),
            marks: of(&counters.marks),
            gaps: of(&counters.gaps),
            unlogged_ops: of(&counters.unlogged_ops),
            record_bytes: of(&counters.record_bytes),
            body_bytes: of(&counters.body_bytes),
            padding_bytes: of(&counters.padding_bytes),
            segments_live: sealed + u64::from(self.active_bytes() > 0),
            segments_created: of(&counters.segments_created),
            segments_inline: of(&counters.segments_inline),
            segments_freed: of(&counters.segments_freed),
        }
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
