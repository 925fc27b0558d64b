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
pub(super) struct Covers {
    /// By source, newest first.
    covers: Vec<Cover>,
    /// The walk reads as of it.
    at: Seqno,
}

/// Range deletes of one source.
struct Cover {
    source: usize,
    ranges: Ranges,
    /// The stretch that was looked at last.
    stretch: Stretch,
}

enum Ranges {
    Memtable(Arc<RangeDeletes>),
    Run(Arc<Run>),
}

/// Keys from `first` on and before `end` that are all deleted alike; none before the first look.
#[derive(Debug)]
struct Stretch {
    first: Bytes,
    end: Option<Bytes>,
    deleted: Option<Seqno>,
}

/// What became of a version.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stands,
    /// Deleted; what lies next to it may not be.
    Hidden,
    /// Deleted with everything of its source from here to this bound: forward, up to and without
    /// it; backward, back to it.
    HiddenTo(Bytes),
}

impl Covers {
    /// The range deletes that a reader at `at` sees; sources are `memtables`, then `runs`, each
    /// newest first, and no others: a memtable that was empty when the walk chose its sources may
    /// not be by now.
    pub(super) fn of(memtables: &[&Arc<Memtable>], runs: &[Arc<Run>], at: Seqno) -> Self {
        let of_memtable = |(source, deletes)| Cover::new(source, Ranges::Memtable(deletes));
        let mut covers = Vec::new();
        for (source, memtable) in memtables.iter().enumerate() {
            let seen = memtable.deleted().seen_at(at).into_iter().map(|deletes| (source, deletes));
            covers.extend(seen.map(of_memtable));
        }
        for (source, run) in (memtables.len()..).zip(runs) {
            if run.has_range_deletes() {
                covers.push(Cover::new(source, Ranges::Run(Arc::clone(run))));
            }
        }
        Self { covers, at }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.covers.is_empty()
    }

    /// What becomes of the version of `key` at `seqno` in source `source`.
    pub(super) fn fate(&mut self, source: usize, key: &[u8], seqno: Seqno, forward: bool) -> Fate {
        let mut fate = Fate::Stands;
        for cover in self.covers.iter_mut().take_while(|cover| cover.source <= source) {
            let is_newer = cover.source < source;
            let stretch = cover.look(key, self.at);
            if stretch.deleted.is_none_or(|deleted| deleted <= seqno) {
                continue;
            }
            if is_newer && let Some(bound) = stretch.bound(forward) {
                return Fate::HiddenTo(bound.clone());
            }
            fate = Fate::Hidden;
        }
        fate
    }

    /// The first key at or after `key` that newer sources leave to source `source`; none where that
    /// is `key` itself.
    pub(super) fn first_left(&mut self, source: usize, key: &[u8]) -> Option<Bytes> {
        let mut first: Option<Bytes> = None;
        loop {
            let from = first.as_deref().unwrap_or(key);
            let newer = self.covers.iter_mut().take_while(|cover| cover.source < source);
            let end = newer.into_iter().find_map(|cover| {
                let stretch = cover.look(from, self.at);
                stretch.deleted.and(stretch.end.clone())
            });
            match end {
                // Each turn ends a stretch further on.
                Some(end) => first = Some(end),
                None => return first,
            }
        }
    }
}

impl Cover {
    fn new(source: usize, ranges: Ranges) -> Self {
        Self { source, ranges, stretch: Stretch::NONE }
    }

    /// The stretch that `key` lies in, for a reader at `at`.
    fn look(&mut self, key: &[u8], at: Seqno) -> &Stretch {
        if !self.stretch.holds(key) {
            self.stretch = match &self.ranges {
                Ranges::Memtable(deletes) => Stretch::of(deletes, key, at),
                Ranges::Run(run) => Stretch::in_run(run, key, at),
            };
        }
        &self.stretch
    }
}

impl Stretch {
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
        let mut stretch = match piece.table() {
            Ok(table) => Self::of(table.range_deletes(), key, at),
            // The walk fails where it comes to the table itself.
            Err(_) => Self { first: Bytes::new(), end: None, deleted: None },
        };
        let range = piece.range();
        stretch.first = stretch.first.max(range.first.clone());
        stretch.end = match (stretch.end.take(), &range.end) {
            (Some(end), Some(last)) => Some(end.min(last.clone())),
            (end, last) => end.or_else(|| last.clone()),
        };
        stretch
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
        let mut covers = Covers::of(&memtables, &[], Seqno::new(2));
        assert_eq!(covers.fate(0, b"a", Seqno::new(1), true), Fate::Hidden);
        assert_eq!(covers.fate(1, b"b", Seqno::new(1), true), Fate::HiddenTo("c".into()));
    }
}
