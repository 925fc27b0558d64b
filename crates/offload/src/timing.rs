//! The times of an attempt.

use std::time::Duration;

use compact::offload::LEASE;

/// The times of an attempt; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The longest silence of the other side.
    pub lease: Duration,
    /// The interval of beats.
    pub beat: Duration,
    /// The longest time to connect and to agree on a job.
    pub connect: Duration,
    /// The longest time in which a worker may read nothing and write nothing although its beats arrive.
    pub stall: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: LEASE,
            beat: Duration::from_secs(1),
            connect: Duration::from_secs(5),
            stall: Duration::from_secs(60),
        }
    }
}
