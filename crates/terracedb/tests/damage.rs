//! Flipped bytes, and files that are missing, cut, foreign or of a newer version.
//!
//! I8: a store with a flipped byte anywhere either says so when it is opened, naming the file, or
//! answers every read with the right value or with `Corrupt`; never with a wrong value, never with
//! nothing for a key that is there. One bad page costs the keys on it, and no other key and no write.
//!
//! The store under test was closed, so everything in its log is vouched for. (Of records that no
//! sync vouched for, recovery cannot tell damage from the torn end that a power cut leaves: it cuts
//! the log there and says so in `Recovery::log_torn`.)

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ErrorKind, PageSeed, Rng, StoreId, TableId, crc32c};
use common::{Image, Model, Stepped, show, used};
use media::{Medium, MemoryMedium};
use terracedb::{Db, Error, Keyspace};

const NAMES: [&str; 2] = ["one", "two"];

/// A small store's files, and what it holds.
struct Sample {
    files: Image,
    models: BTreeMap<&'static str, Model>,
    stepped: Stepped,
}

/// What became of a damaged store.
#[derive(Debug)]
enum Outcome {
    Refused(Error),
    /// Opened, with so many keys that answer `Corrupt`.
    Opened(usize),
}

impl Sample {
    /// Tables in two keyspaces, one over another, and a log that holds more.
    fn new(seed: u64) -> Self {
        let medium = Arc::new(MemoryMedium::new());
        let stepped = Stepped::new(seed);
        let db = stepped.on(Arc::clone(&medium) as _).open().unwrap();
        let mut models: BTreeMap<_, _> = NAMES.map(|name| (name, Model::new())).into();
        let mut rng = Rng::new(seed);
        for (round, keys) in [(0, 300), (1, 60), (2, 40)] {
            for number in 0..keys {
                let name = NAMES[usize::from(rng.one_in(4))];
                let keyspace = db.keyspace(name).unwrap();
                let model = models.get_mut(name).unwrap();
                let key = common::key(if round == 0 { number } else { rng.below(300) });
                if round > 0 && rng.one_in(4) {
                    keyspace.delete(&key).unwrap();
                    model.remove(&key);
                } else {
                    let mut value = vec![round as u8; 60];
                    rng.fill(&mut value[..40]);
                    keyspace.put(&key, &value).unwrap();
                    model.insert(key, value);
                }
            }
            if round < 2 {
                db.flush().unwrap();
            }
        }
        drop(db);
        Self { files: Image::of(&medium), models, stepped }
    }

    fn file(&self, part: &str) -> (&String, &Vec<u8>) {
        self.files.0.iter().find(|(name, _)| name.contains(part)).unwrap()
    }

    /// Opens the store and asks it everything. A refusal must name `name`.
    fn ask(&self, medium: Arc<MemoryMedium>, name: &str, why: &str) -> Outcome {
        let db = match self.stepped.on(medium as _).open() {
            Ok(db) => db,
            Err(error) => {
                let kinds = [ErrorKind::Corrupt, ErrorKind::Invalid];
                assert!(kinds.contains(&error.kind()), "{why}: {error}");
                assert!(error.to_string().contains(name), "{why}: no word of the file: {error}");
                return Outcome::Refused(error);
            }
        };
        let lost = NAMES.iter().map(|name| self.ask_keyspace(&db, name, why)).sum();
        Outcome::Opened(lost)
    }

    fn ask_keyspace(&self, db: &Db, name: &str, why: &str) -> usize {
        let keyspace = db.existing_keyspace(name).unwrap_or_else(|| panic!("{why}: no `{name}`"));
        let model = &self.models[name];
        let mut lost = 0;
        for key in (0..300).map(common::key) {
            match keyspace.get(&key) {
                Ok(got) => {
                    let right = got.as_deref() == model.get(&key).map(Vec::as_slice);
                    assert!(right, "{why}: `{name}` {}", show(&key));
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{why}: {error}");
                    lost += 1;
                }
            }
        }
        // Iterators give the right entries up to the damage, from either end.
        let told = walk(keyspace.iter().unwrap(), model.iter(), why)
            + walk(keyspace.iter().unwrap().rev(), model.iter().rev(), why);
        assert!(lost == 0 || told > 0, "{why}: gets told of damage and iterators did not");
        write_on(db, &keyspace, why);
        lost
    }
}

/// Whether the entries end in an error; asserts that they are `expected` up to there.
fn walk<'a>(
    found: impl Iterator<Item = terracedb::Result<terracedb::Entry>>,
    mut expected: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
    why: &str,
) -> usize {
    for entry in found {
        match entry {
            Ok((key, value)) => {
                let next = expected.next().map(|(key, value)| (&key[..], &value[..]));
                assert!(next == Some((&key[..], &value[..])), "{why}: {}", show(&key));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{why}: {error}");
                return 1;
            }
        }
    }
    assert!(expected.next().is_none(), "{why}: entries are missing");
    0
}

