//! What callers read without the lane: how far the log is written and durable, whether it is
//! poisoned, and what it counted.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Error, Result, Seqno};

use crate::statistics::Statistics;

/// Only the lane's holder advances `last`, only the one caller that syncs the durable points.
/// `Release` on advance, `Acquire` on read: who sees a point sees what was done to reach it.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    last: AtomicU64,
    durable: AtomicU64,
    durable_sequence: AtomicU64,
    /// Written bytes of the segment being written. A statistic: `Relaxed`.
    active_bytes: AtomicU64,
    poison: OnceLock<Error>,
    /// Called where the next stores should be prepared.
    pub(crate) ahead: Ahead,
    pub(crate) counters: Counters,
}

/// Whom to tell that the log has grown.
#[derive(Default)]
pub(crate) struct Ahead(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl Ahead {
    /// The one to tell, from now on.
    pub(crate) fn set(&self, tell: Box<dyn Fn() + Send + Sync>) {
        // The first one stays: there is one engine.
        let _ = self.0.set(tell);
    }

    pub(crate) fn tell(&self) {
        if let Some(tell) = self.0.get() {
            tell();
        }
    }
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ahead")
    }
}

/// Counters that statistics read. `Relaxed`: nothing is published through them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) records: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) marks: AtomicU64,
    pub(crate) record_bytes: AtomicU64,
    pub(crate) body_bytes: AtomicU64,
    pub(crate) padding_bytes: AtomicU64,
    pub(crate) segments_created: AtomicU64,
    pub(crate) segments_inline: AtomicU64,
    pub(crate) segments_freed: AtomicU64,
}

/// Counts `by` more.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Counts `by` more where only the lane's holder counts: no locked instruction on the hot path.
pub(crate) fn count_alone(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

impl Shared {
    pub(crate) fn last(&self) -> Seqno {
        Seqno::new(self.last.load(Ordering::Acquire))
    }

    pub(crate) fn set_last(&self, last: u64) {
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

    /// The counters, where `sealed` segments are in use beside the one being written.
    pub(crate) fn statistics(&self, sealed: u64) -> Statistics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        Statistics {
            records: of(&counters.records),
            groups: of(&counters.groups),
            syncs: of(&counters.syncs),
            marks: of(&counters.marks),
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

    /// Poisons the log with `error`, unless an earlier one did; what the caller gets.
    #[cold]
    pub(crate) fn poisoned_by(&self, error: Error) -> Error {
        Error::poisoned_by("commit log", self.poison.get_or_init(|| error))
    }

    /// # Errors
    /// `Poisoned` where the log is.
    pub(crate) fn check(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(first) => Err(Error::poisoned_by("commit log", first)),
        }
    }
}
