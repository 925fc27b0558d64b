//! A ghost list: hashes of entries that were evicted or refused lately. An entry that is used again so soon
//! is worth more than a new one.
//!
//! Sets of four 32-bit fingerprints, the oldest of a set replaced first. Cost: 4 B per entry. Owned by one
//! thread at a time.

/// A ghost list.
#[derive(Debug, Default)]
pub struct Ghost {
    sets: Vec<[u32; WAYS]>,
}

const WAYS: usize = 4;

/// [`Ghost::fit`] ignores changes of size up to 1/8.
const NEARLY: usize = 8;

impl Ghost {
    /// A list of about `rows` entries.
    #[must_use]
    pub fn new(rows: usize) -> Self {
        Self { sets: vec![[0; WAYS]; rows.div_ceil(WAYS)] }
    }

    /// Memory of a list of `rows` entries, bytes.
    #[must_use]
    pub const fn bytes_of(rows: usize) -> u64 {
        (rows.next_multiple_of(WAYS) * size_of::<u32>()) as u64
    }

    /// The size of the list, entries.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Changes the size to about `rows` entries. Entries stay as far as they fit.
    pub fn resize(&mut self, rows: usize) {
        let old = std::mem::replace(self, Self::new(rows));
        // The oldest of each set first, so that the newest stay.
        for way in (0..WAYS).rev() {
            for fingerprint in old.sets.iter().filter_map(|set| set.get(way)) {
                self.put(*fingerprint);
            }
        }
    }

    /// As [`Ghost::resize`], but does nothing if the size is nearly that.
    pub fn fit(&mut self, rows: usize) {
        if self.capacity().abs_diff(rows.next_multiple_of(WAYS)) > self.capacity() / NEARLY {
            self.resize(rows);
        }
    }

    /// Changes the size to about `rows` entries. If that is another size the list is empty afterwards, so
    /// that no two lists exist at a time.
    pub fn set_len(&mut self, rows: usize) {
        if self.capacity() != rows.next_multiple_of(WAYS) {
            *self = Self::default();
            *self = Self::new(rows);
        }
    }

    /// Adds an entry.
    pub fn remember(&mut self, hash: u64) {
        self.put(fingerprint(hash));
    }

    fn put(&mut self, fingerprint: u32) {
        if fingerprint != 0
            && let Some(set) = self.set(fingerprint)
        {
            set.rotate_right(1);
            set[0] = fingerprint;
        }
    }

    /// Whether the list has this hash; takes it out.
    pub fn recall(&mut self, hash: u64) -> bool {
        let fingerprint = fingerprint(hash);
        let Some(set) = self.set(fingerprint) else { return false };
        let found = set.iter_mut().find(|seen| **seen == fingerprint);
        found.map(|seen| *seen = 0).is_some()
    }

    fn set(&mut self, fingerprint: u32) -> Option<&mut [u32; WAYS]> {
        let number = (u64::from(fingerprint) * self.sets.len() as u64) >> 32;
        self.sets.get_mut(number as usize)
    }
}

/// The fingerprint of a hash; never 0, which marks an empty entry.
const fn fingerprint(hash: u64) -> u32 {
    let fingerprint = (hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32;
    if fingerprint == 0 { 1 } else { fingerprint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_recalled_once_until_others_replace_it() {
        let mut ghost = Ghost::new(1000);
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..500).for_each(|number| ghost.remember(hash(number)));
        let recalled = (0..500).filter(|number| ghost.recall(hash(*number))).count();
        assert!(recalled > 470, "{recalled} of 500");
        assert!(!(0..500).any(|number| ghost.recall(hash(number))));
        (0..5000).for_each(|number| ghost.remember(hash(number)));
        let of = |ghost: &mut Ghost, from: u64| {
            (from..from + 500).filter(|number| ghost.recall(hash(*number))).count()
        };
        assert!(of(&mut ghost, 0) < 5 && of(&mut ghost, 4500) > 450);
    }

    #[test]
    fn resizing_keeps_the_newest_entries() {
        let mut ghost = Ghost::new(0);
        ghost.remember(1);
        assert!(!ghost.recall(1));
        ghost.resize(64);
        (1..20).for_each(|number| ghost.remember(number << 32));
        let kept = (1..20).filter(|number| ghost.recall(number << 32)).count();
        (1..20).for_each(|number| ghost.remember(number << 32));
        ghost.resize(1000);
        assert!((1..20).filter(|number| ghost.recall(number << 32)).count() >= kept);
        ghost.set_len(997);
        ghost.remember(1 << 32);
        ghost.set_len(1000);
        assert!(ghost.recall(1 << 32), "the same size");
        ghost.remember(1 << 32);
        ghost.set_len(2000);
        assert!(ghost.capacity() == 2000 && !ghost.recall(1 << 32));
        ghost.resize(1000);
        for (rows, then) in
            [(1100, 1000), (900, 1000), (1200, 1200), (1, 4), (1, 4), (0, 0), (0, 0)]
        {
            ghost.fit(rows);
            assert_eq!(ghost.capacity(), then);
        }
    }
}
