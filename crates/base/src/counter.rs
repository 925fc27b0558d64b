//! A counter to which many threads add without contention: each thread adds to one of several cache lines.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::thread_number;

const STRIPES: usize = 16;

#[derive(Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

/// A sum over stripes, each on its own cache line. A read may miss concurrent additions.
#[derive(Default)]
pub struct Counter([Stripe; STRIPES]);

impl Counter {
    /// Adds `count`.
    #[inline]
    pub fn add(&self, count: u64) {
        self.own_stripe().fetch_add(count, Relaxed);
    }

    #[expect(clippy::indexing_slicing, reason = "a remainder modulo the length")]
    #[inline]
    fn own_stripe(&self) -> &AtomicU64 {
        &self.0[thread_number() % STRIPES].0
    }

    /// The sum of all additions.
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
    fn additions_of_all_threads_are_summed() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(2)));
            }
        });
        assert_eq!(counter.get(), 40_000);
    }
}
