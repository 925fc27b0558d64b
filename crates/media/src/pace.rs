//! A clock together with a way to wait on it, so that a wait takes no real time in a test.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, ManualClock, SystemClock};

/// A clock and the function that waits on it. Cheap to clone.
#[derive(Clone)]
pub struct Pace {
    clock: Arc<dyn Clock>,
    wait: Arc<dyn Fn(Duration) + Send + Sync>,
}

impl Pace {
    /// The machine's clock; waiting sleeps.
    #[must_use]
    pub fn real() -> Self {
        Self::new(Arc::new(SystemClock::new()), std::thread::sleep)
    }

    /// The time of `clock`; `wait` waits for a duration of it.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, wait: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        Self { clock, wait: Arc::new(wait) }
    }

    /// A clock that only waits move forward.
    #[must_use]
    pub fn manual(clock: Arc<ManualClock>) -> Self {
        let moved = Arc::clone(&clock);
        // The clock counts whole microseconds: a shorter wait would not move it, and a loop that waits for
        // a time would never end.
        let wait = move |time: Duration| moved.advance(time + Duration::from_nanos(999));
        Self::new(clock, wait)
    }

    /// Monotonic time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Waits for `time`. Returns at once if it is zero.
    pub fn wait(&self, time: Duration) {
        if !time.is_zero() {
            (self.wait)(time);
        }
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pace({:?})", self.clock)
    }
}
