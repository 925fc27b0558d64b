//! A random script of operations on a store, with crashes and faults, checked against the possible results.
//!
//! Every batch also writes its number to the keyspace `journal`, which shows the last batch of a store. The
//! store must then hold exactly the result of all batches up to that one, in every keyspace: batches are
//! whole or absent (I11), and none is missing before another (I2). Transactions and ingests count as
//! batches.

mod copies;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Durability, ErrorKind, Result, Rng};
use compact::plan::Options;
use media::{Faulty, Medium};
use terracedb::{Codec, Db, Keyspace};

use super::cells::{options, weakly_hashed_options};
use super::journal::{Batch, Incarnation, JOURNAL, apply, cells_of, last_of};
use super::{Model, Mortal, Stepped, Views, assert_tidy, compare, key, show};

const NAMES: [&str; 3] = ["one", "two", "three"];
const KEYS: u64 = 60;

/// The existing keyspaces.
type Live = BTreeMap<&'static str, Incarnation>;

/// How the store ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The process ended or died: every acknowledged write must be present.
    Process,
    /// The power failed: every synced write must be present.
    Power,
}

/// A store and the history of its writes.
pub(crate) struct Script {
    rng: Rng,
    pub(crate) device: Arc<Faulty>,
    /// The device for backups, and the number of backups made.
    pub(crate) repository: Arc<Faulty>,
    backups: usize,
    /// The device for the next checkpoint.
    pub(crate) copy: Arc<Faulty>,
    stepped: Stepped,
    process: Option<Arc<Mortal>>,
    db: Option<Db>,
    codec: Codec,
    merging: Options,
    /// The batches that were applied, in order.
    batches: Vec<Batch>,
    /// Batches that returned `Poisoned`: any one of them may follow the last batch.
    doubtful: Vec<Batch>,
    attempts: u64,
    /// The number of batches acknowledged before the power failed, and the number of those acknowledged as
    /// synced.
    acknowledged: usize,
    synced: usize,
    live: Live,
    /// The first names are those of hashed keyspaces.
    hashed: usize,
    seed: u64,
    /// Another possible set of keyspaces, if a creation or drop may have failed.
    alternative: Option<Live>,
    incarnations: u64,
    /// The number of faults so far, and whether one may have cost unsynced writes.
    struck: u64,
    pub(crate) lossy: bool,
    pub(crate) context: String,
    /// Devices of the log, parts of `device`, which then loses and tears lines.
    log_devices: usize,
}

