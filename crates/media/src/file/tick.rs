//! Checks that are due once in a tick of the system's coarse clock, some milliseconds.

use rustix::time::{ClockId, clock_gettime};

/// The tick in which a check was last due. Reading the clock costs nanoseconds, and a system call a
/// microsecond.
#[derive(Debug)]
pub(crate) struct Tick {
    /// Seconds and nanoseconds.
    last: (i64, i64),
}

impl Tick {
    /// A check is due at once.
    pub(crate) const fn new() -> Self {
        Self { last: (0, 0) }
    }

    /// Whether no check was due in this tick yet.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        let now = (now.tv_sec, now.tv_nsec);
        std::mem::replace(&mut self.last, now) != now
    }
}
