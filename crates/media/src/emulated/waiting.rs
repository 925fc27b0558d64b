//! Waiting until a time, far more precisely than a sleep: a sleep of a microsecond takes 80 us on some
//! systems.
//!
//! A wait for emulated memory spins, as a load that waits for memory occupies its core. A wait for an
//! emulated block device yields the core to other threads.

use std::hint::spin_loop;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Sleeps end up to this much late, so that no sleep is shorter than this.
const SLEEP_LATE: Duration = Duration::from_micros(300);

/// Spins until `deadline`. Returns an upper bound on the CPU time spent: an interrupted thread reads the
/// clock late, and reading its CPU clock would take as long as the waits themselves.
pub(super) fn spin_until(deadline: Instant) -> Duration {
    let start = Instant::now();
    while Instant::now() < deadline {
        spin_loop();
    }
    deadline.saturating_duration_since(start)
}

/// Lets other threads run until `deadline`. Returns the CPU time that this thread spent.
pub(super) fn yield_until(deadline: Instant) -> Duration {
    let mut now = Instant::now();
    if now >= deadline {
        return Duration::ZERO;
    }
    let before = thread_cpu_time();
    while now < deadline {
        match (deadline - now).checked_sub(SLEEP_LATE).filter(|rest| *rest > SLEEP_LATE) {
            Some(rest) => sleep(rest),
            None => yield_now(),
        }
        now = Instant::now();
    }
    thread_cpu_time().saturating_sub(before)
}

/// CPU time of the calling thread.
fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
