//! The watchdog: reports calls that wait without progress, and their cause.
//!
//! It sees writers and callers that wait for a flush, with the keyspace and the reason why the flush does
//! not end; and the device operation that has not returned, if anything waits for it: synced writes for a
//! sync of the log, all writes for a new segment, a flush for its table. It takes no lock that is held
//! during I/O, so it answers while the device hangs.

use std::sync::Arc;
use std::time::Duration;

use base::format_count;
use media::Metered;
use tree::{Tree, Trees};

use crate::buffers::{BlockedWaiters, Buffers};
use crate::waiters::BLOCKED_AFTER;

/// Finds calls that wait without progress. See the module.
#[derive(Debug)]
pub struct Watchdog {
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) trees: Arc<Trees>,
    pub(crate) metered: Arc<Metered>,
}

/// Calls that wait without progress.
#[derive(Debug)]
pub struct Blocked {
    /// Which calls wait for what, for how long, and why, as far as that is known.
    pub what: String,
    /// The longest time without progress.
    pub waited: Duration,
}

impl Watchdog {
    /// The calls that wait without progress now. `None` if there are none.
    #[must_use]
    pub fn blocked(&self) -> Option<Blocked> {
        let all: Vec<_> = self.flush().into_iter().chain(self.device()).collect();
        let waited = all.iter().map(|blocked| blocked.waited).max()?;
        let what: Vec<_> = all.into_iter().map(|blocked| blocked.what).collect();
        Some(Blocked { what: what.join("; "), waited })
    }

    /// A flush that does not end.
    fn flush(&self) -> Option<Blocked> {
        let BlockedWaiters { count, kind, waited } = self.buffers.blocked()?;
        let oldest = |tree: &Arc<Tree>| tree.oldest_sealed().map(|(_, below)| below);
        let trees = self.trees.all().into_iter().filter(|tree| oldest(tree).is_some());
        let flush = match trees.min_by_key(oldest) {
            Some(tree) => format!("the flush of keyspace `{}`", tree.name()),
            None => "readers that hold flushed memtables".to_owned(),
        };
        let why = match self.buffers.failure() {
            Some(failure) => format!(", which fails: {failure}"),
            None if self.buffers.is_flush_held_up() => {
                ", which waits for a write that is logged and not visible yet".to_owned()
            }
            None => String::new(),
        };
        let (waiters, secs) = (format_count(count, kind), waited.as_secs_f64());
        let what = format!("{waiters} waiting for {flush} for {secs:.1} s{why}");
        Some(Blocked { what, waited })
    }

    /// A device operation that does not return.
    fn device(&self) -> Option<Blocked> {
        let pending = self.metered.pending().filter(|pending| pending.took >= BLOCKED_AFTER)?;
        let (waited, secs) = (pending.took, pending.took.as_secs_f64());
        let what = format!("the device has not returned from {pending} for {secs:.1} s");
        Some(Blocked { what, waited })
    }
}
