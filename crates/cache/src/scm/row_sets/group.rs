//! A group: the pages of rows of one set of slots, under one lock.
//!
//! The version is a sequence lock, as that of [`arena::TagBuckets`]: odd while something changes. The row's
//! hash and the number of pages give the page of a row. When a page is added, only rows that belong on it
//! move (jump consistent hashing, with one draw per page: Lamping and Veach, 2014).

use std::hint::spin_loop;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, fence};
use std::thread::yield_now;

use base::invariant;

use crate::scm::slot_map::WAYS;

/// Most pages of rows in a group: two slots of each set stay for pages, so that metadata finds room.
pub(super) const WIDTH_MAX: usize = WAYS - 2;

/// Spins on a locked group before the thread yields.
const SPINS: u32 = 64;

/// The version and the number of pages of a group.
#[derive(Debug, Default)]
pub(super) struct Group {
    version: AtomicU32,
    width: AtomicU32,
}

impl Group {
    /// Begins a read: the version and the number of pages; `None` while the group is being changed.
    #[inline]
    pub(super) fn begin_read(&self) -> Option<(u32, usize)> {
        let version = self.version.load(Acquire);
        version.is_multiple_of(2).then(|| (version, self.width()))
    }

    /// Whether nothing changed since [`Group::begin_read`] returned `version`.
    #[inline]
    pub(super) fn is_unchanged(&self, version: u32) -> bool {
        // Pairs with the fence of `lock`: a thread that saw a word written after a change also sees the
        // version of that change.
        fence(Acquire);
        self.version.load(Relaxed) == version
    }

    /// Number of pages.
    pub(super) fn width(&self) -> usize {
        self.width.load(Acquire) as usize
    }

    /// Counts as a change, if nothing changed since [`Group::begin_read`] returned `version`; returns whether
    /// it did.
    pub(super) fn bump(&self, version: u32) -> bool {
        let next = version.wrapping_add(2);
        self.version.compare_exchange(version, next, AcqRel, Relaxed).is_ok()
    }

    /// Locks the group for changes. Holders do a bounded piece of work in memory.
    pub(super) fn lock(&self) -> LockedGroup<'_> {
        let mut spins = 0u32;
        loop {
            let seen = self.version.load(Relaxed);
            if seen.is_multiple_of(2)
                && self.version.compare_exchange_weak(seen, seen + 1, Acquire, Relaxed).is_ok()
            {
                // Readers see the odd version before anything that is changed under it.
                fence(Release);
                return LockedGroup { group: self, version: seen };
            }
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(SPINS) { yield_now() } else { spin_loop() }
        }
    }
}

/// The lock on a group.
#[derive(Debug)]
pub(super) struct LockedGroup<'a> {
    group: &'a Group,
    version: u32,
}

impl LockedGroup<'_> {
    /// Sets the number of pages.
    pub(super) fn set_width(&self, width: usize) {
        invariant!(width <= WIDTH_MAX, "two slots of each set stay for pages");
        self.group.width.store(width as u32, Release);
    }
}

impl Drop for LockedGroup<'_> {
    fn drop(&mut self) {
        invariant!(
            self.group.version.load(Relaxed) == self.version.wrapping_add(1),
            "nobody else changes a locked group"
        );
        self.group.version.store(self.version.wrapping_add(2), Release);
    }
}

/// The page, of `width`, of the row with this hash.
#[inline]
pub(super) fn page_of(hash: u64, width: usize) -> usize {
    invariant!(width > 0, "a row has a page only in a group that has pages");
    let (mut draw, mut page) = (hash, 0);
    for number in 1..width as u64 {
        draw = draw.wrapping_mul(0xd6e8_feb8_6659_fd93).wrapping_add(0x9e37_79b9_7f4a_7c15);
        if ((draw >> 32) * (number + 1)) >> 32 == 0 {
            page = number as usize;
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "arithmetic, and much of it")]
    fn rows_spread_evenly_and_those_that_move_go_to_the_page_that_is_added() {
        let hashes: Vec<u64> = (0..40_000u64).map(|n| base::hash64(n, b"row")).collect();
        for width in 1..15 {
            let mut rows = vec![0; width + 1];
            for hash in &hashes {
                let (now, next) = (page_of(*hash, width), page_of(*hash, width + 1));
                assert!(next == now || next == width);
                rows[next] += 1;
            }
            let even = hashes.len() / (width + 1);
            assert!(rows.iter().all(|n| n * 10 > even * 9 && n * 10 < even * 11), "{rows:?}");
        }
    }

    #[test]
    fn a_change_invalidates_a_read_begun_before() {
        let group = Group::default();
        let (version, width) = group.begin_read().unwrap();
        assert!(width == 0 && group.is_unchanged(version));
        let locked = group.lock();
        assert!(
            group.begin_read().is_none() && !group.is_unchanged(version) && !group.bump(version)
        );
        locked.set_width(3);
        drop(locked);
        let (version, width) = group.begin_read().unwrap();
        assert_eq!(width, 3);
        assert!(group.bump(version) && !group.is_unchanged(version) && !group.bump(version));
    }

    #[test]
    fn a_validated_read_sees_no_partial_change() {
        const CHANGES: u32 = if cfg!(miri) { 200 } else { 100_000 };
        let (group, words) = (Group::default(), [AtomicU32::new(0), AtomicU32::new(0)]);
        let over = AtomicU32::new(0);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for change in 1..=CHANGES {
                    let _locked = group.lock();
                    for word in &words {
                        word.store(change, Relaxed);
                    }
                }
                over.store(1, Release);
            });
            threads.spawn(|| {
                while over.load(Acquire) == 0 {
                    if let Some((version, _)) = group.begin_read() {
                        group.bump(version);
                    }
                    spin_loop();
                }
            });
            let mut last = 0;
            while last < CHANGES {
                let Some((version, _)) = group.begin_read() else {
                    yield_now();
                    continue;
                };
                let [first, second] = [&words[1], &words[0]].map(|word| word.load(Relaxed));
                if group.is_unchanged(version) {
                    assert!(first == second && first >= last, "{last}, then {first} and {second}");
                    last = first;
                }
            }
        });
    }
}
