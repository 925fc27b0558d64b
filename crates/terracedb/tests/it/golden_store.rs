//! Stores written by former builds open, have the same contents, and check the same.
//!
//! The first store has the first version of every format. The second has a file of every kind and writes of
//! every kind, in tables and in the log; [`write_everything`] wrote it, and a store that this build writes
//! with it must give the same answers. The third has a hashed keyspace whose tables store hashes; the command
//! `terrace` of the last build that wrote such tables made it. The fourth has one with entries that straddle
//! pages in later builds, of the last build without such pages. To write another:
//! `TERRACE_GOLDEN=FILE cargo test -p terracedb --test it golden_store -- --ignored`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Bound;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Codec, ErrorKind, ManualClock, Rng, Stepper};
use media::{Access, Buf, Medium, MemoryMedium, Purpose};
use terracedb::{Db, EntryOptions, Keyspace, Resources, WriteBatch};

use crate::common::{self, Cells, Change, Model, assert_same, cells::options};

/// Every file of a store: its name and length, then its non-zero pages in hex, cut before trailing zeros.
const FIRST: &str = include_str!("../../golden/store-1.pages");
const SECOND: &str = include_str!("../../golden/store-2.pages");
const THIRD: &str = include_str!("../../golden/store-3.pages");
const FOURTH: &str = include_str!("../../golden/store-4.pages");

pub(crate) fn medium(store: &str) -> Arc<dyn Medium> {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let mut file = None;
    for line in store.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        if let ["file", name, length] = fields[..] {
            let access = if name.ends_with(".table") { Access::Direct } else { Access::Bytes };
            file = Some(medium.create(name, access, length.parse().unwrap()).unwrap());
            continue;
        }
        let page: u64 = fields[0].parse().unwrap();
        let mut buf = Buf::pages(1);
        for (byte, digits) in buf.iter_mut().zip(fields[1].as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        }
        let file = file.as_ref().unwrap();
        let at = page * PAGE_BYTES as u64;
        file.write(at, buf, Purpose::Scrub).1.unwrap();
    }
    medium
}

/// The contents: three flushed rounds, then a batch that is only in the log.
fn fruit() -> Model {
    let mut model = Model::new();
    for round in 0..3usize {
        for n in (round..120).step_by(round + 1) {
            let value = format!("round {round} of {n} {}", "x".repeat(n % 40));
            model.insert(format!("key{n:04}").into(), value.into());
        }
        for n in (0..120).step_by(17) {
            model.remove(format!("key{:04}", n + round).as_bytes());
        }
    }
    model.insert("key9999".into(), "in the log".into());
    model.remove(&b"key0001"[..]);
    model
}

fn trees() -> Model {
    let parts = ["a", "b", "c"].into_iter().flat_map(|part| (0..20).map(move |n| (part, n)));
    let mut model: Model = parts
        .map(|(part, n)| (format!("{part}{n:02}").into(), format!("tree {n}").into()))
        .collect();
    model.insert("d00".into(), "in the log too".into());
    model
}

