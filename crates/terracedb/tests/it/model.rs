//! Random operations of every kind (batches, transactions, ingests) compared with a `BTreeMap`, over random
//! settings, with snapshots, checkpoints, reopening, process deaths, power cuts, and a clock that runs or
//! is set back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use base::{Codec, Durability, Rng};
use media::{Faulty, Medium};
use terracedb::hashed::HashedPolicy;
use terracedb::tools::CheckpointOptions;
use terracedb::{
    Builder, Db, EntryOptions, Keyspace, KeyspaceOptions, Snapshot, WriteBatch, WriteOptions,
};

use crate::common::{self, Cells, Change, Model, Stepped, assert_same, key};

const NAMES: [&str; 3] = ["one", "two", "three"];
const KEYS: u64 = 300;

struct World {
    rng: Rng,
    faulty: Arc<Faulty>,
    stepped: Stepped,
    /// The latest time at which the store was asked, Unix milliseconds: its time is never earlier.
    now: u64,
    db: Option<Db>,
    /// The result of all acknowledged writes.
    cells: BTreeMap<&'static str, Cells>,
    snapshots: Vec<(Snapshot, BTreeMap<&'static str, Cells>)>,
    /// The first names are those of hashed keyspaces.
    hashed: usize,
    seed: u64,
    codec: Codec,
    version: u64,
    context: String,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let codec = [Codec::None, Codec::Lz4, Codec::Zstd, Codec::Deflate][rng.below(4) as usize];
        let mut world = Self {
            rng,
            faulty: Arc::new(Faulty::new(seed)),
            stepped: Stepped::new(seed),
            now: 0,
            db: None,
            cells: NAMES.iter().map(|name| (*name, Cells::default())).collect(),
            snapshots: Vec::new(),
            hashed: (seed % 4) as usize,
            seed,
            codec,
            version: 0,
            context: format!("TERRACE_SEED={seed}"),
        };
        world.open();
        world
    }

    fn builder(&mut self) -> Builder {
        let medium: Arc<dyn Medium> = Arc::clone(&self.faulty) as _;
        let merging = common::merging(&mut self.rng);
        self.stepped.on(medium).codec(self.codec).compaction_options(merging)
    }

    fn open(&mut self) {
        self.db = Some(self.builder().open().unwrap());
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn keyspace(&self, name: &str) -> Keyspace {
        self.db().open_or_create_keyspace_opt(name, &self.options(name)).unwrap()
    }

    fn options(&self, name: &str) -> KeyspaceOptions {
        match NAMES[..self.hashed].contains(&name) {
            true => common::cells::weakly_hashed_options(self.seed),
            false => common::cells::options(),
        }
    }

    /// The current contents of keyspace `name`. Reading them asks the store for the time.
    fn model(&mut self, name: &str) -> Model {
        self.now = self.now.max(self.stepped.now());
        self.cells[name].at(self.now)
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.rng.below(3) as usize]
    }

    fn key(&mut self) -> Vec<u8> {
        key(self.rng.below(KEYS))
    }

    fn write(&mut self) {
        let durability =
            [Durability::None, Durability::Interval, Durability::Sync][self.rng.below(3) as usize];
        let mut batch = WriteBatch::new();
        let ops = if self.rng.one_in(4) { self.rng.below(20) } else { 1 };
        for _ in 0..ops {
            let name = self.name();
            self.version += 1;
            let now = self.stepped.now();
            let keyspace = self.keyspace(name);
            let change = Change::random(&mut self.rng, KEYS, self.version, now).fit(&keyspace);
            change.add(&mut batch, &keyspace);
            self.cells.get_mut(name).unwrap().apply(&change);
        }
        self.db().write_opt(&batch, &WriteOptions::new().durability(durability)).unwrap();
    }

