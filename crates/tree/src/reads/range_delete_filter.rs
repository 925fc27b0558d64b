//! Filters the versions that range deletes hide from a merging iterator.
//!
//! For each key, a source has newer data than the sources after it (I4), range deletes included. So a range
//! delete hides everything in its range in all older sources: there the iterator jumps to the end of the
//! range and reads none of its pages. In its own source it hides the versions that are older than itself.
//!
//! Cost: nothing without range deletes; otherwise two key comparisons per entry and source with range
//! deletes, and a binary search at the end of each interval.

use std::sync::Arc;

use base::Seqno;
use bytes::Bytes;
use table::RangeDeletes;

use crate::{Memtable, Run};

/// The range deletes of all sources of one walk.
#[derive(Default)]
pub(super) struct RangeDeleteFilter {
    /// The sources with range deletes, newest first.
    sources: Vec<SourceDeletes>,
    /// The read sequence number.
    at: Seqno,
}

/// The range deletes of one source.
struct SourceDeletes {
    source: usize,
    ranges: Ranges,
    /// The interval that was looked up last.
    interval: Interval,
}

enum Ranges {
    Memtable(Arc<RangeDeletes>),
    Run(Arc<Run>),
}

/// The keys from `first` on and before `end`, which are all deleted by the same range delete or all not
/// deleted. Empty before the first lookup.
#[derive(Debug)]
struct Interval {
    first: Bytes,
    end: Option<Bytes>,
    deleted: Option<Seqno>,
}

/// Whether a version is visible.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Visibility {
    Visible,
    /// Deleted; its neighbours may be visible.
    Hidden,
    /// Deleted with all entries of its source up to this key: forward, up to and without it; backward, down
    /// to and with it.
    HiddenTo(Bytes),
}

impl RangeDeleteFilter {
    /// The range deletes that are visible at `at`. Sources are `memtables`, then `runs`, each newest first;
    /// they must be those of the walk, since a memtable that was empty when the walk chose its sources may
    /// have entries now.
    pub(super) fn of(memtables: &[&Arc<Memtable>], runs: &[Arc<Run>], at: Seqno) -> Self {
        let of_memtable = |(source, deletes)| SourceDeletes::new(source, Ranges::Memtable(deletes));
        let mut sources = Vec::new();
        for (source, memtable) in memtables.iter().enumerate() {
            let visible =
                memtable.deleted().visible_at(at).into_iter().map(|deletes| (source, deletes));
            sources.extend(visible.map(of_memtable));
        }
        for (source, run) in (memtables.len()..).zip(runs) {
            if run.has_range_deletes() {
                sources.push(SourceDeletes::new(source, Ranges::Run(Arc::clone(run))));
            }
        }
        Self { sources, at }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The visibility of the version of `key` at `seqno` in source `source`.
    pub(super) fn visibility(
        &mut self,
        source: usize,
        key: &[u8],
        seqno: Seqno,
        forward: bool,
    ) -> Visibility {
        let mut visibility = Visibility::Visible;
        for deletes in self.sources.iter_mut().take_while(|deletes| deletes.source <= source) {
            let is_newer = deletes.source < source;
            let interval = deletes.interval_at(key, self.at);
            if interval.deleted.is_none_or(|deleted| deleted <= seqno) {
                continue;
            }
            if is_newer && let Some(bound) = interval.bound(forward) {
                return Visibility::HiddenTo(bound.clone());
            }
            visibility = Visibility::Hidden;
        }
        visibility
    }

    /// The first key at or after `key` that newer sources do not delete for source `source`; `None` if that
    /// is `key` itself.
    pub(super) fn first_undeleted(&mut self, source: usize, key: &[u8]) -> Option<Bytes> {
        let mut first: Option<Bytes> = None;
        loop {
            let from = first.as_deref().unwrap_or(key);
            let newer = self.sources.iter_mut().take_while(|deletes| deletes.source < source);
            let end = newer.into_iter().find_map(|deletes| {
                let interval = deletes.interval_at(from, self.at);
                interval.deleted.and(interval.end.clone())
            });
            match end {
                // Each repetition ends a later interval.
                Some(end) => first = Some(end),
                None => return first,
            }
        }
    }
}

impl SourceDeletes {
    fn new(source: usize, ranges: Ranges) -> Self {
        Self { source, ranges, interval: Interval::NONE }
    }

