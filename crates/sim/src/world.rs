//! What a simulation happens in: a device, a clock, a store, its users, and the model of it all.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Executor, ManualClock, Rng, Stepper, StoreId};
use media::{Faulty, Medium};
use terracedb::{Db, Keyspace, Resources, Snapshot};

use crate::cells::Span;
use crate::digest::Digest;
use crate::history::{Contents, History, Incarnation, ProcessEnd};
use crate::settings::Variant;
use crate::step_error::{Outcome, StepError};
use crate::tier::Tier;
use crate::users::{OpenRead, PendingIngest, PendingTransaction};

/// How many of the last happenings a failure tells.
const TRACE: usize = 60;

/// Operators, keyspaces, keys: the names that scripts use.
pub(crate) const NAMES: [&str; 4] = ["one", "two", "three", "four"];

/// A simulated world.
pub(crate) struct World {
    pub(crate) device: Arc<Faulty>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) executor: Arc<Stepper>,
    /// Of the process that runs.
    pub(crate) resources: Option<Resources>,
    /// What the store is.
    pub(crate) identity: StoreId,
    /// The tier below DRAM.
    pub(crate) tier: Tier,
    /// The same for the whole script where set.
    pub(crate) fixed: Option<Variant>,
    pub(crate) variant: Variant,
    pub(crate) db: Option<Db>,
    pub(crate) history: History,
    /// The latest time the store was asked at, Unix milliseconds: it is never earlier for it.
    pub(crate) now: u64,
    /// How many keys there are.
    pub(crate) keys: u64,
    version: u64,
    /// Follows from the step under way.
    pub(crate) rng: Rng,
    pub(crate) open_reads: Vec<OpenRead>,
    pub(crate) snapshots: Vec<(Snapshot, Contents)>,
    pub(crate) transactions: Vec<PendingTransaction>,
    pub(crate) ingests: Vec<PendingIngest>,
    pub(crate) repository: Arc<Faulty>,
    /// The device fails or is full.
    pub(crate) broken: bool,
    /// A fault may cost what is not synced, once more than so many struck.
    pub(crate) lossy_after: Option<u64>,
    /// The power goes, or the process dies, while a step is under way.
    pub(crate) cut: Option<ProcessEnd>,
    /// How often the store was opened.
    pub(crate) opens: u64,
    /// Of every answer, and of everything.
    pub(crate) answers: Digest,
    pub(crate) everything: Digest,
    pub(crate) trace: VecDeque<String>,
    /// Happenings are printed as they happen (`TERRACE_TRACE`): for a simulation that hangs.
    loud: bool,
}

impl World {
    /// An empty device and a fresh store on it.
    pub(crate) fn new(seed: u64, fixed: Option<Variant>) -> Outcome<Self> {
        let mut rng = Rng::new(seed);
        let device = Arc::new(Faulty::new(rng.next_u64()));
        let keys = [8, 40, 40, 200][rng.below(4) as usize];
        let drawn = Variant::random(&mut rng);
        let variant = fixed.clone().unwrap_or(drawn);
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
        for name in ["one", "two"] {
            world.create(name)?;
        }
        Ok(world)
    }

    pub(crate) fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    /// The time that the store tells to whoever reads now.
    pub(crate) fn now(&mut self) -> u64 {
        self.now = self.now.max(self.clock.unix_millis());
        self.now
    }

    /// A number that no write had before.
    pub(crate) fn version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// A key of those there are, or next to them.
    pub(crate) fn key(&mut self) -> Vec<u8> {
        crate::cells::key(self.rng.below(self.keys + 1))
    }

    pub(crate) fn span(&mut self) -> Span {
        let width = if self.rng.one_in(3) { self.keys } else { 10 };
        crate::cells::span(&mut self.rng, self.keys, width)
    }

    /// One of the keyspaces, if there is any.
    pub(crate) fn some_keyspace(&mut self) -> Option<(&'static str, Incarnation)> {
        let live = &self.history.live;
        let number = self.rng.below(live.len() as u64) as usize;
        live.iter().nth(number).map(|(name, incarnation)| (*name, *incarnation))
    }

    pub(crate) fn keyspace(&self, name: &str) -> Outcome<Keyspace> {
        let missing = || StepError::Wrong(format!("there is no keyspace `{name}`"));
        self.db().existing_keyspace(name).ok_or_else(missing)
    }

    /// An index below `count`, where there is any.
    pub(crate) fn pick(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| self.rng.below(count as u64) as usize)
    }

    /// Something happened: it is told if the simulation fails.
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

    /// The store answered.
    pub(crate) fn answered(&mut self, what: impl std::fmt::Debug) {
        let _ = write!(self.answers, "{what:?}");
        let _ = write!(self.everything, "{what:?}");
    }

    /// Lets background tasks take up to `steps` steps.
    pub(crate) fn work(&self, steps: u64) {
        for _ in 0..steps {
            if !self.executor.help() {
                return;
            }
        }
    }

    /// Lets time pass, and the tasks that waited for it take steps.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        let steps = self.rng.below(20);
        self.work(steps);
    }

    /// Notes what the device went through.
    pub(crate) fn note_device(&mut self) {
        let device = &self.device;
        let (syncs, changes, struck) = (device.syncs(), device.changes(), device.struck());
        let bytes: u64 = device.list().unwrap_or_default().iter().map(|file| file.len).sum();
        let _ = write!(self.everything, "{syncs} {changes} {struck} {bytes}");
    }

    /// Forgets all users: their store is about to end.
    pub(crate) fn end_users(&mut self) {
        self.open_reads.clear();
        self.snapshots.clear();
        self.transactions.clear();
        self.ingests.clear();
    }
}
