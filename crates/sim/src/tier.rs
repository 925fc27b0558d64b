//! The SCM tier of a simulation: its storage, its settings, and checks of its statistics.

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use terracedb::ScmStatistics;

use crate::settings::TierSettings;
use crate::step_error::{Outcome, ensure};
use crate::tier_storage::{Live, TierStorage};

/// The window of a budget of writes.
const MINUTE: Duration = Duration::from_secs(60);

/// What is known of the tier.
#[derive(Debug, Default)]
pub(crate) struct Tier {
    pub(crate) storage: TierStorage,
    /// What the process that runs has, or had last.
    pub(crate) settings: Option<TierSettings>,
    /// What that one told when it was looked at last.
    pub(crate) counted: ScmStatistics,
    /// Bytes that it and those before it in the same place had written by when, and with what budget, for a
    /// minute; and what those before it had.
    pub(crate) written: VecDeque<(Duration, u64, u64)>,
    pub(crate) before: u64,
    /// It was not looked at yet.
    pub(crate) is_new: bool,
    /// What all of them did.
    pub(crate) sums: TierSums,
}

/// What the tiers of a simulation did: shows how much of them it reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierSums {
    /// Processes that had one, and those in which it ended as off.
    pub processes: u64,
    /// See `processes`.
    pub off: u64,
    /// Pages that were found when a tier was opened.
    pub restored: u64,
    /// Pages that were written, and those of them that left DRAM, and that merges carried over.
    pub written: u64,
    /// See `written`.
    pub demoted: u64,
    /// See `written`.
    pub carried: u64,
    /// Lookups that found their page.
    pub hits: u64,
    /// Pages that were copied up.
    pub promoted: u64,
    /// Pages that went for others, or with their file.
    pub dropped: u64,
    /// Pages whose bytes were wrong.
    pub damaged: u64,
}

impl AddAssign for TierSums {
    fn add_assign(&mut self, other: Self) {
        self.processes += other.processes;
        self.off += other.off;
        self.restored += other.restored;
        self.written += other.written;
        self.demoted += other.demoted;
        self.carried += other.carried;
        self.hits += other.hits;
        self.promoted += other.promoted;
        self.dropped += other.dropped;
        self.damaged += other.damaged;
    }
}

impl Tier {
    pub(crate) fn check_counts(
        &mut self,
        counts: &ScmStatistics,
        failure: Option<String>,
    ) -> Outcome {
        let (before, storage) = (self.counted, &self.storage);
        self.counted = *counts;
        let (failed, may_fail) = (failure.is_some(), storage.may_fail());
        ensure!(!failed || may_fail, "tier off: {failure:?}");
        let missing = matches!(storage.live, Some(Live::Missing));
        ensure!(failed || !missing, "a tier on nothing");
        ensure!(counts.resident <= counts.slots, "tier: more than its slots: {counts:?}");
        ensure!(failed || counts.slots > 0, "tier: no slots: {counts:?}");
        let in_doubt = storage.may_be_damaged || may_fail;
        ensure!(in_doubt || counts.damaged == 0, "tier: damaged by itself: {counts:?}");
        // What came is there, or went; what a write that failed brought was not counted.
        let page = PAGE_BYTES as u64;
        let bytes = counts.bytes_written.checked_sub(counts.bytes_written_map);
        ensure!(bytes.is_some_and(|bytes| bytes % page == 0), "tier: bytes: {counts:?}");
        let came = counts.restored + bytes.unwrap_or(0) / page;
        let told = counts.resident + counts.dropped + counts.damaged;
        ensure!(
            told == came || failed && told < came,
            "tier: {came} came, {told} told: {counts:?}"
        );
        let grew = |of: fn(&ScmStatistics) -> u64| of(&before) <= of(counts);
        ensure!(
            grew(|c| c.hits_data)
                && grew(|c| c.misses)
                && grew(|c| c.admitted)
                && grew(|c| c.bytes_written)
                && grew(|c| c.dropped)
                && grew(|c| c.promoted),
            "tier: fewer than before: {before:?}, {counts:?}"
        );
        Ok(())
    }

    /// No minute has more than its budget, `budget` bytes a second now: of processes with several, than the
    /// largest.
    pub(crate) fn check_budget(&mut self, budget: u64, now: Duration) -> Outcome {
        // One that finds nothing may be in a place of its own, which nobody wrote to.
        if std::mem::take(&mut self.is_new) && self.counted.restored == 0 {
            self.written.clear();
        }
        let written = self.before + self.counted.bytes_written;
        self.written.push_back((now, written, budget));
        while self.written.front().is_some_and(|(then, ..)| now.saturating_sub(*then) > MINUTE) {
            self.written.pop_front();
        }
        let most = self.written.iter().map(|(.., budget)| *budget).max().unwrap_or(budget);
        let bytes = written - self.written.front().map_or(0, |(_, bytes, _)| *bytes);
        ensure!(bytes <= most * MINUTE.as_secs(), "tier: {bytes} in a minute: {:?}", self.counted);
        Ok(())
    }
}
