//! Scrub and quarantine: planted damage is found and reported with its keys. A damaged file is kept out of
//! merges and value collections, also after a restart, and its other keys still read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{Error, ErrorKind, Result, Rng};
use media::{Access, Buf, File, Medium, MemoryMedium, Purpose};
use terracedb::events::{Event, Listener};
use terracedb::hashed::HashedPolicy;
use terracedb::stats::Statistics;
use terracedb::tools::RepairOptions;
use terracedb::{Db, KeyspaceOptions};

use crate::common::{self, Model, Stepped};

/// A listener that records events, and panics if asked to.
#[derive(Debug, Default)]
struct EventRecorder {
    heard: Mutex<Vec<Event>>,
    panics: AtomicBool,
}

impl Listener for EventRecorder {
    fn event(&self, event: &Event) {
        self.heard.lock().unwrap().push(event.clone());
        assert!(!self.panics.load(Ordering::Relaxed), "as asked");
    }
}

impl EventRecorder {
    fn count(&self, is: impl Fn(&Event) -> bool) -> usize {
        self.heard.lock().unwrap().iter().filter(|event| is(event)).count()
    }
}

const KEYS: u64 = 3000;

fn key(number: u64) -> String {
    format!("key{number:06}")
}

/// A store with a few overlapping tables.
fn filled(stepped: &Stepped, medium: &Arc<MemoryMedium>) -> Db {
    // Damage on the device must not be hidden by pages that were cached as they were written.
    let builder = stepped.on(Arc::clone(medium) as _).write_through(false);
    let db = builder.open().unwrap();
    let keyspace = db.open_or_create_keyspace("one").unwrap();
    let mut rng = Rng::new(7);
    for (round, step) in [(0, 1), (1, 3), (2, 7)] {
        for number in (0..KEYS).step_by(step) {
            let mut noise = [0; 300];
            rng.fill(&mut noise);
            let value = [format!("{round} {number} ").as_bytes(), &noise].concat();
            keyspace.put(key(number), value).unwrap();
        }
        db.flush().unwrap();
    }
    db
}

/// Writes a value file in which each value takes ten pages.
fn put_long(db: &Db, rng: &mut Rng, model: &mut Model, numbers: impl Iterator<Item = u64>) {
    let keyspace = db.open_or_create_keyspace("one").unwrap();
    for number in numbers {
        let mut value = vec![0; 40_000];
        rng.fill(&mut value);
        keyspace.put(key(number), &value).unwrap();
        model.insert(key(number).into_bytes(), value);
    }
    db.flush().unwrap();
}

/// Flips a byte of a data page in the middle of the longest table; returns its name.
fn damage(medium: &MemoryMedium) -> String {
    let tables = medium.list().unwrap().into_iter().filter(|it| it.name.ends_with(".table"));
    let name = tables.max_by_key(|it| it.len).unwrap().name;
    let mut content = medium.content(&name).unwrap();
    let page = content.len() / 4096 / 2;
    content[page * 4096 + 999] ^= 4;
    medium.remove(&name).unwrap();
    medium.insert(&name, content).unwrap();
    name
}

/// The keys that cannot be read; asserts that all others have their latest value.
fn lost(db: &Db) -> Vec<String> {
    let keyspace = db.keyspace("one").unwrap();
    let mut lost = Vec::new();
    for number in 0..KEYS {
        let round = if number % 7 == 0 { 2 } else { usize::from(number % 3 == 0) };
        match keyspace.get(key(number)) {
            Ok(value) => {
                let value = value.expect("a key is not there");
                assert!(value.starts_with(format!("{round} {number} ").as_bytes()));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                lost.push(key(number));
            }
        }
    }
    lost
}

fn damaged_tables(statistics: &Statistics) -> usize {
    statistics.compaction.damaged_tables
}

