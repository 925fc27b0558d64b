//! Runs a script.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terracedb::{Error, ErrorKind, Retry};

use crate::compare;
use crate::history::{History, ProcessEnd};
use crate::script::{Action, Script, Step};
use crate::settings::Variant;
use crate::step_error::{Outcome, StepError};
use crate::tier::TierSums;
use crate::workers::OffloadSums;
use crate::world::World;

/// The history, the number of openings and the start of possible losses before a step. They are restored if
/// power was cut, or the process died, while the step had already opened the store again.
type Before = (History, u64, Option<u64>);

/// A refused step of a crowded script is repeated for this time of the clock, seconds.
const REFUSED_SECONDS_MAX: u32 = 120;

/// The result of a successful simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Fingerprint of all answers: independent of the settings.
    pub answers: u64,
    /// Fingerprint of all events, down to the last device operation: equal in every run.
    pub everything: u64,
    /// Number of times the store was opened.
    pub opens: u64,
    /// Statistics of the SCM tiers.
    pub tiers: TierSums,
    /// What workers did.
    pub offload: OffloadSums,
}

/// A failed simulation.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The script's seed.
    pub seed: u64,
    /// Index of the step that failed.
    pub step: usize,
    /// The error.
    pub why: String,
    /// The last events before it.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, step {}: {}", self.seed, self.step, self.why)?;
        self.trace.iter().try_for_each(|happening| writeln!(f, "    {happening}"))
    }
}

/// See [`steps`].
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Number of steps that ended in this process, over all scripts. If it does not grow, a script hangs.
#[must_use]
pub fn steps() -> u64 {
    STEPS.load(Ordering::Relaxed)
}

/// Runs `script` with the settings that it draws.
///
/// # Errors
/// The failure of a step.
pub fn run(script: &Script) -> Result<Report, Box<Failure>> {
    run_with(script, None)
}

/// Runs `script`, with the settings `variant` throughout if given.
///
/// # Errors
/// The failure of a step.
pub fn run_with(script: &Script, variant: Option<Variant>) -> Result<Report, Box<Failure>> {
    let failure = |step, why, trace| Box::new(Failure { seed: script.seed, step, why, trace });
    let mut world =
        World::new(script, variant).map_err(|error| failure(0, error.to_string(), Vec::new()))?;
    for (number, step) in script.steps.iter().chain(&LAST).enumerate() {
        world.note(format!("{number} {step:?}"));
        let done = catch_unwind(AssertUnwindSafe(|| world.run_step(*step)));
        STEPS.fetch_add(1, Ordering::Relaxed);
        let why = match done {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                format!("panicked: {}", text.unwrap_or("?"))
            }
        };
        let trace = std::mem::take(&mut world.trace).into();
        // The panicked store may hold locks, so it is not dropped.
        if why.starts_with("panicked") {
            let _left = std::mem::ManuallyDrop::new(world);
        }
        return Err(failure(number, why, trace));
    }
    let World { answers, everything, opens, tier, workers, .. } = world;
    let offload = workers.map(|workers| workers.sums()).unwrap_or_default();
    let (answers, everything, tiers) = (answers.0, everything.0, tier.sums);
    Ok(Report { answers, everything, opens, tiers, offload })
}

/// The last steps of every script.
const LAST: [Step; 4] = [
    Step { action: Action::Heal, seed: 1 },
    Step { action: Action::ReadAll, seed: 2 },
    Step { action: Action::Check, seed: 3 },
    Step { action: Action::CutPower, seed: 4 },
];

impl World {
    /// Runs one step and checks its consequences.
    fn run_step(&mut self, step: Step) -> Outcome {
        self.rng = base::Rng::new(step.seed);
        let before = self.cut.map(|_| (self.history.clone(), self.opens, self.lossy_after));
        let mut done = self.act(step.action);
        if self.is_crowded {
            done = self.outlast_refusal(step, done);
        }
        let done = self.judge(done, before.as_ref());
        let done = done.and_then(|()| self.check_tier());
        let done = done.and_then(|()| self.check_workers());
        self.note_device();
        done
    }

    /// Each attempt of a worker that was spoilt was counted as a fallback; others only if they were
    /// cancelled.
    fn check_workers(&mut self) -> Outcome {
        let (Some(workers), Some(db)) = (&self.workers, &self.db) else { return Ok(()) };
        let (sums, counted) = (workers.sums(), db.statistics().compaction.fallbacks);
        let spoilt = sums.spoilt - self.spoilt_before;
        let ended = sums.attempts - sums.installed - self.ended_before;
        let is_counted = (spoilt..=ended).contains(&counted);
        crate::step_error::ensure!(is_counted, "{counted} fallbacks, expected {spoilt} to {ended}");
        Ok(())
    }

