//! Range deletes, cut into fragments.
//!
//! Range deletes may overlap in any way. Fragments do not overlap: they are sorted by key, and each
//! carries the seqnos of all range deletes that cover it, newest first. So one binary search finds the
//! newest range delete of a key, whatever the number of range deletes, and an iterator knows the end of
//! the deleted range that it meets.
//!
//! A range delete covers the versions that are *older* than itself: a version with the same or a larger
//! seqno stays visible.
//!
//! Immutable, shared by reference. The keys share memory with the range deletes that they come from.
//!
//! Cost: building takes O(n log n) for `n` range deletes, plus the output. n nested range deletes have
//! n^2 / 2 seqnos in their fragments; [`RangeDeletes::build_for`] keeps only those that some reader can
//! distinguish. A search compares numbers made of eight bytes of each key, and whole keys only if those
//! are equal: about 0.3 us among 10^5 fragments (docs/ledger.md).

mod overlay;
mod sweep;

use std::ops::Range;

use base::{Seqno, invariant};
use bytes::Bytes;

use crate::bounds::Bounds;

/// A range delete: deletes every version older than `seqno` of every key from `start` to before `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeDelete {
    /// The first key deleted.
    pub start: Bytes,
    /// The first key after the range. If it is not after `start`, the range is empty.
    pub end: Bytes,
    /// The seqno of the range delete.
    pub seqno: Seqno,
}

/// A key range that the same range deletes cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The first key.
    pub start: &'a Bytes,
    /// The first key after the range.
    pub end: &'a Bytes,
    /// The seqnos of the range deletes, newest first; never empty.
    pub seqnos: &'a [Seqno],
}

impl Fragment<'_> {
    /// The newest range delete visible at `at`.
    #[must_use]
    pub fn newest(&self, at: Seqno) -> Option<Seqno> {
        let newer = self.seqnos.partition_point(|seqno| *seqno > at);
        self.seqnos.get(newer).copied()
    }
}

/// A fragment as stored: its seqnos follow those of the previous fragment.
#[derive(Clone, Debug)]
struct StoredFragment {
    start: Bytes,
    end: Bytes,
    seqnos_end: usize,
}

/// Bytes of a key that one number of the index holds.
const HEAD_BYTES: usize = 8;

/// Range deletes as fragments: sorted, disjoint, each with its seqnos in descending order.
#[derive(Clone, Debug, Default)]
pub struct RangeDeletes {
    fragments: Vec<StoredFragment>,
    seqnos: Vec<Seqno>,
    /// For each fragment's start and end: the bytes after the prefix that all starts share.
    heads: Vec<(u64, u64)>,
    prefix_bytes: usize,
    key_bytes: usize,
}

impl RangeDeletes {
    /// Memory of one fragment without its keys and seqnos, bytes.
    pub(crate) const FRAGMENT_BYTES: usize = size_of::<StoredFragment>() + size_of::<(u64, u64)>();

    /// The fragments of `deletes`, which are in any order, with all seqnos.
    #[must_use]
    pub fn build(deletes: impl IntoIterator<Item = RangeDelete>) -> Self {
        sweep::sweep(deletes, |active, out| out.extend(active.keys().rev()))
    }

    /// The fragments of `deletes` with only the seqnos that some reader can distinguish: for each of
    /// `readers` the newest that it sees, and all above the last reader. `readers` ascend; the last is
    /// the present, and later readers read there or above. A read at any other seqno may miss range
    /// deletes. Without readers all seqnos are kept.
    #[must_use]
    pub fn build_for(deletes: impl IntoIterator<Item = RangeDelete>, readers: &[Seqno]) -> Self {
        sweep::sweep(deletes, |active, out| sweep::visible(active, readers, out))
    }

    /// The fragments of `deletes`, each with its newest seqno only.
    #[must_use]
    pub fn build_newest(deletes: impl IntoIterator<Item = RangeDelete>) -> Self {
        sweep::sweep(deletes, sweep::newest)
    }

    /// An empty set with reserved room.
    pub(crate) fn with_capacity(fragments: usize, seqnos: usize) -> Self {
        Self {
            fragments: Vec::with_capacity(fragments),
            seqnos: Vec::with_capacity(seqnos),
            ..Self::default()
        }
    }

    /// Appends a fragment, which must be after the last one.
    pub(crate) fn push(&mut self, start: Bytes, end: Bytes, seqnos: &[Seqno]) {
        debug_assert!(
            start < end && self.fragments.last().is_none_or(|before| before.end <= start),
            "fragments are ascending and disjoint"
        );
        debug_assert!(!seqnos.is_empty() && seqnos.is_sorted_by(|one, next| one > next));
        let shared = self.fragments.last().is_some_and(|before| before.end == start);
        self.key_bytes += end.len() + if shared { 0 } else { start.len() };
        self.seqnos.extend_from_slice(seqnos);
        self.fragments.push(StoredFragment { start, end, seqnos_end: self.seqnos.len() });
    }