#[test] // I8
fn a_scrub_finds_planted_damage_and_quarantines_its_table() {
    let (medium, stepped) = (Arc::new(MemoryMedium::new()), Stepped::new(1));
    drop(filled(&stepped, &medium));
    let file = damage(&medium);
    let recorder = Arc::new(EventRecorder::default());
    let open = || stepped.on(Arc::clone(&medium) as _).listener(Arc::clone(&recorder) as _);
    let db = open().open().unwrap();
    let report = db.scrub().unwrap();
    assert_eq!((report.tables, report.damages), (3, 1), "{report:?}");
    let problem = &report.problems[0];
    assert_eq!((&problem.file, problem.keyspace.as_deref()), (&file, Some("one")));
    assert_eq!(problem.pages.unwrap().1, 1);
    // The reported keys are exactly the unreadable ones.
    let (from, to) = problem.keys.clone().unwrap();
    let lost_keys = lost(&db);
    assert!(!lost_keys.is_empty());
    for key in &lost_keys {
        assert!(key.as_bytes() >= &from[..] && key.as_bytes() <= &to[..], "{problem}");
    }
    let statistics = db.statistics();
    assert_eq!((statistics.damages, damaged_tables(&statistics)), (1, 1));
    assert_eq!(statistics.scrub.passes, 1);
    assert_eq!(recorder.count(|it| matches!(it, Event::DamageFound { .. })), 1);
    assert_eq!(recorder.count(|it| matches!(it, Event::TableQuarantined { .. })), 1);
    assert_eq!(recorder.count(|it| matches!(it, Event::ScrubEnded { damages: 1, .. })), 1);

    // A second scrub finds the same damage; the table is quarantined once.
    db.scrub().unwrap();
    assert_eq!(recorder.count(|it| matches!(it, Event::TableQuarantined { .. })), 1);
    drop(db);

    // After a restart the table stays in place and out of merges; writes and merges of the rest go on.
    let db = open().open().unwrap();
    assert_eq!(damaged_tables(&db.statistics()), 1);
    let keyspace = db.open_or_create_keyspace("one").unwrap();
    keyspace.put("other", "x").unwrap();
    // A compaction reports the table or leaves it out; the table stays either way.
    let _ = db.compact();
    assert!(medium.list().unwrap().iter().any(|it| it.name == file));
    assert_eq!(lost(&db), lost_keys);
    assert_eq!(keyspace.get("other").unwrap().as_deref(), Some(&b"x"[..]));
}

/// Damage of a page on which entries straddle its ends: a scrub names the page, only the entries with bytes
/// on the page are unreadable, and a repair keeps all others.
#[test] // I8
fn damage_of_a_straddled_page_costs_the_entries_on_it() {
    const ENTRIES: u64 = 300;
    let (medium, stepped) = (Arc::new(MemoryMedium::new()), Stepped::new(1));
    let shared: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let value = |number: u64| common::noise(1000 + number as usize);
    let db = stepped.on(Arc::clone(&shared)).write_through(false).open().unwrap();
    let options = KeyspaceOptions::new().hashed(HashedPolicy::Keep);
    let photos = db.create_keyspace_opt("photos", &options).unwrap();
    for number in 0..ENTRIES {
        photos.put(number.to_be_bytes(), value(number)).unwrap();
    }
    photos.flush().unwrap();
    drop((db, photos));
    let file = damage(&medium);
    let content = medium.content(&file).unwrap();
    let header = table::Header::parse(&content[content.len() / 4096 / 2 * 4096..][..4096]).unwrap();
    assert!(header.straddle.is_some(), "{header:?}");
    let lost = |db: &Db| {
        let photos = db.keyspace("photos").unwrap();
        let is_lost = |number: &u64| match photos.get(number.to_be_bytes()) {
            Ok(found) => {
                let is_there = found.is_some();
                assert!(found.is_none_or(|found| found == value(*number)), "{number}");
                !is_there
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                true
            }
        };
        (0..ENTRIES).filter(is_lost).count()
    };
    let db = stepped.on(Arc::clone(&shared)).open().unwrap();
    let report = db.scrub().unwrap();
    assert_eq!((report.tables, report.damages), (1, 1), "{report:?}");
    let problem = &report.problems[0];
    assert_eq!((&problem.file, problem.keyspace.as_deref()), (&file, Some("photos")));
    assert_eq!(problem.pages.unwrap().1, 1, "{problem}");
    assert_eq!(damaged_tables(&db.statistics()), 1);
    let unreadable = lost(&db);
    assert!((1..10).contains(&unreadable), "{unreadable}");
    drop(db);
    terracedb::tools::repair(&shared, RepairOptions::default(), &mut |_, _| {}).unwrap();
    let db = stepped.on(shared).open().unwrap();
    let gone = lost(&db);
    assert!((1..10).contains(&gone), "{gone}");
    assert_eq!(db.scrub().unwrap().damages, 0);
}

