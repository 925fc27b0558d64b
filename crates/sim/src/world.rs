//! The state of a simulation: device, clock, store, users and model.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base::{Clock, Executor, ManualClock, Rng, Stepper, StoreId};
use media::{Faulty, Medium};
use terracedb::{Db, Keyspace, Resources, Snapshot};

use crate::cells::Span;
use crate::digest::Digest;
use crate::history::{Contents, History, Incarnation, ProcessEnd};
use crate::script::Script;
use crate::settings::Variant;
use crate::step_error::{Outcome, StepError};
use crate::tier::Tier;
use crate::users::{OpenRead, PendingIngest, PendingTransaction};
use crate::workers::SimWorkers;

/// Number of events that a failure reports.
const TRACE: usize = 60;

/// Names of keyspaces.
const NAMES: [&str; 4] = ["one", "two", "three", "four"];

/// Names of the keyspaces of a crowded store.
static CROWD: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    (0..400).map(|number| &*Box::leak(format!("crowd{number:03}").into_boxed_str())).collect()
});

/// A simulated world.
pub(crate) struct World {
    pub(crate) device: Arc<Faulty>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) executor: Arc<Stepper>,
    /// The resources of the running process.
    pub(crate) resources: Option<Resources>,
    /// The store's id.
    pub(crate) identity: StoreId,
    /// The SCM tier.
    pub(crate) tier: Tier,
    /// Settings for the whole script, if fixed.
    pub(crate) fixed: Option<Variant>,
    pub(crate) variant: Variant,
    pub(crate) db: Option<Db>,
    pub(crate) history: History,
    /// The latest time at which the store was used, Unix milliseconds. The store never uses an earlier time.
    pub(crate) now: u64,
    /// Number of keys.
    pub(crate) keys: u64,
    version: u64,
    /// The generator of the current step.
    pub(crate) rng: Rng,
    /// Whether some keyspaces are hashed.
    has_hashed: bool,
    /// See [`Script`].
    pub(crate) is_crowded: bool,
    /// The workers, if merges are offered to some.
    pub(crate) workers: Option<Arc<SimWorkers>>,
    /// Attempts of workers that were spoilt, and that were not installed, before the store was opened.
    pub(crate) spoilt_before: u64,
    pub(crate) ended_before: u64,
    pub(crate) open_reads: Vec<OpenRead>,
    pub(crate) snapshots: Vec<(Snapshot, Contents)>,
    pub(crate) transactions: Vec<PendingTransaction>,
    pub(crate) ingests: Vec<PendingIngest>,
    pub(crate) repository: Arc<Faulty>,
    /// Whether the device fails or is full.
    pub(crate) broken: bool,
    /// Faults that had struck when a sync fault was injected, or at the last open since. If more have struck,
    /// the end of the process may lose unsynced writes, as a power cut may. `None`: no sync fault was
    /// injected.
    pub(crate) lossy_after: Option<u64>,
    /// The pending power cut or process death, which happens during a step.
    pub(crate) cut: Option<ProcessEnd>,
    /// Number of times the store was opened.
    pub(crate) opens: u64,
    /// Fingerprints of all answers and of all events.
    pub(crate) answers: Digest,
    pub(crate) everything: Digest,
    pub(crate) trace: VecDeque<String>,
    /// Whether events are printed as they happen (`TERRACE_TRACE`), to see where a simulation hangs.
    loud: bool,
}

impl World {
    /// A world with an empty device and a new store.
    pub(crate) fn new(script: &Script, fixed: Option<Variant>) -> Outcome<Self> {
        let (seed, has_hashed) = (script.seed, script.has_hashed);
        let mut rng = Rng::new(seed);
        let device = Arc::new(Faulty::new(rng.next_u64()));
        let keys = [8, 40, 40, 200][rng.below(4) as usize];
        let drawn = Variant::random(&mut rng);
        let mut variant = fixed.clone().unwrap_or(drawn);
        if script.is_crowded {
            variant.memory = 64 << 20;
        }
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let executor = Arc::new(Stepper::new(variant.order, Arc::clone(&clock) as _));
        let mut world = Self {
            device,
            clock,
            executor,
            resources: None,
            identity: StoreId(u128::from(seed) << 64 | 1),
            tier: Tier::default(),
            fixed,
            variant,
            db: None,
            history: History::default(),
            now: 0,
            keys,
            version: 0,
            open_reads: Vec::new(),
            snapshots: Vec::new(),
            transactions: Vec::new(),
            ingests: Vec::new(),
            repository: Arc::new(Faulty::new(rng.next_u64())),
            rng,
            has_hashed,
            is_crowded: script.is_crowded,
            spoilt_before: 0,
            ended_before: 0,
            workers: script.has_workers.then(|| Arc::new(SimWorkers::new(seed))),
            broken: false,
            lossy_after: None,
            cut: None,
            opens: 0,
            answers: Digest::default(),
            everything: Digest::default(),
            trace: VecDeque::new(),
            loud: std::env::var_os("TERRACE_TRACE").is_some(),
        };
        world.open(ProcessEnd::Process)?;
        let count = match script.is_crowded {
            true => [20, 60, 150, 400][Rng::new(seed).below(4) as usize],
            false => 2,
        };
        for name in world.names().iter().take(count) {
            world.create(name)?;
        }
        Ok(world)
    }

