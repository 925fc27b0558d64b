//! A gate that blocks one operation until it is released.

use base::sync::{Condvar, Mutex};

/// Open, until a test asks for an operation to be blocked.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Open,
    /// The next operation with this part in the name and purpose of its file will block.
    Waiting(String),
    Hung,
}

impl Gate {
    /// Blocks the next operation on a file if its name, a space and its purpose contain `part`.
    pub(crate) fn hang(&self, part: &str) {
        *self.state.lock() = State::Waiting(part.to_owned());
    }

    /// Waits until an operation is blocked.
    pub(crate) fn wait_until_hung(&self) {
        let mut state = self.state.lock();
        while !matches!(*state, State::Hung) {
            state = self.changed.wait(state);
        }
    }

    /// Releases the blocked operation.
    pub(crate) fn let_go(&self) {
        *self.state.lock() = State::Open;
        self.changed.notify_all();
    }

    /// Called before an operation on `file`, a name and a purpose; blocks if the gate waits for it.
    pub(crate) fn pass(&self, file: &str) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Waiting(part) if file.contains(part)) {
            *state = State::Hung;
            self.changed.notify_all();
            while matches!(*state, State::Hung) {
                state = self.changed.wait(state);
            }
        }
    }
}
