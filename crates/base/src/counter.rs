//! A counter many threads add to without sharing a cache line.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const STRIPES: usize = 16;

#[derive(Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

/// Counts up; a read sums the stripes and may miss what is being added meanwhile.
#[derive(Default)]
pub struct Counter([Stripe; STRIPES]);

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The thread's stripe, once it counted.
    static STRIPE: Cell<usize> = const { Cell::new(STRIPES) };
}

/// The stripe of the calling thread: dealt out in turn.
#[inline]
fn own_stripe() -> usize {
    STRIPE.with(|own| {
        if own.get() == STRIPES {
            own.set(NEXT_STRIPE.fetch_add(1, Relaxed) % STRIPES);
        }
        own.get()
    })
}

impl Counter {
    #[inline]
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        if let Some(Stripe(counter)) = self.0.get(own_stripe()) {
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