    pub(crate) fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    /// The time by which a read of the store decides now whether an entry has expired.
    pub(crate) fn now(&mut self) -> u64 {
        self.now = self.now.max(self.clock.unix_millis());
        self.now
    }

    /// A new unique number for a write.
    pub(crate) fn version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// The names that keyspaces may have.
    pub(crate) fn names(&self) -> &'static [&'static str] {
        if self.is_crowded { &CROWD } else { &NAMES }
    }

    /// A random key; sometimes the one after the last.
    pub(crate) fn key(&mut self) -> Vec<u8> {
        let key = crate::cells::key(self.rng.below(self.keys + 1));
        if self.is_crowded { crate::cells::lengthened(key) } else { key }
    }

    pub(crate) fn span(&mut self) -> Span {
        let width = if self.rng.one_in(3) { self.keys } else { 10 };
        crate::cells::span(&mut self.rng, self.keys, width)
    }

    /// A random existing keyspace, if any.
    pub(crate) fn some_keyspace(&mut self) -> Option<(&'static str, Incarnation)> {
        let live = &self.history.live;
        let number = self.rng.below(live.len() as u64) as usize;
        live.iter().nth(number).map(|(name, incarnation)| (*name, *incarnation))
    }

    pub(crate) fn keyspace(&self, name: &str) -> Outcome<Keyspace> {
        self.db().keyspace(name).map_err(|error| StepError::Wrong(error.to_string()))
    }

    /// A random existing keyspace if it is an ordered one.
    pub(crate) fn some_ordered_keyspace(&mut self) -> Option<(&'static str, Incarnation)> {
        self.some_keyspace().filter(|(_, incarnation)| !self.is_hashed(*incarnation))
    }

    /// Whether a keyspace is hashed: of the incarnations of a script that has hashed keyspaces, every other.
    pub(crate) const fn is_hashed(&self, incarnation: Incarnation) -> bool {
        self.has_hashed && incarnation.is_multiple_of(2)
    }

    /// A random index below `count`; `None` if `count` is 0.
    pub(crate) fn pick(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| self.rng.below(count as u64) as usize)
    }

    /// Records an event, which a failure reports.
    pub(crate) fn note(&mut self, what: String) {
        self.everything.add(what.as_bytes());
        if self.loud {
            println!("    {what}");
        }
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(what);
    }

    /// Records an answer of the store.
    pub(crate) fn answered(&mut self, what: impl std::fmt::Debug) {
        let _ = write!(self.answers, "{what:?}");
        let _ = write!(self.everything, "{what:?}");
    }

    /// Runs up to `steps` steps of background tasks.
    pub(crate) fn work(&self, steps: u64) {
        for _ in 0..steps {
            if !self.executor.help() {
                return;
            }
        }
    }

    /// Advances the clock and runs some steps of background tasks.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        let steps = self.rng.below(20);
        self.work(steps);
    }

    /// Records the state of the device.
    pub(crate) fn note_device(&mut self) {
        let device = &self.device;
        let (syncs, changes, struck) = (device.syncs(), device.changes(), device.struck());
        let bytes: u64 = device.list().unwrap_or_default().iter().map(|file| file.len).sum();
        let _ = write!(self.everything, "{syncs} {changes} {struck} {bytes}");
    }

    /// Drops all open operations, because their store is about to end.
    pub(crate) fn end_users(&mut self) {
        self.open_reads.clear();
        self.snapshots.clear();
        self.transactions.clear();
        self.ingests.clear();
    }
}
