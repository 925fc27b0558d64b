//! The held filters of the next runs of a lookup, probed together: the cache lines of all of them are
//! requested before the first is read, so that the misses of several runs take about as long as one.
//!
//! Only probes that need no page: a filter that is not held says nothing here. An answer holds for the
//! versions at or before the position at which it was asked, so also for a position further back.

use std::array;
use std::sync::Arc;

use base::Trailer;

use crate::Run;

/// Runs that are probed together. A lookup that finds its key in the first of them has probed the others in
/// vain: some 60 ns each.
const TOGETHER: usize = 4;

/// What held filters say about some runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FiltersAhead {
    /// The runs before this one were probed, or need no probe.
    end: usize,
    /// Whether the key is absent from each of the last [`TOGETHER`] runs before `end`, the first in the
    /// lowest bit.
    absent: u8,
}

impl FiltersAhead {
    /// Whether the run with index `run` is known to have no version of `key`, with the hash `hash`, at or
    /// before `at`. Range deletes do not count. Runs are asked about in order.
    #[inline]
    pub(super) fn is_absent(
        &mut self,
        runs: &[Arc<Run>],
        run: usize,
        key: &[u8],
        hash: u64,
        at: Trailer,
    ) -> bool {
        if run >= self.end {
            // The search of one table probes its filter itself.
            if run + 1 >= runs.len() {
                return false;
            }
            self.end = run + TOGETHER;
            self.absent = probe(runs.get(run..).unwrap_or_default(), key, hash, at);
        }
        let number = (run + TOGETHER).saturating_sub(self.end);
        self.absent >> number & 1 == 1
    }
}

/// Which of the first [`TOGETHER`] of `runs` do not have the key, a bit each.
fn probe(runs: &[Arc<Run>], key: &[u8], hash: u64, at: Trailer) -> u8 {
    let mut runs = runs.iter();
    let probes: [_; TOGETHER] = array::from_fn(|_| {
        let probe = runs.next()?.find(key)?.table().ok()?.filter_probe(key, hash, at)?;
        probe.prefetch();
        Some(probe)
    });
    probes.iter().enumerate().fold(0, |absent, (number, probe)| {
        let rules_out = probe.as_ref().is_some_and(|probe| !probe.may_contain());
        absent | u8::from(rules_out) << number
    })
}
