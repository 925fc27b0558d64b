//! Atomics, locks and yields of this crate, from `std` or from shuttle.
//!
//! Tests with the feature `shuttle` run on shuttle's scheduler, which picks every interleaving. All other
//! builds use `std`. Every access to memory that threads share must use these types.

use std::sync::PoisonError;

#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use base::Backoff;
#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic,
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(all(test, feature = "shuttle"))]
pub(crate) use shuttle::{
    hint::spin_loop,
    sync::atomic,
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

/// As [`base::Backoff`], on shuttle's scheduler: the first wait yields, the second says to sleep.
#[cfg(all(test, feature = "shuttle"))]
#[derive(Default)]
pub(crate) struct Backoff(bool);

#[cfg(all(test, feature = "shuttle"))]
impl Backoff {
    pub(crate) fn wait(&mut self) -> bool {
        spin_loop();
        !std::mem::replace(&mut self.0, true)
    }
}

/// Locks `mutex`, and ignores poisoning: no critical section of this crate panics with the data half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value with its own cache line, so that writes to its neighbours do not slow its readers.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct CachePadded<T>(pub(crate) T);

/// Runs `test` under `runs` random interleavings, then under `runs` with few preemptions (PCT).
#[cfg(all(test, feature = "shuttle"))]
pub(crate) fn explore(runs: usize, test: impl Fn() + Send + Sync + Clone + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};

    let mut config = shuttle::Config::new();
    // The headers of a chunk are built on the stack, and shuttle's atomics are large.
    config.stack_size = 1 << 20;
    shuttle::Runner::new(RandomScheduler::new(runs), config.clone()).run(test.clone());
    shuttle::Runner::new(PctScheduler::new(3, runs), config).run(test);
}
