//! How long a thread looks again before it sleeps.
//!
//! What writers wait for in one another takes about a microsecond; to sleep and be woken takes both sides far
//! longer, and whoever is behind them waits too. So a waiter spins for a moment, then gives its core
//! away and looks again, as long as cores come back at once: then nobody else wants them. Where they do not,
//! or it takes long, it is time to sleep.

use std::hint::spin_loop;
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// Looks before the core is given away: a microsecond or two.
const SPINS: u32 = 50;
/// A core that comes back later was wanted by another.
const SLOW: Duration = Duration::from_micros(5);
/// So often, and this one should not ask for it again.
const SLOW_MAX: u32 = 3;
/// The longest that cores are held by looking.
const MOST: Duration = Duration::from_micros(100);

/// One wait for what is likely to be there soon. Call [`Backoff::wait`] between two looks.
#[derive(Debug, Default)]
pub struct Backoff {
    spins: u32,
    slow: u32,
    since: Option<Instant>,
}

impl Backoff {
    /// Waits for a moment. False once it is time to sleep until woken.
    #[inline]
    pub fn wait(&mut self) -> bool {
        if self.spins < SPINS {
            self.spins += 1;
            spin_loop();
            return true;
        }
        self.give_way()
    }

    #[cold]
    fn give_way(&mut self) -> bool {
        let before = Instant::now();
        let since = *self.since.get_or_insert(before);
        yield_now();
        let after = Instant::now();
        self.slow += u32::from(after - before > SLOW);
        self.slow < SLOW_MAX && after - since < MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends() {
        let mut patience = Backoff::default();
        let looks = (0..10_000_000).take_while(|_| patience.wait()).count();
        assert!((SPINS as usize..10_000_000).contains(&looks), "{looks} looks");
        assert!(!patience.wait(), "and stays at its end");
    }
}
