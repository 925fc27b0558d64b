//! Steps of the SCM tier: it begins and ends with a process, suffers faults, and its statistics are checked.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use base::{Clock, Rng};
use media::{Fault, OpKind, Rule};
use terracedb::scm::Scm;
use terracedb::stats::ScmStatistics;

use crate::history::ProcessEnd;
use crate::step_error::Outcome;
use crate::tier::TierSums;
use crate::tier_storage::{FILE, Live};
use crate::world::World;

impl World {
    /// Begins the tier of a new process, if it has one.
    pub(crate) fn begin_tier(&mut self) -> Outcome<Option<Scm>> {
        self.tier.before += self.tier.counted.bytes_written;
        if self.tier.settings.is_none_or(|settings| settings.write_budget.is_none()) {
            self.tier.written.clear();
        }
        (self.tier.settings, self.tier.counted) = (self.variant.tier, ScmStatistics::default());
        self.tier.is_new = true;
        let Some(settings) = self.variant.tier else { return Ok(None) };
        let mut rng = self.tier_rng();
        let state = self.tier.storage.prepare(&settings, &self.clock, &mut rng)?;
        self.note(format!("  tier: {settings:?}, {state}"));
        let Some(live) = &self.tier.storage.live else { return Ok(None) };
        let scm = Scm::given(rng.next_u64(), live.open(&settings)).placement(settings.placement);
        Ok(Some(match settings.write_budget {
            Some(budget) => scm.write_budget(budget),
            None => scm,
        }))
    }

    /// Keeps the tier's storage after its process ended or died. Writes that the tier makes while it is
    /// dropped do not count.
    pub(crate) fn leave_tier(&mut self, left: Option<ProcessEnd>) -> Outcome {
        let mut rng = self.tier_rng();
        let is_map_old = left.is_some() || self.tier.may_leave_old_map(self.clock.monotonic());
        self.tier.storage.may_be_damaged |= is_map_old;
        Ok(self.tier.storage.leave(left, &mut rng)?)
    }

    /// Adds the statistics of the ending process's tier to the sums.
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

    /// A generator for the tier's faults of this step. It is derived from the step's generator without
    /// advancing that one, so that these faults change no other random choice.
    pub(crate) fn tier_rng(&self) -> Rng {
        Rng::new(!self.rng.clone().next_u64())
    }

    /// Makes later operations of the tier's device fail, lose data or take long. Memory does not fail.
    pub(crate) fn break_tier(&mut self) -> Outcome {
        let Some(Live::Device(device)) = &self.tier.storage.live else { return Ok(()) };
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
                let pages = self.tier.settings.map_or(1, |settings| settings.pages as u64);
                let at = rng.below(pages) * PAGE_BYTES as u64;
                (OpKind::Write, Fault::Misdirected { name: None, at })
            }
            // Shorter than the resolution of the wall clock.
            _ => (OpKind::Read, Fault::Delay(Duration::from_micros(1 + rng.below(900)))),
        };
        let times = if matches!(fault, Fault::Delay(_)) { 1000 } else { 1 + rng.below(3) };
        let rule = Rule::new(on, fault).after(rng.below(12)).times(times);
        self.note(format!("  tier: {rule:?}"));
        Ok(device.inject(rule)?)
    }

    /// Damages bytes of the tier's device. Memory is damaged only between processes, because the tier
    /// verifies it once.
    pub(crate) fn damage_tier(&mut self) -> Outcome {
        let Some(Live::Device(device)) = &self.tier.storage.live else { return Ok(()) };
        let (mut rng, pages) =
            (self.tier_rng(), self.tier.settings.map_or(1, |settings| settings.pages));
        for _ in 0..1 + rng.below(20) {
            device.flip(FILE, rng.below((pages * PAGE_BYTES) as u64), 1 << rng.below(8))?;
        }
        self.tier.storage.may_be_damaged = true;
        Ok(())
    }

    /// Heals the tier's device. Its contents may stay wrong.
    pub(crate) fn heal_tier(&self) {
        if let Some(Live::Device(device)) = &self.tier.storage.live {
            device.heal();
        }
    }

    /// Checks that the tier's statistics are consistent, no matter which faults occurred.
    pub(crate) fn check_tier(&mut self) -> Outcome {
        let (Some(status), Some(settings)) = (self.resources().scm(), self.tier.settings) else {
            return Ok(());
        };
        let counts = status.counts;
        let _ = write!(self.everything, "{counts:?} {:?}", status.failure);
        self.tier.check_counts(&counts, status.failure)?;
        match settings.write_budget {
            Some(budget) => self.tier.check_budget(budget, self.clock.monotonic()),
            None => Ok(()),
        }
    }
}