#[test]
fn the_first_store_opens() {
    let medium = medium(FIRST);
    let report = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    for round in 0..2 {
        let db = common::stepped(&medium, 1).open().unwrap();
        let recovery = db.recovery();
        assert_eq!((recovery.log_records > 0, recovery.damaged_tables.len()), (true, 0));
        assert_same(&db.keyspace("fruit").unwrap(), &fruit(), "fruit");
        assert_same(&db.keyspace("trees").unwrap(), &trees(), "trees");
        assert_eq!(db.keyspace("gone").unwrap_err().kind(), ErrorKind::NotFound);
        let runs: Vec<_> =
            db.statistics().keyspaces.iter().map(|it| (it.runs, it.tables)).collect();
        assert_eq!(runs, [(3, 3), (1, 3)], "round {round}");
    }
    let db = common::stepped(&medium, 1).open().unwrap();
    db.flush().unwrap();
    assert_same(&db.keyspace("fruit").unwrap(), &fruit(), "fruit, flushed");
    drop(db);
    let report = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// The time at which the second store was written, Unix milliseconds, and those at which its values expire.
const WRITTEN: u64 = 1_700_000_000_000;
const EARLY: u64 = WRITTEN + 60_000;
const LATE: u64 = WRITTEN + 86_400_000;

/// A store with enough memory to train a dictionary, whose background work runs only while a caller waits.
fn opened(medium: &Arc<dyn Medium>, unix_ms: u64) -> Db {
    let clock = Arc::new(ManualClock::at(unix_ms));
    let executor = Arc::new(Stepper::new(1, clock));
    let resources = Resources::builder().memory(256 << 20).executor(executor).build().unwrap();
    Db::on_medium(Arc::clone(medium)).resources(&resources).codec(Codec::Zstd).open().unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into()
}

fn put(number: u64, value: impl Into<Vec<u8>>) -> Change {
    Change::Put(key(number), value.into())
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut noise = vec![0; length];
    Rng::new(seed).fill(&mut noise);
    noise
}

/// Records with equal field names, so that a dictionary helps, and little else in common.
fn record(number: u64) -> String {
    let mut rng = Rng::new(number);
    let mut of = |words: [&'static str; 3]| words[rng.below(3) as usize];
    format!(
        "{{\"subscription_status\":\"{}\",\"preferred_language\":\"{}\",\"delivery\":\"{}\"}}",
        of(["active", "suspended", "cancelled"]),
        of(["english", "portuguese", "norwegian"]),
        of(["by mail", "collected at the counter", "none"]),
    )
}

/// Changes by keyspace: four flushed rounds, one ingest, and one round that is only in the log.
type Changes = BTreeMap<&'static str, Vec<Change>>;

fn rounds() -> [Changes; 6] {
    let range =
        |from, to| Change::DeleteRange(Bound::Included(key(from)), Bound::Excluded(key(to)));
    let expiring = |number, value: &str, at| Change::PutExpiring(key(number), value.into(), at);
    let merge = |number, operand: &str| Change::Merge(key(number), operand.into());
    let damaged = BTreeMap::from([("damaged", (0..120).map(|n| put(n, noise(n, 60))).collect())]);
    let first = BTreeMap::from([
        ("records", (0..1800).map(|n| put(n, record(n))).collect()),
        ("ranges", (0..200).map(|n| put(n, format!("old {n}"))).collect()),
        (
            "long",
            vec![put(0, noise(0, 16_400)), put(1, vec![b'l'; 40_000]), put(2, vec![b'm'; 20_000])],
        ),
        ("brief", vec![expiring(0, "early", EARLY), expiring(1, "late", LATE), put(2, "never")]),
        (
            "sums",
            vec![put(0, "base"), merge(1, "one"), expiring(2, "brief", EARLY), put(3, "gone")],
        ),
        ("ingested", (0..10).map(|n| put(n, format!("under {n}"))).collect()),
    ]);
    let second = BTreeMap::from([
        ("ranges", vec![range(50, 100), put(70, "new"), range(180, 190)]),
        ("long", vec![put(2, vec![b'n'; 30_000]), put(3, vec![b'o'; 50_000])]),
        ("brief", vec![put(3, "under"), Change::PutExpiring(key(4), vec![b'p'; 17_000], LATE)]),
        ("sums", vec![merge(0, "+1"), merge(1, "+2"), merge(2, "+3"), Change::Delete(key(3))]),
    ]);
    let third = BTreeMap::from([("ingested", vec![put(9, "under too")])]);
    let ingested = BTreeMap::from([(
        "ingested",
        (5..300)
            .map(|n| put(n, format!("ingested {n}")))
            .chain([expiring(300, "late", LATE)])
            .collect(),
    )]);
    let log = BTreeMap::from([
        ("records", vec![put(7, "again"), Change::Delete(key(8))]),
        ("ranges", vec![range(10, 20), put(15, "in the log")]),
        ("long", vec![put(4, vec![b'q'; 16_400]), Change::Delete(key(3))]),
        ("brief", vec![expiring(3, "over", EARLY), expiring(5, "late", LATE)]),
        ("sums", vec![merge(0, "+4"), merge(4, "alone"), merge(2, "+5")]),
        ("ingested", vec![put(6, "over"), Change::Delete(key(7))]),
    ]);
    [damaged, first, second, third, ingested, log]
}

/// The contents of the second store.
fn everything() -> BTreeMap<&'static str, Cells> {
    let mut held: BTreeMap<_, Cells> = BTreeMap::new();
    for (name, change) in rounds().iter().flat_map(|round| {
        round.iter().flat_map(|(name, changes)| changes.iter().map(|change| (*name, change)))
    }) {
        held.entry(name).or_default().apply(change);
    }
    held
}

fn write(db: &Db, changes: &Changes) {
    let mut batch = WriteBatch::new();
    for (name, changes) in changes {
        let keyspace = db.open_or_create_keyspace_opt(name, &options()).unwrap();
        changes.iter().for_each(|change| change.add(&mut batch, &keyspace));
    }
    db.write(&batch).unwrap();
}

fn write_everything() -> Arc<MemoryMedium> {
    let memory = Arc::new(MemoryMedium::new());
    let medium = Arc::clone(&memory) as Arc<dyn Medium>;
    let [damaged, first, second, third, ingested, log] = rounds();
    let db = opened(&medium, WRITTEN);
    for round in [damaged, first, second] {
        write(&db, &round);
        db.flush().unwrap();
    }
    drop(db);
    damage(&memory);
    let db = opened(&medium, WRITTEN);
    assert_eq!(db.scrub().unwrap().damages, 1);
    write(&db, &third);
    db.flush().unwrap();
    let mut ingest = db.keyspace("ingested").unwrap().ingest().unwrap();
    for change in &ingested["ingested"] {
        match change {
            Change::Put(key, value) => ingest.put(key, value).unwrap(),
            Change::PutExpiring(key, value, at) => {
                let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(*at);
                ingest.put_opt(key, value, &EntryOptions::new().expires_at(at)).unwrap();
            }
            other => panic!("{other:?} cannot be ingested"),
        }
    }
    ingest.finish().unwrap();
    write(&db, &log);
    drop(db);
    memory
}

/// The table of the keyspace `damaged`, which was flushed first.
const DAMAGED: &str = "00000000000000000000.table";

/// Flips a byte of the table's first page.
fn damage(medium: &MemoryMedium) {
    let mut content = medium.content(DAMAGED).unwrap();
    content[999] ^= 4;
    medium.insert(DAMAGED, content).unwrap();
}

/// Asserts that each keyspace has its contents at the time `now`; in `damaged`, keys on the bad page are
/// exempt.
fn assert_holds(db: &Db, held: &BTreeMap<&'static str, Cells>, now: u64, why: &str) {
    for (name, cells) in held.iter().filter(|(name, _)| **name != "damaged") {
        assert_same(&db.keyspace(name).unwrap(), &cells.at(now), &format!("{why}: {name}"));
    }
    let damaged = db.keyspace("damaged").unwrap();
    let (lost, found) = lost(&damaged, &held["damaged"].at(now), why);
    assert!(lost > 0 && found > 0, "{why}: {lost} lost, {found} found");
}

/// The numbers of unreadable and readable keys.
fn lost(keyspace: &Keyspace, model: &Model, why: &str) -> (usize, usize) {
    let mut lost = 0;
    for (key, value) in model {
        match keyspace.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "{why}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{why}: {error}");
                lost += 1;
            }
        }
    }
    (lost, model.len() - lost)
}

