//! A process killed during a mixed load: batches, merge operands, transactions, ingests, range deletes,
//! compaction and checkpoints.
//!
//! I11: every acknowledged write is present, at any durability, and batches, transactions and ingests are
//! whole or absent. A reported checkpoint holds every write acknowledged before it began; an unreported one
//! is whole or unfinished. No orphan file is left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Durability, Rng};
use compact::plan::Options;
use media::{FileMedium, FileOptions, Medium};
use terracedb::operators::I64Add;
use terracedb::{Db, Keyspace, KeyspaceOptions, WriteBatch, WriteOptions};

use crate::alone;
use crate::common::{self, child};

const WRITERS: u64 = 2;
/// Keys that each writer writes in turn, so that there is always something to merge.
const SLOTS: u64 = 1500;
const MOVERS: u64 = 2;
const ACCOUNTS: u64 = 40;
const EACH: i64 = 1000;
/// Entries per ingest, and the number of ingests that stay before a range delete removes the oldest.
const LOAD: u64 = 300;
const LOADS: u64 = 6;

fn open(directory: &Path) -> Db {
    // Merges run all the time.
    let merging =
        Options { fanout: 2, settled_runs: 1, slice_bytes: 1 << 20, ..Options::default() };
    let builder = Db::builder(directory).memory(common::MEMORY);
    builder.compaction_options(merging).open().unwrap()
}

/// The keyspaces of the store: two that batches span, one of sums, two that transactions span, and one of
/// ingests.
struct Spaces {
    one: Keyspace,
    two: Keyspace,
    sums: Keyspace,
    accounts: Keyspace,
    ledger: Keyspace,
    loads: Keyspace,
}

impl Spaces {
    /// Creates the missing keyspaces.
    fn of(db: &Db) -> Self {
        let of = |name: &str| db.open_or_create_keyspace(name).unwrap();
        let adding = KeyspaceOptions::new().merge_operator(I64Add::NAME);
        let (one, two) = (of("one"), of("two"));
        let sums = db.open_or_create_keyspace_opt("sums", &adding).unwrap();
        let (accounts, ledger, loads) = (of("accounts"), of("ledger"), of("loads"));
        Self { one, two, sums, accounts, ledger, loads }
    }
}

/// The last acknowledged number of each counter.
type Promises = BTreeMap<String, u64>;

/// The numbers that a child acknowledged, for its own checkpoints.
#[derive(Default)]
struct Acknowledged([AtomicU64; 5]);

const NAMES: [&str; 5] = ["batch 0", "batch 1", "move 0", "move 1", "load"];

impl Acknowledged {
    fn record(&self, name: usize, number: u64) {
        self.0[name].store(number, Ordering::SeqCst);
        child::say(&format!("{}={number}", NAMES[name]));
    }

    fn text(&self) -> String {
        let text = |(name, number): (&&str, &AtomicU64)| {
            format!("{name}={}", number.load(Ordering::SeqCst))
        };
        NAMES.iter().zip(&self.0).map(text).collect::<Vec<_>>().join(",")
    }
}

fn promises(text: &str) -> Promises {
    let pair = |part: &str| {
        let (name, number) = part.split_once('=').unwrap();
        (name.to_owned(), number.parse().unwrap())
    };
    text.split(',').map(pair).collect()
}

fn number(keyspace: &Keyspace, key: &str) -> u64 {
    let value = keyspace.get(key).unwrap();
    value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
}

/// Derived from writer and number, so that the parent knows the expected value.
fn value(writer: u64, number: u64, side: u64) -> Vec<u8> {
    let mut rng = Rng::new(writer << 40 | number << 1 | side);
    let length = if rng.one_in(20) { rng.below(20_000) } else { rng.below(400) };
    let mut value = vec![0; length as usize];
    rng.fill(&mut value);
    value
}

fn durability(rng: &mut Rng) -> Durability {
    match rng.below(20) {
        0 => Durability::Sync,
        1..5 => Durability::Interval,
        _ => Durability::None,
    }
}

