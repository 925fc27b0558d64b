//! Callers that request merges and wait for them.

use std::time::Duration;

use base::{Error, ErrorKind, KeyRange, KeyspaceId, Result, TaskHandle, invariant};
use compact::plan::ManualRange;

use super::compactor_state::CompactorState;
use super::keyspace_state::KeyspaceCompactionState;
use super::request::Request;
use super::{CompactionProgress, Compactor};
use crate::Tree;

impl Compactor {
    /// Ends all open requests with an error: those of `keyspace`, or of all keyspaces.
    pub(super) fn end_requests(&self, keyspace: Option<KeyspaceId>, why: &dyn Fn() -> Error) {
        let mut state = self.state.lock();
        let open = state.requests.values_mut().filter(|request| request.ended.is_none());
        for request in open.filter(|it| keyspace.is_none_or(|id| it.keyspace == id)) {
            request.ended = Some(Err(why()));
        }
        self.changed.notify_all();
    }

    /// Requests that `range` of `tree` is merged into one run. Returns the request's id.
    pub fn request(&self, tree: &Tree, range: &KeyRange) -> u64 {
        let newest = tree.view().version.runs().first().map_or(base::RunId(0), |run| run.id());
        let range = ManualRange { first: range.first.clone(), end: range.end.clone(), newest };
        let mut state = self.state.lock();
        let id = state.id();
        state.requests.insert(id, Request::new(tree.id(), range));
        drop(state);
        self.wake();
        id
    }

    /// Withdraws requests. Does nothing in a forked child: they are the parent's.
    pub fn withdraw(&self, requests: &[u64]) {
        if !self.owner.is_here() {
            return;
        }
        let mut state = self.state.lock();
        requests.iter().for_each(|id| drop(state.requests.remove(id)));
    }

    /// The progress of `requests`.
    pub fn progress(&self, requests: &[u64]) -> CompactionProgress {
        let state = self.state.lock();
        let own = || requests.iter().filter_map(|id| state.requests.get(id));
        let bytes_total = own().map(|request| request.total).sum();
        CompactionProgress { bytes_total, bytes_left: own().map(|request| request.left).sum() }
    }

    /// Whether all of `requests` have ended.
    pub fn is_finished(&self, requests: &[u64]) -> bool {
        let state = self.state.lock();
        requests
            .iter()
            .filter_map(|id| state.requests.get(id))
            .all(|request| request.ended.is_some())
    }

    /// Waits until all of `requests` have ended and obsolete files are removed.
    ///
    /// # Errors
    /// The error of the first request that failed.
    pub fn wait(&self, requests: &[u64]) -> Result<()> {
        let waited = self.wait_until(|state| {
            let mut own = requests.iter().filter_map(|id| state.requests.get(id));
            if own.clone().any(|request| request.ended.is_none()) {
                return None;
            }
            Some(own.find_map(|request| request.ended.clone()?.err()).map_or(Ok(()), Err))
        });
        self.env.obsolete.purge();
        waited
    }

    /// Waits until no keyspace has anything to merge, as if the store were quiet, and obsolete files are
    /// removed. Failed merges are tried again at once.
    ///
    /// # Errors
    /// Why merges fail, or `NoSpace` if there is no space for them.
    pub fn wait_until_settled(&self) -> Result<()> {
        let start = {
            let mut state = self.state.lock();
            state.settle_waiters += 1;
            state.settle_calls += 1;
            state.keyspaces.values_mut().for_each(KeyspaceCompactionState::retry_now);
            state.idle_rounds
        };
        self.wake();
        let waited = self.wait_until(|state| {
            // Nothing is planned any more.
            if let Some(error) = self.env.manifest.poisoned() {
                return Some(Err(Error::poisoned_by("manifest", &error)));
            }
            let failed = state.keyspaces.values().filter(|keyspace| keyspace.is_paused(self.now()));
            if let Some(error) = failed.filter_map(|keyspace| keyspace.failure.clone()).next() {
                return Some(Err(error));
            }
            let is_over = state.idle_rounds > start;
            let no_space =
                || state.keyspaces.values().find_map(|keyspace| keyspace.no_space.clone());
            is_over.then(|| no_space().map_or(Ok(()), Err))
        });
        let mut state = self.state.lock();
        invariant!(state.settle_waiters > 0, "a caller that waits is counted");
        state.settle_waiters = state.settle_waiters.saturating_sub(1);
        drop(state);
        self.env.obsolete.purge();
        waited
    }

    fn wait_until(
        &self,
        mut is_done: impl FnMut(&CompactorState) -> Option<Result<()>>,
    ) -> Result<()> {
        loop {
            {
                let state = self.state.lock();
                if let Some(result) = is_done(&state) {
                    return result;
                }
                if state.closed {
                    return Err(Error::closed("store"));
                }
                let tasks = self.tasks.get();
                // The job of a task that panicked never ends, also if others go on.
                if tasks.is_some_and(|tasks| tasks.iter().any(TaskHandle::is_finished)) {
                    return Err(Error::new(ErrorKind::Poisoned, "merges").got("a panic"));
                }
            }
            if !self.host.executor().help() {
                // No task could run on this thread: a sleeping one may have to.
                self.wake();
                drop(self.changed.wait_for(self.state.lock(), Duration::from_millis(1)));
            }
        }
    }
}
