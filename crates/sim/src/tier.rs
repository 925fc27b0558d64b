//! The SCM tier of a simulation: its storage, its settings, and checks of its statistics.

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use terracedb::stats::ScmStatistics;

use crate::settings::TierSettings;
use crate::step_error::{Outcome, ensure};
use crate::tier_storage::{Live, TierStorage};

/// Window of the write budget.
const MINUTE: Duration = Duration::from_secs(60);

/// Slots with pages that one page of the stored map names (docs/format/scm-tier.md).
const SLOTS_PER_MAP_PAGE: usize = 400;

/// The tier and its expected statistics.
#[derive(Debug, Default)]
pub(crate) struct Tier {
    pub(crate) storage: TierStorage,
    /// Settings of the tier in the running process, or in the last one.
    pub(crate) settings: Option<TierSettings>,
    /// Statistics at the last check.
    pub(crate) counted: ScmStatistics,
    /// For the last minute and its start: time, total bytes written to this storage by all processes so far,
    /// and the write budget.
    pub(crate) written: VecDeque<(Duration, u64, u64)>,
    pub(crate) before: u64,
    /// Whether the tier was not checked yet.
    pub(crate) is_new: bool,
    /// Sums over all processes.
    pub(crate) sums: TierSums,
}

/// Sums over all tiers of a simulation: they show how much of the tier the simulation exercises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierSums {
    /// Processes with a tier.
    pub processes: u64,
    /// Processes with a tier that was off at the end.
    pub off: u64,
    /// Pages found when a tier was opened.
    pub restored: u64,
    /// Pages written.
    pub written: u64,
    /// Pages written because DRAM evicted them.
    pub demoted: u64,
    /// Pages written by merges (warm outputs).
    pub carried: u64,
    /// Lookups that hit.
    pub hits: u64,
    /// Pages promoted to DRAM.
    pub promoted: u64,
    /// Pages evicted, or dropped with their file.
    pub dropped: u64,
    /// Pages that failed their checksum.
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
        ensure!(failed || !missing, "a tier without storage");
        ensure!(counts.resident <= counts.slots, "tier: more pages than slots: {counts:?}");
        ensure!(failed || counts.slots > 0, "tier: no slots: {counts:?}");
        let in_doubt = storage.may_be_damaged || may_fail;
        ensure!(in_doubt || counts.damaged == 0, "tier: damaged pages without a fault: {counts:?}");
        // Every page that came in is resident, dropped or damaged. Failed writes are not counted.
        let page = PAGE_BYTES as u64;
        let bytes = counts.bytes_written.checked_sub(counts.bytes_written_map);
        ensure!(bytes.is_some_and(|bytes| bytes % page == 0), "tier: bytes: {counts:?}");
        let came = counts.restored + bytes.unwrap_or(0) / page;
        let counted = counts.resident + counts.dropped + counts.damaged;
        ensure!(
            counted == came || failed && counted < came,
            "tier: {came} pages came in, {counted} are accounted for: {counts:?}"
        );
        let grew = |of: fn(&ScmStatistics) -> u64| of(&before) <= of(counts);
        ensure!(
            grew(|c| c.hits_data)
                && grew(|c| c.misses)
                && grew(|c| c.admitted)
                && grew(|c| c.bytes_written)
                && grew(|c| c.dropped)
                && grew(|c| c.promoted),
            "tier: counters went down: {before:?}, {counts:?}"
        );
        Ok(())
    }

    /// Checks that no minute exceeds its write budget, `budget` bytes per second now. If processes with
    /// different budgets share a minute, the largest counts.
    pub(crate) fn check_budget(&mut self, budget: u64, now: Duration) -> Outcome {
        // A tier that restored nothing may be on new storage, with no earlier writes.
        if std::mem::take(&mut self.is_new) && self.counted.restored == 0 {
            self.written.clear();
        }
        let written = self.before + self.counted.bytes_written;
        self.written.push_back((now, written, budget));
        while self.written.get(1).is_some_and(|(then, ..)| is_before_minute(*then, now)) {
            self.written.pop_front();
        }
        let is_recent = |then: &Duration| now.saturating_sub(*then) <= MINUTE;
        let mut minute = self.written.iter().filter(|(then, ..)| is_recent(then)).peekable();
        let bytes = written - minute.peek().map_or(0, |(_, bytes, _)| *bytes);
        let most = minute.map(|(.., budget)| *budget).max().unwrap_or(budget);
        ensure!(
            bytes <= most * MINUTE.as_secs(),
            "tier: {bytes} bytes written in a minute: {:?}",
            self.counted
        );
        Ok(())
    }

    /// Whether a tier that is closed at `now` may leave an old slot map, because the write budget of the
    /// minute may not suffice for its map pages.
    pub(crate) fn may_leave_old_map(&self, now: Duration) -> bool {
        let Some((settings, budget)) = self.settings.and_then(|it| Some((it, it.write_budget?)))
        else {
            return false;
        };
        // A tier writes no slot before the budget that an earlier process may have used is free again.
        let earlier = self.written.iter().rev().find(|(then, ..)| is_before_minute(*then, now));
        let before = earlier.map_or(0, |(_, bytes, _)| *bytes).max(self.before);
        let written = self.before + self.counted.bytes_written - before;
        let map = (settings.pages.div_ceil(SLOTS_PER_MAP_PAGE) * PAGE_BYTES) as u64;
        written + map > budget * MINUTE.as_secs()
    }
}

/// Whether writes at `then` no longer count at `now`: the budget counts whole seconds.
const fn is_before_minute(then: Duration, now: Duration) -> bool {
    then.as_secs() + MINUTE.as_secs() < now.as_secs()
}
