//! The time seam. Nothing but `SystemClock` reads the machine's clocks.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Time since an arbitrary start; never goes back.
    fn monotonic(&self) -> Duration;
    /// Milliseconds since the Unix epoch; may jump either way.
    fn unix_millis(&self) -> u64;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
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

/// A clock that stands still until it is moved; for tests and simulation.
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

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::SeqCst);
        self.unix_millis.fetch_add(micros / 1000, Ordering::SeqCst);
    }

    /// Sets the wall clock, backwards too.
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
