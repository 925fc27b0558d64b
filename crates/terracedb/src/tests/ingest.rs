//! Ingests against a model, with concurrent writers and readers, on devices that fail and lose power. The
//! tables are small here, so that a small ingest writes several.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Durability, ErrorKind, Executor, ManualClock, Rng, Stepper};
use media::{Fault, Faulty, Freeze, Medium, MemoryMedium, OpKind, Rule};

use std::sync::Arc;

use std::time::{Duration, SystemTime};

use base::{Codec, Result};

use media::Purpose;
use tree::Tree;

use crate::events::{Event, Listener};
use crate::stats::Ingested;
use crate::{Db, EntryOptions, Ingest, Keyspace, Resources, Snapshot, WriteOptions};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(medium: &Arc<dyn Medium>) -> Db {
    Db::on_medium(Arc::clone(medium)).memory(64 << 20).codec(Codec::None).open().unwrap()
}

/// As [`open`], but background work runs only while a caller waits for it or steps the executor.
fn open_stepped(medium: &Arc<dyn Medium>) -> (Db, Arc<Stepper>) {
    let executor = Arc::new(Stepper::new(0, Arc::new(ManualClock::at(1_700_000_000_000))));
    let resources = Resources::builder().memory(64 << 20).executor(Arc::clone(&executor) as _);
    let resources = resources.build().unwrap();
    let db = Db::on_medium(Arc::clone(medium)).resources(&resources).codec(Codec::None);
    (db.open().unwrap(), executor)
}