/// Asserts that `check` finds exactly the known damage.
fn assert_checks(medium: &Arc<dyn Medium>, why: &str) {
    let report = terracedb::tools::check(medium, &mut |_, _| ()).unwrap();
    assert_eq!((report.damages, report.dictionaries), (1, 1), "{why}: {report:?}");
    assert_eq!(report.problems[0].file, DAMAGED, "{why}: {report:?}");
    assert!(report.values > 0 && report.log_torn.is_none(), "{why}: {report:?}");
}

/// Opens the second store, reads, writes, merges, and reads again.
fn live_on(medium: &Arc<dyn Medium>, why: &str) {
    assert_checks(medium, why);
    let mut held = everything();
    for now in [WRITTEN, EARLY, LATE] {
        let db = opened(medium, now);
        let recovery = db.recovery();
        assert_eq!((recovery.log_records > 0, recovery.damaged_tables.len()), (true, 0), "{why}");
        assert_holds(&db, &held, now, &format!("{why} at {now}"));
        assert_eq!(db.statistics().compaction.damaged_tables, 1, "{why}: in quarantine");
    }
    let db = opened(medium, LATE);
    let mut changes = rounds()[5].clone();
    changes.entry("records").or_default().extend((1700..1900).map(|n| put(n, "written since")));
    write(&db, &changes);
    for (name, changes) in &changes {
        let cells = held.get_mut(name).unwrap();
        changes.iter().for_each(|change| cells.apply(change));
    }
    assert_holds(&db, &held, LATE, &format!("{why}, written to"));
    db.flush().unwrap();
    db.compact().unwrap();
    assert_holds(&db, &held, LATE, &format!("{why}, merged"));
    assert!(db.statistics().compaction.bytes_read() > 100_000, "{why}: {:?}", db.statistics());
    drop(db);
    assert_checks(medium, &format!("{why}, merged"));
}

#[test]
fn the_second_store_opens_accepts_writes_and_merges() {
    live_on(&medium(SECOND), "the second store");
}

#[test]
fn a_store_of_this_build_answers_as_the_second_store_does() {
    let medium: Arc<dyn Medium> = write_everything();
    live_on(&medium, "a new store");
}

/// The format version of each table, ascending.
fn versions(medium: &Arc<dyn Medium>) -> Vec<u32> {
    let tables = medium.list().unwrap().into_iter().filter(|it| it.name.ends_with(".table"));
    let version = |name: &str| {
        let file = medium.open(name, Access::Direct).unwrap();
        let pages = (file.size().unwrap() / PAGE_BYTES as u64) as u32;
        table::Footer::read(&*file, pages).unwrap().0.version
    };
    let mut versions: Vec<_> = tables.map(|it| version(&it.name)).collect();
    versions.sort_unstable();
    versions
}

