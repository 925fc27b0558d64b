//! Scripts: the steps of a simulation, as plain data.
//!
//! A step is an action and a seed that determines everything random in it. So a script from which steps are
//! removed is a valid script, and failing scripts can be shrunk.

use std::fmt;

use base::Rng;

/// The action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Writes a batch over all keyspaces, or a single entry.
    Write,
    /// Writes a batch of hundreds of kilobytes.
    WriteMuch,
    /// Gets one key or many, directly or through a read queue.
    Get,
    /// Scans a range, a prefix or everything, in either direction.
    Scan,
    /// Opens a cursor or an iterator that stays open.
    Hold,
    /// Moves an open cursor or iterator.
    Walk,
    /// Takes a snapshot and keeps it.
    Snapshot,
    /// Reads a snapshot.
    ReadSnapshot,
    /// Drops a snapshot.
    DropSnapshot,
    /// Begins a transaction and keeps it.
    Begin,
    /// Reads or writes in a transaction.
    Transact,
    /// Commits a transaction or rolls it back.
    Commit,
    /// Begins a bulk ingest, or adds entries to one.
    Ingest,
    /// Finishes a bulk ingest or drops it.
    FinishIngest,
    /// Flushes one keyspace.
    Flush,
    /// Flushes all keyspaces.
    FlushAll,
    /// Syncs the log.
    Sync,
    /// Compacts a range of a keyspace.
    Compact,
    /// Lets background tasks run for some steps.
    Work,
    /// Waits until background work is done.
    Settle,
    /// Advances the clock.
    Pass,
    /// Sets the wall clock back.
    SetBack,
    /// Creates a keyspace.
    Create,
    /// Drops a keyspace.
    Drop,
    /// Changes the memory limit.
    Resize,
    /// Makes a checkpoint, opens it and reads it.
    Checkpoint,
    /// Makes a backup, restores it and reads it.
    Backup,
    /// Reads everything with every kind of read.
    ReadAll,
    /// Closes the store and opens it with other settings.
    Reopen,
    /// Checks the closed store and opens it.
    Check,
    /// Kills the process.
    Die,
    /// Cuts power.
    CutPower,
    /// Kills the process or cuts power after some device operations.
    CutLater,
    /// Makes operations of one kind fail.
    Break,
    /// Fills the device except for a few bytes.
    Fill,
    /// Heals the device.
    Heal,
    /// Damages a byte of a table for a while.
    Damage,
    /// Makes the device lose syncs of the log silently. No script contains it, because it breaks an
    /// assumption of every store: it proves that the simulation would notice a store that does not sync.
    LoseSyncs,
}

/// Every action with its weight.
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
    /// Whether the action ends the process or breaks the device.
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
    /// The action.
    pub action: Action,
    /// The seed of the step's random choices.
    pub seed: u64,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:x}", self.action, self.seed)
    }
}

/// The steps of one simulation.
#[derive(Clone, Debug)]
pub struct Script {
    /// The seed of the device, the keys and the first settings.
    pub seed: u64,
    /// Whether keyspaces may be hashed: about half of them are then.
    pub has_hashed: bool,
    /// Whether the store is crowded: many keyspaces, long keys, large values, and range deletes and operands
    /// in number, with the smallest memory limit. A refusal must then end by itself.
    pub is_crowded: bool,
    /// Whether merges are offered to workers, over a faulty wire.
    pub has_workers: bool,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Script {
    /// The script of `seed`. Each script prefers some actions and omits others, so that scripts reach
    /// different states ("Swarm Testing", Groce et al., 2012).
    #[must_use]
    pub fn new(seed: u64, steps: usize) -> Self {
        let mut rng = Rng::new(seed);
        let weights = WEIGHTS.map(|(action, weight)| {
            let factor = [0, 1, 1, 2, 2, 6][rng.below(6) as usize];
            // Without these, nothing would happen or nothing would end.
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
        let steps = (0..steps).map(|_| draw()).collect();
        Self {
            seed,
            has_hashed: Rng::new(!seed).one_in(2),
            is_crowded: false,
            has_workers: false,
            steps,
        }
    }

    /// The crowded script of `seed`. Its device does not fail, and its power is not cut: whatever is refused
    /// is refused by the store alone.
    #[must_use]
    pub fn crowded(seed: u64, steps: usize) -> Self {
        let mut script = Self::new(seed, steps);
        script.is_crowded = true;
        script.steps.retain(|step| step.action == Action::Die || !step.action.is_trouble());
        // The model copies the contents for each of these.
        script.steps.retain(|step| {
            let is_costly =
                matches!(step.action, Action::Backup | Action::Checkpoint | Action::Begin);
            !is_costly || step.seed.is_multiple_of(4)
        });
        script.steps.retain(|step| step.action != Action::Resize);
        script
    }

    /// The script with merges at workers.
    #[must_use]
    pub const fn with_workers(mut self) -> Self {
        self.has_workers = true;
        self
    }

    /// The script with ordered keyspaces only, for seeds from before there were others.
    #[must_use]
    pub fn ordered(mut self) -> Self {
        self.has_hashed = false;
        self
    }

    /// The script without crashes and faults.
    #[must_use]
    pub fn untroubled(mut self) -> Self {
        self.steps.retain(|step| !step.action.is_trouble());
        self
    }
}
