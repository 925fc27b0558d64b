//! Time. The engine reads time through a [`Clock`], so that tests and the simulator control it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of monotonic and wall-clock time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Time since an arbitrary start; never decreases.
    fn monotonic(&self) -> Duration;
    /// Milliseconds since the Unix epoch; may jump forward or backward.
    fn unix_millis(&self) -> u64;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock with a monotonic time that starts now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn unix_millis(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock that only moves when told to; for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock {
    micros: AtomicU64,
    unix_millis: AtomicU64,
}

impl ManualClock {
    /// A clock at monotonic zero and the given wall time.
    #[must_use]
    pub fn at(unix_millis: u64) -> Self {
        Self { micros: AtomicU64::new(0), unix_millis: AtomicU64::new(unix_millis) }
    }

    /// Moves monotonic and wall-clock time forward by `by`.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::SeqCst);
        self.unix_millis.fetch_add(micros / 1000, Ordering::SeqCst);
    }

    /// Sets the wall clock, forward or backward; monotonic time stays.
    pub fn set_unix_millis(&self, unix_millis: u64) {
        self.unix_millis.store(unix_millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::SeqCst))
    }

    fn unix_millis(&self) -> u64 {
        self.unix_millis.load(Ordering::SeqCst)
    }
}
