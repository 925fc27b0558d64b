//! Hot pages: the pages of a table with keys in hot ranges, collected while the table is written.

use std::ops::Range;
use std::sync::Arc;

use base::invariant;

use crate::Bounds;

/// The hot ranges, the table's progress through them, and the hot pages so far.
#[derive(Debug, Default)]
pub(super) struct HotPages {
    /// Hot key ranges, ascending and disjoint.
    ranges: Arc<[Bounds]>,
    next: usize,
    pages: Vec<Range<u32>>,
    /// Whether the current partition has a hot page.
    in_partition: bool,
}

impl HotPages {
    pub(super) fn new(ranges: Arc<[Bounds]>) -> Self {
        debug_assert!(
            ranges.is_sorted_by(|one, next| one.end.is_some() && one.end <= next.first),
            "hot ranges are ascending and disjoint"
        );
        Self { ranges, ..Self::default() }
    }

    /// Notes that a block with the keys from `first` to `last` lies on `pages`. Blocks ascend.
    pub(super) fn block(&mut self, first: &[u8], last: &[u8], pages: Range<u32>) {
        while self.ranges.get(self.next).is_some_and(|range| range.is_before(first)) {
            self.next += 1;
        }
        if self.ranges.get(self.next).is_some_and(|range| !range.is_after(last)) {
            self.in_partition = true;
            self.add(pages);
        }
    }

    /// Notes that the partition ended with the metadata page `page`.
    pub(super) fn end_partition(&mut self, page: u32) {
        if std::mem::take(&mut self.in_partition) {
            self.add(page..page + 1);
        }
    }

    fn add(&mut self, pages: Range<u32>) {
        invariant!(
            self.pages.last().is_none_or(|last| last.end <= pages.start),
            "pages of a table are written in order"
        );
        match self.pages.last_mut() {
            Some(last) if last.end == pages.start => last.end = pages.end,
            _ => self.pages.push(pages),
        }
    }

    /// Takes the hot pages: ascending ranges, no two of them adjacent.
    pub(super) fn take(&mut self) -> Vec<Range<u32>> {
        std::mem::take(&mut self.pages)
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Range<u32>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_pages_are_blocks_with_hot_keys_and_their_metadata_pages() {
        let bounds = |first: &'static str, end: &'static str| Bounds {
            first: Some(first.into()),
            end: (!end.is_empty()).then(|| end.into()),
        };
        let ranges = [bounds("b", "c"), bounds("cc", "cd"), bounds("k", "l"), bounds("x", "")];
        let mut hot = HotPages::new(ranges.into());
        hot.block(b"a", b"az", 0..1);
        hot.block(b"b", b"bb", 1..2);
        hot.block(b"bc", b"cc", 2..3);
        hot.block(b"cd", b"d", 3..4);
        hot.end_partition(4);
        // This partition has no hot block, so its metadata page is not hot.
        hot.block(b"e", b"jz", 5..6);
        hot.end_partition(6);
        hot.block(b"k", b"w", 7..10);
        hot.block(b"y", b"z", 10..11);
        hot.end_partition(11);
        assert_eq!(hot.take(), [1..3, 4..5, 7..12]);
        let mut none = HotPages::default();
        none.block(b"a", b"z", 0..1);
        none.end_partition(1);
        assert!(none.take().is_empty());
    }
}
