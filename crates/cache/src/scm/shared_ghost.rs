//! What went lately, remembered for many threads: by hash, in parts with a lock each.

use parking_lot::Mutex;

use crate::rows::Ghost;

/// Parts, each with a lock of its own.
const PARTS: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct SharedGhost(Box<[Mutex<Ghost>]>);

impl SharedGhost {
    /// A memory of about `entries`.
    pub(super) fn new(entries: usize) -> Self {
        Self((0..PARTS).map(|_| Mutex::new(Ghost::new(entries / PARTS))).collect())
    }

    /// What a memory of `entries` takes, bytes.
    pub(super) const fn bytes_of(entries: usize) -> u64 {
        Ghost::bytes_of(entries / PARTS) * PARTS as u64
    }

    /// Remembers about `entries` from now on; those it remembers stay as far as they fit. Nothing is done
    /// where it remembers nearly as many.
    pub(super) fn fit(&self, entries: usize) {
        self.0.iter().for_each(|part| part.lock().fit(entries / PARTS));
    }

    /// As many as it remembers.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.0.iter().map(|part| part.lock().capacity()).sum()
    }

    fn part(&self, hash: u64) -> Option<&Mutex<Ghost>> {
        self.0.get((hash >> 60) as usize % PARTS)
    }

    pub(super) fn remember(&self, hash: u64) {
        if let Some(part) = self.part(hash) {
            part.lock().remember(hash);
        }
    }

    /// Whether it is remembered; from then on it is not.
    pub(super) fn recall(&self, hash: u64) -> bool {
        self.part(hash).is_some_and(|part| part.lock().recall(hash))
    }
}