/// Every reader of a page with a second copy reports its damage. No key is lost, nothing is quarantined,
/// and a merge that rewrites the table ends the damage.
#[test]
fn damage_of_a_duplicated_page_is_reported_and_merged_away() {
    let (medium, stepped) = (Arc::new(MemoryMedium::new()), Stepped::new(6));
    drop(filled(&stepped, &medium));
    let whole = common::Image::of(&medium);
    let name = whole.named(".table")[0];
    let pages = whole.0[name].len() / 4096;
    // Top level, properties, their copies, and two footers.
    for page in pages - 6..pages {
        let why = format!("page {page} of {pages}");
        let medium = whole.flipped(name, page * 4096 + 60, 4);
        let shared = || Arc::clone(&medium) as Arc<dyn Medium>;
        let report = terracedb::tools::check(&shared(), &mut |_, _| ()).unwrap();
        assert_eq!(report.damages, 1, "{why}: {report:?}");
        let problem = &report.problems[0];
        assert_eq!((&problem.file, problem.pages), (name, Some((page as u32, 1))), "{why}");
        assert_eq!(problem.keys, None, "{why}");

        let stepped = Stepped::new(6);
        let db = stepped.on(shared()).open().unwrap();
        let recovery = db.recovery();
        assert!(recovery.damaged_tables.is_empty(), "{why}: {recovery:?}");
        // Opening reads the copies, and one of the footers.
        let is_read = (pages - 4..pages - 2).contains(&page) || page == pages - 1;
        assert_eq!(recovery.read_by_copy.len(), usize::from(is_read), "{why}");
        for problem in &recovery.read_by_copy {
            assert!(problem.to_string().contains(name.as_str()), "{why}: {problem}");
        }
        let found = db.scrub().unwrap();
        assert_eq!((found.damages, found.problems[0].pages), (1, Some((page as u32, 1))), "{why}");
        assert_eq!((db.statistics().damages, damaged_tables(&db.statistics())), (1, 0), "{why}");
        assert_eq!(lost(&db), [""; 0], "{why}");

        db.compact().unwrap();
        db.wait_until_settled().unwrap();
        assert!(!medium.list().unwrap().iter().any(|file| file.name == *name), "{why}");
        assert_eq!(db.scrub().unwrap().damages, 0, "{why}");
        assert_eq!(lost(&db), [""; 0], "{why}");
    }
}

/// A merge that meets damage quarantines the table as a scrub does.
#[test]
fn a_merge_that_meets_damage_quarantines_its_input() {
    let (medium, stepped) = (Arc::new(MemoryMedium::new()), Stepped::new(2));
    drop(filled(&stepped, &medium));
    let file = damage(&medium);
    let recorder = Arc::new(EventRecorder::default());
    let open = || stepped.on(Arc::clone(&medium) as _).listener(Arc::clone(&recorder) as _);
    let db = open().open().unwrap();
    let _ = db.compact();
    assert_eq!(damaged_tables(&db.statistics()), 1);
    assert_eq!(recorder.count(|it| matches!(it, Event::TableQuarantined { .. })), 1);
    let lost_keys = lost(&db);
    drop(db);
    let db = open().open().unwrap();
    assert_eq!(damaged_tables(&db.statistics()), 1);
    assert!(medium.list().unwrap().iter().any(|it| it.name == file));
    assert_eq!(lost(&db), lost_keys);
}

