//! A counter many threads add to without sharing a cache line.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::thread_number;

const STRIPES: usize = 16;

#[derive(Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

/// Counts up; a read sums the stripes and may miss what is being added meanwhile.
#[derive(Default)]
pub struct Counter([Stripe; STRIPES]);

impl Counter {
    #[inline]
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        if let Some(Stripe(counter)) = self.0.get(thread_number() % STRIPES) {
            counter.fetch_add(count, Relaxed);
        }
    }

    /// The sum of what was added.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Relaxed)).sum()
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(2)));
            }
        });
        assert_eq!(counter.get(), 40_000);
    }
}
