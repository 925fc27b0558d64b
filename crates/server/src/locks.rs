//! [`Locks`]: the keys of a command are locked together, in the order of their stripes, so that commands on
//! the same key run one after the other and no two commands wait for each other.
//!
//! A command that reads one key takes none: it reads one state. Any thread.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// Keys share this many locks.
const STRIPES: usize = 1024;

/// Most time for which [`Locks::try_lock`] waits. Most locks are held for the time of a few writes in memory;
/// a command that gives up costs two changes of threads.
const WAIT: Duration = Duration::from_micros(200);

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
        let numbers = self.numbers(keys);
        let stripes = numbers.iter().filter_map(|number| self.stripes.get(*number));
        Held(stripes.map(Mutex::lock).collect())
    }

    /// Locks the stored keys `keys`; `None` if one of them stays locked for [`WAIT`].
    pub(crate) fn try_lock<'k>(&self, keys: impl Iterator<Item = &'k Vec<u8>>) -> Option<Held<'_>> {
        let (mut held, mut until) = (Vec::new(), None);
        for stripe in self.numbers(keys).iter().filter_map(|number| self.stripes.get(*number)) {
            held.push(match stripe.try_lock() {
                Some(lock) => lock,
                None => {
                    stripe.try_lock_until(*until.get_or_insert_with(|| Instant::now() + WAIT))?
                }
            });
        }
        Some(Held(held))
    }

    /// The numbers of the stripes of `keys`, in the order in which they are locked.
    fn numbers<'k>(&self, keys: impl Iterator<Item = &'k Vec<u8>>) -> Vec<usize> {
        let mut numbers: Vec<_> =
            keys.map(|key| self.hasher.hash_one(key) as usize % STRIPES).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Locks every key.
    pub(crate) fn lock_all(&self) -> Held<'_> {
        Held(self.stripes.iter().map(Mutex::lock).collect())
    }
}
