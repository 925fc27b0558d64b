//! The primitives of [`crate::combiner`] and [`crate::syncer`]. Their tests compile the same two
//! files over a scheduler that explores interleavings, with a twin of this module.

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};

/// How often a waiting caller looks again before it parks: about as long as one group's store.
pub(crate) const SPINS: u32 = 100;

/// Waits until `condvar` is notified.
pub(crate) fn wait<'a, T>(condvar: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(&mut guard);
    guard
}
