//! The tier below DRAM: it begins and ends with a process, is troubled, and is held to what it counts.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use base::{Clock, Rng};
use media::{Fault, OpKind, Rule};
use terracedb::{Scm, ScmStatistics};

use crate::history::Left;
use crate::place::{FILE, Live, Place};
use crate::settings::Below;
use crate::trouble::{Outcome, ensure};
use crate::world::World;

/// The window of a budget of writes.
const MINUTE: Duration = Duration::from_secs(60);

/// What is known of the tier.
#[derive(Debug, Default)]
pub(crate) struct Tier {
    place: Place,
    /// What the process that runs has, or had last.
    below: Option<Below>,
    /// What that one told when it was looked at last.
    counted: ScmStatistics,
    /// Bytes that it and those before it in the same place had written by when, and with what budget, for a
    /// minute; and what those before it had.
    written: VecDeque<(Duration, u64, u64)>,
    before: u64,
    /// It was not looked at yet.
    is_new: bool,
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

impl World {
    /// A process begins: the tier that it has, if any.
    pub(crate) fn begin_tier(&mut self) -> Outcome<Option<Scm>> {
        self.tier.before += self.tier.counted.bytes_written;
        if self.tier.below.is_none_or(|below| below.write_budget.is_none()) {
            self.tier.written.clear();
        }
        (self.tier.below, self.tier.counted) = (self.variant.below, ScmStatistics::default());
        self.tier.is_new = true;
        let Some(below) = self.variant.below else { return Ok(None) };
        let mut rng = self.tier_rng();
        let fate = self.tier.place.prepare(&below, &self.clock, &mut rng)?;
        self.note(format!("  tier: {below:?}, {fate}"));
        let Some(live) = &self.tier.place.live else { return Ok(None) };
        let scm = Scm::given(rng.next_u64(), live.open(&below)).placement(below.placement);
        Ok(Some(match below.write_budget {
            Some(budget) => scm.write_budget(budget),
            None => scm,
        }))
    }

    /// A process ended or dies: what is there now is what its tier leaves, whatever that writes as it is
    /// taken apart.
    pub(crate) fn leave_tier(&mut self, left: Option<Left>) -> Outcome {
        let mut rng = self.tier_rng();
        Ok(self.tier.place.leave(left, &mut rng)?)
    }

    /// Adds up what the tier of a process that ends did.
    pub(crate) fn sum_tier(&mut self) {
        let Some(status) = self.resources().scm() else { return };
        let counts = status.counts;
        self.tier.counted = counts;
        self.tier.sums += TierSums {
            processes: 1,
            off: u64::from(status.failure.is_some()),
            restored: counts.restored,
            written: (counts.bytes_written - counts.bytes_written_map) / PAGE_BYTES as u64,
            demoted: counts.demoted,
            carried: counts.carried,
            hits: counts.hits_data + counts.hits_meta,
            promoted: counts.promoted,
            dropped: counts.dropped,
            damaged: counts.damaged,
        };
    }

    /// Follows from the step as well, so that whatever becomes of the tier changes nothing else.
    pub(crate) fn tier_rng(&self) -> Rng {
        Rng::new(!self.rng.clone().next_u64())
    }

    /// From now on some operations of the tier's device fail, lie or take long. Memory never does.
    pub(crate) fn break_tier(&mut self) -> Outcome {
        let Some(Live::Device(device)) = &self.tier.place.live else { return Ok(()) };
        let (device, mut rng) = (Arc::clone(device), self.tier_rng());
        let (on, fault) = match rng.below(9) {
            0 => (OpKind::Read, Fault::Io),
            1 => (OpKind::Write, Fault::Io),
            2 => (OpKind::Write, Fault::NoSpace),
            3 => (OpKind::Read, Fault::Flip),
            4 => (OpKind::Write, Fault::Flip),
            5 => (OpKind::Write, Fault::Lost),
            6 => (OpKind::Write, Fault::Torn),
            7 => {
                let pages = self.tier.below.map_or(1, |below| below.pages as u64);
                let at = rng.below(pages) * PAGE_BYTES as u64;
                (OpKind::Write, Fault::Misdirected { name: None, at })
            }
            // Less than the wall clock counts.
            _ => (OpKind::Read, Fault::Delay(Duration::from_micros(1 + rng.below(900)))),
        };
        let times = if matches!(fault, Fault::Delay(_)) { 1000 } else { 1 + rng.below(3) };
        let rule = Rule::new(on, fault).after(rng.below(12)).times(times);
        self.note(format!("  tier: {rule:?}"));
        Ok(device.inject(rule)?)
    }

    /// Some bytes of the tier's device are wrong from now on; memory's only between processes, since it is
    /// verified once.
    pub(crate) fn damage_tier(&mut self) -> Outcome {
        let Some(Live::Device(device)) = &self.tier.place.live else { return Ok(()) };
        let (mut rng, pages) = (self.tier_rng(), self.tier.below.map_or(1, |below| below.pages));
        for _ in 0..1 + rng.below(20) {
            device.flip(FILE, rng.below((pages * PAGE_BYTES) as u64), 1 << rng.below(8))?;
        }
        self.tier.place.is_doubtful = true;
        Ok(())
    }

    /// The tier's device is well again; what is there may be wrong.
    pub(crate) fn heal_tier(&self) {
        if let Some(Live::Device(device)) = &self.tier.place.live {
            device.heal();
        }
    }

    /// What the tier tells of itself makes sense, whatever was done to it.
    pub(crate) fn check_tier(&mut self) -> Outcome {
        let (Some(status), Some(below)) = (self.resources().scm(), self.tier.below) else {
            return Ok(());
        };
        let counts = status.counts;
        let _ = write!(self.everything, "{counts:?} {:?}", status.failure);
        self.tier.check_counts(&counts, status.failure)?;
        match below.write_budget {
            Some(budget) => self.tier.check_budget(budget, self.clock.monotonic()),
            None => Ok(()),
        }
    }
}

impl Tier {
    fn check_counts(&mut self, counts: &ScmStatistics, failure: Option<String>) -> Outcome {
        let (before, place) = (self.counted, &self.place);
        self.counted = *counts;
        let (failed, may_fail) = (failure.is_some(), place.may_fail());
        ensure!(!failed || may_fail, "tier off: {failure:?}");
        let missing = matches!(place.live, Some(Live::Missing));
        ensure!(failed || !missing, "a tier on nothing");
        ensure!(counts.resident <= counts.slots, "tier: more than its slots: {counts:?}");
        ensure!(failed || counts.slots > 0, "tier: no slots: {counts:?}");
        let doubtful = place.is_doubtful || may_fail;
        ensure!(doubtful || counts.damaged == 0, "tier: damaged by itself: {counts:?}");
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
    fn check_budget(&mut self, budget: u64, now: Duration) -> Outcome {
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