    fn check_some(&mut self) {
        let (name, probe) = (self.name(), self.key());
        let keyspace = self.keyspace(name);
        let model = self.model(name);
        let context = &self.context;
        assert_eq!(
            keyspace.get(&probe).unwrap().as_deref(),
            model.get(&probe).map(Vec::as_slice),
            "{context}"
        );
        if keyspace.hashed_policy().is_some() {
            // As the ranges of an ordered keyspace, this asks the store for the time; a get may not.
            return drop(keyspace.entries().unwrap());
        }
        let mut from_here = keyspace.range(&probe[..]..).unwrap();
        let next = from_here.next().map(|entry| entry.unwrap().0.to_vec());
        let expected = model.range(probe.clone()..).next().map(|(key, _)| key.clone());
        assert_eq!(next, expected, "{context}");
        let before = keyspace.range(..&probe[..]).unwrap().next_back();
        let expected = model.range(..probe).next_back().map(|(key, _)| key.clone());
        assert_eq!(before.map(|entry| entry.unwrap().0.to_vec()), expected, "{context}");
    }

    /// A cursor moves at random and must agree with the model at every step.
    fn walk(&mut self) {
        let name = self.name();
        if self.keyspace(name).hashed_policy().is_some() {
            return;
        }
        let mut cursor = self.keyspace(name).cursor().unwrap();
        let model = self.model(name);
        let mut at: Option<Vec<u8>> = None;
        for _ in 0..30 {
            let probe = self.key();
            let (valid, expected) = match (self.rng.below(6), &at) {
                (0, _) => (cursor.seek_to_first().unwrap(), model.keys().next().cloned()),
                (1, _) => (cursor.seek_to_last().unwrap(), model.keys().next_back().cloned()),
                (2, _) => {
                    let next = model.range(probe.clone()..).next().map(|(k, _)| k.clone());
                    (cursor.seek(&probe).unwrap(), next)
                }
                (3, _) => {
                    let before = model.range(..probe.clone()).next_back().map(|(k, _)| k.clone());
                    (cursor.seek_before(&probe).unwrap(), before)
                }
                (4, Some(here)) => {
                    let mut after = model.range(here.clone()..);
                    after.next();
                    (cursor.next().unwrap(), after.next().map(|(k, _)| k.clone()))
                }
                (_, Some(here)) => {
                    let before = model.range(..here.clone()).next_back().map(|(k, _)| k.clone());
                    (cursor.prev().unwrap(), before)
                }
                (_, None) => (cursor.next().unwrap(), None),
            };
            assert_eq!(valid, expected.is_some(), "{}", self.context);
            assert_eq!(cursor.key(), expected.as_deref(), "{}", self.context);
            let value = expected.as_ref().map(|key| model[key].as_slice());
            assert_eq!(cursor.value(), value, "{}", self.context);
            at = expected;
        }
    }

    fn multi_get(&mut self) {
        let name = self.name();
        let keys: Vec<_> = (0..self.rng.below(100)).map(|_| self.key()).collect();
        let model = self.model(name);
        let values = self.keyspace(name).multi_get(&keys).unwrap();
        for (key, value) in keys.iter().zip(values) {
            let expected = model.get(key).map(Vec::as_slice);
            assert_eq!(value.unwrap().as_deref(), expected, "{}", self.context);
        }
    }

    fn check_all(&mut self) {
        for name in NAMES {
            let model = self.model(name);
            assert_same(&self.keyspace(name), &model, &self.context);
        }
    }