/// The contents of the hashed keyspace of the third store; two changes are in the log.
fn hashed_cells() -> Model {
    let mut model: Model =
        (0..40).map(|n| (format!("key{n:04}").into(), format!("value {n}").into())).collect();
    model.insert("long".into(), vec![b'l'; 20_000]);
    model.insert("brief".into(), "soon".into());
    model.remove(&b"key0007"[..]);
    model.insert("key0008".into(), "in the log".into());
    model
}

/// A store with a hashed keyspace, of the last build whose tables stored hashes (format version 4). It opens,
/// and merges rewrite its tables with compact blocks.
#[test]
fn the_third_store_opens_and_merges_to_the_present_format() {
    let medium = medium(THIRD);
    assert_eq!(versions(&medium), [3, 4]);
    let report = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    for round in 0..2 {
        let db = opened(&medium, WRITTEN);
        let keyspace = db.keyspace("keep").unwrap();
        assert_same(&keyspace, &hashed_cells(), &format!("keep, round {round}"));
        assert_eq!(db.keyspace("plain").unwrap().get("a").unwrap().as_deref(), Some(&b"b"[..]));
        db.compact().unwrap();
        assert_same(&keyspace, &hashed_cells(), &format!("keep, merged, round {round}"));
    }
    assert_eq!(versions(&medium), [3, 5]);
    let report = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// The contents of the hashed keyspace of the fourth store: entries of about a quarter of a page.
fn large_cells() -> Model {
    let key = |n: usize| format!("key{n:04}").into_bytes();
    (0..36).map(|n| (key(n), vec![b'a' + (n % 26) as u8; 900 + 10 * (n % 13)])).collect()
}

/// A store with a hashed keyspace of entries that straddle pages in later builds.
fn opened_keep(medium: &Arc<dyn Medium>) -> (Db, Keyspace) {
    let executor = Arc::new(Stepper::new(1, Arc::new(ManualClock::at(WRITTEN))));
    let resources = Resources::builder().memory(256 << 20).executor(executor).build().unwrap();
    let db = Db::on_medium(Arc::clone(medium)).resources(&resources).codec(Codec::None);
    let db = db.open().unwrap();
    let policy = terracedb::hashed::HashedPolicy::Keep;
    let options = terracedb::KeyspaceOptions::new().hashed(policy);
    let keyspace = db.open_or_create_keyspace_opt("keep", &options).unwrap();
    (db, keyspace)
}

fn write_keep() -> Arc<MemoryMedium> {
    let memory = Arc::new(MemoryMedium::new());
    let (db, keyspace) = opened_keep(&(Arc::clone(&memory) as Arc<dyn Medium>));
    for (key, value) in large_cells() {
        keyspace.put(&key, &value).unwrap();
    }
    db.flush().unwrap();
    memory
}

/// A store with entries of a quarter of a page, of the last build whose pages were all aligned (format
/// version 5). It opens, and a merge with larger entries rewrites its table with straddled pages.
#[test]
fn the_fourth_store_opens_and_merges_to_straddled_pages() {
    let medium = medium(FOURTH);
    assert_eq!(versions(&medium), [5]);
    let report = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let (db, keyspace) = opened_keep(&medium);
    assert_same(&keyspace, &large_cells(), "keep");
    let mut model = large_cells();
    for n in 0..60usize {
        let (key, value) = (format!("new{n:04}").into_bytes(), vec![b'n'; 1200 + n]);
        keyspace.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    db.flush().unwrap();
    db.compact().unwrap();
    assert_same(&keyspace, &model, "keep, merged");
    drop((db, keyspace));
    assert_eq!(versions(&medium), [6]);
    let report = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let (_db, keyspace) = opened_keep(&medium);
    assert_same(&keyspace, &model, "keep, reopened");
}

/// The files of a store, in the form of the golden stores.
pub(crate) fn pages(memory: &MemoryMedium) -> String {
    let mut pages = String::new();
    for file in memory.list().unwrap() {
        let content = memory.content(&file.name).unwrap();
        writeln!(pages, "file {} {}", file.name, content.len()).unwrap();
        for (number, page) in content.chunks(PAGE_BYTES).enumerate() {
            let Some(last) = page.iter().rposition(|byte| *byte != 0) else { continue };
            let hex: String = page[..=last].iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(pages, "{number} {hex}").unwrap();
        }
    }
    pages
}

#[test]
#[ignore = "writes a file for `golden`"]
fn write_a_golden_store() {
    let path = std::env::var("TERRACE_GOLDEN").expect("TERRACE_GOLDEN names the file to write");
    let memory = if path.contains("keep") { write_keep() } else { write_everything() };
    std::fs::write(path, pages(&memory)).unwrap();
}