    /// Builds the index over all fragments.
    pub(crate) fn indexed(mut self) -> Self {
        let (Some(first), Some(last)) = (self.fragments.first(), self.fragments.last()) else {
            return self;
        };
        // The starts ascend, so the common prefix of the first and the last is common to all.
        let pairs = first.start.iter().zip(last.start.iter());
        self.prefix_bytes = pairs.take_while(|(one, other)| one == other).count();
        let prefix = first.start.slice(..self.prefix_bytes);
        let heads = self.fragments.iter().map(|StoredFragment { start, end, .. }| {
            // An end without the prefix is after every key with it.
            let has_prefix = end.starts_with(&prefix);
            let end = if has_prefix { head(end, prefix.len()) } else { u64::MAX };
            (head(start, prefix.len()), end)
        });
        self.heads = heads.collect();
        debug_assert!(self.heads.is_sorted_by_key(|(start, _)| *start), "heads order as starts");
        self
    }

    fn numbers_before(&self, index: usize) -> usize {
        let before = index.checked_sub(1).and_then(|before| self.fragments.get(before));
        before.map_or(0, |before| before.seqnos_end)
    }

    fn fragment(&self, index: usize) -> Option<Fragment<'_>> {
        let StoredFragment { start, end, seqnos_end } = self.fragments.get(index)?;
        let seqnos = self.seqnos.get(self.numbers_before(index)..*seqnos_end);
        invariant!(seqnos.is_some(), "the seqnos of a fragment follow those of the previous one");
        let seqnos = seqnos?;
        Some(Fragment { start, end, seqnos })
    }

    /// The number of fragments that start at or before `key`, and whether the last of these contains it.
    ///
    /// Whole keys are compared only if their index numbers are equal, because the keys are elsewhere in
    /// memory.
    fn locate(&self, key: &[u8]) -> (usize, bool) {
        let count = self.fragments.len();
        let ends_after = |started: usize| {
            let last = started.checked_sub(1).and_then(|last| self.fragments.get(last));
            last.is_some_and(|last| key < &*last.end)
        };
        let first = self.fragments.first().map(|first| &*first.start).unwrap_or_default();
        let prefix = first.get(..self.prefix_bytes).unwrap_or_default();
        if !key.starts_with(prefix) {
            return if key < prefix { (0, false) } else { (count, ends_after(count)) };
        }
        let head = head(key, self.prefix_bytes);
        let mut started = self.heads.partition_point(|(start, _)| *start < head);
        let rest = self.heads.get(started..).unwrap_or_default();
        if rest.first().is_some_and(|(start, _)| *start == head) {
            let same = rest.partition_point(|(start, _)| *start == head);
            let same = self.fragments.get(started..started + same).unwrap_or_default();
            started += same.partition_point(|fragment| &*fragment.start <= key);
        }
        let inside = match started.checked_sub(1).and_then(|last| self.heads.get(last)) {
            Some((_, end)) if head == *end => ends_after(started),
            Some((_, end)) => head < *end,
            None => false,
        };
        (started, inside)
    }

    /// The newest range delete of `key` visible at `at`.
    #[must_use]
    pub fn newest_covering(&self, key: &[u8], at: Seqno) -> Option<Seqno> {
        self.fragment_at(key)?.newest(at)
    }

    /// The fragment that contains `key`.
    #[must_use]
    pub fn fragment_at(&self, key: &[u8]) -> Option<Fragment<'_>> {
        if self.fragments.is_empty() {
            return None;
        }
        let (started, inside) = self.locate(key);
        inside.then(|| self.fragment(started - 1))?
    }

    /// The largest range around `key` without a fragment boundary inside: its first key and its end,
    /// each `None` if unbounded, and the fragment, or `None` if the range is not deleted.
    #[must_use]
    pub fn stretch_at(&self, key: &[u8]) -> (Option<&Bytes>, Option<&Bytes>, Option<Fragment<'_>>) {
        let (started, inside) = self.locate(key);
        let before = started.checked_sub(1).and_then(|before| self.fragment(before));
        match before {
            Some(fragment) if inside => (Some(fragment.start), Some(fragment.end), Some(fragment)),
            _ => {
                let after = self.fragments.get(started).map(|after| &after.start);
                (before.map(|before| before.end), after, None)
            }
        }
    }

    /// The fragments, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Fragment<'_>> {
        (0..self.fragments.len()).filter_map(|index| self.fragment(index))
    }

    /// The fragments that end after `key`, ascending: the one that contains it, and later ones.
    pub fn iter_from(&self, key: &[u8]) -> impl DoubleEndedIterator<Item = Fragment<'_>> {
        let (started, inside) = self.locate(key);
        (started - usize::from(inside)..self.fragments.len())
            .filter_map(|index| self.fragment(index))
    }

    /// The positions of the fragments that delete keys from `first` to before `end`.
    #[must_use]
    pub fn positions(&self, first: &[u8], end: Option<&[u8]>) -> Range<usize> {
        let (started, inside) = self.locate(first);
        let from = started - usize::from(inside);
        let to = end.map_or(self.fragments.len(), |end| {
            let (started, inside) = self.locate(end);
            let is_first = |last: usize| self.start(last).is_some_and(|start| *start == *end);
            started - usize::from(inside && started.checked_sub(1).is_some_and(is_first))
        });
        from..to.max(from)
    }

    /// The first key of the fragment at `position`.
    #[must_use]
    pub fn start(&self, position: usize) -> Option<&Bytes> {
        self.fragments.get(position).map(|fragment| &fragment.start)
    }

    /// The range deletes that the fragments represent: one for each seqno of each fragment.
    pub fn deletes(&self) -> impl Iterator<Item = RangeDelete> + '_ {
        self.iter().flat_map(|Fragment { start, end, seqnos }| {
            seqnos.iter().map(move |seqno| RangeDelete {
                start: start.clone(),
                end: end.clone(),
                seqno: *seqno,
            })
        })
    }

    /// The first key of the first fragment, and the end of the last.
    #[must_use]
    pub fn bounds(&self) -> Option<(&[u8], &[u8])> {
        Some((&self.fragments.first()?.start, &self.fragments.last()?.end))
    }

    /// Whether there is no fragment.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The number of fragments.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.fragments.len()
    }

    /// The seqnos of all fragments together.
    #[must_use]
    pub fn seqnos(&self) -> &[Seqno] {
        &self.seqnos
    }

    /// Memory in use, bytes; a key that neighbours share counts once.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.fragments.len() * Self::FRAGMENT_BYTES
            + self.seqnos.len() * size_of::<Seqno>()
            + self.key_bytes
    }

    /// The part that lies inside `bounds`.
    #[must_use]
    pub fn clipped(&self, bounds: &Bounds) -> Self {
        if bounds.is_all() {
            return self.clone();
        }
        let mut clipped = Self::default();
        let first = bounds.first.as_ref();
        for Fragment { start, end, seqnos } in self.iter_from(first.map_or(&[], |first| first)) {
            let start = first.map_or(start, |first| first.max(start));
            let end = bounds.end.as_ref().map_or(end, |last| last.min(end));
            if start >= end {
                break;
            }
            clipped.push(start.clone(), end.clone(), seqnos);
        }
        debug_assert!(
            clipped.fragments.iter().all(|it| bounds.contains(&it.start)),
            "clipped fragments begin inside the bounds"
        );
        clipped.indexed()
    }

    /// A copy with keys that share no memory with those of `self`.
    pub(crate) fn rehomed(&self) -> Self {
        let mut keys = Vec::with_capacity(self.key_bytes);
        let mut spans = Vec::with_capacity(self.fragments.len());
        for (index, fragment) in self.fragments.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|before| self.fragments.get(before));
            let from = match before {
                Some(before) if before.end == fragment.start => keys.len() - before.end.len(),
                _ => keys.len(),
            };
            if from == keys.len() {
                keys.extend_from_slice(&fragment.start);
            }
            let middle = keys.len();
            keys.extend_from_slice(&fragment.end);
            spans.push((from..middle, middle..keys.len()));
        }
        let keys = Bytes::from(keys);
        let mut copy = Self::with_capacity(self.fragments.len(), self.seqnos.len());
        for ((start, end), fragment) in spans.into_iter().zip(self.iter()) {
            copy.push(keys.slice(start), keys.slice(end), fragment.seqnos);
        }
        copy.indexed()
    }

    /// The same ranges, deleted at `seqno`.
    #[must_use]
    pub fn with_seqno(&self, seqno: Seqno) -> Self {
        let mut moved = Self::default();
        for Fragment { start, end, .. } in self.iter() {
            moved.push(start.clone(), end.clone(), &[seqno]);
        }
        moved.indexed()
    }
}

impl PartialEq for RangeDeletes {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for RangeDeletes {}

/// The eight bytes of `key` after its first `skip`, as a number with the same order.
fn head(key: &[u8], skip: usize) -> u64 {
    let mut bytes = [0; HEAD_BYTES];
    for (slot, byte) in bytes.iter_mut().zip(key.iter().skip(skip)) {
        *slot = *byte;
    }
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests;
