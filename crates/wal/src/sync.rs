//! The synchronisation primitives of [`crate::combiner`], [`crate::numbers`], [`crate::slot`] and
//! [`crate::syncer`]. The tests in `shuttled` compile the same files over shuttle's scheduler, with a
//! counterpart of this module.

pub(crate) use base::Backoff;
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Number of slots: records that can wait for a leader at a time.
pub(crate) const SLOTS: usize = 64;

/// Waits until `condvar` is notified.
pub(crate) fn wait<'a, T>(condvar: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(&mut guard);
    guard
}

/// The slot that the calling thread tries first.
pub(crate) fn home() -> usize {
    base::thread_number() % SLOTS
}
