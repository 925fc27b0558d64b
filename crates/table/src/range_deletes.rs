//! Range deletes, cut into fragments: which keys are deleted, and as of when.
//!
//! Deletes overlap in any way. Fragments do not: they are sorted by key, and each carries the
//! sequence numbers of all deletes that cover it, newest first. So a read finds the newest delete
//! of a key by one binary search, whatever the number of deletes, and a walk knows where the
//! deleted stretch that it meets ends.
//!
//! A range delete covers the versions that are *older* than itself: a version of a larger or the
//! same sequence number stands.
//!
//! Immutable, shared by reference. Keys are shared with what they were made of.
//!
//! Cost: building takes O(n log n) for `n` deletes, plus the output; n nested deletes have n^2 / 2
//! numbers in their fragments, which [`RangeDeletes::build_for`] cuts down to those that somebody
//! can tell apart. A search compares numbers made of eight bytes of each key, and whole keys
//! only where those are equal: about 0.2 us among 10^5 fragments (docs/performance.md).

mod overlay;
mod sweep;

use std::ops::Range;

use base::Seqno;
use bytes::Bytes;

use crate::bounds::Bounds;

/// The deletion of every version older than `seqno` of every key from `start` on and before `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeDelete {
    /// The first key deleted.
    pub start: Bytes,
    /// The first key not deleted any more. Where it is not after `start`, nothing is deleted.
    pub end: Bytes,
    /// When.
    pub seqno: Seqno,
}

/// A stretch of keys that the same range deletes cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The first key.
    pub start: &'a Bytes,
    /// The first key beyond.
    pub end: &'a Bytes,
    /// When it was deleted, newest first; never empty.
    pub seqnos: &'a [Seqno],
}

impl Fragment<'_> {
    /// The newest delete at or below `at`.
    #[must_use]
    pub fn newest(&self, at: Seqno) -> Option<Seqno> {
        let newer = self.seqnos.partition_point(|seqno| *seqno > at);
        self.seqnos.get(newer).copied()
    }
}

/// A fragment as kept: its numbers follow those of the one before it.
#[derive(Clone, Debug)]
struct Stored {
    start: Bytes,
    end: Bytes,
    seqnos_end: usize,
}

/// The bytes of keys that one number of the index stands for.
const HEAD_BYTES: usize = 8;

/// Range deletes as fragments: sorted, disjoint, each with its sequence numbers descending.
#[derive(Clone, Debug, Default)]
pub struct RangeDeletes {
    fragments: Vec<Stored>,
    seqnos: Vec<Seqno>,
    /// Of each fragment's start and end, the bytes that follow the prefix that all starts share.
    heads: Vec<(u64, u64)>,
    prefix_bytes: usize,
    key_bytes: usize,
}

impl RangeDeletes {
    /// What one fragment takes in memory besides its keys and numbers, bytes.
    pub(crate) const FRAGMENT_BYTES: usize = size_of::<Stored>() + size_of::<(u64, u64)>();

    /// The fragments of `deletes`, in any order, with all their numbers.
    #[must_use]
    pub fn build(deletes: impl IntoIterator<Item = RangeDelete>) -> Self {
        sweep::sweep(deletes, |active, out| out.extend(active.keys().rev()))
    }

    /// The fragments of `deletes` with those of their numbers that somebody may tell apart: the
    /// newest that each of `readers` sees, and all above the last of them. They ascend, and the
    /// last is the present: readers to come stand there or above. Reads anywhere else find too
    /// little. Without readers nothing is left out.
    #[must_use]
    pub fn build_for(deletes: impl IntoIterator<Item = RangeDelete>, readers: &[Seqno]) -> Self {
        sweep::sweep(deletes, |active, out| sweep::visible(active, readers, out))
    }

    /// The fragments of `deletes`, each with its newest number only.
    #[must_use]
    pub fn build_newest(deletes: impl IntoIterator<Item = RangeDelete>) -> Self {
        sweep::sweep(deletes, sweep::newest)
    }

    /// None yet, with room for so many.
    pub(crate) fn with_capacity(fragments: usize, seqnos: usize) -> Self {
        Self {
            fragments: Vec::with_capacity(fragments),
            seqnos: Vec::with_capacity(seqnos),
            ..Self::default()
        }
    }

