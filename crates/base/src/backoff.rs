//! Backoff: a thread that waits for another one spins, then yields its core, then sleeps.
//!
//! Writers wait for one another for about a microsecond. Sleeping and being woken costs both threads far
//! more, and the threads queued behind them wait too. So a waiter first spins for a microsecond or two, then
//! yields its core between checks. It goes on while each yield returns at once, because then no other thread
//! wants the core. It stops, and the caller sleeps, after several slow yields or after 100 us.
//!
//! Reads the machine's clock directly and not [`crate::Clock`]: only real time tells whether a core is busy.

use std::hint::spin_loop;
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// Checks before the first yield, all of which together take a microsecond or two.
const SPINS: u32 = 50;
/// A yield that takes longer than this gave the core to another thread.
const SLOW_YIELD: Duration = Duration::from_micros(5);
/// Slow yields after which the waiter sleeps.
const SLOW_YIELDS_MAX: u32 = 3;
/// The longest time from the first yield until the waiter sleeps.
const YIELDING_MAX: Duration = Duration::from_micros(100);

/// One wait for a condition that probably holds soon. Call [`Backoff::wait`] between two checks.
#[derive(Debug, Default)]
pub struct Backoff {
    spins: u32,
    slow_yields: u32,
    first_yield: Option<Instant>,
}

impl Backoff {
    /// Spins or yields once. False means that the caller should sleep until it is woken.
    #[inline]
    pub fn wait(&mut self) -> bool {
        if self.spins < SPINS {
            self.spins += 1;
            spin_loop();
            return true;
        }
        self.yield_core()
    }

    #[cold]
    fn yield_core(&mut self) -> bool {
        let before = Instant::now();
        let first_yield = *self.first_yield.get_or_insert(before);
        yield_now();
        let after = Instant::now();
        self.slow_yields += u32::from(after - before > SLOW_YIELD);
        self.slow_yields < SLOW_YIELDS_MAX && after - first_yield < YIELDING_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_stops_spinning_within_a_bound() {
        let mut backoff = Backoff::default();
        let waits = (0..10_000_000).take_while(|_| backoff.wait()).count();
        assert!((SPINS as usize..10_000_000).contains(&waits), "{waits} waits");
        assert!(!backoff.wait(), "a finished backoff stays finished");
    }
}
