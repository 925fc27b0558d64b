//! Where the threads of a run wait for each other, so that all begin at once, or none.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Threads that are still to come.
    missing: usize,
    is_given_up: bool,
}

impl Gate {
    /// One that opens when `threads` have come.
    pub(super) const fn new(threads: usize) -> Self {
        let state = State { missing: threads, is_given_up: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until all have come; false where the run was given up.
    pub(super) fn pass(&self) -> bool {
        let mut state = self.state();
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 {
            self.changed.notify_all();
        }
        let waits = |state: &mut State| state.missing > 0 && !state.is_given_up;
        let state = self.changed.wait_while(state, waits);
        !state.unwrap_or_else(PoisonError::into_inner).is_given_up
    }

    /// Lets everybody go home: those who wait, and those who come.
    pub(super) fn give_up(&self) {
        self.state().is_given_up = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::thread;

    use super::*;

    #[test]
    fn all_begin_when_the_last_has_come() {
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
    fn nobody_waits_for_threads_that_never_come() {
        let gate = Gate::new(3);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.pass());
            gate.give_up();
            assert!(!waiting.join().unwrap());
        });
        assert!(!gate.pass() && !gate.pass());
    }
}