    /// Appends a fragment after the last.
    pub(crate) fn push(&mut self, start: Bytes, end: Bytes, seqnos: &[Seqno]) {
        let shared = self.fragments.last().is_some_and(|before| before.end == start);
        self.key_bytes += end.len() + if shared { 0 } else { start.len() };
        self.seqnos.extend_from_slice(seqnos);
        self.fragments.push(Stored { start, end, seqnos_end: self.seqnos.len() });
    }

    /// Makes the index, once all fragments are there.
    pub(crate) fn indexed(mut self) -> Self {
        let (Some(first), Some(last)) = (self.fragments.first(), self.fragments.last()) else {
            return self;
        };
        // They ascend, so what first and last share, all share.
        let pairs = first.start.iter().zip(last.start.iter());
        self.prefix_bytes = pairs.take_while(|(one, other)| one == other).count();
        let prefix = first.start.slice(..self.prefix_bytes);
        let heads = self.fragments.iter().map(|Stored { start, end, .. }| {
            // An end without the prefix is after every key that has it.
            let has_prefix = end.starts_with(&prefix);
            let end = if has_prefix { head(end, prefix.len()) } else { u64::MAX };
            (head(start, prefix.len()), end)
        });
        self.heads = heads.collect();
        self
    }

    fn numbers_before(&self, index: usize) -> usize {
        let before = index.checked_sub(1).and_then(|before| self.fragments.get(before));
        before.map_or(0, |before| before.seqnos_end)
    }

    fn fragment(&self, index: usize) -> Option<Fragment<'_>> {
        let Stored { start, end, seqnos_end } = self.fragments.get(index)?;
        let seqnos = self.seqnos.get(self.numbers_before(index)..*seqnos_end)?;
        Some(Fragment { start, end, seqnos })
    }

    /// How many fragments start at or before `key`, and whether the last of them holds it.
    ///
    /// Whole keys are compared only where their heads are equal: they lie elsewhere in memory.
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

    /// The newest delete of `key` at or below `at`.
    #[must_use]
    pub fn newest_covering(&self, key: &[u8], at: Seqno) -> Option<Seqno> {
        self.fragment_at(key)?.newest(at)
    }

    /// The fragment that `key` lies in.
    #[must_use]
    pub fn fragment_at(&self, key: &[u8]) -> Option<Fragment<'_>> {
        let (started, inside) = self.locate(key);
        inside.then(|| self.fragment(started - 1))?
    }

    /// The stretch around `key` within which no fragment begins or ends: its first key and its end,
    /// each unless there is none, and the fragment that it is, or none where nothing is deleted.
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

    /// The fragments that end after `key`, ascending: the one it lies in, and those after it.
    pub fn iter_from(&self, key: &[u8]) -> impl DoubleEndedIterator<Item = Fragment<'_>> {
        let (started, inside) = self.locate(key);
        (started - usize::from(inside)..self.fragments.len())
            .filter_map(|index| self.fragment(index))
    }

    /// The fragments that delete keys from `first` on and before `end`, by position.
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

    /// The deletes that these fragments amount to: one for each number of each fragment.
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

    /// Whether nothing is deleted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The fragments.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.fragments.len()
    }

    /// The sequence numbers of all fragments together.
    #[must_use]
    pub fn seqnos(&self) -> &[Seqno] {
        &self.seqnos
    }

    /// The memory in use, bytes; keys that neighbours share count once.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.fragments.len() * Self::FRAGMENT_BYTES
            + self.seqnos.len() * size_of::<Seqno>()
            + self.key_bytes
    }

    /// The part of them that lies inside `bounds`.
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
        clipped.indexed()
    }

    /// The same keys, deleted at `seqno`.
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

/// The eight bytes of `key` behind its first `skip`, as a number that orders as they do.
fn head(key: &[u8], skip: usize) -> u64 {
    let mut bytes = [0; HEAD_BYTES];
    for (slot, byte) in bytes.iter_mut().zip(key.iter().skip(skip)) {
        *slot = *byte;
    }
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests;