    /// A snapshot reads its own versions, but expiry at the time of the read.
    fn check_snapshots(&mut self) {
        self.now = self.now.max(self.stepped.now());
        for (snapshot, cells) in &self.snapshots {
            for name in NAMES {
                let (keyspace, model) = (self.keyspace(name), cells[name].at(self.now));
                if matches!(keyspace.hashed_policy(), Some(HashedPolicy::Window { .. })) {
                    assert!(snapshot.get(&keyspace, "any").is_err(), "{}", self.context);
                    continue;
                }
                let owned = |entry: terracedb::Result<terracedb::Entry>| {
                    entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()
                };
                let found: Model = snapshot.entries(&keyspace).unwrap().map(owned).collect();
                assert!(found == model, "{}: snapshot of {name}", self.context);
                if keyspace.hashed_policy().is_none() {
                    let backwards = snapshot.iter(&keyspace).unwrap().rev();
                    let found: Model = backwards.map(owned).collect();
                    assert!(found == model, "{}: snapshot of {name}, backwards", self.context);
                }
                for probe in (0..KEYS).step_by(7).map(key) {
                    let got = snapshot.get(&keyspace, &probe).unwrap();
                    assert_eq!(got.as_deref(), model.get(&probe).map(Vec::as_slice));
                }
            }
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.db = None;
        self.open();
    }

    /// The process dies: every acknowledged write is present, at any durability.
    fn die(&mut self) {
        self.catch_up();
        let image = self.faulty.process_death_image().unwrap();
        self.snapshots.clear();
        self.db = None;
        self.faulty = Arc::new(Faulty::over(&image, self.rng.next_u64()).unwrap());
        self.open();
        self.check_all();
    }

    /// The power fails after a sync: every earlier write is present.
    fn lose_power(&mut self) {
        self.catch_up();
        self.db().sync().unwrap();
        let image = self.faulty.crash_image(self.rng.next_u64()).unwrap();
        self.snapshots.clear();
        self.db = None;
        self.faulty = Arc::new(Faulty::over(&image, self.rng.next_u64()).unwrap());
        self.open();
        self.check_all();
    }

    /// Time passes, or the clock is set back, which brings no value back.
    fn tell_time(&mut self) {
        if !self.rng.one_in(4) {
            self.stepped.pass(Duration::from_millis(self.rng.below(2000)));
            return;
        }
        // A read observes the time before the clock is set back.
        self.check_some();
        self.stepped.set_now(self.stepped.now() - self.rng.below(10_000));
    }

    /// A store that is killed may lose the last minute of its time: the clock must be right again by then.
    fn catch_up(&self) {
        self.stepped.set_now(self.now.max(self.stepped.now()));
    }

    fn merge(&mut self) {
        let (one, other, name) = (self.key(), self.key(), self.name());
        let range = one.clone().min(other.clone())..one.max(other);
        if self.rng.one_in(2) {
            let keyspace = self.keyspace(name);
            return match keyspace.hashed_policy() {
                Some(_) => keyspace.compact_range::<&[u8]>(..).unwrap(),
                None => keyspace.compact_range(range).unwrap(),
            };
        }
        self.db().compact().unwrap();
    }

    /// Sorted keys, all visible together.
    fn ingest(&mut self) {
        let name = self.name();
        if self.keyspace(name).hashed_policy().is_some() {
            return;
        }
        let mut ingest = self.keyspace(name).ingest().unwrap();
        let (first, step) = (self.rng.below(KEYS), 1 + self.rng.below(9));
        let numbers = (first..KEYS).step_by(step as usize).take(self.rng.below(60) as usize);
        for number in numbers {
            self.version += 1;
            let (key, version) = (key(number), self.version);
            let stored = format!("ingested {version}").into_bytes();
            let change = if self.rng.one_in(4) {
                let expiry = self.stepped.now() + self.rng.below(5000);
                let at = UNIX_EPOCH + Duration::from_millis(expiry);
                ingest.put_opt(&key, &stored, &EntryOptions::new().expires_at(at)).unwrap();
                Change::PutExpiring(key, stored, expiry)
            } else {
                ingest.put(&key, &stored).unwrap();
                Change::Put(key, stored)
            };
            self.cells.get_mut(name).unwrap().apply(&change);
        }
        ingest.finish().unwrap();
    }

    /// A transaction sees its own writes, and no other reader sees them before the commit.
    fn transact(&mut self) {
        let db = self.db().clone();
        let keyspaces = NAMES.map(|name| (name, self.keyspace(name)));
        let mut transaction = db.transaction();
        let mut cells = self.cells.clone();
        for _ in 0..self.rng.below(30) {
            let (name, keyspace) = &keyspaces[self.rng.below(3) as usize];
            self.version += 1;
            let now = self.stepped.now();
            let change = Change::random(&mut self.rng, KEYS, self.version, now).fit(keyspace);
            change.add_to(&mut transaction, keyspace);
            cells.get_mut(name).unwrap().apply(&change);
            if self.rng.one_in(3) {
                let probe = self.key();
                self.now = self.now.max(self.stepped.now());
                let model = cells[name].at(self.now);
                let expected = model.get(&probe).map(Vec::as_slice);
                let found = transaction.get(keyspace, &probe).unwrap();
                assert_eq!(found.as_deref(), expected, "{}", self.context);
            }
        }
        let (name, keyspace) = &keyspaces[self.rng.below(3) as usize];
        self.now = self.now.max(self.stepped.now());
        let model = cells[name].at(self.now);
        let owned = |entry: terracedb::Result<terracedb::Entry>| {
            entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()
        };
        if keyspace.hashed_policy().is_some() {
            drop(keyspace.entries().unwrap());
        } else {
            let iter = || transaction.iter(keyspace).unwrap().map(owned);
            assert!(iter().collect::<Model>() == model, "{}: a transaction", self.context);
            let reversed = transaction.iter(keyspace).unwrap().rev().map(owned);
            assert!(reversed.collect::<Model>() == model, "{}: a transaction", self.context);
        }
        if self.rng.one_in(4) {
            return transaction.rollback();
        }
        transaction.commit().unwrap();
        self.cells = cells;
    }

    /// A checkpoint is a store with the same contents.
    fn checkpoint(&mut self) {
        self.catch_up();
        let copy: Arc<dyn Medium> = Arc::new(Faulty::new(self.rng.next_u64()));
        let options = CheckpointOptions::default().flush(self.rng.one_in(2));
        self.db().checkpoint_on(&copy, &options).unwrap();
        let merging = common::merging(&mut self.rng);
        let db = self.stepped.on(copy).codec(self.codec).compaction_options(merging);
        let db = db.open().unwrap();
        for name in NAMES {
            let model = self.model(name);
            let keyspace = db.open_or_create_keyspace_opt(name, &self.options(name)).unwrap();
            assert_same(&keyspace, &model, &format!("{}: a checkpoint", self.context));
        }
    }

    fn step(&mut self) {
        match self.rng.below(1000) {
            0..575 => self.write(),
            575..585 => self.ingest(),
            585..598 => self.transact(),
            598..600 => self.checkpoint(),
            600..800 => self.check_some(),
            800..850 => self.walk(),
            850..900 => self.multi_get(),
            900..930 => {
                if self.snapshots.len() < 4 {
                    self.snapshots.push((self.db().snapshot(), self.cells.clone()));
                } else {
                    let gone = self.rng.below(4) as usize;
                    self.snapshots.remove(gone);
                }
            }
            930..950 => self.keyspace(NAMES[0]).flush().unwrap(),
            950..960 => self.tell_time(),
            960..970 => self.db().flush().unwrap(),
            970..973 => self.db().wait_until_settled().unwrap(),
            973..975 => self.merge(),
            975..980 => self.check_snapshots(),
            980..983 => self.check_all(),
            983..986 => {
                let name = self.name();
                self.snapshots.clear();
                self.db().drop_keyspace(name).unwrap();
                self.cells.get_mut(name).unwrap().clear();
            }
            986..992 => self.reopen(),
            992..996 => self.die(),
            _ => self.lose_power(),
        }
    }
}

#[test] // I4, I5
fn random_operations_agree_with_the_model() {
    let (mut seeds, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 200 } else { 4 };
    for round in 0..rounds {
        let mut world = World::new(if round == 0 { seed } else { seeds.next_u64() });
        for _ in 0..1000 {
            world.step();
        }
        world.check_snapshots();
        world.check_all();
    }
}
