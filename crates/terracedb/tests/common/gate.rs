//! A place at which one operation hangs until it is let go.

use parking_lot::{Condvar, Mutex};

/// Open until an operation is to hang at it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Open,
    /// The next operation on a file with this in its name hangs.
    Waiting(String),
    Hung,
}

impl Gate {
    /// The next operation on a file whose name contains `part` hangs.
    pub(crate) fn hang(&self, part: &str) {
        *self.state.lock() = State::Waiting(part.to_owned());
    }

    /// Waits until one hangs.
    pub(crate) fn wait_until_hung(&self) {
        let mut state = self.state.lock();
        while !matches!(*state, State::Hung) {
            self.changed.wait(&mut state);
        }
    }

    /// It goes on.
    pub(crate) fn let_go(&self) {
        *self.state.lock() = State::Open;
        self.changed.notify_all();
    }

    /// An operation on `file`.
    pub(crate) fn pass(&self, file: &str) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Waiting(part) if file.contains(part)) {
            *state = State::Hung;
            self.changed.notify_all();
            while matches!(*state, State::Hung) {
                self.changed.wait(&mut state);
            }
        }
    }
}
