//! Device operations in progress: a watchdog reports the one that takes too long.
//!
//! Tracked are the operations that a device may delay while a thread waits: syncs, writes outside queues,
//! and creating, cutting, renaming and removing files. Reads are not tracked: they are too many and too
//! short. Cost: two short locks, one reading of the clock and one copy of a name for each operation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::Clock;
use parking_lot::Mutex;

/// An operation in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pending {
    /// The operation: `sync`, `write`, `creation`, and so on.
    pub what: &'static str,
    /// The file; empty if the operation is on the names of all files.
    pub file: String,
    /// Time since it began.
    pub took: Duration,
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file.is_empty() {
            return write!(f, "a {} of names", self.what);
        }
        write!(f, "a {} of `{}`", self.what, self.file)
    }
}

/// The operations in progress on one medium; see the module.
#[derive(Debug)]
pub(crate) struct PendingOps {
    clock: Arc<dyn Clock>,
    ops: Mutex<OpList>,
}

#[derive(Debug, Default)]
struct OpList {
    /// Operations with their numbers, oldest first. At most one for each thread that uses the device.
    operations: Vec<(u64, Operation)>,
    last_number: u64,
}

#[derive(Debug)]
struct Operation {
    what: &'static str,
    file: String,
    at: Duration,
}

/// Removes its operation from the list when it is dropped.
#[derive(Debug)]
pub(crate) struct PendingGuard<'a>(&'a PendingOps, u64);

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        let mut list = self.0.ops.lock();
        let before = list.operations.len();
        list.operations.retain(|(number, _)| *number != self.1);
        base::invariant!(list.operations.len() + 1 == before, "an operation ends once");
    }
}

impl PendingOps {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, ops: Mutex::default() }
    }

    /// Adds an operation to the list until the guard is dropped.
    pub(crate) fn begin(&self, what: &'static str, file: &str) -> PendingGuard<'_> {
        let operation = Operation { what, file: file.to_owned(), at: self.clock.monotonic() };
        let mut list = self.ops.lock();
        list.last_number += 1;
        let number = list.last_number;
        list.operations.push((number, operation));
        PendingGuard(self, number)
    }

    /// The operation that began first.
    pub(crate) fn oldest(&self) -> Option<Pending> {
        let now = self.clock.monotonic();
        let list = self.ops.lock();
        let (_, Operation { what, file, at }) = list.operations.first()?;
        Some(Pending { what, file: file.clone(), took: now.saturating_sub(*at) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ManualClock;

    #[test]
    fn the_operation_that_began_first_is_reported() {
        let clock = Arc::new(ManualClock::at(0));
        let pending = PendingOps::new(Arc::clone(&clock) as _);
        assert_eq!(pending.oldest(), None);
        let first = pending.begin("sync", "a");
        clock.advance(Duration::from_secs(1));
        let second = pending.begin("removal", "");
        clock.advance(Duration::from_secs(1));
        let oldest = pending.oldest().unwrap();
        assert_eq!((oldest.to_string().as_str(), oldest.took.as_secs()), ("a sync of `a`", 2));
        drop(first);
        let oldest = pending.oldest().unwrap();
        assert_eq!((oldest.to_string().as_str(), oldest.took.as_secs()), ("a removal of names", 1));
        drop(second);
        assert_eq!(pending.oldest(), None);
    }
}
