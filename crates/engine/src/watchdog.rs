//! The watchdog: who waits for what, where nothing moves for too long.
//!
//! Writers that wait for a flush, and those who asked for one, with the flush they wait for and why it does
//! not end; and the operation from which the device has not returned, whoever waits for it: synced
//! writes for a sync of the log, all writes for a segment of it to be made, a flush for its table. It takes
//! no lock that is held during I/O.

use std::sync::Arc;
use std::time::Duration;

use base::format_count;
use media::Metered;

use crate::buffers::Buffers;
use crate::waiters::BLOCKED_AFTER;
use tree::Tree;
use tree::Trees;

/// See the module.
#[derive(Debug)]
pub struct Watchdog {
    pub buffers: Arc<Buffers>,
    pub trees: Arc<Trees>,
    pub metered: Arc<Metered>,
}

/// That nothing moves.
#[derive(Debug)]
pub struct Blocked {
    /// Who waits for what, for how long, and why, as far as that is known.
    pub what: String,
    /// For how long.
    pub waited: Duration,
}

impl Watchdog {
    /// What does not move, if anything.
    pub fn blocked(&self) -> Option<Blocked> {
        let all: Vec<_> = self.flush().into_iter().chain(self.device()).collect();
        let waited = all.iter().map(|blocked| blocked.waited).max()?;
        let what: Vec<_> = all.into_iter().map(|blocked| blocked.what).collect();
        Some(Blocked { what: what.join("; "), waited })
    }

    /// A flush that does not end.
    fn flush(&self) -> Option<Blocked> {
        let (number, who, waited) = self.buffers.blocked()?;
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
        let (who, secs) = (format_count(number, who), waited.as_secs_f64());
        Some(Blocked { what: format!("{who} waiting for {flush} for {secs:.1} s{why}"), waited })
    }

    /// An operation from which the device does not return.
    fn device(&self) -> Option<Blocked> {
        let pending = self.metered.pending().filter(|pending| pending.took >= BLOCKED_AFTER)?;
        let (waited, secs) = (pending.took, pending.took.as_secs_f64());
        let what = format!("the device has not returned from {pending} for {secs:.1} s");
        Some(Blocked { what, waited })
    }
}