/// Damage of a value file is found and reported with the value's key. The file stays and is not collected,
/// before and after a restart, until no pointer into it is left; everything else works.
#[test] // I8
fn a_scrub_finds_a_damaged_value_and_its_file_stays() {
    const VALUES: u64 = 24;
    let (medium, stepped) = (Arc::new(MemoryMedium::new()), Stepped::new(5));
    let recorder = Arc::new(EventRecorder::default());
    let open = || {
        let builder = stepped.on(Arc::clone(&medium) as _).write_through(false);
        builder.listener(Arc::clone(&recorder) as _).open()
    };
    let db = open().unwrap();
    let mut rng = Rng::new(5);
    let mut model = Model::new();
    // Two value files, with every second key in each.
    for half in 0..2 {
        put_long(&db, &mut rng, &mut model, (half..VALUES).step_by(2));
    }
    drop(db);
    let is_values = |name: &str| table::parse_values_file_name(name).is_some();
    let files = || medium.list().unwrap().into_iter().map(|it| it.name);
    let names: Vec<_> = files().filter(|name| is_values(name)).collect();
    assert_eq!(names.len(), 2);
    // Ten pages per value; the fifth page of the fourth value, which belongs to key 6.
    let mut content = medium.content(&names[0]).unwrap();
    let page = 3 * 10 + 4;
    content[page * 4096 + 999] ^= 4;
    medium.remove(&names[0]).unwrap();
    medium.insert(&names[0], content).unwrap();
    let lost = key(6).into_bytes();
    let ask = |db: &Db, model: &Model| {
        let keyspace = db.keyspace("one").unwrap();
        for (key, value) in model {
            match keyspace.get(key) {
                Ok(got) => assert!(got.as_deref() == Some(&value[..]) && *key != lost),
                Err(error) => assert!(error.kind() == ErrorKind::Corrupt && *key == lost),
            }
        }
    };
    let scrub = |db: &Db| {
        let report = db.scrub().unwrap();
        assert_eq!(report.damages, 1, "{report:?}");
        let problem = &report.problems[0];
        assert_eq!((&problem.file, problem.keyspace.as_deref()), (&names[0], Some("one")));
        assert_eq!(problem.pages, Some((page as u32, 1)));
        assert_eq!(problem.keys, Some((lost.clone(), lost.clone())));
        report
    };

    let db = open().unwrap();
    let report = scrub(&db);
    assert_eq!((report.tables, report.value_files), (2, 2));
    assert_eq!(recorder.count(|it| matches!(it, Event::DamageFound { .. })), 1);
    let statistics = db.statistics();
    assert_eq!((statistics.damages, damaged_tables(&statistics)), (1, 0));
    assert_eq!(statistics.damaged[0].file, names[0]);
    ask(&db, &model);

    // Most of both files dies: one is collected, the damaged one is not.
    let keyspace = db.open_or_create_keyspace("one").unwrap();
    for number in (0..VALUES).filter(|number| ![6, 7].contains(number)) {
        keyspace.put(key(number), "short").unwrap();
        model.insert(key(number).into_bytes(), b"short".to_vec());
    }
    db.compact().unwrap();
    db.wait_until_settled().unwrap();
    let present = |name: &String| files().any(|file| file == *name);
    assert!(present(&names[0]) && !present(&names[1]));
    assert_eq!(db.statistics().compaction.failed, 0);
    ask(&db, &model);
    drop((keyspace, db));

    let db = open().unwrap();
    db.wait_until_settled().unwrap();
    scrub(&db);
    assert!(present(&names[0]));
    ask(&db, &model);
    // The file is removed with the last table that points into it.
    db.open_or_create_keyspace("one").unwrap().delete_range::<&[u8]>(..).unwrap();
    model.clear();
    db.compact().unwrap();
    db.wait_until_settled().unwrap();
    assert!(!present(&names[0]));
    assert_eq!(db.scrub().unwrap().damages, 0);
}

