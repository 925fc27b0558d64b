//! Flipped bytes, and files that are missing, cut, foreign or of a newer version.
//!
//! I8: a store with a flipped byte anywhere either fails to open with an error that names the file, or
//! answers every read with the right value or with `Corrupt`. It never returns a wrong value, nor no value
//! for a key that has one. A bad page makes only the keys of its block unreadable and stops no write; a bad
//! page without a block makes no key unreadable.
//!
//! The store under test was closed, so every record of its log is synced. (Recovery cannot tell damage of
//! an unsynced record from the torn end that a power cut leaves: it cuts the log there and reports it in
//! `Recovery::log_torn`.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use base::{Account, ErrorKind, PageSeed, Rng, StoreId, TableId, crc32c};
use media::{Fault, Faulty, Medium, MemoryMedium, OpKind, Purpose, Rule};
use table::{Header, NoDictionaries, PageKind, Table};
use terracedb::{Db, EntryOptions, Error, Keyspace};

use crate::common::{self, Image, Model, Stepped, show, used};

const NAMES: [&str; 2] = ["one", "two"];

/// The files of a small store, and its contents.
struct Sample {
    files: Image,
    models: BTreeMap<&'static str, Model>,
    stepped: Stepped,
}

/// The length of a separated value, bytes.
const LONG: usize = 20_000;