fn memory() -> Arc<dyn Medium> {
    Arc::new(MemoryMedium::new())
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// An ingest with tables of a few pages.
fn ingest(keyspace: &Keyspace) -> Ingest {
    let mut ingest = keyspace.ingest().unwrap();
    ingest.set_table_bytes(32 << 10);
    ingest
}

fn add_all(ingest: &mut Ingest, entries: &Model) -> Result<()> {
    entries.iter().try_for_each(|(key, value)| ingest.put(key, value))
}

/// Every `step`th key from `first` on, each with a value that contains `what`.
fn entries(first: u64, count: u64, step: u64, what: &str) -> Model {
    let entry = |at: u64| (key(first + at * step), format!("{what} {}", "v".repeat(300)).into());
    (0..count).map(entry).collect()
}

fn content(keyspace: &Keyspace) -> Model {
    let entries = keyspace.iter().unwrap().map(Result::unwrap);
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn assert_holds(keyspace: &Keyspace, model: &Model, why: &str) {
    assert!(content(keyspace) == *model, "{why}: forwards");
    let backwards = keyspace.iter().unwrap().rev().map(Result::unwrap);
    let backwards = backwards.map(|(key, value)| (key.to_vec(), value.to_vec()));
    assert!(backwards.eq(model.clone().into_iter().rev()), "{why}: backwards");
    for number in 0..400 {
        let found = keyspace.get(key(number)).unwrap();
        assert_eq!(found.as_deref(), model.get(&key(number)).map(Vec::as_slice), "{why}: {number}");
    }
}

fn assert_snapshot(snapshot: &Snapshot, keyspace: &Keyspace, model: &Model, why: &str) {
    let entries = snapshot.iter(keyspace).unwrap().map(Result::unwrap);
    let found: Model = entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert!(found == *model, "{why}: a snapshot changed");
}

#[test] // I4
fn ingests_among_writes_agree_with_a_model() {
    let (mut rng, seed) = Rng::from_env();
    let medium = memory();
    let mut db = open(&medium);
    let mut keyspace = db.open_or_create_keyspace("k").unwrap();
    let (mut model, mut snapshots) = (Model::new(), Vec::new());
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 300 } else { 40 };
    for round in 0..rounds {
        let why = format!("TERRACE_SEED={seed}, round {round}");
        for _ in 0..rng.below(60) {
            let key = key(rng.below(400));
            if rng.one_in(4) {
                keyspace.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = format!("written {round}").into_bytes();
                keyspace.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        if rng.one_in(3) {
            keyspace.flush().unwrap();
        }
        if rng.one_in(2) {
            snapshots.push((db.snapshot(), model.clone()));
        }
        let added =
            entries(rng.below(400), rng.below(150), 1 + rng.below(3), &format!("i {round}"));
        let mut ingest = ingest(&keyspace);
        add_all(&mut ingest, &added).unwrap();
        assert_holds(&keyspace, &model, &why);
        let rounds = if rng.one_in(4) { 0 } else { Ingest::ROUNDS_MAX };
        let done = ingest.finish_after(rounds).unwrap();
        assert_eq!(
            (done.entries, done.entries == 0),
            (added.len() as u64, done.tables == 0),
            "{why}"
        );
        model.extend(added);
        assert_holds(&keyspace, &model, &why);
        for (snapshot, model) in &snapshots {
            assert_snapshot(snapshot, &keyspace, model, &why);
        }
        if rng.one_in(5) {
            snapshots.clear();
            drop((keyspace, db));
            db = open(&medium);
            assert_eq!(db.recovery().orphans_removed, 0, "{why}");
            keyspace = db.open_or_create_keyspace("k").unwrap();
            assert_holds(&keyspace, &model, &why);
        }
    }
    drop((snapshots, keyspace, db));
    let report = crate::tools::check(&medium, &mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "TERRACE_SEED={seed}: {:?}", report.problems);
}

/// Sorted data is written once, into the deepest run that it does not overlap.
#[test]
fn sorted_data_is_written_once_into_the_deepest_possible_run() {
    let (db, _) = open_stepped(&memory());
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for part in 0..4 {
        let mut ingest = ingest(&keyspace);
        ingest.set_table_bytes(512 << 10);
        add_all(&mut ingest, &entries(part * 10_000, 5000, 1, "sorted")).unwrap();
        assert!(ingest.finish().unwrap().tables > 2);
    }
    let statistics = db.statistics();
    assert_eq!(statistics.keyspaces[0].runs, 1);
    let written = statistics.device.of(Purpose::Ingest).write_bytes as f64;
    let all = statistics.device.total().write_bytes as f64;
    let user = statistics.user_bytes as f64;
    // 17 %: padding, separators, filters, and the last six pages of each small table. 5 %: log, manifest.
    assert!(written < 1.17 * user, "{}", written / user);
    assert!(all < 1.05 * written, "{}", all / written);
}

/// An ingest keeps only a bounded part of its data in memory.
#[test] // I10
fn memory_does_not_grow_with_the_ingest() {
    let db = open(&memory());
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let mut ingest = keyspace.ingest().unwrap();
    let value = vec![b'v'; 10_000];
    for number in 0..8000 {
        ingest.put(key(number), &value).unwrap();
    }
    let memory = db.statistics().memory;
    assert!(memory.component("ingest").unwrap().peak < 4 << 20);
    assert!(ingest.finish().unwrap().tables > 1);
    assert_eq!(db.statistics().memory.component("ingest").unwrap().used, 0);
    assert_eq!(keyspace.get(key(7999)).unwrap().unwrap().len(), 10_000);
}

#[test]
fn an_invalid_or_dropped_ingest_leaves_no_file() {
    let medium = memory();
    let (db, executor) = open_stepped(&medium);
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let mut refused = ingest(&keyspace);
    refused.put("b", "1").unwrap();
    for (key, value) in [("b", vec![]), ("a", vec![]), ("", vec![]), ("c", vec![0; 9 << 20])] {
        assert_eq!(refused.put(key, &value).unwrap_err().kind(), ErrorKind::Invalid);
    }
    refused.put("c", "2").unwrap();
    assert_eq!(refused.finish().unwrap().entries, 2);
    assert_eq!(keyspace.get("c").unwrap().as_deref(), Some(&b"2"[..]));
    // Counts files after all pending removals.
    let files = || {
        while executor.help() {}
        medium.list().unwrap().len()
    };
    let before = files();
    let mut dropped = ingest(&keyspace);
    add_all(&mut dropped, &entries(0, 1000, 1, "never")).unwrap();
    assert!(files() > before + 3);
    drop(dropped);
    assert_eq!(files(), before);
    assert_eq!(ingest(&keyspace).finish().unwrap(), Ingested::default());
    let mut late = ingest(&keyspace);
    add_all(&mut late, &entries(0, 1000, 1, "never")).unwrap();
    db.drop_keyspace("k").unwrap();
    assert_eq!(late.finish().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(keyspace.ingest().unwrap_err().kind(), ErrorKind::Closed);
    drop(keyspace);
    db.wait_until_settled().unwrap();
    // Only the log and the manifest are left.
    let left = medium.list().unwrap().into_iter().filter(|it| it.name.ends_with(".table"));
    assert_eq!(left.count(), 0);
}

/// Writers write to the keys that are ingested. A writer reads its own value until an ingest replaces it, and
/// never afterwards. A reader that sees an ingest sees all of it.
#[test] // I4
fn writers_and_readers_of_an_ingested_range_see_one_order() {
    const KEYS: u64 = 40;
    for rounds in [Ingest::ROUNDS_MAX, 0] {
        let db = open(&memory());
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let running = || !stop.load(Ordering::Relaxed);
        let say = |number: u64| format!("ingest {number:03}").into_bytes();
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let keyspace = &keyspace;
                scope.spawn(move || {
                    let mut rng = Rng::new(writer);
                    for number in 0.. {
                        if !running() {
                            return;
                        }
                        let key = key(writer + 2 * rng.below(KEYS / 2));
                        let value = format!("own {number}").into_bytes();
                        keyspace.put(&key, &value).unwrap();
                        let reads = [(); 3].map(|()| keyspace.get(&key).unwrap().unwrap().to_vec());
                        let own = reads.iter().take_while(|read| **read == value).count();
                        assert!(reads[own..].iter().all(|read| read.starts_with(b"ingest")));
                        assert!(reads[own..].is_sorted(), "{reads:?}");
                    }
                });
            }
            let (db, done, keyspace, say) = (&db, &done, &keyspace, &say);
            scope.spawn(move || {
                while running() {
                    let least = done.load(Ordering::Acquire);
                    // Only ingests write these two keys, so they are always from the same ingest.
                    let both = keyspace.multi_get(&["a first", "z last"]).unwrap();
                    let both: Vec<_> = both.into_iter().map(Result::unwrap).collect();
                    assert_eq!(both[0], both[1]);
                    let found = both[0].as_ref().map(|found| found.to_vec()).unwrap_or_default();
                    assert!(least == 0 || found >= say(least), "{found:?} after {least}");
                    // A reader that sees a write after an ingest sees the ingest: one read view.
                    let marked = keyspace.multi_get(&["marker", "z last"]).unwrap();
                    let marked: Vec<_> = marked.into_iter().map(Result::unwrap).collect();
                    assert!(marked[0] <= marked[1], "{marked:?}");
                    let snapshot = db.snapshot();
                    let first = snapshot.get(keyspace, "a first").unwrap();
                    assert_eq!(snapshot.get(keyspace, "z last").unwrap(), first);
                }
            });
            for number in 1..=25 {
                let mut ingest = ingest(keyspace);
                ingest.put("a first", say(number)).unwrap();
                for at in 0..KEYS {
                    ingest.put(key(at), say(number)).unwrap();
                }
                ingest.put("z last", say(number)).unwrap();
                ingest.finish_after(rounds).unwrap();
                done.store(number, Ordering::Release);
                keyspace.put("marker", say(number)).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn an_ingest_into_a_range_that_a_transaction_read_is_a_conflict() {
    let db = open(&memory());
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for (read, conflict) in [(5, true), (10, true), (7, false), (700, false)] {
        let mut transaction = db.transaction();
        transaction.get(&keyspace, key(read)).unwrap();
        transaction.put(&keyspace, "out", "1").unwrap();
        let mut ingest = ingest(&keyspace);
        add_all(&mut ingest, &entries(5, 20, 5, "ingested")).unwrap();
        ingest.finish().unwrap();
        let result = transaction.commit();
        assert_eq!(result.is_err_and(|error| error.is_conflict()), conflict, "key {read}");
    }
    let transaction = db.transaction();
    assert_eq!(transaction.iter(&keyspace).unwrap().take(3).count(), 3);
}

/// A few writes, an ingest over them, and a few writes over it.
fn script(db: &Db) -> Result<()> {
    let keyspace = db.open_or_create_keyspace("k")?;
    for (key, value) in entries(0, 60, 5, "before") {
        keyspace.put(key, value)?;
    }
    db.sync()?;
    let mut ingest = ingest(&keyspace);
    add_all(&mut ingest, &entries(0, 300, 1, "ingested"))?;
    assert!(ingest.finish()?.tables > 2);
    keyspace.put_opt(key(7), "after", &WriteOptions::new().durability(Durability::Sync))
}

/// The possible contents of the keyspace if the script is cut off: before, with and after the ingest.
fn states() -> [Model; 3] {
    let before = entries(0, 60, 5, "before");
    let mut ingested = before.clone();
    ingested.extend(entries(0, 300, 1, "ingested"));
    let mut after = ingested.clone();
    after.insert(key(7), b"after".to_vec());
    [before, ingested, after]
}

/// Concurrent ingests of the same keys in one keyspace, and of others in another. Each waits for flushes, and
/// writers wait for each: all end, and their runs are in the order of their sequence numbers (I4).
#[test] // I4
fn concurrent_ingests_end_and_are_ordered_by_seqno() {
    let long = std::env::var_os("TERRACE_LONG").is_some();
    for round in 0..if long { 200 } else { 20 } {
        let db = open(&memory());
        let keyspaces = ["k", "l"].map(|name| db.open_or_create_keyspace(name).unwrap());
        let finish = |keyspace: &Keyspace, number: usize, rounds| {
            let mut ingest = ingest(keyspace);
            add_all(&mut ingest, &entries(0, 40, 1, &format!("{number}"))).unwrap();
            keyspace.put(key(number as u64), "written").unwrap();
            ingest.finish_after(rounds).unwrap_or_else(|error| panic!("round {round}: {error}"));
        };
        std::thread::scope(|scope| {
            for keyspace in &keyspaces {
                for (number, rounds) in
                    [0, 0, Ingest::ROUNDS_MAX, Ingest::ROUNDS_MAX].into_iter().enumerate()
                {
                    scope.spawn(move || finish(keyspace, number, rounds));
                }
            }
        });
        for keyspace in &keyspaces {
            let version = Arc::clone(&keyspace.tree().view().version);
            for key in (0..40).map(key) {
                let pieces = version.runs().iter().filter_map(|run| run.find(&key));
                let newest: Vec<_> = pieces.map(|piece| piece.entry().seqno_max).collect();
                assert!(newest.is_sorted_by(|newer, older| newer > older), "{round}: {newest:?}");
            }
            let found = content(keyspace);
            keyspace.compact_range::<&[u8]>(..).unwrap();
            assert!(content(keyspace) == found, "round {round}");
        }
    }
}

/// Holds up each flush of one keyspace until it is let go.
#[derive(Debug)]
struct FlushHold {
    keyspace: &'static str,
    is_held: AtomicBool,
    is_over: AtomicBool,
}

impl Listener for FlushHold {
    fn event(&self, event: &Event) {
        let Event::FlushBegan { keyspace, .. } = event else { return };
        if keyspace == self.keyspace {
            self.is_held.store(true, Ordering::Release);
            while !self.is_over.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
    }
}

/// The seqno of an ingest into `k` holds up the flush that an ingest into `l` waits for. The first ends all
/// the same when its keyspace, and with it the memtable that it waits for, is dropped.
#[test]
fn an_ingest_waits_for_no_flush_of_another_keyspace() {
    let (keyspace, is_held, is_over) = ("k", AtomicBool::new(false), AtomicBool::new(false));
    let hold = Arc::new(FlushHold { keyspace, is_held, is_over });
    let db = Db::on_medium(memory()).memory(64 << 20).codec(Codec::None);
    let db = db.listener(Arc::clone(&hold) as _).open().unwrap();
    let [k, l] = ["k", "l"].map(|name| db.open_or_create_keyspace(name).unwrap());
    [&k, &l].into_iter().for_each(|keyspace| keyspace.put(key(7), "written").unwrap());
    std::thread::scope(|scope| {
        let into = |keyspace: &Keyspace| {
            let mut ingest = ingest(keyspace);
            add_all(&mut ingest, &entries(0, 40, 1, "ingested")).unwrap();
            ingest.finish_after(0)
        };
        let first = scope.spawn(move || into(&k));
        while !hold.is_held.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let sealed = |tree: &Arc<Tree>| tree.oldest_sealed().is_some();
        let tree = Arc::clone(l.tree());
        let second = scope.spawn(move || into(&l));
        while !sealed(&tree) {
            std::thread::yield_now();
        }
        assert!(db.drop_keyspace("k").unwrap());
        hold.is_over.store(true, Ordering::Release);
        assert_eq!(first.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        second.join().unwrap().unwrap();
    });
    assert_eq!(db.keyspace("l").unwrap().iter().unwrap().count(), 40);
}

#[test] // I11
fn a_power_cut_takes_all_of_an_ingest_or_nothing() {
    let (mut rng, seed) = Rng::from_env();
    let [before, ingested, after] = states();
    let total = {
        let device = Arc::new(Faulty::new(seed));
        script(&open(&(Arc::clone(&device) as _))).unwrap();
        device.changes()
    };
    let (mut without, mut with) = (0, 0);
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 50 } else { 1 };
    for change in (0..rounds).flat_map(|_| 0..total) {
        let why = format!("TERRACE_SEED={seed}, change {change}");
        let device = Arc::new(Faulty::new(seed));
        device.freeze(Freeze::AtChange(change));
        let acknowledged = {
            let db = open(&(Arc::clone(&device) as _));
            script(&db).unwrap();
            !device.is_frozen()
        };
        let image: Arc<dyn Medium> = Arc::new(device.crash_image(rng.next_u64()).unwrap());
        let db = open(&image);
        let found = db.keyspace("k").map(|it| content(&it)).unwrap_or_default();
        if found == ingested || found == after {
            with += 1;
        } else {
            assert!(found.iter().all(|(key, value)| before.get(key) == Some(value)), "{why}");
            assert!(!acknowledged, "{why}");
            without += 1;
        }
        drop(db);
        let db = open(&image);
        assert_eq!(db.recovery().orphans_removed, 0, "{why}");
        drop(db);
        let report = crate::tools::check(&image, &mut |_, _| {}).unwrap();
        assert!(report.problems.is_empty(), "{why}: {:?}", report.problems);
    }
    assert!(without > 0 && with > 0, "TERRACE_SEED={seed}: {without} without, {with} with");
}

#[test] // I3
fn any_operation_of_an_ingest_can_fail() {
    let (mut rng, seed) = Rng::from_env();
    let [before, ingested, after] = states();
    for (on, fault) in [
        (OpKind::Read, Fault::Io),
        (OpKind::Write, Fault::Io),
        (OpKind::Write, Fault::NoSpace),
        (OpKind::Sync, Fault::Io),
        (OpKind::Names, Fault::Io),
        (OpKind::Names, Fault::NoSpace),
    ] {
        let (mut nth, mut struck) = (rng.below(3), 0);
        loop {
            let why = format!("TERRACE_SEED={seed}, {on:?} {fault:?} number {nth}");
            let device = Arc::new(Faulty::new(seed));
            let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
            let db = open(&medium);
            device.inject(Rule::new(on, fault.clone()).after(nth)).unwrap();
            let result = script(&db);
            device.heal();
            let is_over = device.struck() == 0;
            if let Ok(keyspace) = db.keyspace("k") {
                let found = content(&keyspace);
                let whole = found == ingested || found == after;
                let none = found.iter().all(|(key, value)| before.get(key) == Some(value));
                assert!(whole || none, "{why}: {result:?}");
                assert!(result.is_err() || found == after, "{why}");
            }
            let mut is_cut = false;
            if db.statistics().poisoned.is_none() {
                // The device works again, so the script succeeds, unless a sync in the background failed
                // and reports it only now.
                match script(&db) {
                    Ok(()) => assert!(
                        content(&db.open_or_create_keyspace("k").unwrap()) == after,
                        "{why}"
                    ),
                    Err(error) => {
                        is_cut = true;
                        assert!(!is_over && db.statistics().poisoned.is_some(), "{why}: {error}");
                    }
                }
            }
            drop(db);
            let db = open(&medium);
            let found = db.keyspace("k").map(|it| content(&it)).unwrap_or_default();
            let whole = found == ingested || found == after;
            let of = |model: &Model| found.iter().all(|(k, v)| model.get(k) == Some(v));
            let cut = |(k, v)| [&before, &ingested, &after].iter().any(|it| it.get(k) == Some(v));
            assert!(whole || of(&before) || is_cut && found.iter().all(cut), "{why}");
            struck += u64::from(!is_over);
            if is_over {
                break;
            }
            nth += 1 + rng.below(if std::env::var_os("TERRACE_LONG").is_some() { 1 } else { 9 });
        }
        assert!(struck > 0, "TERRACE_SEED={seed}: {on:?} {fault:?}");
    }
}

/// After one failed call, every later call of the ingest fails, and so does its end.
#[test]
fn an_ingest_that_failed_once_adds_nothing() {
    for (on, purpose) in [(OpKind::Sync, Purpose::Ingest), (OpKind::Read, Purpose::Meta)] {
        let device = Arc::new(Faulty::new(1));
        let medium: Arc<dyn Medium> = device.clone();
        let (db, executor) = open_stepped(&medium);
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        let mut ingest = ingest(&keyspace);
        device.inject(Rule::new(on, Fault::Io).purpose(purpose).times(3)).unwrap();
        let failed =
            entries(0, 600, 1, "x").iter().filter_map(|(k, v)| ingest.put(k, v).err()).count();
        assert!(device.struck() > 0 && failed > 100, "{on:?}: {failed}");
        device.heal();
        assert_eq!(ingest.put(key(900), "x").unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(ingest.finish().unwrap_err().kind(), ErrorKind::Poisoned, "{on:?}");
        assert_holds(&keyspace, &Model::new(), "nothing was added");
        while executor.help() {}
        assert!(medium.list().unwrap().iter().all(|file| !file.name.ends_with(".table")));
    }
}

#[test]
fn ingested_values_expire() {
    let db = open(&memory());
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    keyspace.put("gone", "older").unwrap();
    let mut ingest = ingest(&keyspace);
    ingest.put_opt("gone", "1", &EntryOptions::new().expires_at(SystemTime::UNIX_EPOCH)).unwrap();
    ingest.put_opt("here", "2", &EntryOptions::new().ttl(Duration::from_secs(3600))).unwrap();
    ingest.put("stays", "3").unwrap();
    ingest.finish().unwrap();
    let get = |key: &str| keyspace.get(key).unwrap().map(|value| value.to_vec());
    assert_eq!(
        [get("gone"), get("here"), get("stays")],
        [None, Some(b"2".into()), Some(b"3".into())]
    );
    assert!(matches!(keyspace.expiry("here").unwrap(), Some(crate::Expiry::At(_))));
}

/// A range delete in a memtable is older or newer than an ingest.
#[test]
fn a_range_delete_deletes_only_earlier_ingests() {
    let db = open(&memory());
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    keyspace.delete_range("a".."z").unwrap();
    let mut first = ingest(&keyspace);
    first.put("b", "1").unwrap();
    first.put("m", "1").unwrap();
    first.finish().unwrap();
    assert_eq!(content(&keyspace).len(), 2);
    keyspace.delete_range("c".."z").unwrap();
    assert_eq!(content(&keyspace).len(), 1);
}

/// An ingest over existing keys adds compaction debt, so it is delayed like writes.
#[test]
fn an_ingest_is_delayed_while_compaction_is_behind() {
    let db = open(&memory());
    let keyspace = db.open_or_create_keyspace("bulk").unwrap();
    let mut ingest = keyspace.ingest().unwrap();
    for (key, value) in entries(0, 4000, 1, "late") {
        // Set again before each entry: background work measures the true debt, 0, at any time.
        keyspace.store().pace.set_trees(5.9, 1.0);
        ingest.put(key, value).unwrap();
    }
    let delays = db.statistics().delays;
    assert!(delays.runs > Duration::ZERO, "{delays:?}");
    assert_eq!(ingest.finish().unwrap().entries, 4000);
}
