//! The order of the iterator's sources: a binary heap of those that have an entry.
//!
//! Only the first source ever moves. The second is kept beside the heap: a step after which the first source
//! is still before the second does not change the heap.

use super::MergingIter;
use crate::reads::source::Source;

impl MergingIter {
    /// Whether source `a` comes before source `b`: forward, the one with the lesser key, for equal keys the
    /// newer version; backward, the reverse.
    pub(super) fn is_before(&self, a: usize, b: usize) -> bool {
        let entry = |number: usize| self.sources.get(number).and_then(Source::entry);
        let (Some((key_a, trailer_a)), Some((key_b, trailer_b))) = (entry(a), entry(b)) else {
            return false;
        };
        let order = key_a.cmp(key_b).then(trailer_b.cmp(&trailer_a));
        if self.forward { order.is_lt() } else { order.is_gt() }
    }

    /// Builds the heap of the sources that have an entry.
    pub(super) fn build_heap(&mut self) {
        self.heap.clear();
        let current =
            self.sources.iter().enumerate().filter(|(_, source)| source.entry().is_some());
        self.heap.extend(current.map(|(number, _)| number));
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
        self.find_second();
    }

    /// Restores the order after the first source moved.
    pub(super) fn after_first_moved(&mut self) {
        let Some(first) = self.heap.first().copied() else { return };
        if self.sources.get(first).and_then(Source::entry).is_none() {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        self.find_second();
    }

    /// The key of the second source.
    #[inline]
    pub(super) fn second_key(&self) -> Option<&[u8]> {
        self.sources.get(self.second?)?.entry().map(|(key, _)| key)
    }

    fn find_second(&mut self) {
        let of = |at: usize| self.heap.get(at).copied();
        self.second = match (of(1), of(2)) {
            (Some(left), Some(right)) if self.is_before(right, left) => Some(right),
            (left, _) => left,
        };
    }

    fn sift_down(&mut self, mut at: usize) {
        while let Some(here) = self.heap.get(at).copied() {
            let children = [2 * at + 1, 2 * at + 2];
            let mut least = (at, here);
            for child in children {
                if let Some(number) = self.heap.get(child).copied()
                    && self.is_before(number, least.1)
                {
                    least = (child, number);
                }
            }
            if least.0 == at {
                return;
            }
            self.heap.swap(at, least.0);
            at = least.0;
        }
    }

    /// The first source in order.
    pub(super) fn first(&self) -> Option<usize> {
        self.heap.first().copied()
    }
}
