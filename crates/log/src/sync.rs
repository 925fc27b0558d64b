//! The primitives of [`crate::combiner`], [`crate::slot`] and [`crate::syncer`]. Their tests compile the
//! same files over a scheduler that explores interleavings, with a twin of this module.

use std::cell::Cell;

pub(crate) use base::Patience;
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Records that can wait for the lane at a time.
pub(crate) const SLOTS: usize = 64;

/// Waits until `condvar` is notified.
pub(crate) fn wait<'a, T>(condvar: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(&mut guard);
    guard
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static HOME: Cell<usize> = const { Cell::new(SLOTS) };
}

/// The slot that the calling thread tries first: dealt out in turn.
pub(crate) fn home() -> usize {
    HOME.with(|home| {
        if home.get() == SLOTS {
            home.set(THREADS.fetch_add(1, Ordering::Relaxed) % SLOTS);
        }
        home.get()
    })
}
