//! The process that opened something, told apart from the processes forked from it.
//!
//! A forked child has a copy of its parent's memory but none of its threads, and shares its open files and
//! mapped files. If the child used a store of its parent, it would wait for threads that it does not have and
//! write into the parent's files. So whatever a store opens keeps its [`Owner`]: in another process its calls
//! fail, and dropping it neither waits nor writes.
//!
//! Level 0 has no `unsafe`, so `media` installs the handler that the system calls in each child, and
//! announces it here. The check is then one load of a counter. Before that, and where there is no handler,
//! it asks the system for the process id. A child made by a bare system call `clone` runs no handler and is
//! not noticed.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{Error, Result};

/// Number of forks between the first watched process and this one, plus one; 0 while forks are not watched.
/// Alone in its thread after a fork, a child changes it before it does anything else, so `Relaxed` suffices.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that opened something.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The value of [`FORKS`].
    forks: u32,
    process: u32,
}

impl Owner {
    /// This process.
    #[must_use]
    pub fn this() -> Self {
        Self { forks: FORKS.load(Relaxed), process: process::id() }
    }

    /// Whether this process is the owner.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        match self.forks {
            0 => self.process == process::id(),
            forks => forks == FORKS.load(Relaxed),
        }
    }

    /// # Errors
    /// `Closed` if this process is not the owner, but was forked from it.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(self.forked()) }
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::closed("store of the parent process")
            .expected(format_args!("use in process {}, which opened it", self.process))
            .got(format_args!("a call in process {}, forked from it", process::id()))
    }
}

/// Whether [`watch_forks`] was called.
#[must_use]
pub fn are_forks_watched() -> bool {
    FORKS.load(Relaxed) > 0
}

/// Announces that every child calls [`note_fork`] first.
pub fn watch_forks() {
    let _is_watched_already = FORKS.compare_exchange(0, 1, Relaxed, Relaxed);
}

/// Called in a child process, before it does anything else. Safe in a handler of `fork`: one atomic addition.
pub fn note_fork() {
    FORKS.fetch_add(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_forked_process_is_not_the_owner_and_is_told_so() {
        let (early, here) = (Owner::this(), Owner { forks: 0, process: process::id() });
        assert!(early.is_here() && here.is_here());
        let parent = Owner { forks: 0, process: process::id() ^ 1 };
        let error = parent.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        let text = error.to_string();
        assert!(text.contains(&format!("process {}", process::id())), "{text}");
    }
}
