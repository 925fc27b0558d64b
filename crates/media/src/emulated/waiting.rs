//! Waiting until a moment, far more exactly than a sleep: one of a microsecond takes eighty here and
//! there.
//!
//! Nanoseconds of added memory latency are spun away, as a load that waits for memory holds its core.
//! Whoever waits for a block gives its core to others as long as it does.

use std::hint::spin_loop;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Sleeps end up to this much late; nobody sleeps for less than this plus a little.
const SLEEP_LATE: Duration = Duration::from_micros(300);

/// Spins until `deadline`; the processor time that this thread burnt, at most: whoever is interrupted looks
/// at the clock late, and the clock of its own time costs as much as what is waited for.
pub(super) fn spin_until(deadline: Instant) -> Duration {
    let start = Instant::now();
    while Instant::now() < deadline {
        spin_loop();
    }
    deadline.saturating_duration_since(start)
}

/// Lets other threads run until `deadline`; the processor time that this thread burnt.
pub(super) fn yield_until(deadline: Instant) -> Duration {
    let mut now = Instant::now();
    if now >= deadline {
        return Duration::ZERO;
    }
    let before = own_processor_time();
    while now < deadline {
        match (deadline - now).checked_sub(SLEEP_LATE).filter(|rest| *rest > SLEEP_LATE) {
            Some(rest) => sleep(rest),
            None => yield_now(),
        }
        now = Instant::now();
    }
    own_processor_time().saturating_sub(before)
}

/// Processor time of the calling thread.
fn own_processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
