//! Consecutive short writes of a pipeline share one commit: one batch, one record of the log, and one row of
//! a key that several of them write. If one of them would have to wait, or the commit fails, nothing was
//! done, and each is executed by itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::resp::{Request, request_bytes};
use crate::session::{Replies, Session, find};
use crate::spec::Spec;
use crate::unit::{AT_ONCE_BYTES_MAX, Unit};

/// Most writes that share a commit: other clients wait for their keys.
const WRITES_MAX: usize = 32;

impl Session {
    /// The commands of the first of `requests`, as many as may share a commit. The client's user
    /// may call them.
    pub(crate) fn writes_of_one_commit(&self, requests: &[Request]) -> Vec<&'static Spec> {
        if self.queued.is_some() || self.replies != Replies::On {
            return Vec::new();
        }
        let mut bytes = 0;
        let spec = |request: &Request| {
            bytes += request_bytes(request);
            let spec = find(self.table, request).ok()?;
            let is_write = spec.has("write") && self.is_quick(spec, request);
            (is_write && bytes <= AT_ONCE_BYTES_MAX && self.check(spec, request).is_ok())
                .then_some(spec)
        };
        requests.iter().take(WRITES_MAX).map_while(spec).collect()
    }

    /// Executes the first of `requests`, whose commands are `specs`, with one commit. Returns how many it
    /// executed; 0: nothing was done.
    pub(crate) fn run_in_one_commit(
        &mut self,
        specs: &[&'static Spec],
        requests: &mut [Request],
    ) -> usize {
        let start = Instant::now();
        let shared = Arc::clone(&self.shared);
        let database = self.database;
        let keys: Vec<_> = specs
            .iter()
            .zip(&*requests)
            .flat_map(|(spec, request)| spec.locked_keys(request, database))
            .collect();
        let Some(_held) = shared.try_lock_for_writing(&keys) else { return 0 };
        let first_reply = self.reply.bytes.len();
        let mut unit = Unit::new(&shared.keys).at_once();
        let (mut executed, mut failed) = (0_usize, 0);
        for (spec, request) in specs.iter().zip(&*requests) {
            if !self.may_go_on() {
                break;
            }
            self.reply_start = self.reply.bytes.len();
            unit.begin();
            let outcome = self.run_in(&mut unit, spec, request, &mut None);
            if unit.must_wait() {
                break;
            }
            if let Err(fail) = outcome {
                unit.roll_back();
                failed += 1;
                self.reply.bytes.truncate(self.reply_start);
                self.reply.error(&fail);
            }
            executed += 1;
        }
        if unit.must_wait() || self.commit(&mut unit).is_err() {
            self.reply.bytes.truncate(first_reply);
            return 0;
        }
        // No client waits for these keys.
        self.created.clear();
        if let Some(last) = executed.checked_sub(1).and_then(|last| specs.get(last)) {
            last.name.clone_into(&mut self.client.info.lock().last);
        }
        shared.counts.commands.fetch_add(executed as u64, Ordering::Relaxed);
        shared.counts.failed.fetch_add(failed, Ordering::Relaxed);
        let took = start.elapsed() / u32::try_from(executed).unwrap_or(u32::MAX).max(1);
        for request in requests.iter_mut().take(executed) {
            shared.counts.latency.add(took);
            self.note_slow(std::mem::take(request), took);
        }
        executed
    }
}
