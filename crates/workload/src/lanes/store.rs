//! What the driver asks of a store of the experiment.

use base::Result;

use super::devices::Devices;
use super::records::{Index, Place, Put, Shape};
use super::schedule::{Nanos, Schedule};

/// Time of a leader to take over a lane or a lock and to answer its followers; the same for every store that
/// gathers records, as are the next two.
const LEAD_NS: Nanos = 60.0;

/// Time of a leader to take one record into its group.
const GATHER_NS: Nanos = 15.0;

/// Time to copy a byte.
const COPY_NS: Nanos = 1.0 / 20.0;

/// Time of a leader to gather `records` of `bytes` bytes together.
pub(super) fn gathering(records: usize, bytes: usize) -> Nanos {
    LEAD_NS + GATHER_NS * records as f64 + COPY_NS * bytes as f64
}

/// What every store works on.
#[derive(Debug)]
pub(super) struct World {
    pub(super) devices: Devices,
    pub(super) index: Index,
    pub(super) shape: Shape,
    /// The next seqno.
    pub(super) seqno: u64,
    /// Groups written, and records in them.
    pub(super) groups: u64,
    pub(super) records: u64,
}

impl World {
    /// Takes `count` seqnos; returns the first.
    pub(super) fn take_seqnos(&mut self, count: usize) -> u64 {
        let first = self.seqno;
        self.seqno += count as u64;
        first
    }

    /// Counts a group of `records` records that is persisted with one fence.
    pub(super) fn count_group(&mut self, records: usize) {
        self.groups += 1;
        self.records += records as u64;
    }

    /// Notes that the record of `key` with `seqno` lies at `at`, acknowledged.
    pub(super) fn acknowledge(&mut self, put: Put, seqno: u64, at: u64, len: usize) {
        self.index.insert(put.key, Place { seqno, at, len });
    }
}

/// How a put goes on after a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// With another turn at this time.
    At(Nanos),
    /// With a turn that another thread gives.
    Parked,
    /// The put is durable and visible, with this seqno.
    Done(u64),
}

/// A store in virtual time.
pub(super) trait Store {
    /// Takes the next step of `thread`, which puts `put`. `schedule` is for turns of other threads.
    ///
    /// # Errors
    /// Those of the log's layout.
    fn step(
        &mut self,
        now: Nanos,
        thread: usize,
        put: Put,
        world: &mut World,
        schedule: &mut Schedule,
    ) -> Result<Step>;

    /// The reads before that of the record itself: the index on the device, if the store has one there.
    fn probes(&self, _key: u64) -> Option<(u64, usize)> {
        None
    }
}
