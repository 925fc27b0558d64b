//! What the compactor knows between looks, under one short lock.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{Error, KeyspaceId, Seqno};

use super::keyspace_state::KeyspaceCompactionState;
use super::request::Request;

/// Nobody wrote for this long: time to settle.
const QUIET_AFTER: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct CompactorState {
    pub(super) keyspaces: BTreeMap<KeyspaceId, KeyspaceCompactionState>,
    pub(super) requests: BTreeMap<u64, Request>,
    /// Ids of jobs and requests.
    pub(super) next_id: u64,
    /// Jobs handed out and not ended.
    pub(super) running: usize,
    /// Merges for which others left no memory.
    pub(super) refused: u64,
    /// Jobs and other changes that ended.
    pub(super) ended: u64,
    /// Looks at all keyspaces that found nothing to do while no job was running.
    pub(super) idle_rounds: u64,
    /// Callers that wait until everything is settled.
    pub(super) settle_waiters: usize,
    /// How often one began to: a look that began before tells it nothing.
    pub(super) settle_calls: u64,
    /// The newest visible number, and since when it is.
    pub(super) visible: (Seqno, Duration),
    pub(super) closed: bool,
}

impl CompactorState {
    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Bytes that running jobs may write.
    pub(super) fn all_job_bytes(&self) -> u64 {
        self.keyspaces.values().map(|keyspace| keyspace.job_bytes).sum()
    }

    /// Why merges fail, or cannot begin.
    pub(super) fn failing(&self) -> Option<&Error> {
        self.keyspaces
            .values()
            .find_map(|keyspace| keyspace.failure.as_ref().or(keyspace.no_space.as_ref()))
    }

    pub(super) fn is_quiet(&mut self, visible: Seqno, now: Duration) -> bool {
        if self.visible.0 != visible {
            self.visible = (visible, now);
        }
        self.settle_waiters > 0 || now.saturating_sub(self.visible.1) >= QUIET_AFTER
    }
}