/// Writes and flushes go on, whatever is damaged.
fn write_on(db: &Db, keyspace: &Keyspace, why: &str) {
    let again = || keyspace.get("key000010").unwrap_or_else(|error| panic!("{why}: {error}"));
    keyspace.put("key000010", "new").unwrap_or_else(|error| panic!("{why}: {error}"));
    assert_eq!(again().as_deref(), Some(&b"new"[..]), "{why}");
    db.flush().unwrap_or_else(|error| panic!("{why}: {error}"));
    assert_eq!(again().as_deref(), Some(&b"new"[..]), "{why}");
}

fn seeded() -> (Rng, Sample) {
    let (rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    (rng, Sample::new(seed))
}

/// Offsets below `end`: every one with `TERRACE_LONG`, else about `count` of them.
fn offsets(rng: &mut Rng, end: usize, count: usize) -> Vec<usize> {
    if std::env::var_os("TERRACE_LONG").is_some() {
        return (0..end).collect();
    }
    let step = (end / count).max(1);
    let jitter = |at: usize, rng: &mut Rng| (at + rng.below(step as u64) as usize).min(end - 1);
    (0..end).step_by(step).map(|at| jitter(at, rng)).collect()
}

#[test]
fn a_flipped_byte_of_a_table_costs_the_keys_of_its_page() {
    let (mut rng, sample) = seeded();
    let (mut refused, mut lost_some) = (0, 0);
    let tables = sample.files.named(".table");
    assert_eq!(tables.len(), 4);
    for name in tables {
        let content = &sample.files.0[name];
        for at in offsets(&mut rng, content.len(), 80) {
            let why = format!("byte {at} of {name}");
            let mask = 1 << rng.below(8);
            match sample.ask(sample.files.flipped(name, at, mask), name, &why) {
                Outcome::Refused(error) => panic!("{why}: {error}"),
                Outcome::Opened(0) => refused += 1,
                Outcome::Opened(_) => lost_some += 1,
            }
        }
    }
    // A flip in a page that no key asked for needs is told by no read.
    assert!(lost_some > refused, "{lost_some} told, {refused} not");
}

#[test]
fn a_flipped_byte_of_the_log_is_told_at_open() {
    let (mut rng, sample) = seeded();
    let logs = sample.files.named("log-");
    let (mut refused, mut harmless) = (0, 0);
    for name in logs {
        let content = &sample.files.0[name];
        let end = used(content);
        let mut places = offsets(&mut rng, end.max(1), 150);
        places.extend((0..10).map(|_| rng.below(content.len() as u64) as usize));
        for at in places {
            let mask = 1 << rng.below(8);
            let why = format!("byte {at} of {name}, used up to {end}");
            match sample.ask(sample.files.flipped(name, at, mask), name, &why) {
                Outcome::Refused(_) => refused += 1,
                Outcome::Opened(lost) => {
                    assert_eq!(lost, 0, "{why}");
                    harmless += 1;
                }
            }
        }
    }
    assert!(refused > 50, "{refused} refused, {harmless} harmless");
}

/// A log that is damaged is opened when asked for: up to the damage, and saying so.
#[test]
fn a_damaged_log_is_opened_up_to_the_damage_when_asked() {
    let (mut rng, sample) = seeded();
    let mut given_up = 0;
    let logs = sample.files.named("log-");
    for name in logs {
        let end = used(&sample.files.0[name]);
        for at in offsets(&mut rng, end.max(1), 40) {
            let why = format!("byte {at} of {name}");
            let medium = sample.files.flipped(name, at, 1 << rng.below(8));
            let opened = sample.stepped.on(medium as _).recover_damaged_log(true).open();
            let db = opened.unwrap_or_else(|error| panic!("{why}: {error}"));
            let Some(damage) = &db.recovery().log_damage else { continue };
            assert!(damage.to_string().contains(name), "{why}: {damage}");
            given_up += 1;
            for name in NAMES {
                let keyspace = db.existing_keyspace(name).unwrap();
                // What was in tables is there; of the log, no value is made up.
                for entry in keyspace.iter().unwrap() {
                    let (key, value) = entry.unwrap();
                    assert!(key.starts_with(b"key") && value.len() == 60, "{why}");
                }
                write_on(&db, &keyspace, &why);
            }
        }
    }
    assert!(given_up > 10);
}

#[test]
fn no_flipped_byte_of_the_manifest_costs_anything() {
    let (mut rng, sample) = seeded();
    let (name, content) = sample.file("manifest");
    let end = used(content);
    let mut places = offsets(&mut rng, end, 100);
    places.extend((0..10).map(|_| rng.below(content.len() as u64) as usize));
    for at in places {
        let why = format!("byte {at} of {name}, used up to {end}");
        match sample.ask(sample.files.flipped(name, at, 1 << rng.below(8)), name, &why) {
            Outcome::Opened(lost) => assert_eq!(lost, 0, "{why}"),
            Outcome::Refused(error) => panic!("{why}: {error}"),
        }
    }
}

#[test]
fn a_table_that_is_missing_or_cut_or_foreign_costs_its_keys() {
    let (mut rng, sample) = seeded();
    let other = Sample::new(99);
    for name in sample.files.named(".table") {
        let content = &sample.files.0[name];
        let foreign = other.files.0.get(name).unwrap_or(other.file(".table").1);
        let mut changes = vec![
            ("missing", None),
            ("empty", Some(Vec::new())),
            // Where merges left it no table of this id, any.
            ("of another store", Some(foreign.clone())),
            ("too long", Some([&content[..], &[0; 4096]].concat())),
            ("zeros", Some(vec![0; content.len()])),
        ];
        for _ in 0..4 {
            changes.push(("cut", Some(content[..rng.below(content.len() as u64) as usize].into())));
        }
        for (what, changed) in changes {
            let why = format!("{name} is {what}");
            let medium = sample.files.with(name, changed);
            let db = sample.stepped.on(Arc::clone(&medium) as _).open();
            let db = db.unwrap_or_else(|error| panic!("{why}: {error}"));
            let damaged = &db.recovery().damaged_tables;
            assert_eq!(damaged.len(), 1, "{why}: {damaged:?}");
            assert_eq!(damaged[0].kind(), ErrorKind::Corrupt, "{why}: {}", damaged[0]);
            assert!(damaged[0].to_string().contains(name.as_str()), "{why}: {}", damaged[0]);
            drop(db);
            match sample.ask(medium, name, &why) {
                Outcome::Opened(lost) => assert!(lost > 0, "{why}"),
                Outcome::Refused(error) => panic!("{why}: {error}"),
            }
        }
    }
}

/// The store's id, which a manifest begins with.
fn store_of(manifest: &[u8]) -> StoreId {
    StoreId(u128::from_le_bytes(manifest[12..28].try_into().unwrap()))
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let (_, sample) = seeded();
    let refused = |name: &str, content: Vec<u8>| {
        let medium = sample.files.with(name, Some(content.clone()));
        let error = sample.stepped.on(Arc::clone(&medium) as _).open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let words = error.to_string();
        assert!(words.contains(name) && words.contains("version"), "{error}");
        // The newer version still finds what it left.
        assert!(medium.content(name) == Some(content), "{error}");
        assert_eq!(medium.list().unwrap().len(), sample.files.0.len(), "{error}");
    };

    let (name, content) = sample.file("manifest");
    let store = store_of(content);
    let mut newer = content.clone();
    for copy in newer[..1024].chunks_exact_mut(512) {
        copy[8] += 1;
        let crc = crc32c(&copy[..36]);
        copy[36..40].copy_from_slice(&crc.to_le_bytes());
    }
    refused(name, newer);

    let (name, content) = sample.file("log-");
    let mut newer = content.clone();
    newer[8] += 1;
    let crc = crc32c(&newer[..4092]);
    newer[4092..4096].copy_from_slice(&crc.to_le_bytes());
    refused(name, newer);

    let name = sample.files.named(".table")[0];
    let mut newer = sample.files.0[name].clone();
    let last = newer.len() / 4096 - 1;
    let page = &mut newer[last * 4096..];
    let id = page.windows(16).position(|window| window == store.0.to_le_bytes()).unwrap();
    page[id - 8] = 0x7f;
    let table = TableId(name.trim_end_matches(".table").parse().unwrap());
    let checksum = PageSeed::new(store, table).checksum(last as u32, &page[8..]);
    page[..8].copy_from_slice(&checksum.to_le_bytes());
    refused(name, newer);
}

#[test]
fn a_store_without_its_manifest_or_log_is_refused() {
    let (_, sample) = seeded();
    let (manifest, content) = sample.file("manifest");
    let error = sample.stepped.on(sample.files.with(manifest, None) as _).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("manifest"), "{error}");
    for damaged in [vec![0; content.len()], content[..700].to_vec(), vec![0xff; 2000]] {
        let error =
            sample.stepped.on(sample.files.with(manifest, Some(damaged)) as _).open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("manifest"), "{error}");
    }

    let medium = sample.files.with(manifest, Some(content.clone()));
    let logs = sample.files.named("log-");
    logs.iter().for_each(|name| medium.remove(name).unwrap());
    let error = sample.stepped.on(Arc::clone(&medium) as _).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("log"), "{error}");
    let given_up = sample.stepped.on(medium as _).recover_damaged_log(true).open().unwrap();
    assert!(given_up.recovery().log_damage.is_some());
    write_on(&given_up, &given_up.keyspace("one").unwrap(), "without its log");

    let other = Sample::new(98);
    let (log, _) = sample.file("log-");
    let foreign = sample.files.with(log, Some(other.file("log-").1.clone()));
    let error = sample.stepped.on(foreign as _).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("store"), "{error}");
}