/// The footer of a value file holds nothing that the manifest lacks: its damage is reported, makes no value
/// unreadable, and the file is collected as usual.
#[test]
fn a_value_file_without_its_footer_is_read_and_collected() {
    const VALUES: u64 = 12;
    let (medium, stepped) = (Arc::new(MemoryMedium::new()), Stepped::new(8));
    let db = stepped.on(Arc::clone(&medium) as _).open().unwrap();
    let mut model = Model::new();
    put_long(&db, &mut Rng::new(8), &mut model, 0..VALUES);
    drop(db);
    let whole = common::Image::of(&medium);
    let name = whole.named(".values")[0];
    let last = whole.0[name].len() / 4096 - 1;
    let medium = whole.flipped(name, last * 4096 + 60, 4);
    let report = terracedb::tools::check(&(Arc::clone(&medium) as _), &mut |_, _| ()).unwrap();
    assert_eq!((report.damages, report.problems[0].pages), (1, Some((last as u32, 1))));
    assert_eq!(report.values, VALUES);

    let stepped = Stepped::new(8);
    let db = stepped.on(Arc::clone(&medium) as _).open().unwrap();
    let found = db.scrub().unwrap();
    assert_eq!((found.damages, found.problems[0].pages), (1, Some((last as u32, 1))));
    let keyspace = db.keyspace("one").unwrap();
    common::assert_same(&keyspace, &model, "without a footer");
    for number in 1..VALUES {
        keyspace.put(key(number), "short").unwrap();
        model.insert(key(number).into_bytes(), b"short".to_vec());
    }
    db.compact().unwrap();
    db.wait_until_settled().unwrap();
    assert!(!medium.list().unwrap().iter().any(|file| file.name == *name), "collected");
    common::assert_same(&keyspace, &model, "collected");
    assert_eq!(db.scrub().unwrap().damages, 0);
}

/// The background scrub runs when it is due, at the set rate, and resumes at its position.
#[test]
fn tables_are_scrubbed_in_the_background_at_the_rate_that_is_set() {
    let (medium, stepped) = (Arc::new(MemoryMedium::new()), Stepped::new(3));
    drop(filled(&stepped, &medium));
    let file = damage(&medium);
    let open = |rate| {
        let builder = stepped.on(Arc::clone(&medium) as _).scrub_rate(rate);
        builder.scrub_interval(Duration::from_secs(3600)).open().unwrap()
    };
    let pass_time = |seconds: u64| (0..seconds).for_each(|_| stepped.pass(Duration::from_secs(1)));
    let db = open(8 << 10);
    pass_time(300);
    assert_eq!(db.statistics().scrub.pages, 0, "not due yet");
    pass_time(320);
    let early = db.statistics();
    assert!(early.scrub.running && early.scrub.pages > 0, "{:?}", early.scrub);
    assert!(early.scrub.pages * 4096 < 30 * (8 << 10) + (256 << 10), "{:?}", early.scrub);
    drop(db);
    // After the reopen the pass resumes instead of starting again.
    let db = open(1 << 20);
    pass_time(60);
    let later = db.statistics();
    assert_eq!((later.scrub.passes, later.damages), (1, 1), "{:?}", later.scrub);
    assert_eq!(later.damaged[0].file, file);
    assert_eq!(later.scrub.last_began_ms, early.scrub.last_began_ms);
    assert!(!later.scrub.running);
    pass_time(100);
    assert_eq!(db.statistics().scrub.passes, 1, "the next is due in an hour");
    stepped.set_now(stepped.now() + 3_600_000);
    pass_time(60);
    assert_eq!(db.statistics().scrub.passes, 2);
    drop(db);
    let db = open(0);
    stepped.set_now(stepped.now() + 7_200_000);
    pass_time(60);
    assert_eq!(db.statistics().scrub.pages, 0, "a rate of 0 is never");
}

