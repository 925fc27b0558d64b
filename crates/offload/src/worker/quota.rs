//! A share of a processor: jobs pause so that the worker's processor time keeps to it.
//!
//! It stands for the slow cores of a DPU on a fast machine. It needs no rights, unlike a control group, and
//! is as exact over some 10 ms. The processor time that an emulated engine takes does not count.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Processor time that may be spent at once after a pause.
const BURST: Duration = Duration::from_millis(10);

/// The share, and how far it is used.
#[derive(Debug)]
pub(super) struct Quota {
    /// Processor seconds per second; `None`: no limit.
    share: Option<f64>,
    began: Instant,
    /// Time since `began` at which all processor time spent so far is paid for.
    paid: Mutex<Duration>,
}

impl Quota {
    pub(super) fn new(share: Option<f64>) -> Self {
        Self { share, began: Instant::now(), paid: Mutex::default() }
    }

    /// Counts `cpu` processor time, and sleeps until the share covers it.
    pub(super) fn spend(&self, cpu: Duration) {
        let Some(share) = self.share else { return };
        let now = self.began.elapsed();
        let paid = {
            let mut paid = self.paid.lock();
            *paid = pay(*paid, now, cpu, share);
            *paid
        };
        if paid > now {
            std::thread::sleep(paid - now);
        }
    }
}

/// When `cpu` more processor time is paid for, if earlier time was at `paid`.
fn pay(paid: Duration, now: Duration, cpu: Duration, share: f64) -> Duration {
    paid.max(now.saturating_sub(BURST)) + cpu.div_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_paid_at_the_share_and_idle_time_is_worth_one_burst() {
        let ms = Duration::from_millis;
        let paid = pay(Duration::ZERO, ms(5), ms(2), 0.5);
        assert_eq!(paid, ms(4), "within what has passed");
        assert_eq!(pay(paid, ms(6), ms(10), 0.25), ms(44));
        // After a second of idleness: a burst, not a second.
        assert_eq!(pay(paid, ms(1000), ms(10), 0.5), ms(1010));
    }
}
