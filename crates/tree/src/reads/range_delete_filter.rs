//! The range deletes that a walk meets: which versions they hide, and where what they hide ends.
//!
//! For one key, a source holds newer data than those after it (I4), range deletes included. So a
//! range delete hides everything that older sources have in its range, unseen: there the walk jumps
//! over all of it, and reads no page of it. In its own source it hides what is older than itself.
//!
//! Cost: nothing where there are none; otherwise two comparisons of keys for an entry and a source
//! with range deletes, and a binary search wherever a stretch ends.

use std::sync::Arc;

use base::Seqno;
use bytes::Bytes;
use table::RangeDeletes;

use crate::{Memtable, Run};

/// The range deletes under one walk.
#[derive(Default)]
pub(super) struct RangeDeleteFilter {
    /// By source, newest first.
    sources: Vec<SourceDeletes>,
    /// The walk reads as of it.
    at: Seqno,
}

/// Range deletes of one source.
struct SourceDeletes {
    source: usize,
    ranges: Ranges,
    /// The stretch that was looked at last.
    interval: Interval,
}

enum Ranges {
    Memtable(Arc<RangeDeletes>),
    Run(Arc<Run>),
}

/// Keys from `first` on and before `end` that are all deleted alike; none before the first look.
#[derive(Debug)]
struct Interval {
    first: Bytes,
    end: Option<Bytes>,
    deleted: Option<Seqno>,
}

/// What became of a version.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Visibility {
    Visible,
    /// Deleted; what lies next to it may not be.
    Hidden,
    /// Deleted with everything of its source from here to this bound: forward, up to and without
    /// it; backward, back to it.
    HiddenTo(Bytes),
}

impl RangeDeleteFilter {
    /// The range deletes that a reader at `at` sees; sources are `memtables`, then `runs`, each
    /// newest first, and no others: a memtable that was empty when the walk chose its sources may
    /// not be by now.
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

    /// What becomes of the version of `key` at `seqno` in source `source`.
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

    /// The first key at or after `key` that newer sources leave to source `source`; none where that
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
                // Each turn ends a stretch further on.
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

    /// The stretch that `key` lies in, for a reader at `at`.
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
    /// Holds no key.
    const NONE: Self = Self { first: Bytes::new(), end: Some(Bytes::new()), deleted: None };

    fn holds(&self, key: &[u8]) -> bool {
        *self.first <= *key && self.end.as_ref().is_none_or(|end| *key < **end)
    }

    /// Where it ends in the direction of the walk.
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
            Ok(table) => Self::of(table.range_deletes(), key, at),
            // The walk fails where it comes to the table itself.
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
    use super::*;
    use base::{Account, EntryKind, Trailer};
    use compact::Horizon;

    /// The active memtable was empty when the walk chose its sources, and is not any more.
    #[test]
    fn sources_are_numbered_as_the_walk_has_them() {
        let memtable = |first| Memtable::new(&Account::unlimited("test"), Seqno::new(first));
        let (sealed, active) = (memtable(1).unwrap(), memtable(3).unwrap());
        let insert = |memtable: &Memtable, seqno, kind, value: &[u8]| {
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
