//! The run of dead keys that a walk steps over: keys whose newest visible version is a tombstone, or expired.
//!
//! A walk asks the keyspace's dead spans ([`crate::DeadSpans`]) whether it can jump: before it positions its
//! sources, at the first dead key, and then at ever longer distances. A run of [`NOTE_KEYS_MIN`] dead keys
//! becomes a span itself.

use base::{EntryKind, Seqno, Trailer};

use super::{MergingIter, Phase, Source, Start};
use crate::dead_spans::{ReadAt, successor};

/// The dead keys after which a run is noted. A note costs a search of the active memtable over as many keys.
const NOTE_KEYS_MIN: u32 = 16;

/// The dead keys stepped over since the run began.
#[derive(Debug, Default)]
pub(super) struct DeadRun {
    /// Forward: no key from here up to the last dead key has a value. Backward: the same down to the last
    /// dead key, from before here.
    bound: Vec<u8>,
    /// Whether `bound` is set.
    is_open: bool,
    /// Dead keys since the run began or jumped.
    keys: u32,
    /// The newest tombstone in it.
    newest: Seqno,
    /// The newest visible version of the key that a backward walk resolves.
    resolved: Seqno,
    /// The key that has a version which is not visible yet and no tombstone: it is not dead for later reads.
    barred: Option<Vec<u8>>,
    /// Whether a source left out versions that the walk did not see.
    has_gap: bool,
}

impl DeadRun {
    /// Forgets the run.
    fn close(&mut self) {
        (self.is_open, self.keys, self.newest) = (false, 0, Seqno::ZERO);
    }

    /// Begins a move.
    pub(super) fn begin(&mut self) {
        self.close();
        (self.barred, self.has_gap) = (None, false);
    }

    fn open(&mut self, bound: &[u8]) {
        self.bound.clear();
        self.bound.extend_from_slice(bound);
        self.is_open = true;
    }

    /// Begins a walk whose sources are positioned at `bound`.
    pub(super) fn begin_at(&mut self, bound: &[u8]) {
        self.begin();
        self.open(bound);
    }

    /// A source left out versions that the walk did not see.
    pub(super) const fn leave_gap(&mut self) {
        self.has_gap = true;
    }

    /// Notes the newest visible version so far of the key that a backward walk resolves.
    pub(super) fn resolves(&mut self, trailer: Trailer) {
        self.resolved = trailer.seqno();
    }

    /// The walk met a version of `key` that is not visible yet.
    pub(super) fn meet_invisible(&mut self, key: &[u8], trailer: Trailer) {
        if !matches!(trailer.kind(), Ok(EntryKind::Delete)) {
            self.close();
            if self.barred.as_deref() != Some(key) {
                self.barred = Some(key.to_vec());
            }
        }
    }

    /// Counts a dead key. `false` if it is not dead for later reads.
    fn add(&mut self, key: &[u8], newest: Seqno, forward: bool) -> bool {
        if self.barred.as_deref() == Some(key) {
            self.close();
            return false;
        }
        if !self.is_open {
            if forward { self.open(key) } else { self.open(&successor(key)) }
        }
        self.keys = self.keys.saturating_add(1);
        self.newest = self.newest.max(newest);
        true
    }
}

impl MergingIter {
    const fn read_at(&self) -> ReadAt {
        ReadAt { seqno: self.at, now: self.now }
    }

    /// Begins a seek: starts behind a dead span if the target is in one.
    pub(super) fn begin_seek(&mut self) {
        match self.start {
            Start::First | Start::AtOrAfter => {
                let end = self.view.read_context.dead_spans().end(&self.target, self.read_at());
                if let Some(end) = end {
                    (self.target, self.start) = (end, Start::AtOrAfter);
                }
                self.dead.begin_at(&self.target);
            }
            Start::Before => self.dead.begin_at(&self.target),
            Start::Last => self.dead.begin(),
        }
    }

    /// The walk stepped over the dead key in `skip` (forward) or `spare` (backward), whose newest tombstone
    /// is at `newest`. Returns whether the walk jumps.
    pub(super) fn step_over(&mut self, newest: Seqno) -> bool {
        let key = match self.forward {
            true => self.skip.as_deref().unwrap_or_default(),
            false => &self.spare,
        };
        if !self.dead.add(key, newest, self.forward) {
            return false;
        }
        // The distances double, so that a walk over many dead keys asks seldom.
        if !self.dead.keys.is_power_of_two() || !self.view.read_context.dead_spans().any() {
            return false;
        }
        let (spans, read) = (self.view.read_context.dead_spans(), self.read_at());
        let (start, target) = match self.forward {
            true => (Start::AtOrAfter, spans.end(key, read)),
            false => (Start::Before, spans.start(key, read)),
        };
        let Some(target) = target else { return false };
        self.end_dead_run(None);
        (self.start, self.target, self.skip) = (start, target, None);
        self.dead.close();
        self.dead.open(&self.target);
        self.phase = Phase::Position(0);
        true
    }

    /// The walk ended at a key with a value, or at the last key within the bounds if `ended` is `Some`; or it
    /// jumps.
    pub(super) fn end_dead_run(&mut self, ended: Option<bool>) {
        if self.dead.keys < NOTE_KEYS_MIN || !self.dead.is_open || self.dead.has_gap {
            return;
        }
        let living = self.key().filter(|_| ended == Some(true));
        let (view, read) = (&self.view, self.read_at());
        let (spans, account) = (view.read_context.dead_spans(), view.read_context.account());
        let note = |from: &[u8], to: &[u8]| {
            spans.note(view, (from, to), self.dead.newest, read, account);
        };
        match (self.forward, living) {
            (true, Some(key)) => note(&self.dead.bound, key),
            (true, None) => {
                note(&self.dead.bound, &successor(self.skip.as_deref().unwrap_or_default()));
            }
            (false, Some(key)) => note(&successor(key), &self.dead.bound),
            (false, None) if ended.is_some() => note(self.bounds.first(), &self.dead.bound),
            (false, None) => note(&self.spare, &self.dead.bound),
        }
        self.dead.close();
    }

    /// The move ended, at a key with a value or past an end.
    pub(super) fn end_walk(&mut self, is_valid: bool) {
        self.end_dead_run(Some(is_valid));
        if self.stepped_over > 0 {
            self.view.read_context.walks().stepped_over.add(self.stepped_over);
            self.stepped_over = 0;
        }
    }

    /// Counts the runs that a seek found an entry in.
    pub(super) fn count_seek(&mut self) {
        if std::mem::take(&mut self.seeks) {
            let is_run =
                |number: &&usize| matches!(self.sources.get(**number), Some(Source::Run(_)));
            let runs = self.heap.iter().filter(is_run).count();
            self.view.read_context.walks().seek_runs.add(runs as u64);
        }
    }

    /// Notes the visible version that decides the key which a backward walk resolves.
    pub(super) fn newest_resolved(&self) -> Seqno {
        self.dead.resolved
    }
}
