//! Execution of short commands on the connection's own thread: those that data in memory decides, and that
//! wait for nobody. They cost no switch of threads; a command that would have to wait does nothing here, and
//! is executed by a thread that may.

use std::sync::Arc;

use crate::reply::Done;
use crate::resp::{Request, request_bytes};
use crate::session::Session;
use crate::spec::{Run, Spec};
use crate::unit::{AT_ONCE_BYTES_MAX, Unit};

/// Most keys of a write that is executed at once.
const AT_ONCE_KEYS_MAX: usize = 16;
/// Most commands of a pipeline that are executed at once: other clients of the thread wait for them.
const AT_ONCE_COMMANDS_MAX: usize = 128;

impl Session {
    /// Executes the first of `requests`, up to one that may take long or has to wait: for a device, a flush,
    /// a merge, or long for a lock. Returns the others.
    pub(crate) fn run_at_once(&mut self, mut requests: Vec<Request>) -> Vec<Request> {
        self.is_at_once = true;
        // Requests before `alone_to` are executed one by one: they could not share a commit.
        let (mut next, mut alone_to) = (0, 0);
        while next < AT_ONCE_COMMANDS_MAX && self.may_go_on() {
            let Some(rest @ [_, ..]) = requests.get_mut(next..) else { break };
            if rest.len() > 1 && next >= alone_to {
                let specs = self.writes_of_one_commit(rest);
                if specs.len() > 1 {
                    let executed = self.run_in_one_commit(&specs, rest);
                    next += executed;
                    if executed > 0 {
                        continue;
                    }
                }
                alone_to = next + specs.len().max(1);
            }
            let Some(request) = rest.first_mut() else { break };
            if let Some(left) = self.execute(std::mem::take(request)) {
                *request = left;
                break;
            }
            next += 1;
        }
        self.is_at_once = false;
        requests.split_off(next.min(requests.len()))
    }

    /// Whether [`Session::run`] is to execute `left`, or to sync writes before their replies are sent: a pop
    /// that a client waited for was written by another session.
    pub(crate) fn must_continue(&self, left: &[Request]) -> bool {
        self.must_sync() || !left.is_empty() && self.may_go_on()
    }

    /// Whether a command may be executed at once: it is short, and replies are not held back until writes are
    /// durable.
    pub(crate) fn is_quick(&self, spec: &Spec, request: &Request) -> bool {
        let is_long = ["blocking", "all_keys", "whole_database"].into_iter().any(|it| spec.has(it));
        let is_synced = self.is_synced();
        match spec.run {
            Run::Session(_) => matches!(spec.name, "ping" | "echo" | "select" | "multi"),
            Run::Keys(_) if is_long || spec.numkeys > 0 => false,
            Run::Keys(_) => {
                let keys_max = if spec.has("write") { AT_ONCE_KEYS_MAX } else { 1 };
                !(spec.has("write") && is_synced)
                    && spec.keys_of(request).len() <= keys_max
                    && request_bytes(request) <= AT_ONCE_BYTES_MAX
            }
        }
    }

    /// As [`Session::run_alone`], without waiting; sets `must_wait` if it would have to.
    pub(crate) fn run_alone_at_once(&mut self, spec: &Spec, request: &Request) -> Done {
        let shared = Arc::clone(&self.shared);
        let is_write = spec.has("write");
        let _held = if is_write {
            let keys = spec.locked_keys(request, self.database);
            let Some(held) = shared.try_lock_for_writing(&keys) else {
                self.must_wait = true;
                return Ok(());
            };
            Some(held)
        } else {
            None
        };
        let unit = match is_write {
            true => Unit::new(&shared.keys),
            false => Unit::reading(&shared.keys, false),
        };
        let mut unit = unit.at_once();
        let mut done = self.run_in(&mut unit, spec, request, &mut None);
        if done.is_ok() && !unit.must_wait() {
            done = self.commit(&mut unit);
        }
        self.must_wait = unit.must_wait();
        // No client waits for these keys.
        self.created.clear();
        done
    }
}