/// A medium with too few resources for the reads of a scrub, as long as it is busy.
#[derive(Debug)]
struct BusyMedium {
    inner: Arc<MemoryMedium>,
    is_busy: Arc<AtomicBool>,
}

impl Medium for BusyMedium {
    media::delegate!(inner: capabilities, create, remove, rename, link, list, space, sync_names);
    media::delegate!(inner: lock, queue, undecorated);

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        let (inner, is_busy) = (self.inner.open(name, access)?, Arc::clone(&self.is_busy));
        Ok(Arc::new(BusyFile { inner, is_busy }))
    }
}

#[derive(Debug)]
struct BusyFile {
    inner: Arc<dyn File>,
    is_busy: Arc<AtomicBool>,
}

impl File for BusyFile {
    media::delegate!(inner: name, size, write, store, sync, set_len, undecorated);

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        if purpose == Purpose::Scrub && self.is_busy.load(Ordering::Relaxed) {
            return (buf, Err(Error::retry("device")));
        }
        self.inner.read(at, buf, purpose)
    }
}

/// A read that fails for lack of resources is no damage: a scrub on request returns the error, and the
/// background scrub reads the same pages again later.
#[test]
fn a_busy_device_is_no_damage() {
    let (medium, stepped) = (Arc::new(MemoryMedium::new()), Stepped::new(5));
    drop(filled(&stepped, &medium));
    let is_busy = Arc::new(AtomicBool::new(true));
    let busy = BusyMedium { inner: medium, is_busy: Arc::clone(&is_busy) };
    let builder = stepped.on(Arc::new(busy)).scrub_rate(8 << 20);
    let db = builder.scrub_interval(Duration::from_secs(3600)).open().unwrap();
    assert_eq!(db.scrub().unwrap_err().kind(), ErrorKind::Retry);
    let pass_time = |seconds: u64| (0..seconds).for_each(|_| stepped.pass(Duration::from_secs(1)));
    pass_time(900);
    let statistics = db.statistics();
    assert!(statistics.scrub.running && statistics.scrub.pages == 0, "{:?}", statistics.scrub);
    assert_eq!((statistics.damages, damaged_tables(&statistics)), (0, 0));
    is_busy.store(false, Ordering::Relaxed);
    pass_time(120);
    let statistics = db.statistics();
    assert_eq!((statistics.scrub.passes, statistics.scrub.retries), (1, 0));
    assert_eq!((statistics.damages, damaged_tables(&statistics)), (0, 0));
    assert_eq!(db.scrub().unwrap().pages, statistics.scrub.pages);
}

/// A panic of a listener is counted and has no other effect.
#[test]
fn a_listener_that_panics_is_counted() {
    let (medium, stepped) = (Arc::new(MemoryMedium::new()), Stepped::new(4));
    drop(filled(&stepped, &medium));
    damage(&medium);
    let recorder = Arc::new(EventRecorder::default());
    recorder.panics.store(true, Ordering::Relaxed);
    let second = Arc::new(EventRecorder::default());
    let builder = stepped.on(Arc::clone(&medium) as _).listener(Arc::clone(&recorder) as _);
    let db = builder.listener(Arc::clone(&second) as _).open().unwrap();
    let report = db.scrub().unwrap();
    assert_eq!(report.damages, 1);
    let count = recorder.heard.lock().unwrap().len();
    assert_eq!(second.heard.lock().unwrap().len(), count, "the other listener gets every event");
    assert_eq!(db.statistics().listener_panics, count as u64);
    db.open_or_create_keyspace("one").unwrap().put("a", "b").unwrap();
    db.flush().unwrap();
}
