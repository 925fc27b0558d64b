//! Device operations that have not returned: what a watchdog names where one takes too long.
//!
//! Those that a device sits on while somebody waits: syncs, writes that are not queued, and what makes, cuts,
//! renames and removes files. Reads are not among them: too many, and too short. Cost: two short locks, a
//! look at the clock and a copy of a name, each.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::Clock;
use parking_lot::Mutex;

/// An operation that has not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pending {
    /// What it does: `sync`, `write`, `creation`, and so on.
    pub what: &'static str,
    /// To which file; empty where it is to the names of all.
    pub file: String,
    /// How long it has taken.
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

/// See the module.
#[derive(Debug)]
pub(crate) struct UnderWay {
    clock: Arc<dyn Clock>,
    begun: Mutex<Begun>,
}

#[derive(Debug, Default)]
struct Begun {
    /// In the order in which they began, with their numbers. As many as threads wait for the device.
    operations: Vec<(u64, Operation)>,
    last: u64,
}

#[derive(Debug)]
struct Operation {
    what: &'static str,
    file: String,
    at: Duration,
}

/// An operation, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ending<'a>(&'a UnderWay, u64);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.begun.lock().operations.retain(|(number, _)| *number != self.1);
    }
}

impl UnderWay {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, begun: Mutex::default() }
    }

    /// An operation begins.
    pub(crate) fn begin(&self, what: &'static str, file: &str) -> Ending<'_> {
        let operation = Operation { what, file: file.to_owned(), at: self.clock.monotonic() };
        let mut begun = self.begun.lock();
        begun.last += 1;
        let number = begun.last;
        begun.operations.push((number, operation));
        Ending(self, number)
    }

    /// The one that takes longest.
    pub(crate) fn oldest(&self) -> Option<Pending> {
        let now = self.clock.monotonic();
        let begun = self.begun.lock();
        let (_, Operation { what, file, at }) = begun.operations.first()?;
        Some(Pending { what, file: file.clone(), took: now.saturating_sub(*at) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ManualClock;

    #[test]
    fn the_oldest_operation_is_named() {
        let clock = Arc::new(ManualClock::at(0));
        let under_way = UnderWay::new(Arc::clone(&clock) as _);
        assert_eq!(under_way.oldest(), None);
        let first = under_way.begin("sync", "a");
        clock.advance(Duration::from_secs(1));
        let second = under_way.begin("removal", "");
        clock.advance(Duration::from_secs(1));
        let oldest = under_way.oldest().unwrap();
        assert_eq!((oldest.to_string().as_str(), oldest.took.as_secs()), ("a sync of `a`", 2));
        drop(first);
        let oldest = under_way.oldest().unwrap();
        assert_eq!((oldest.to_string().as_str(), oldest.took.as_secs()), ("a removal of names", 1));
        drop(second);
        assert_eq!(under_way.oldest(), None);
    }
}
