//! Processor time of threads, to tell the cost of background work. It is no clock: nothing waits by it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time that this thread has used. Costs a system call, about 0.2 us.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_with_work_and_not_with_sleep() {
        let before = thread_cpu_time();
        let mut sum = 0u64;
        // Ends with the next tick of the clock.
        while thread_cpu_time() == before {
            sum = (0..10_000).fold(sum, |sum, it| sum.wrapping_mul(31).wrapping_add(it));
        }
        assert!(thread_cpu_time() > before, "{sum}");
    }
}
