//! A barrier for the threads of a run: all begin at once, or none does.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use base::invariant;

#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug)]
struct GateState {
    /// Threads that have not arrived.
    missing: usize,
    is_given_up: bool,
}

impl Gate {
    /// A gate that opens when `threads` threads have arrived.
    pub(super) const fn new(threads: usize) -> Self {
        let state = GateState { missing: threads, is_given_up: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until all threads have arrived. Returns false if the run was given up.
    pub(super) fn pass(&self) -> bool {
        let mut state = self.state();
        invariant!(state.missing > 0, "each thread passes the gate once");
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 {
            self.changed.notify_all();
        }
        let waits = |state: &mut GateState| state.missing > 0 && !state.is_given_up;
        let state = self.changed.wait_while(state, waits);
        !state.unwrap_or_else(PoisonError::into_inner).is_given_up
    }

    /// Makes [`Gate::pass`] return false, for the threads that wait and those that arrive later.
    pub(super) fn give_up(&self) {
        self.state().is_given_up = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::thread;

    use super::*;

    #[test]
    fn all_pass_when_the_last_has_arrived() {
        let (gate, came) = (Gate::new(3), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    came.fetch_add(1, Relaxed);
                    assert!(gate.pass());
                    assert_eq!(came.load(Relaxed), 3);
                });
            }
        });
    }

    #[test]
    fn giving_up_releases_threads_that_wait_and_that_arrive() {
        let gate = Gate::new(3);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.pass());
            gate.give_up();
            assert!(!waiting.join().unwrap());
        });
        assert!(!gate.pass() && !gate.pass());
    }
}
