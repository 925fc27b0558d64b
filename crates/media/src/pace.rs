//! A clock together with the way to wait on it, so that a wait costs no real time in a test.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, ManualClock, SystemClock};

/// Time that can be waited for. Cheap to clone.
#[derive(Clone)]
pub struct Pace {
    clock: Arc<dyn Clock>,
    wait: Arc<dyn Fn(Duration) + Send + Sync>,
}

impl Pace {
    /// The machine's time: waiting is sleeping.
    #[must_use]
    pub fn real() -> Self {
        Self::new(Arc::new(SystemClock::new()), std::thread::sleep)
    }

    /// The time of `clock`; to wait is what `wait` does.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, wait: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        Self { clock, wait: Arc::new(wait) }
    }

    /// Time that stands still but for the waits, which move it.
    #[must_use]
    pub fn manual(clock: Arc<ManualClock>) -> Self {
        let moved = Arc::clone(&clock);
        // The clock counts microseconds: less than one would not move it, and a waiter would wait
        // for ever.
        let wait = move |time: Duration| moved.advance(time + Duration::from_nanos(999));
        Self::new(clock, wait)
    }

    /// Monotonic time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Waits for `time`.
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