    /// The interval that contains `key`, for a reader at `at`.
    fn interval_at(&mut self, key: &[u8], at: Seqno) -> &Interval {
        if !self.interval.holds(key) {
            self.interval = match &self.ranges {
                Ranges::Memtable(deletes) => Interval::of(deletes, key, at),
                Ranges::Run(run) => Interval::in_run(run, key, at),
            };
        }
        &self.interval
    }
}

impl Interval {
    /// Contains no key.
    const NONE: Self = Self { first: Bytes::new(), end: Some(Bytes::new()), deleted: None };

    fn holds(&self, key: &[u8]) -> bool {
        *self.first <= *key && self.end.as_ref().is_none_or(|end| *key < **end)
    }

    /// The end in the direction of the walk.
    fn bound(&self, forward: bool) -> Option<&Bytes> {
        if forward { self.end.as_ref() } else { Some(&self.first) }
    }

    fn of(deletes: &RangeDeletes, key: &[u8], at: Seqno) -> Self {
        let (first, end, fragment) = deletes.stretch_at(key);
        Self {
            first: first.cloned().unwrap_or_default(),
            end: end.cloned(),
            deleted: fragment.and_then(|fragment| fragment.newest(at)),
        }
    }

    fn in_run(run: &Run, key: &[u8], at: Seqno) -> Self {
        let next = run.at_or_after(key);
        let piece = run.pieces().get(next);
        let Some(piece) = piece.filter(|piece| piece.range().holds(key)) else {
            let before = next.checked_sub(1).and_then(|before| run.pieces().get(before));
            return Self {
                first: before.and_then(|before| before.range().end.clone()).unwrap_or_default(),
                end: piece.map(|piece| piece.range().first.clone()),
                deleted: None,
            };
        };
        let mut interval = match piece.table() {
            Ok(_) => Self::of(piece.range_deletes(), key, at),
            // The walk fails when it reaches the table itself.
            Err(_) => Self { first: Bytes::new(), end: None, deleted: None },
        };
        let range = piece.range();
        interval.first = interval.first.max(range.first.clone());
        interval.end = match (interval.end.take(), &range.end) {
            (Some(end), Some(last)) => Some(end.min(last.clone())),
            (end, last) => end.or_else(|| last.clone()),
        };
        interval
    }
}

#[cfg(test)]
mod tests {
    use base::{Account, EntryKind, Trailer, Write, WriteSize};
    use compact::Horizon;

    use super::*;

    /// The active memtable was empty when the walk chose its sources, and is not empty any more.
    #[test]
    fn source_numbers_are_those_of_the_walk_even_if_a_memtable_fills_later() {
        let memtable = |first| Memtable::new(&Account::unlimited("test"), Seqno::new(first));
        let (sealed, active) = (memtable(1).unwrap(), memtable(3).unwrap());
        let insert = |memtable: &Memtable, seqno, kind, value: &[u8]| {
            let write = match kind {
                EntryKind::DeleteRange => Write::DeleteRange { end: value },
                _ => Write::Put(value),
            };
            memtable.reserve(WriteSize::of(b"a", write)).unwrap();
            memtable.insert(b"a", Trailer::new(Seqno::new(seqno), kind), value, Horizon::default);
        };
        insert(&sealed, 1, EntryKind::Put, b"v");
        insert(&sealed, 2, EntryKind::DeleteRange, b"c");
        let memtables: Vec<_> =
            [&active, &sealed].into_iter().filter(|it| !it.is_empty()).collect();
        insert(&active, 3, EntryKind::Put, b"v");
        let mut sources = RangeDeleteFilter::of(&memtables, &[], Seqno::new(2));
        assert_eq!(sources.visibility(0, b"a", Seqno::new(1), true), Visibility::Hidden);
        assert_eq!(
            sources.visibility(1, b"b", Seqno::new(1), true),
            Visibility::HiddenTo("c".into())
        );
    }
}