impl Script {
    /// A script on an empty device. All of it is derived from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let codec = [Codec::None, Codec::Lz4, Codec::Zstd, Codec::Deflate][rng.below(4) as usize];
        Self {
            device: Arc::new(Faulty::new(rng.next_u64())),
            repository: Arc::new(Faulty::new(rng.next_u64())),
            backups: 0,
            copy: Arc::new(Faulty::new(rng.next_u64())),
            stepped: Stepped::new(rng.next_u64()),
            merging: merging(&mut rng),
            rng,
            process: None,
            db: None,
            codec,
            batches: Vec::new(),
            doubtful: Vec::new(),
            attempts: 0,
            acknowledged: 0,
            synced: 0,
            live: Live::new(),
            hashed: (seed % 4) as usize,
            seed,
            alternative: None,
            incarnations: 0,
            struck: 0,
            lossy: false,
            context: format!("TERRACE_SEED={seed}"),
            log_devices: 0,
        }
    }

    /// As [`Script::new`], of a store with its log on `devices` devices of storage-class memory.
    pub(crate) fn with_log_on(devices: usize, seed: u64) -> Self {
        let mut script = Self::new(seed);
        script.log_devices = devices;
        let device = Faulty::new(script.rng.next_u64());
        script.device = script.replaced(device);
        script
    }

    /// A device in place of the present one.
    fn replaced(&self, device: Faulty) -> Arc<Faulty> {
        Arc::new(if self.log_devices > 0 { device.with_lines() } else { device })
    }

    pub(crate) fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn keyspace(&self, name: &str) -> Keyspace {
        self.db().keyspace(name).unwrap()
    }

    /// Whether the keyspace `name` is a hashed one.
    fn is_hashed(&self, name: &str) -> bool {
        NAMES.iter().take(self.hashed).any(|hashed| *hashed == name)
    }

    fn live_names(&self) -> Vec<(&'static str, Incarnation)> {
        self.live.iter().map(|(name, incarnation)| (*name, *incarnation)).collect()
    }

    /// Opens the store and checks that its contents are possible after `ended`.
    pub(crate) fn open(&mut self, ended: Ended) -> Result<()> {
        let process = Mortal::over(Arc::clone(&self.device) as _);
        let medium: Arc<dyn Medium> = Arc::clone(&process) as _;
        let before = self.device.is_frozen();
        let places = (0..self.log_devices).map(|device| format!("pmem{device}"));
        let devices = Views::of(Arc::clone(&medium));
        let builder = self.stepped.on(medium).codec(self.codec);
        let builder = builder.log_path(places).log_lanes(2).log_devices(devices);
        // Half of the scripts read what they wrote from the device.
        let builder = builder.write_through(self.seed & 4 != 0);
        let opened = builder.compaction_options(self.merging.clone()).open();
        self.note_faults();
        let db = opened?;
        self.process = Some(process);
        let least = if ended == Ended::Power { self.synced } else { self.acknowledged };
        let found = self.check(&db, &*self.device, least, &self.context)?;
        self.take_over(&db, found)?;
        if !before && !self.device.is_frozen() {
            // Recovery makes the replayed batches durable before open returns.
            (self.acknowledged, self.synced) = (found, found);
        }
        self.db = Some(db);
        Ok(())
    }

    /// Makes the found batches the history from now on.
    fn take_over(&mut self, db: &Db, found: usize) -> Result<()> {
        let attempt = last_of(db)?.1;
        let doubtful = std::mem::take(&mut self.doubtful);
        if found > self.batches.len() {
            self.batches.extend(doubtful.into_iter().filter(|batch| batch.attempt == attempt));
        }
        self.batches.truncate(found);
        self.acknowledged = self.acknowledged.min(found);
        self.synced = self.synced.min(found);
        if let Some(alternative) = self.alternative.take()
            && !self.same_names(db, &self.live)
        {
            self.live = alternative;
        }
        Ok(())
    }

    /// Notes that a failed sync may have cost every unsynced write.
    fn note_faults(&mut self) {
        let struck = self.device.struck();
        if std::mem::replace(&mut self.struck, struck) != struck && self.lossy {
            self.acknowledged = self.synced;
        }
    }

    fn same_names(&self, db: &Db, live: &Live) -> bool {
        let mut names: Vec<_> = db.keyspaces().iter().map(|ks| ks.name().to_owned()).collect();
        names.sort();
        let mut expected: Vec<_> = live.keys().copied().collect();
        expected.sort_unstable();
        names == expected
    }

    /// Checks everything that `db` on `device` holds; returns the number of its last batch.
    fn check(&self, db: &Db, device: &dyn Medium, least: usize, context: &str) -> Result<usize> {
        let recovery = db.recovery();
        if let Some(error) = recovery.damaged_tables.first()
            && self.struck > 0
        {
            return Err(error.clone());
        }
        assert!(recovery.damaged_tables.is_empty(), "{context}: {:?}", recovery.damaged_tables);
        assert!(recovery.log_damage.is_none(), "{context}: {:?}", recovery.log_damage);
        let (found, attempt) = last_of(db)?;
        assert!(found >= least, "{context}: batch {found} is the last, and {least} was promised");
        let mut batches = self.batches.clone();
        batches.truncate(found);
        if batches.len() < found {
            let doubtful = self.doubtful.iter().find(|batch| batch.attempt == attempt);
            batches.push(doubtful.unwrap_or_else(|| panic!("{context}: batch {found}")).clone());
        }
        let last = batches.last().map_or(0, |batch| batch.attempt);
        assert_eq!((batches.len(), last), (found, attempt), "{context}");
        let live = match &self.alternative {
            Some(alternative) if self.same_names(db, alternative) => alternative,
            _ => &self.live,
        };
        assert!(self.same_names(db, live), "{context}: {:?}, not {live:?}", db.keyspaces());
        for (name, incarnation) in live {
            let model = cells_of(&batches, *incarnation).at(self.stepped.now());
            let keyspace = db.keyspace(name).unwrap();
            compare(&keyspace, &model, &format!("{context}: `{name}` at batch {found}"))?;
        }
        assert_tidy(db, device, context);
        Ok(found)
    }

    /// Kills the process, which syncs nothing.
    pub(crate) fn die(&mut self) {
        if let Some(process) = self.process.take() {
            process.die();
        }
        self.db = None;
    }

    /// Cuts the power and restores it; call `open(Ended::Power)` next.
    pub(crate) fn lose_power(&mut self) {
        self.die();
        let image = self.device.crash_image(self.rng.next_u64()).unwrap();
        let seed = self.rng.next_u64();
        self.device = self.replaced(Faulty::over(&image, seed).unwrap());
    }

    /// Kills the process at the frozen moment while the power stays on; call `open(Ended::Process)` next.
    pub(crate) fn die_then(&mut self) {
        self.die();
        let image = self.device.process_death_image().unwrap();
        let seed = self.rng.next_u64();
        self.device = self.replaced(Faulty::over(&image, seed).unwrap());
    }

    pub(crate) fn is_open(&self) -> bool {
        self.db.is_some()
    }

    /// Closes the store.
    pub(crate) fn close(&mut self) {
        self.db = None;
        self.process = None;
        self.note_faults();
    }

    /// Closes the store and opens it again.
    pub(crate) fn reopen(&mut self) -> Result<()> {
        self.close();
        self.open(Ended::Process)
    }

    /// Does one random operation.
    pub(crate) fn step(&mut self) -> Result<()> {
        if self.log_devices == 0 {
            return self.act(Self::random_step);
        }
        // Each thread appends to another lane.
        std::thread::scope(|scope| {
            scope
                .spawn(|| self.act(Self::random_step))
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Does one operation and notes its faults.
    pub(crate) fn act(&mut self, act: impl Fn(&mut Self) -> Result<()>) -> Result<()> {
        let done = act(self);
        self.note_faults();
        done
    }

    fn random_step(&mut self) -> Result<()> {
        match self.rng.below(100) {
            0..55 => self.write(),
            55..60 => {
                let names = self.live_names();
                let (name, _) = names[self.rng.below(names.len() as u64) as usize];
                self.keyspace(name).flush()
            }
            60..63 => self.flush(),
            63..67 => self.sync(),
            67..73 => self.work(),
            73..77 => {
                let time = self.rng.below(300);
                self.pass(Duration::from_millis(time))
            }
            77..81 => self.create(),
            81..83 => self.drop_one(),
            83..85 => self.reopen(),
            85..87 => self.merge(),
            87..90 => self.transact(),
            90..92 => self.ingest(),
            _ => self.read(),
        }
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.db().flush()?;
        self.note_synced();
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<()> {
        self.db().sync()?;
        self.note_synced();
        Ok(())
    }

    /// Lets background tasks take some steps.
    pub(crate) fn work(&mut self) -> Result<()> {
        self.stepped.work(self.rng.below(8));
        Ok(())
    }

    pub(crate) fn pass(&mut self, time: Duration) -> Result<()> {
        self.stepped.pass(time);
        Ok(())
    }

    /// Compacts everything.
    pub(crate) fn compact(&mut self) -> Result<()> {
        self.db().compact()
    }

    /// Waits until no compaction is due.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.db().wait_until_settled()
    }

    /// Compacts everything, or a range, or starts a compaction.
    pub(crate) fn merge(&mut self) -> Result<()> {
        let names = self.live_names();
        let (name, _) = names[self.rng.below(names.len() as u64) as usize];
        let keyspace = self.keyspace(name);
        let (one, other) = (key(self.rng.below(KEYS)), key(self.rng.below(KEYS)));
        let range = one.clone().min(other.clone())..one.max(other);
        match self.rng.below(4) {
            0 => self.compact(),
            1 => self.settle(),
            // A hashed keyspace has no ranges.
            2 if self.is_hashed(name) => keyspace.compact_range::<&str>(..),
            3 if self.is_hashed(name) => {
                let started = keyspace.start_compaction::<&str>(..)?;
                self.stepped.work(self.rng.below(8));
                drop(started);
                Ok(())
            }
            2 => keyspace.compact_range(range),
            _ => {
                let started = keyspace.start_compaction(range)?;
                self.stepped.work(self.rng.below(8));
                drop(started);
                Ok(())
            }
        }
    }

    fn note_synced(&mut self) {
        if !self.device.is_frozen() {
            self.synced = self.batches.len();
            self.acknowledged = self.batches.len();
        }
    }

    pub(crate) fn create(&mut self) -> Result<()> {
        let name = NAMES[self.rng.below(3) as usize];
        self.create_named(name)
    }

    pub(crate) fn create_named(&mut self, name: &'static str) -> Result<()> {
        if self.live.contains_key(name) {
            return Ok(());
        }
        self.incarnations += 1;
        let mut after = self.live.clone();
        after.insert(name, self.incarnations);
        let frozen = self.device.is_frozen();
        let options = match self.is_hashed(name) {
            true => weakly_hashed_options(self.seed),
            false => options(),
        };
        let done = self.db().open_or_create_keyspace_opt(name, &options).map(drop);
        self.change_names(after, frozen, done)
    }

    pub(crate) fn drop_one(&mut self) -> Result<()> {
        let name = NAMES[self.rng.below(3) as usize];
        if !self.live.contains_key(name) {
            return Ok(());
        }
        let journal = self.live.get(JOURNAL).copied();
        let wrote_journal = |batch: &Batch| batch.ops.iter().any(|(of, _)| Some(*of) == journal);
        if !self.batches.last().is_none_or(wrote_journal) {
            // If the last write was an ingest, only the dropped keyspace has its number: write another
            // batch first.
            self.write_ops(0, Durability::Sync)?;
            if self.device.is_frozen() {
                return Ok(());
            }
        }
        let mut after = self.live.clone();
        after.remove(name);
        let frozen = self.device.is_frozen();
        let done = self.db().drop_keyspace(name).map(|there| assert!(there));
        self.change_names(after, frozen, done)
    }

    fn change_names(&mut self, after: Live, was_frozen: bool, done: Result<()>) -> Result<()> {
        match done {
            Ok(()) => {
                let before = std::mem::replace(&mut self.live, after);
                let cut = !was_frozen && self.device.is_frozen();
                self.alternative = cut.then_some(before);
                Ok(())
            }
            Err(error) => {
                // The change had no effect if the manifest was poisoned before, or is not poisoned now.
                let poisoned = self.db().statistics().poisoned.is_some();
                if poisoned && error.kind() != ErrorKind::Poisoned {
                    self.alternative = Some(after);
                }
                Err(error)
            }
        }
    }

    /// Creates the keyspaces that every script begins with, if they are missing.
    pub(crate) fn begin(&mut self) -> Result<()> {
        for name in [JOURNAL, "one", "two"] {
            if !self.device.is_frozen() {
                self.create_named(name)?;
            }
        }
        Ok(())
    }

    /// Reads a key and a few entries from there on.
    pub(crate) fn read(&mut self) -> Result<()> {
        let live = self.live_names();
        let (name, incarnation) = live[self.rng.below(live.len() as u64) as usize];
        let probe = key(self.rng.below(KEYS));
        let keyspace = self.keyspace(name);
        let answers = self.answers(incarnation);
        let got = keyspace.get(&probe)?;
        let right = |model: &Model| model.get(&probe).map(Vec::as_slice) == got.as_deref();
        assert!(answers.iter().any(right), "{}: get {}", self.context, show(&probe));
        let mut found = Vec::new();
        if self.is_hashed(name) {
            for entry in keyspace.entries()?.take(5) {
                let (key, value) = entry?;
                found.push((key.to_vec(), value.to_vec()));
            }
            let right =
                |model: &Model| found.iter().all(|(key, value)| model.get(key) == Some(value));
            assert!(answers.iter().any(right), "{}: some entries", self.context);
            return Ok(());
        }
        for entry in keyspace.range(&probe[..]..)?.take(5) {
            let (key, value) = entry?;
            found.push((key.to_vec(), value.to_vec()));
        }
        let right = |model: &Model| {
            model.range(probe.clone()..).take(5).eq(found.iter().map(|(key, value)| (key, value)))
        };
        assert!(answers.iter().any(right), "{}: range from {}", self.context, show(&probe));
        Ok(())
    }

    /// The possible contents of a keyspace: a doubtful batch may be visible.
    fn answers(&self, incarnation: Incarnation) -> Vec<Model> {
        let (cells, now) = (cells_of(&self.batches, incarnation), self.stepped.now());
        let with = |batch: &Batch| {
            let mut cells = cells.clone();
            apply(&mut cells, batch, incarnation);
            cells.at(now)
        };
        let mut models: Vec<_> = self.doubtful.iter().map(with).collect();
        models.push(cells.at(now));
        models
    }
}

/// Compaction options with early and small merges, or late ones.
pub(crate) fn merging(rng: &mut Rng) -> Options {
    if rng.one_in(3) {
        return Options::default();
    }
    Options {
        fanout: 2 + rng.below(3) as usize,
        settled_runs: 1 + rng.below(3) as usize,
        slice_bytes: (32 << rng.below(4)) << 10,
        ..Options::default()
    }
}