fn write_batches(db: &Db, acknowledged: &Acknowledged, writer: u64) {
    let spaces = Spaces::of(db);
    let first = number(&spaces.one, &format!("last {writer}")) + 1;
    let mut rng = Rng::new(first);
    for number in first.. {
        let key = format!("{writer} {:05}", number % SLOTS);
        let mut batch = WriteBatch::new();
        batch.put(&spaces.one, &key, value(writer, number, 0)).unwrap();
        batch.put(&spaces.two, &key, value(writer, number, 1)).unwrap();
        batch.merge(&spaces.sums, format!("{writer}"), 1i64.to_le_bytes()).unwrap();
        batch.put(&spaces.one, format!("last {writer}"), number.to_le_bytes()).unwrap();
        db.write_opt(&batch, &WriteOptions::new().durability(durability(&mut rng))).unwrap();
        acknowledged.record(writer as usize, number);
        if rng.one_in(300) {
            db.flush().unwrap();
        }
    }
}

fn balance(value: Option<&[u8]>) -> i64 {
    value.map_or(EACH, |value| i64::from_le_bytes(value.try_into().unwrap()))
}

/// Moves money, with a ledger entry per transaction.
fn move_money(db: &Db, acknowledged: &Acknowledged, mover: u64) {
    let spaces = Spaces::of(db);
    let first = number(&spaces.ledger, &format!("last {mover}")) + 1;
    let mut rng = Rng::new(first << 1 | mover);
    for number in first.. {
        let (from, to, amount) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS), rng.below(90));
        loop {
            let mut txn = db.transaction();
            for (account, sign) in [(from, -1), (to, 1)] {
                let key = format!("{account}");
                let had = balance(txn.get(&spaces.accounts, &key).unwrap().as_deref());
                let has = had + sign * amount as i64;
                txn.put(&spaces.accounts, &key, has.to_le_bytes()).unwrap();
            }
            let entry = format!("{from} {to} {amount}");
            txn.put(&spaces.ledger, format!("entry {mover} {number:08}"), entry).unwrap();
            txn.put(&spaces.ledger, format!("last {mover}"), number.to_le_bytes()).unwrap();
            match txn.commit_opt(&WriteOptions::new().durability(durability(&mut rng))) {
                Ok(()) => break,
                Err(error) => assert!(error.is_conflict(), "{error}"),
            }
        }
        acknowledged.record(2 + mover as usize, number);
    }
}

