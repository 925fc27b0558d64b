//! The held filters of the next runs of a lookup, probed together: the cache lines of all of them are
//! requested before the first is read, so that the misses of several runs take about as long as one.
//!
//! Only probes that need no page: a filter that is not held says nothing here. An answer holds for the
//! versions at or before the position at which it was asked, so also for a position further back; the
//! partition that it names is that of the position itself.

use std::array;
use std::sync::Arc;

use base::Trailer;
use table::{FilterProbe, Table};

use crate::Run;

/// Runs that are probed together. A lookup that finds its key in the first of them probes the others in vain.
const TOGETHER: usize = 4;

/// What held filters say about some runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FiltersAhead {
    /// The runs before this one were probed, or need no probe.
    end: usize,
    /// The position for which they were probed.
    at: Option<Trailer>,
    /// What the filters of the last [`TOGETHER`] runs before `end` say.
    answers: [Answer; TOGETHER],
}

/// What the held filter of a run says about a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing: it is not held.
    #[default]
    Unknown,
    /// The run has no version of the key.
    Absent,
    /// The run may have one: in this partition of its table, if it is known.
    Admitted(Option<usize>),
}

impl Answer {
    /// What the held filter of `table`, the only one of a run with keys around `key`, says.
    #[inline]
    pub(super) fn of(table: &Table, key: &[u8], hash: u64, at: Trailer) -> Self {
        Self::from(table.filter_probe(key, hash, at))
    }
}

impl From<Option<FilterProbe>> for Answer {
    #[inline]
    fn from(probe: Option<FilterProbe>) -> Self {
        match probe {
            None => Self::Unknown,
            Some(probe) if probe.may_contain() => Self::Admitted(Some(probe.partition())),
            Some(_) => Self::Absent,
        }
    }
}

impl FiltersAhead {
    /// Whether the run with index `run` has versions of `key`, with the hash `hash`, at or before `at`. Range
    /// deletes do not count. Runs are asked about in order.
    #[inline]
    pub(super) fn ask(
        &mut self,
        runs: &[Arc<Run>],
        run: usize,
        key: &[u8],
        hash: u64,
        at: Trailer,
    ) -> Answer {
        if run >= self.end {
            // The filter of one run is probed where its table is searched.
            if run + 1 >= runs.len() {
                return Answer::Unknown;
            }
            self.end = run + TOGETHER;
            self.at = Some(at);
            self.answers = probe(runs.get(run..).unwrap_or_default(), key, hash, at);
        }
        let number = (run + TOGETHER).saturating_sub(self.end);
        match self.answers.get(number).copied().unwrap_or_default() {
            Answer::Admitted(_) if self.at != Some(at) => Answer::Admitted(None),
            answer => answer,
        }
    }
}

/// Asks about the first [`TOGETHER`] of `runs`.
fn probe(runs: &[Arc<Run>], key: &[u8], hash: u64, at: Trailer) -> [Answer; TOGETHER] {
    let mut runs = runs.iter();
    let probes: [_; TOGETHER] = array::from_fn(|_| {
        let probe = runs.next()?.find(key)?.table().ok()?.filter_probe(key, hash, at)?;
        probe.prefetch();
        Some(probe)
    });
    probes.map(Answer::from)
}