/// The outcome of opening and reading a damaged store.
#[derive(Debug)]
enum Outcome {
    Refused(Error),
    /// The store opened; reads of these keys return `Corrupt`.
    Opened(Vec<(&'static str, Vec<u8>)>),
}

impl Sample {
    /// Overlapping tables in two keyspaces, and a log with further puts (some expiring), deletes, range
    /// deletes and separated values.
    fn new(seed: u64) -> Self {
        let medium = Arc::new(MemoryMedium::new());
        let stepped = Stepped::new(seed);
        let db = stepped.on(Arc::clone(&medium) as _).open().unwrap();
        let mut models: BTreeMap<_, _> = NAMES.map(|name| (name, Model::new())).into();
        let mut rng = Rng::new(seed);
        let expiry = UNIX_EPOCH + Duration::from_millis(stepped.now() + 1_000_000_000);
        for (round, keys) in [(0, 300), (1, 60), (2, 40)] {
            for name in NAMES.into_iter().filter(|_| round > 0) {
                let (from, to) = (common::key(100 * round), common::key(100 * round + 20));
                db.open_or_create_keyspace(name)
                    .unwrap()
                    .delete_range(from.clone()..to.clone())
                    .unwrap();
                models.get_mut(name).unwrap().retain(|key, _| *key < from || *key >= to);
            }
            for number in 0..keys {
                let name = NAMES[usize::from(rng.one_in(4))];
                let keyspace = db.open_or_create_keyspace(name).unwrap();
                let model = models.get_mut(name).unwrap();
                let key = common::key(if round == 0 { number } else { rng.below(300) });
                if round > 0 && rng.one_in(4) {
                    keyspace.delete(&key).unwrap();
                    model.remove(&key);
                } else {
                    let is_long = round < 2 && number % 30 == 7;
                    let mut value = vec![round as u8; if is_long { LONG } else { 60 }];
                    let noise = value.len() - 20;
                    rng.fill(&mut value[..noise]);
                    match rng.one_in(4) {
                        true => keyspace
                            .put_opt(&key, &value, &EntryOptions::new().expires_at(expiry))
                            .unwrap(),
                        false => keyspace.put(&key, &value).unwrap(),
                    }
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

    /// Opens the store and reads everything in it. If opening fails, the error must name `name`. The store
    /// has memory of its own, because a shared cache would have the undamaged pages.
    fn ask(&self, medium: Arc<MemoryMedium>, name: &str, why: &str) -> Outcome {
        let stepped = Stepped::new(1);
        let db = match stepped.on(medium as _).open() {
            Ok(db) => db,
            Err(error) => {
                let kinds = [ErrorKind::Corrupt, ErrorKind::Invalid];
                assert!(kinds.contains(&error.kind()), "{why}: {error}");
                assert!(error.to_string().contains(name), "{why}: no word of the file: {error}");
                return Outcome::Refused(error);
            }
        };
        let mut lost = Vec::new();
        for name in NAMES {
            let keys = self.ask_keyspace(&db, name, why);
            lost.extend(keys.into_iter().map(|key| (name, key)));
        }
        Outcome::Opened(lost)
    }

    /// Opens the store, which must succeed; returns the keys that answer `Corrupt`.
    fn lost(&self, medium: Arc<MemoryMedium>, why: &str) -> Vec<(&'static str, Vec<u8>)> {
        match self.ask(medium, "", why) {
            Outcome::Opened(lost) => lost,
            Outcome::Refused(error) => panic!("{why}: {error}"),
        }
    }

    /// The first and last key of the block on page `page` of table `name`; `None` if the page has no block.
    fn keys_on(&self, name: &str, page: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let header = Header::parse(&self.files.0[name][page * 4096..][..4096]).unwrap();
        if header.kind != PageKind::Data {
            return None;
        }
        let id = TableId(name.trim_end_matches(".table").parse().unwrap());
        let medium = self.files.with("", None);
        let (store, account) = (store_of(self.file("manifest").1), Account::unlimited("test"));
        let none = Arc::new(NoDictionaries);
        let table = Table::open(&*medium, store, id, None, None, none, &account).unwrap();
        table.keys_on(page as u32).unwrap()
    }

    fn ask_keyspace(&self, db: &Db, name: &str, why: &str) -> Vec<Vec<u8>> {
        let keyspace = db.keyspace(name).unwrap_or_else(|error| panic!("{why}: {error}"));
        let model = &self.models[name];
        let mut lost = Vec::new();
        for key in (0..300).map(common::key) {
            match keyspace.get(&key) {
                Ok(got) => {
                    let right = got.as_deref() == model.get(&key).map(Vec::as_slice);
                    assert!(right, "{why}: `{name}` {}", show(&key));
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{why}: {error}");
                    lost.push(key);
                }
            }
        }
        // Iterators return the right entries up to the damage, from either end.
        let cut_short = walk(keyspace.iter().unwrap(), model.iter(), why)
            + walk(keyspace.iter().unwrap().rev(), model.iter().rev(), why);
        assert!(
            lost.is_empty() || cut_short > 0,
            "{why}: gets reported damage and iterators did not"
        );
        write_on(db, &keyspace, why);
        lost
    }
}

/// True if the entries end in an error; asserts that they equal `expected` up to it.
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

/// Asserts that writes and flushes go on despite the damage.
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

/// Only the keys of the damaged block become unreadable: metadata pages are rebuilt from their blocks, and
/// everything behind the partitions is stored twice.
#[test]
fn a_flipped_byte_of_a_table_makes_only_its_block_unreadable() {
    let (mut rng, sample) = seeded();
    let (mut whole, mut lost_some) = (0, 0);
    let tables = sample.files.named(".table");
    assert_eq!(tables.len(), 4);
    for name in tables {
        let content = &sample.files.0[name];
        for at in offsets(&mut rng, content.len(), 80) {
            let why = format!("byte {at} of {name}");
            let on_page = sample.keys_on(name, at / 4096);
            let lost = sample.lost(sample.files.flipped(name, at, 1 << rng.below(8)), &why);
            for (keyspace, key) in &lost {
                let is_on_page =
                    on_page.as_ref().is_some_and(|(from, to)| key >= from && key <= to);
                assert!(is_on_page && *keyspace == lost[0].0, "{why}: {}", show(key));
            }
            // No read needs a data page whose keys all have newer values.
            *(if lost.is_empty() { &mut whole } else { &mut lost_some }) += 1;
        }
    }
    assert!(lost_some > 20 && whole > 20, "{lost_some} reported, {whole} not");
}

/// A damaged or unreadable metadata page is rebuilt from its blocks, also for multi-gets.
#[test]
fn a_damaged_metadata_page_makes_no_key_unreadable() {
    let (mut rng, sample) = seeded();
    let keys: Vec<_> = (0..300).map(common::key).collect();
    let holds = |db: &Db, why: &str| {
        for name in NAMES {
            let keyspace = db.keyspace(name).unwrap();
            let found = keyspace.multi_get(&keys).unwrap();
            for (key, got) in keys.iter().zip(found) {
                let got = got.unwrap_or_else(|error| panic!("{why}: {error}"));
                assert_eq!(
                    got.as_deref(),
                    sample.models[name].get(key).map(Vec::as_slice),
                    "{why}"
                );
            }
        }
    };
    let mut flipped = 0;
    for name in sample.files.named(".table") {
        for (page, content) in sample.files.0[name].chunks_exact(4096).enumerate() {
            if Header::parse(content).unwrap().kind == PageKind::Meta {
                let at = page * 4096 + rng.below(4096) as usize;
                let medium = sample.files.flipped(name, at, 1 << rng.below(8));
                holds(&Stepped::new(1).on(medium as _).open().unwrap(), &format!("{name}, {page}"));
                flipped += 1;
            }
        }
    }
    assert_eq!(flipped, 4);
    let mut struck = 0;
    for after in 0..flipped {
        let device = Arc::new(Faulty::over(&sample.files.with("", None), after).unwrap());
        let db = Stepped::new(1).on(Arc::clone(&device) as _).open().unwrap();
        let rule = Rule::new(OpKind::Read, Fault::Io).purpose(Purpose::Meta).after(after);
        device.inject(rule).unwrap();
        holds(&db, &format!("read {after}"));
        struck += device.struck();
    }
    assert!(struck > 1, "{struck}");
}

/// The footer of a value file holds nothing that is not known from elsewhere.
#[test]
fn a_flipped_byte_of_a_value_file_makes_one_value_unreadable() {
    let (mut rng, sample) = seeded();
    let mut reported = 0;
    for name in sample.files.named(".values") {
        let content = &sample.files.0[name];
        let footer = content.len() - 4096;
        let places = offsets(&mut rng, footer, 20).into_iter();
        for at in places.chain((0..10).map(|number| footer + number * 8)) {
            let why = format!("byte {at} of {name}");
            let lost = sample.lost(sample.files.flipped(name, at, 1 << rng.below(8)), &why);
            assert!(lost.len() <= usize::from(at < footer), "{why}: {lost:?}");
            reported += lost.len();
        }
    }
    assert!(reported > 10, "{reported} reported");
}

#[test]
fn a_flipped_byte_of_the_log_is_reported_at_open() {
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
                    assert!(lost.is_empty(), "{why}");
                    harmless += 1;
                }
            }
        }
    }
    assert!(refused > 50, "{refused} refused, {harmless} harmless");
}

/// A damaged log opens on request: recovery continues past the damage and reports the losses.
#[test]
fn a_damaged_log_is_opened_past_the_damage_when_asked() {
    let (mut rng, sample) = seeded();
    let (mut reported, mut lost) = (0, 0);
    let logs = sample.files.named("log-");
    for name in logs {
        let end = used(&sample.files.0[name]);
        let mut places = offsets(&mut rng, end.max(1), 20);
        // The writes that are in no table.
        let newest = end.min(7000) as u64;
        places.extend((0..30).map(|_| end - newest as usize + rng.below(newest.max(1)) as usize));
        for at in places {
            let why = format!("byte {at} of {name}");
            let medium = sample.files.flipped(name, at, 1 << rng.below(8));
            let opened = sample.stepped.on(medium as _).recover_damaged_log(true).open();
            let db = opened.unwrap_or_else(|error| panic!("{why}: {error}"));
            let Some(damage) = &db.recovery().log_damage else { continue };
            assert!(damage.to_string().contains(name), "{why}: {damage}");
            reported += 1;
            let costs = db.recovery().log_lost.iter().filter(|lost| lost.costs_writes()).count();
            assert!(costs <= 1, "{why}: {:?}", db.recovery().log_lost);
            let mut wrong = 0;
            for name in NAMES {
                let keyspace = db.keyspace(name).unwrap();
                let model = &sample.models[name];
                let entries = keyspace.iter().unwrap().map(|entry| entry.unwrap());
                let held: Model =
                    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
                let keys = model.keys().chain(held.keys()).collect::<BTreeSet<_>>();
                let differs = |key: &&&Vec<u8>| model.get(**key) != held.get(**key);
                let different = keys.iter().filter(differs).collect::<Vec<_>>();
                // A lost range delete may bring back every key that it deleted.
                let of_one = different.len() <= 1
                    || different.iter().all(|key| !model.contains_key(**key))
                        && different.len() <= 20;
                assert!(of_one, "{why}: {different:?}");
                wrong += usize::from(!different.is_empty());
                write_on(&db, &keyspace, &why);
            }
            assert!(wrong <= costs, "{why}: {wrong}");
            lost += costs;
        }
    }
    assert!(reported > 10 && lost > 2, "{reported} reported, {lost} lost");
}

#[test]
fn no_flipped_byte_of_the_manifest_loses_anything() {
    let (mut rng, sample) = seeded();
    let (name, content) = sample.file("manifest");
    let end = used(content);
    let mut places = offsets(&mut rng, end, 100);
    places.extend((0..10).map(|_| rng.below(content.len() as u64) as usize));
    for at in places {
        let why = format!("byte {at} of {name}, used up to {end}");
        match sample.ask(sample.files.flipped(name, at, 1 << rng.below(8)), name, &why) {
            Outcome::Opened(lost) => assert!(lost.is_empty(), "{why}"),
            Outcome::Refused(error) => panic!("{why}: {error}"),
        }
    }
}

#[test]
fn a_missing_cut_or_foreign_table_makes_only_its_keys_unreadable() {
    let (mut rng, sample) = seeded();
    let other = Sample::new(99);
    for name in sample.files.named(".table") {
        let content = &sample.files.0[name];
        let foreign = other.files.0.get(name).unwrap_or(other.file(".table").1);
        let mut changes = vec![
            ("missing", None),
            ("empty", Some(Vec::new())),
            // If merges left no table of this id, any table will do.
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
            assert!(!sample.lost(medium, &why).is_empty(), "{why}");
        }
    }
}

/// The store id, from the header of a manifest.
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
        // The newer version still finds its file unchanged.
        assert!(medium.content(name) == Some(content), "{error}");
        assert_eq!(medium.list().unwrap().len(), sample.files.0.len(), "{error}");
    };

    let (name, content) = sample.file("manifest");
    let store = store_of(content);
    let mut newer = content.clone();
    for copy in newer[..1024].chunks_exact_mut(512) {
        copy[8] = 0x7f;
        let crc = crc32c(&copy[..36]);
        copy[36..40].copy_from_slice(&crc.to_le_bytes());
    }
    refused(name, newer);

    let (name, content) = sample.file("log-");
    let mut newer = content.clone();
    newer[8] = 0x7f;
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
    write_on(&given_up, &given_up.open_or_create_keyspace("one").unwrap(), "without its log");

    let other = Sample::new(98);
    let (log, _) = sample.file("log-");
    let foreign = sample.files.with(log, Some(other.file("log-").1.clone()));
    let error = sample.stepped.on(foreign as _).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("store"), "{error}");
}
