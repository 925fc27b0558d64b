//! Scripts: what a simulation does, as plain data.
//!
//! A step is an action and a number that everything random in it follows from. So a script without
//! some of its steps is a script as well, and what fails can be made shorter.

use std::fmt;

use base::Rng;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A batch over all keyspaces, or a single write.
    Write,
    /// A batch of hundreds of kilobytes.
    WriteMuch,
    /// A get, of one key or many, now or queued.
    Get,
    /// A range, a prefix or everything, either way.
    Scan,
    /// Makes a cursor or an iterator that is kept.
    Hold,
    /// Moves one of them.
    Walk,
    /// Takes a snapshot that is kept.
    Snapshot,
    /// Reads one.
    ReadSnapshot,
    /// Drops one.
    DropSnapshot,
    /// Begins a transaction that is kept.
    Begin,
    /// Reads or writes in one.
    Transact,
    /// Commits one or forgets it.
    Commit,
    /// Begins a bulk ingest that is kept, or adds to one.
    Ingest,
    /// Finishes one or forgets it.
    FinishIngest,
    /// Flushes one keyspace.
    Flush,
    /// Flushes all.
    FlushAll,
    /// Syncs the log.
    Sync,
    /// Merges a range of a keyspace.
    Compact,
    /// Lets background tasks take steps.
    Work,
    /// Waits until background work is done.
    Settle,
    /// Lets time pass.
    Pass,
    /// Sets the wall clock back.
    SetBack,
    /// Creates a keyspace.
    Create,
    /// Drops one.
    Drop,
    /// Changes the memory number.
    Resize,
    /// Makes a checkpoint, opens it and reads it.
    Checkpoint,
    /// Makes a backup, restores it and reads it.
    Backup,
    /// Reads everything by every kind of read.
    ReadAll,
    /// Closes the store and opens it with other settings.
    Reopen,
    /// Checks the closed store and opens it.
    Check,
    /// The process dies.
    Die,
    /// The power goes.
    CutPower,
    /// The process dies or the power goes some device operations later.
    CutLater,
    /// Operations of some kind fail from now on.
    Break,
    /// The device is full but for a little.
    Fill,
    /// The device is well again.
    Heal,
    /// A byte of a table is damaged for a while.
    Damage,
    /// The device says that it syncs the log and does not. No script has it: it breaks what every
    /// store relies on, and shows that the simulation would see a store that does not sync.
    LoseSyncs,
}

/// Every action and how often it is chosen by a script that is partial to none.
const WEIGHTS: [(Action, u64); 37] = [
    (Action::Write, 300),
    (Action::WriteMuch, 3),
    (Action::Get, 60),
    (Action::Scan, 60),
    (Action::Hold, 12),
    (Action::Walk, 50),
    (Action::Snapshot, 12),
    (Action::ReadSnapshot, 20),
    (Action::DropSnapshot, 8),
    (Action::Begin, 25),
    (Action::Transact, 90),
    (Action::Commit, 25),
    (Action::Ingest, 20),
    (Action::FinishIngest, 8),
    (Action::Flush, 40),
    (Action::FlushAll, 12),
    (Action::Sync, 15),
    (Action::Compact, 12),
    (Action::Work, 60),
    (Action::Settle, 4),
    (Action::Pass, 40),
    (Action::SetBack, 4),
    (Action::Create, 12),
    (Action::Drop, 4),
    (Action::Resize, 3),
    (Action::Checkpoint, 4),
    (Action::Backup, 2),
    (Action::ReadAll, 5),
    (Action::Reopen, 8),
    (Action::Check, 3),
    (Action::Die, 6),
    (Action::CutPower, 8),
    (Action::CutLater, 10),
    (Action::Break, 8),
    (Action::Fill, 4),
    (Action::Heal, 20),
    (Action::Damage, 4),
];

impl Action {
    /// Whether it makes a store end or its device fail.
    #[must_use]
    pub const fn is_trouble(self) -> bool {
        matches!(
            self,
            Self::Die
                | Self::CutPower
                | Self::CutLater
                | Self::Break
                | Self::Fill
                | Self::Heal
                | Self::Damage
                | Self::LoseSyncs
        )
    }
}

/// One step of a script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// What is random about it.
    pub seed: u64,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:x}", self.action, self.seed)
    }
}

/// What one store lives through.
#[derive(Clone, Debug)]
pub struct Script {
    /// What the world it lives in follows from.
    pub seed: u64,
    /// What happens there.
    pub steps: Vec<Step>,
}

impl Script {
    /// The script of `seed`. Each is partial to some actions and does without others, so that
    /// scripts reach different corners ("Swarm Testing", Groce et al., 2012).
    #[must_use]
    pub fn new(seed: u64, steps: usize) -> Self {
        let mut rng = Rng::new(seed);
        let weights = WEIGHTS.map(|(action, weight)| {
            let factor = [0, 1, 1, 2, 2, 6][rng.below(6) as usize];
            // Without these nothing happens, or nothing ends.
            let always = matches!(action, Action::Write | Action::Work | Action::Heal);
            (action, weight * if always { factor.max(1) } else { factor })
        });
        let total = weights.iter().map(|(_, weight)| weight).sum();
        let mut draw = || {
            let mut at = rng.below(total);
            let hit = weights.iter().find(|(_, weight)| {
                let hit = at < *weight;
                at = at.saturating_sub(*weight);
                hit
            });
            Step { action: hit.map_or(Action::Write, |hit| hit.0), seed: rng.next_u64() }
        };
        Self { seed, steps: (0..steps).map(|_| draw()).collect() }
    }

    /// It without crashes and faults.
    #[must_use]
    pub fn untroubled(mut self) -> Self {
        self.steps.retain(|step| !step.action.is_trouble());
        self
    }
}