/// Ingests load after load, and deletes old loads by range deletes.
fn load(db: &Db, acknowledged: &Acknowledged) {
    let loads = Spaces::of(db).loads;
    let last = loads.iter().unwrap().next_back();
    let first = last.map_or(0, |entry| load_of(&entry.unwrap().0)) + 1;
    for number in first.. {
        let mut ingest = loads.ingest().unwrap();
        for at in 0..LOAD {
            ingest.put(format!("{number:08} {at:04}"), value(7, number * LOAD + at, 0)).unwrap();
        }
        ingest.finish().unwrap();
        acknowledged.record(4, number);
        loads.delete_range(..format!("{:08}", (number + 1).saturating_sub(LOADS))).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn load_of(key: &[u8]) -> u64 {
    std::str::from_utf8(&key[..8]).unwrap().parse().unwrap()
}

/// Child: runs the whole load until it is killed, and reports acknowledged writes.
#[test]
fn everything_until_killed() {
    let Some(directory) = child::directory() else { return };
    let db = open(&directory.join("store"));
    let acknowledged = Acknowledged::default();
    // Checkpoints also hold what earlier children had acknowledged; the parent knows those numbers.
    let life = std::process::id();
    std::thread::scope(|scope| {
        let (db, acknowledged, directory) = (&db, &acknowledged, &directory);
        for writer in 0..WRITERS {
            scope.spawn(move || write_batches(db, acknowledged, writer));
        }
        for mover in 0..MOVERS {
            scope.spawn(move || move_money(db, acknowledged, mover));
        }
        scope.spawn(move || load(db, acknowledged));
        scope.spawn(move || {
            loop {
                db.compact().unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        for round in 0.. {
            let promised = acknowledged.text();
            let place = directory.join(format!("copy-{life}-{round}"));
            db.checkpoint(&place).unwrap();
            child::say(&format!("copy {} {promised}", place.display()));
            std::thread::sleep(Duration::from_millis(30));
        }
    });
}

/// Asserts that a store holds every promised write, and only whole ones.
fn assert_whole(db: &Db, promised: &Promises, why: &str) {
    assert!(db.recovery().damaged_tables.is_empty(), "{why}: {:?}", db.recovery());
    let spaces = Spaces::of(db);
    let least = |name: &str| promised.get(name).copied().unwrap_or(0);
    for writer in 0..WRITERS {
        let last = number(&spaces.one, &format!("last {writer}"));
        let least = least(&format!("batch {writer}"));
        assert!(last >= least, "{why}: batch {least} of {writer} acknowledged, {last} there");
        let sum = spaces.sums.get(format!("{writer}")).unwrap();
        let sum = sum.map_or(0, |sum| i64::from_le_bytes(sum[..].try_into().unwrap()));
        assert_eq!(sum as u64, last, "{why}: each batch of {writer} adds one");
        for slot in 0..SLOTS {
            let since = (last % SLOTS + SLOTS - slot) % SLOTS;
            let newest = last.checked_sub(since).filter(|newest| *newest > 0);
            for (side, keyspace) in [(0, &spaces.one), (1, &spaces.two)] {
                let got = keyspace.get(format!("{writer} {slot:05}")).unwrap();
                let expected = newest.map(|number| value(writer, number, side));
                assert!(got.as_deref() == expected.as_deref(), "{why}: slot {slot} of {writer}");
            }
        }
    }
    assert_balanced(&spaces, &least, why);
    assert_loaded(&spaces.loads, least("load"), why);
}

/// Every transaction is in the ledger without a gap, and the accounts are its sums.
fn assert_balanced(spaces: &Spaces, least: &dyn Fn(&str) -> u64, why: &str) {
    let mut balances = [EACH; ACCOUNTS as usize];
    for mover in 0..MOVERS {
        let last = number(&spaces.ledger, &format!("last {mover}"));
        let least = least(&format!("move {mover}"));
        assert!(last >= least, "{why}: move {least} of {mover} acknowledged, {last} there");
        let mut next = 1;
        for entry in spaces.ledger.prefix(format!("entry {mover} ")).unwrap() {
            let (key, entry) = entry.unwrap();
            assert_eq!(&key[..], format!("entry {mover} {next:08}").as_bytes(), "{why}");
            next += 1;
            let text = std::str::from_utf8(&entry).unwrap();
            let parts: Vec<i64> = text.split(' ').map(|part| part.parse().unwrap()).collect();
            balances[parts[0] as usize] -= parts[2];
            balances[parts[1] as usize] += parts[2];
        }
        assert_eq!(next - 1, last, "{why}: entries of {mover}");
    }
    for (account, expected) in balances.into_iter().enumerate() {
        let value = spaces.accounts.get(format!("{account}")).unwrap();
        assert_eq!(balance(value.as_deref()), expected, "{why}: account {account}");
    }
}

/// The present loads are whole and consecutive; only old ones are missing.
fn assert_loaded(loads: &Keyspace, least: u64, why: &str) {
    let mut there: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in loads.iter().unwrap() {
        let (key, found) = entry.unwrap();
        let load = load_of(&key);
        let at = there.entry(load).or_default();
        assert_eq!(&key[..], format!("{load:08} {at:04}").as_bytes(), "{why}");
        assert!(found[..] == value(7, load * LOAD + *at, 0), "{why}: load {load}, {at}");
        *at += 1;
    }
    let last = there.last_key_value().map_or(0, |(load, _)| *load);
    assert!(last >= least, "{why}: load {least} acknowledged, {last} there");
    let oldest = there.first_key_value().map_or(1, |(load, _)| *load);
    assert!(oldest <= (last + 1).saturating_sub(LOADS).max(1), "{why}: {oldest} to {last}");
    // The range delete before the last load was acknowledged.
    assert!(oldest >= last.saturating_sub(LOADS), "{why}: {oldest} to {last}");
    assert!(there.keys().copied().eq(oldest..=last) || there.is_empty(), "{why}: {there:?}");
    assert!(there.values().all(|entries| *entries == LOAD), "{why}: {there:?}");
}

/// Asserts that the checkpoint at `place` verifies and holds every promised write, and removes it.
fn assert_copy(place: &Path, promised: &Promises, why: &str) {
    let why = format!("{why}, {}", place.display());
    let options = FileOptions { create: false, read_only: true, ..FileOptions::default() };
    let medium: Arc<dyn Medium> = Arc::new(FileMedium::open(place, options).unwrap());
    let report = terracedb::tools::check(&medium, &mut |_, _| ()).unwrap();
    assert!(report.is_clean() && report.unowned.is_empty(), "{why}: {report:?}");
    drop(medium);
    assert_whole(&open(place), promised, &why);
    std::fs::remove_dir_all(place).unwrap();
}

/// The finished and unfinished checkpoints in `directory`.
fn copies(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| !path.ends_with("store")).collect()
}

/// The least that a full life reports: prefixes of lines, and how many of each. On a device with slow
/// syncs, few loads and checkpoints come with thousands of batches, so a total number of lines is not
/// enough.
const FULL: [(&str, u64); 4] =
    [("batch 0=", SLOTS / 10), ("move 0=", 5), ("load=", 1), ("copy ", 1)];

/// The least number of lives; every second one is a full life.
const LIVES: u64 = 10;
const FULL_EVERY: u64 = 2;

/// Runs a child for a random time (counted in lines; a full life until every kind of work was done) and
/// kills it. Adds the acknowledged numbers to `promised`, and returns the reported checkpoints, each with
/// the numbers it must hold.
fn one_life(
    directory: &Path,
    rng: &mut Rng,
    is_full: bool,
    promised: &mut Promises,
) -> Vec<(PathBuf, Promises)> {
    // One child in five writes nothing, so that some are killed while they open the store.
    let most = if std::env::var_os("TERRACE_LONG").is_some() { 4000 } else { 1500 };
    let lines = if rng.one_in(5) { 0 } else { 1 + rng.below(most) } as usize;
    let longer = Duration::from_millis(rng.below(60));
    let before = promised.clone();
    let mut copies = Vec::new();
    let mut missing = if is_full { FULL.to_vec() } else { Vec::new() };
    let enough = |heard: &[String]| {
        for (start, left) in &mut missing {
            let is_one = heard.last().is_some_and(|line| line.starts_with(*start));
            *left -= u64::from(is_one && *left > 0);
        }
        heard.len() >= lines && missing.iter().all(|(_, left)| *left == 0)
    };
    for line in
        child::one_life_until("kill_mixed_load::everything_until_killed", directory, enough, longer)
    {
        let kept = |new: Promises, promised: &mut Promises| {
            for (name, number) in new {
                let at = promised.entry(name).or_default();
                *at = number.max(*at);
            }
        };
        if let Some(copy) = line.strip_prefix("copy ") {
            let (place, text) = copy.split_once(' ').unwrap();
            let mut of_copy = before.clone();
            kept(promises(text), &mut of_copy);
            copies.push((PathBuf::from(place), of_copy));
        } else {
            kept(promises(&line), promised);
        }
    }
    copies
}

#[test] // I11
fn a_process_killed_under_mixed_load_loses_and_leaks_nothing() {
    let _alone = alone();
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let is_long = std::env::var_os("TERRACE_LONG").is_some();
    let (began, mut promised, mut checkpoints) = (Instant::now(), Promises::new(), 0);
    for round in 0.. {
        // A long run is five minutes of lives.
        if round >= LIVES && (!is_long || began.elapsed() > Duration::from_secs(300)) {
            break;
        }
        let why = format!("TERRACE_SEED={seed}, round {round}");
        let is_full = round % FULL_EVERY == 0;
        let reported = one_life(directory, &mut rng, is_full, &mut promised);
        checkpoints += reported.len() as u64;
        for (place, promised) in &reported {
            assert_copy(place, promised, &why);
        }
        if rng.one_in(3) {
            // The next child recovers this store, and is killed in turn.
            continue;
        }
        let db = open(&directory.join("store"));
        assert_whole(&db, &promised, &why);
        // Unfinished tables and value files of the dead process are gone.
        db.wait_until_settled().unwrap();
        common::assert_tidy_directory(&db, &directory.join("store"), &why);
        for place in copies(directory) {
            let name = place.to_str().unwrap();
            match name.strip_suffix(".terrace-unfinished") {
                // Checkpoints may end in another order than their reports.
                None => assert_copy(&place, &Promises::new(), &why),
                // The next checkpoint to the same directory takes it over.
                Some(name) => {
                    db.checkpoint(name).unwrap();
                    assert_copy(Path::new(name), &promised, &why);
                }
            }
        }
        assert_eq!(copies(directory), Vec::<PathBuf>::new(), "{why}");
    }
    println!("{promised:?}, {checkpoints} checkpoints");
    let full = LIVES / FULL_EVERY;
    for (start, each) in FULL {
        let done = match start.strip_suffix('=') {
            Some(name) => promised[name],
            None => checkpoints,
        };
        assert!(done >= full * each, "{start}: {promised:?}, {checkpoints} checkpoints");
    }
}
