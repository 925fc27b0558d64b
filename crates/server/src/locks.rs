//! [`Locks`]: the keys of a command are locked together, in the order of their stripes, so that commands on
//! the same key run one after the other and no two commands wait for each other.
//!
//! A command that reads one key takes none: it reads one state. Any thread.

use std::hash::{BuildHasher, RandomState};

use parking_lot::{Mutex, MutexGuard};

/// Keys share this many locks.
const STRIPES: usize = 1024;

#[derive(Debug)]
pub(crate) struct Locks {
    /// Random, so that clients cannot choose keys of one stripe.
    hasher: RandomState,
    stripes: Vec<Mutex<()>>,
}

/// Locks, until they are dropped.
#[derive(Debug)]
pub(crate) struct Held<'a>(
    #[expect(dead_code, reason = "dropped for its effect")] Vec<MutexGuard<'a, ()>>,
);

impl Locks {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), stripes: (0..STRIPES).map(|_| Mutex::new(())).collect() }
    }

    /// Locks the stored keys `keys`.
    pub(crate) fn lock<'k>(&self, keys: impl Iterator<Item = &'k Vec<u8>>) -> Held<'_> {
        let mut numbers: Vec<_> =
            keys.map(|key| self.hasher.hash_one(key) as usize % STRIPES).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Held(
            numbers
                .iter()
                .filter_map(|number| self.stripes.get(*number))
                .map(Mutex::lock)
                .collect(),
        )
    }

    /// Locks every key.
    pub(crate) fn lock_all(&self) -> Held<'_> {
        Held(self.stripes.iter().map(Mutex::lock).collect())
    }
}
