//! The synchronisation words of this crate, from `std` or from shuttle.
//!
//! Tests built with the feature `shuttle` run the same code on shuttle's scheduler, which picks
//! every interleaving. Everything else runs on `std`. Whatever threads share goes through here.

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

/// As [`base::Backoff`], over shuttle's scheduler: a look again, then sleep.
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

/// Locks; a panic elsewhere does not poison, since no critical section here can panic half-way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value alone on its cache line, so that writers of its neighbours do not slow its readers.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct CachePadded<T>(pub(crate) T);

/// Runs `test` under many random interleavings, some with few, well-placed switches.
#[cfg(all(test, feature = "shuttle"))]
pub(crate) fn explore(runs: usize, test: impl Fn() + Send + Sync + Clone + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};

    let mut config = shuttle::Config::new();
    // A chunk's headers pass over the stack, and shuttle's atomics are large.
    config.stack_size = 1 << 20;
    shuttle::Runner::new(RandomScheduler::new(runs), config.clone()).run(test.clone());
    shuttle::Runner::new(PctScheduler::new(3, runs), config).run(test);
}
