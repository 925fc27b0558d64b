//! A ghost list shared by many threads: parts by hash, each with a mutex of its own.

use base::invariant;
use parking_lot::Mutex;

use crate::rows::Ghost;

/// Parts, each with its own mutex.
const PARTS: usize = 16;

/// A shared ghost list.
#[derive(Debug)]
pub(super) struct SharedGhost(Box<[Mutex<Ghost>]>);

impl SharedGhost {
    /// A list of about `entries` entries.
    pub(super) fn new(entries: usize) -> Self {
        Self((0..PARTS).map(|_| Mutex::new(Ghost::new(entries / PARTS))).collect())
    }

    /// Memory of a list of `entries` entries, bytes.
    pub(super) const fn bytes_of(entries: usize) -> u64 {
        Ghost::bytes_of(entries / PARTS) * PARTS as u64
    }

    /// Changes the size to about `entries`. Entries stay as far as they fit. Does nothing if the size is
    /// nearly that.
    pub(super) fn fit(&self, entries: usize) {
        self.0.iter().for_each(|part| part.lock().fit(entries / PARTS));
    }

    /// The size of the list.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.0.iter().map(|part| part.lock().capacity()).sum()
    }

    fn part(&self, hash: u64) -> Option<&Mutex<Ghost>> {
        let part = self.0.get((hash >> 60) as usize % PARTS);
        invariant!(part.is_some(), "every hash has a part of the ghost list");
        part
    }

    pub(super) fn remember(&self, hash: u64) {
        if let Some(part) = self.part(hash) {
            part.lock().remember(hash);
        }
    }

    /// Whether the list has this hash; takes it out.
    pub(super) fn recall(&self, hash: u64) -> bool {
        self.part(hash).is_some_and(|part| part.lock().recall(hash))
    }
}
