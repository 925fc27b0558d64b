//! The held filters of the next runs of a lookup, probed together: the cache lines of all of them are
//! requested before the first is read, so that the misses of several runs take about as long as one.
//!
//! Only probes that need no page: a filter that is not held says nothing here. An answer holds for the
//! versions at or before the position at which it was asked, so also for a position further back.

use std::array;
use std::sync::Arc;

use base::Trailer;

use crate::Run;

/// Runs that are probed together. A lookup that finds its key in the first of them probes the others in vain.
const TOGETHER: usize = 4;

/// What held filters say about some runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FiltersAhead {
    /// The runs before this one were probed, or need no probe.
    end: usize,
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
    /// The run may have one.
    Admitted,
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
            // The search of one table probes its filter itself.
            if run + 1 >= runs.len() {
                return Answer::Unknown;
            }
            self.end = run + TOGETHER;
            self.answers = probe(runs.get(run..).unwrap_or_default(), key, hash, at);
        }
        let number = (run + TOGETHER).saturating_sub(self.end);
        self.answers.get(number).copied().unwrap_or_default()
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
    probes.map(|probe| match probe {
        None => Answer::Unknown,
        Some(probe) if probe.may_contain() => Answer::Admitted,
        Some(_) => Answer::Absent,
    })
}