    /// Repeats a step that was refused with `Later` while time passes and background work goes on. Users end
    /// their reads and transactions after a while. A refusal that lasts is a failure.
    fn outlast_refusal(&mut self, step: Step, mut done: Outcome) -> Outcome {
        for second in 0..REFUSED_SECONDS_MAX {
            let Err(StepError::Refused(error)) = &done else { return done };
            if error.when_to_retry() != Retry::Later {
                return done;
            }
            let error = error.to_string();
            self.note(format!("  refused for now: {error}"));
            if second == REFUSED_SECONDS_MAX / 4 {
                self.end_users();
            }
            self.clock.advance(Duration::from_secs(1));
            self.work(200);
            self.rng = base::Rng::new(step.seed);
            done = self.act(step.action);
        }
        match done {
            Err(StepError::Refused(error)) => {
                Err(StepError::Wrong(format!("a refusal that lasts: {error}")))
            }
            done => done,
        }
    }

    /// Decides whether the result of a step is permitted. Crashes or reopens the store if the step requires
    /// it.
    fn judge(&mut self, done: Outcome, before: Option<&Before>) -> Outcome {
        if let Err(error) = done {
            match error {
                StepError::Refused(error) if self.broken && may_refuse(&error) => {
                    self.note(format!("  refused: {error}"));
                }
                error => return Err(error),
            }
        }
        if let (Some((history, opens, lossy_after)), Some(left), true) =
            (before, self.cut, self.device.is_frozen())
        {
            if self.opens == *opens {
                self.history.cut_since(history);
            } else {
                (self.history, self.lossy_after) = (history.clone(), *lossy_after);
            }
            return self.crash(left);
        }
        let Some(poisoned) = self.db().statistics().poisoned else { return Ok(()) };
        if self.lossy_after.is_none() && !self.broken && self.device.struck() == 0 {
            return Err(StepError::Wrong(format!("poisoned: {poisoned}")));
        }
        self.note(format!("  poisoned: {poisoned}"));
        self.heal()?;
        self.read_poisoned()?;
        match (self.cut, self.rng.below(3)) {
            (Some(left), _) => self.crash(left),
            (None, 0) => self.crash(ProcessEnd::Power),
            (None, 1) => self.crash(ProcessEnd::Process),
            (None, _) => self.reopen(),
        }
    }

    /// Reads of a store with poisoned writers still work, except in a keyspace that failed to drop so.
    /// Writes in doubt may be visible.
    fn read_poisoned(&mut self) -> Outcome {
        let now = self.now();
        let states = self.history.visible();
        for (name, incarnation) in self.history.live.clone() {
            let Ok(keyspace) = self.db().keyspace(name) else { continue };
            let may_be_dropped = self.history.lives().any(|live| !live.contains_key(name));
            let entries = match keyspace.entries() {
                Err(error) if may_be_dropped && error.kind() == ErrorKind::Closed => continue,
                entries => entries?,
            };
            let found = compare::sorted(entries)?;
            let models: Vec<compare::Entries> = states
                .iter()
                .map(|state| state.at(incarnation, now).into_iter().collect())
                .collect();
            if !models.contains(&found) {
                let why = compare::difference(&found, &models[0]);
                return Err(StepError::Wrong(format!("poisoned `{name}`: {why}")));
            }
        }
        Ok(())
    }

    fn act(&mut self, action: Action) -> Outcome {
        match action {
            Action::Write => self.write(),
            Action::WriteMuch => self.write_much(),
            Action::Get => self.get(),
            Action::Scan => self.scan(),
            Action::Hold => self.hold(),
            Action::Walk => self.walk(),
            Action::Snapshot => self.take_snapshot(),
            Action::ReadSnapshot => self.read_snapshot(),
            Action::DropSnapshot => self.drop_snapshot(),
            Action::Begin => self.begin(),
            Action::Transact => self.transact(),
            Action::Commit => self.commit(),
            Action::Ingest => self.ingest(),
            Action::FinishIngest => self.finish_ingest(),
            Action::Flush => self.flush(),
            Action::FlushAll => self.flush_all(),
            Action::Sync => self.sync(),
            Action::Compact => self.compact(),
            Action::Work => {
                let steps = 1 + self.rng.below(12);
                self.work(steps);
                Ok(())
            }
            Action::Settle => self.settle_down(),
            Action::Pass => self.let_pass(),
            Action::SetBack => self.set_back(),
            Action::Create => self.create_some(),
            Action::Drop => self.drop_some(),
            Action::Resize => self.resize(),
            Action::Checkpoint => self.checkpoint(),
            Action::Backup => self.backup(),
            Action::ReadAll => self.read_all(),
            Action::Reopen => self.reopen_changed(),
            Action::Check => self.check_closed(),
            Action::Die => self.crash(ProcessEnd::Process),
            Action::CutPower => self.crash(ProcessEnd::Power),
            Action::CutLater => self.cut_later(),
            Action::Break => self.break_device(),
            Action::Fill => self.fill_device(),
            Action::Heal => self.heal(),
            Action::Damage => self.damage(),
            Action::LoseSyncs => self.lose_syncs(),
        }
    }
}

/// Whether a broken device explains `error`.
fn may_refuse(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Closed | ErrorKind::Conflict)
}
