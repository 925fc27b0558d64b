//! The state of the compactor, under one short lock.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{Error, KeyspaceId, Seqno};

use super::keyspace_state::KeyspaceCompactionState;
use super::request::Request;

/// After this time without writes the store counts as quiet: idle time is used to compact further.
const QUIET_AFTER: Duration = Duration::from_secs(3);

/// The state of the compactor.
#[derive(Debug, Default)]
pub(super) struct CompactorState {
    /// State per keyspace; forgotten after a keyspace is dropped.
    pub(super) keyspaces: BTreeMap<KeyspaceId, KeyspaceCompactionState>,
    /// Manual requests, by id.
    pub(super) requests: BTreeMap<u64, Request>,
    /// The last id of a job or request.
    pub(super) next_id: u64,
    /// Jobs that were returned and have not ended.
    pub(super) running: usize,
    /// Merges that got no memory because others had it, or that wait for a worker.
    pub(super) refused: u64,
    /// Jobs, moves and drops that ended.
    pub(super) ended: u64,
    /// Rounds of planning over all keyspaces that found nothing to do while no job was running.
    pub(super) idle_rounds: u64,
    /// Callers that wait until nothing is left to merge.
    pub(super) settle_waiters: usize,
    /// How often such a wait began. A round that began before it does not count for it.
    pub(super) settle_calls: u64,
    /// The newest visible seqno, and when it was first seen.
    pub(super) visible: (Seqno, Duration),
    pub(super) closed: bool,
}

impl CompactorState {
    /// A new id for a job or request.
    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Bytes that running jobs of all keyspaces may write.
    pub(super) fn all_job_bytes(&self) -> u64 {
        self.keyspaces.values().map(|keyspace| keyspace.job_bytes).sum()
    }

    /// Why merges fail, or cannot start.
    pub(super) fn failing(&self) -> Option<&Error> {
        self.keyspaces
            .values()
            .find_map(|keyspace| keyspace.failure.as_ref().or(keyspace.no_space.as_ref()))
    }

    /// Whether a caller waits for merges.
    pub(super) fn is_awaited(&self) -> bool {
        self.settle_waiters > 0 || self.requests.values().any(|request| request.ended.is_none())
    }

    /// Whether nothing was written for a while, or a caller waits for the end of all merges.
    pub(super) fn is_quiet(&mut self, visible: Seqno, now: Duration) -> bool {
        if self.visible.0 != visible {
            self.visible = (visible, now);
        }
        self.settle_waiters > 0 || now.saturating_sub(self.visible.1) >= QUIET_AFTER
    }
}
