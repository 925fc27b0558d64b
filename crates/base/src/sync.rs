//! The lock and the condition that idle threads wait for: those of `std`, without poisoning.
//!
//! `parking_lot`, which locks everything else, keeps one table of waiting threads for the process. A forked
//! child inherits its entries, of threads that the child does not have, and a wait of its own could follow
//! them. So threads that wait most of the time, as those of pools do, wait here: a child can then open a
//! store of its own, e.g. in Python's `multiprocessing`.
//!
//! A panic under a lock does not poison it: a broken invariant stops all writes by itself
//! ([`crate::invariant!`]).

use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;

pub use std::sync::MutexGuard;

/// A lock for one thread at a time.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, which no other thread can have.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Lets threads wait for a change under a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Without waiting threads.
    #[must_use]
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Waits for a notification without the lock. May wake without one.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Condvar::wait`], at most for `time`.
    pub fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, time: Duration) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
