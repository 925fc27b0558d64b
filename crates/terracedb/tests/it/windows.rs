//! Windows: hashed keyspaces that keep their newest entries, and take writes that are not logged.

use std::sync::Arc;
use std::time::Duration;

use base::Rng;
use media::{Faulty, Freeze, Medium};
use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::{
    Db, Durability, EntryOptions, ErrorKind, Keyspace, KeyspaceOptions, Result, WriteBatch,
    WriteOptions, events::Event,
};

use crate::common::{self, EventRecorder, Stepped, faulty, noise, stepped, text, threaded};

const WINDOW: u64 = 640 << 10;

fn window(bytes: u64) -> KeyspaceOptions {
    KeyspaceOptions::new().hashed(HashedPolicy::Window { bytes, discard: Discard::Fifo })
}

fn open(medium: &Arc<dyn Medium>) -> (Db, Keyspace) {
    let db = threaded(medium).open().unwrap();
    let keyspace = db.open_or_create_keyspace_opt("seen", &window(WINDOW)).unwrap();
    (db, keyspace)
}

fn unlogged() -> WriteOptions {
    WriteOptions::new().durability(Durability::Unlogged)
}

fn refused<T>(result: Result<T>, words: &[&str]) {
    let error = result.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

/// Fills the window with entries of 1 KiB that do not compress, `flushes` runs of 50.
fn fill(keyspace: &Keyspace, rng: &mut Rng, flushes: u32, first: u32) {
    for flush in 0..flushes {
        for number in 0..50 {
            let mut value = vec![0; 1024];
            rng.fill(&mut value);
            keyspace.put((first + flush * 50 + number).to_be_bytes(), value).unwrap();
        }
        keyspace.flush().unwrap();
    }
}

fn statistics(db: &Db, name: &str) -> terracedb::stats::KeyspaceStatistics {
    let mut all = db.statistics().keyspaces.into_iter();
    all.find(|keyspace| keyspace.name == name).unwrap()
}

/// The filters of a window and the metadata of other tables share memory. Before it is short enough that
/// writes are refused, the window evicts, although it is not as long as it may be.
#[test]
fn a_window_evicts_while_tables_leave_little_memory_for_its_filters() {
    let never = compact::plan::Options {
        fanout: 1000,
        settled_runs: 1000,
        space_max: 1000.0,
        settled_space: 1000.0,
        ..Default::default()
    };
    let db = Stepped::new(1).on(common::memory()).compaction_options(never).open().unwrap();
    let keyspace = db.create_keyspace_opt("seen", &window(1 << 30)).unwrap();
    let mut rng = Rng::new(1);
    fill(&keyspace, &mut rng, 4, 0);
    let long = db.create_keyspace("long").unwrap();
    // The first and the last key of each table stay in memory.
    let key = |number: u32| [&number.to_be_bytes()[..], &[b'k'; 60 << 10][..]].concat();
    let evicted = |number: &u32, rng: &mut Rng| {
        long.put(key(*number), "v").unwrap();
        long.flush().unwrap();
        if !number.is_multiple_of(8) {
            return false;
        }
        fill(&keyspace, rng, 1, 1000 + number * 50);
        db.wait_until_settled().unwrap();
        statistics(&db, "seen").evicted_entries > 0
    };
    let last = (0..1000).find(|number| evicted(number, &mut rng)).unwrap();
    assert!(last > 40, "it is as long as the memory allows: {last}");
    let has = |number: u32| keyspace.contains_key(number.to_be_bytes()).unwrap();
    assert!((0..50).all(|number| has(1000 + last * 50 + number)), "the newest run stays");
    assert!(!has(0), "the oldest went");
}

#[test]
fn a_window_evicts_its_oldest_runs_and_keeps_the_newest() {
    let medium = common::memory();
    let recorder = Arc::new(EventRecorder::default());
    let db = threaded(&medium).listener(Arc::clone(&recorder) as _).open().unwrap();
    let keyspace = db.create_keyspace_opt("seen", &window(WINDOW)).unwrap();
    let mut rng = Rng::new(1);
    keyspace.put("overwritten", "old").unwrap();
    fill(&keyspace, &mut rng, 12, 0);
    keyspace.put("overwritten", "new").unwrap();
    keyspace.delete(20u32.to_be_bytes()).unwrap();
    fill(&keyspace, &mut rng, 3, 600);
    db.wait_until_settled().unwrap();
    let has = |number: u32| keyspace.contains_key(number.to_be_bytes()).unwrap();
    assert!((600..750).all(has), "the newest runs stay");
    assert!(!(0..150).any(has), "the oldest runs went");
    assert_eq!(text(keyspace.get("overwritten").unwrap()), "new");
    let found = statistics(&db, "seen");
    assert!(found.table_bytes <= WINDOW && found.table_bytes > WINDOW / 2, "{found:?}");
    assert!(found.evicted_entries >= 200 && found.evicted_bytes > 200 << 10, "{found:?}");
    assert_eq!(found.kind, "hashed window=640.0 KiB");
    let evicted = recorder.take(|it| matches!(it, Event::Evicted { entries: 50.., .. }));
    assert!(evicted.iter().any(|it| it.contains("window `seen` evicted")), "{evicted:?}");
    // The tombstone is not flushed if the run of its key was evicted before.
    let tombstones = found.table_entries - keyspace.entries().unwrap().count() as u64;
    assert!(tombstones <= 1, "{tombstones}, {found:?}");
    // Each entry is written once: flushes write, merges do not.
    assert_eq!(db.statistics().compaction.bytes_written(), 0);
    drop((db, keyspace));
    let (db, keyspace) = open(&medium);
    assert!((600..750).all(|number: u32| keyspace.contains_key(number.to_be_bytes()).unwrap()));
    db.compact().unwrap();
    assert_eq!(statistics(&db, "seen").table_entries, found.table_entries);
    // A key range that no other table overlaps is no reason to join an older run. In a window with room, so
    // that no run is evicted meanwhile.
    let wide = db.create_keyspace_opt("wide", &window(64 << 20)).unwrap();
    fill(&wide, &mut rng, 3, 0);
    let runs = statistics(&db, "wide").runs;
    wide.put("alone", "1").unwrap();
    wide.flush().unwrap();
    assert_eq!(statistics(&db, "wide").runs, runs + 1);
}

/// Hundreds of small flushes leave a bounded number of runs, with every entry.
#[test]
fn small_flushes_are_merged_to_a_bounded_number_of_runs() {
    let db = stepped(&common::memory(), 1).open().unwrap();
    let keyspace = db.create_keyspace_opt("seen", &window(1 << 30)).unwrap();
    for number in 0..300u32 {
        keyspace.put(number.to_be_bytes(), "1").unwrap();
        keyspace.put((number % 7).to_be_bytes(), number.to_string()).unwrap();
        keyspace.flush().unwrap();
    }
    db.wait_until_settled().unwrap();
    let found = statistics(&db, "seen");
    assert!(found.runs <= 256 && found.runs > 128, "{}", found.runs);
    assert_eq!(keyspace.entries().unwrap().count(), 300);
    assert_eq!(text(keyspace.get(6u32.to_be_bytes()).unwrap()), "293" /* 293 = 41 * 7 + 6 */);
    assert_eq!((found.evicted_entries, found.evicted_bytes), (0, 0));
}

#[test]
fn what_a_window_cannot_do_is_refused_by_name() {
    let (db, keyspace) = open(&common::memory());
    keyspace.put("a", "1").unwrap();
    let snapshot = db.snapshot();
    let instead = &["read at a snapshot", "`seen`", "multi_get and entries"];
    refused(snapshot.get(&keyspace, "a"), instead);
    refused(snapshot.multi_get(&keyspace, &["a"]), instead);
    refused(snapshot.entries(&keyspace), instead);
    refused(snapshot.iter(&keyspace), &["range read"]);
    refused(keyspace.iter(), &["range read"]);
    refused(keyspace.prefix("a"), &["prefix read"]);
    refused(keyspace.ingest(), &["ingest"]);
    refused(keyspace.merge("a", "1"), &["merge"]);
    refused(keyspace.delete_range("a".."b"), &["delete of a key range"]);
    let create =
        |name: &str, policy| db.create_keyspace_opt(name, &KeyspaceOptions::new().hashed(policy));
    let tiny = HashedPolicy::Window { bytes: 1000, discard: Discard::Fifo };
    refused(create("tiny", tiny), &["length of a window", "64.0 KiB"]);
    refused(
        db.open_or_create_keyspace_opt("seen", &window(WINDOW * 2)),
        &["kind of a keyspace", "window=1.2 MiB"],
    );
    // What it can do.
    let values = keyspace.multi_get(&["a", "b"]).unwrap();
    assert_eq!(values.into_iter().map(|it| text(it.unwrap())).collect::<Vec<_>>(), ["1", "-"]);
    keyspace.put_opt("gone", "1", &EntryOptions::new().ttl(Duration::ZERO)).unwrap();
    assert_eq!(keyspace.get("gone").unwrap(), None);
    keyspace.delete_range::<&str>(..).unwrap();
    assert_eq!(keyspace.entries().unwrap().count(), 0);
}

#[test]
fn unlogged_writes_of_other_kinds_are_refused_by_name() {
    let (db, seen) = open(&common::memory());
    let ordered = db.create_keyspace("ordered").unwrap();
    let keep = KeyspaceOptions::new().hashed(HashedPolicy::Keep);
    let keep = db.create_keyspace_opt("keep", &keep).unwrap();
    refused(ordered.put_opt("a", "1", &unlogged()), &["unlogged write", "`ordered`", "window"]);
    refused(ordered.delete_range_opt::<&str>(.., &unlogged()), &["unlogged write", "`ordered`"]);
    refused(keep.delete_opt("a", &unlogged()), &["unlogged write", "`keep`", "hashed keep"]);
    let mut batch = WriteBatch::new();
    batch.put(&seen, "a", "1").unwrap();
    batch.put(&keep, "a", "1").unwrap();
    refused(db.write_opt(&batch, &unlogged()), &["unlogged write", "`keep`"]);
    assert_eq!(seen.get("a").unwrap(), None, "a refused batch does nothing");
    let mut transaction = db.transaction();
    transaction.put(&ordered, "a", "1").unwrap();
    refused(transaction.commit_opt(&unlogged()), &["unlogged write", "`ordered`"]);
    let change = |settings: &mut terracedb::Settings| settings.durability = Durability::Unlogged;
    refused(db.change_settings(change), &["setting durability", "unlogged"]);
    refused(
        threaded(&common::memory()).durability(Durability::Unlogged).open(),
        &["setting durability"],
    );
    assert_eq!(db.statistics().log.unlogged_ops, 0);
}

/// An unlogged write costs no byte of the log. It is lost with the process, unless it was flushed or the
/// store was closed.
#[test]
fn unlogged_writes_are_durable_once_they_are_flushed() {
    let (device, medium) = faulty(1);
    let (db, seen) = open(&medium);
    let ordered = db.create_keyspace("ordered").unwrap();
    // Synced: a sync in the background would pad the log later.
    let synced = WriteOptions::new().durability(Durability::Sync);
    ordered.put_opt("first", "1", &synced).unwrap();
    let log = db.statistics().log;
    let mut batch = WriteBatch::new();
    for number in 0..500u32 {
        seen.put_opt(number.to_be_bytes(), "flushed", &unlogged()).unwrap();
        batch.put(&seen, (1000 + number).to_be_bytes(), "flushed").unwrap();
    }
    db.write_opt(&batch, &unlogged()).unwrap();
    let mut transaction = db.transaction();
    assert_eq!(text(transaction.get(&seen, 7u32.to_be_bytes()).unwrap()), "flushed");
    transaction.put(&seen, "transaction", "flushed").unwrap();
    transaction.commit_opt(&unlogged()).unwrap();
    let after = db.statistics().log;
    assert_eq!((after.record_bytes, after.padding_bytes), (log.record_bytes, log.padding_bytes));
    assert_eq!((after.unlogged_ops, after.gaps), (1001, 0));
    db.flush().unwrap();
    seen.put("logged", "1").unwrap();
    seen.put_opt("lost", "1", &unlogged()).unwrap();
    ordered.put("last", "1").unwrap();
    seen.put_opt("lost too", "1", &unlogged()).unwrap();
    assert_eq!(db.statistics().log.gaps, 2);
    let image: Arc<dyn Medium> = Arc::new(device.process_death_image().unwrap());
    drop((db, seen, ordered));

    let (db, seen) = open(&image);
    assert_eq!(seen.entries().unwrap().count(), 1002);
    assert_eq!(text(seen.get("transaction").unwrap()), "flushed");
    assert_eq!(text(seen.get("logged").unwrap()), "1");
    assert!(!seen.contains_key("lost").unwrap() && !seen.contains_key("lost too").unwrap());
    assert_eq!(db.keyspace("ordered").unwrap().iter().unwrap().count(), 2);
    seen.put_opt("kept by the close", "1", &unlogged()).unwrap();
    db.close().unwrap();
    assert_eq!(seen.put("late", "1").unwrap_err().kind(), ErrorKind::Closed);
    drop((db, seen));
    let (db, seen) = open(&image);
    assert_eq!(text(seen.get("kept by the close").unwrap()), "1");
    seen.put_opt("kept by the drop", "1", &unlogged()).unwrap();
    drop((db, seen));
    let (_db, seen) = open(&image);
    assert_eq!(text(seen.get("kept by the drop").unwrap()), "1");
}

/// A flush of an ordered keyspace states that all below some seqno is in tables. If unlogged writes had the
/// last of these seqnos, and are lost, later writes get them, and replay must not take those for flushed.
#[test] // I9, I11
fn seqnos_of_lost_unlogged_writes_are_no_reason_to_skip_later_ones() {
    let (device, medium) = faulty(1);
    let (db, seen) = open(&medium);
    let ordered = db.create_keyspace("ordered").unwrap();
    ordered.put("first", "1").unwrap();
    for number in 0..100u32 {
        seen.put_opt(number.to_be_bytes(), "lost", &unlogged()).unwrap();
    }
    ordered.flush().unwrap();
    let mut image = device.process_death_image().unwrap();
    drop((db, seen, ordered));
    for round in 0..3 {
        let faulty = Arc::new(Faulty::over(&image, round).unwrap());
        let medium: Arc<dyn Medium> = Arc::clone(&faulty) as _;
        let (db, seen) = open(&medium);
        let ordered = db.keyspace("ordered").unwrap();
        assert_eq!(ordered.iter().unwrap().count() as u64, 1 + round);
        ordered.put(format!("later {round}"), "1").unwrap();
        seen.put_opt("lost", "1", &unlogged()).unwrap();
        image = faulty.process_death_image().unwrap();
    }
}

#[test]
fn a_transaction_conflicts_with_the_eviction_of_what_it_might_have_missed() {
    let (db, seen) = open(&common::memory());
    let mut rng = Rng::new(1);
    seen.put("mine", "1").unwrap();
    let mut transaction = db.transaction();
    assert_eq!(text(transaction.get(&seen, "mine").unwrap()), "1");
    transaction.put(&seen, "mine", "2").unwrap();
    seen.put("mine", "other").unwrap();
    // The other write is in a table that was evicted: only the eviction shows it.
    fill(&seen, &mut rng, 9, 0);
    db.wait_until_settled().unwrap();
    assert_eq!(seen.get("mine").unwrap(), None);
    assert!(transaction.commit().unwrap_err().is_conflict());
    // A transaction that read nothing of the window does not care.
    let ordered = db.create_keyspace("ordered").unwrap();
    let mut transaction = db.transaction();
    assert_eq!(transaction.get(&ordered, "a").unwrap(), None);
    transaction.put(&seen, "mine", "3").unwrap();
    fill(&seen, &mut rng, 9, 0);
    db.wait_until_settled().unwrap();
    transaction.commit().unwrap();
    assert_eq!(text(seen.get("mine").unwrap()), "3");
}

#[test]
fn deleting_everything_frees_the_window_at_once() {
    let (db, seen) = open(&common::memory());
    fill(&seen, &mut Rng::new(1), 4, 0);
    assert!(statistics(&db, "seen").table_bytes > WINDOW / 4);
    seen.delete_range::<&str>(..).unwrap();
    seen.put("after", "1").unwrap();
    seen.flush().unwrap();
    db.wait_until_settled().unwrap();
    let found = statistics(&db, "seen");
    assert!(
        found.evicted_entries == 200 && found.table_entries == 1 && found.runs == 1,
        "{found:?}"
    );
    assert_eq!(seen.entries().unwrap().count(), 1);
}

/// Separated values count: their files are most of the window, and go with their tables.
#[test]
fn long_values_count_and_go_with_their_run() {
    let (db, seen) = open(&common::memory());
    for number in 0..40u32 {
        seen.put(number.to_be_bytes(), noise(40_000)).unwrap();
        seen.flush().unwrap();
    }
    db.wait_until_settled().unwrap();
    let found = statistics(&db, "seen");
    assert!(found.value_file_bytes <= WINDOW && found.value_file_bytes > WINDOW / 2, "{found:?}");
    let there = |number: &u32| seen.contains_key(number.to_be_bytes()).unwrap();
    let there: Vec<_> = (0..40).filter(there).collect();
    assert_eq!(there, (40 - there.len() as u32..40).collect::<Vec<_>>(), "the newest");
}

/// A flush of unlogged writes states no seqno that the log has not durably reached. The Gap for them is
/// stored between the seal of the memtable and the end of its flush; the power is cut at every change after
/// that.
#[test] // I11
fn a_flush_does_not_pass_the_durable_end_of_the_log() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let seeds = (rng.next_u64(), rng.next_u64());
    let unsynced = WriteOptions::new().durability(Durability::None);
    let (mut point, mut changes) = (0, u64::MAX);
    while point < changes {
        let (device, medium) = faulty(seeds.0);
        let background = Stepped::new(seeds.1);
        let db = background.on(medium).open().unwrap();
        let ordered = db.create_keyspace("ordered").unwrap();
        let seen = db.create_keyspace_opt("seen", &window(64 << 20)).unwrap();
        ordered.put_opt("first", "1", &unsynced).unwrap();
        let mut number = 0u32;
        while statistics(&db, "seen").memtables < 2 {
            seen.put_opt(number.to_be_bytes(), noise(1000), &unlogged()).unwrap();
            number += 1;
            assert!(number < 100_000, "a full memtable is sealed");
        }
        db.sync().unwrap();
        ordered.put_opt("last", "1", &unsynced).unwrap();
        assert_eq!(statistics(&db, "seen").memtables, 2, "the flush did not run yet");
        point = point.max(device.changes());
        device.freeze(Freeze::AtChange(point));
        for _ in 0..10_000 {
            if statistics(&db, "seen").memtables == 1 {
                break;
            }
            background.work(1);
        }
        assert!(statistics(&db, "seen").table_entries > 0, "the sealed memtable is flushed");
        if !device.is_frozen() {
            changes = device.changes();
        }
        for _ in 0..16 {
            let image: Arc<dyn Medium> = Arc::new(device.crash_image(rng.next_u64()).unwrap());
            let db = stepped(&image, 1).open();
            let db = db.unwrap_or_else(|error| panic!("change {point}: {error}"));
            assert!(db.keyspace("ordered").unwrap().contains_key("first").unwrap());
        }
        point += 1;
    }
}

/// One batch over an ordered, a hashed and a window keyspace, between unlogged writes and flushes, with a
/// power cut at every change of the device: the batch is whole or absent, and the log opens with strict
/// rules.
#[test] // I2, I11
fn a_batch_over_kinds_is_whole_or_absent_after_a_crash_at_any_change() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let keep = KeyspaceOptions::new().hashed(HashedPolicy::Keep);
    let mut changes = u64::MAX;
    let mut point = 0;
    while point < changes {
        let (device, medium) = faulty(rng.next_u64());
        device.freeze(Freeze::AtChange(point));
        let db = stepped(&medium, rng.next_u64()).open().unwrap();
        let ordered = db.open_or_create_keyspace("ordered").unwrap();
        let keep_keyspace = db.open_or_create_keyspace_opt("keep", &keep).unwrap();
        let seen = db.open_or_create_keyspace_opt("seen", &window(1 << 20)).unwrap();
        for number in 0..12u32 {
            let key = number.to_be_bytes();
            seen.put_opt(format!("unlogged {number}"), "1", &unlogged()).unwrap();
            let mut batch = WriteBatch::new();
            batch.put(&ordered, key, "1").unwrap();
            batch.put(&keep_keyspace, key, "1").unwrap();
            batch.put(&seen, key, "1").unwrap();
            let sync = WriteOptions::new().durability(Durability::Sync);
            match number % 3 {
                0 => db.write_opt(&batch, &sync).unwrap(),
                _ => db.write(&batch).unwrap(),
            }
            match number {
                4 => seen.flush().unwrap(),
                7 => ordered.flush().unwrap(),
                9 => db.flush().unwrap(),
                _ => {}
            }
        }
        if !device.is_frozen() {
            changes = device.changes();
        }
        let image: Arc<dyn Medium> = Arc::new(device.crash_image(rng.next_u64()).unwrap());
        drop((db, ordered, keep_keyspace, seen));
        let db =
            stepped(&image, 1).open().unwrap_or_else(|error| panic!("change {point}: {error}"));
        let has = |name: &str, number: u32| {
            let keyspace = db.keyspace(name);
            keyspace.is_ok_and(|it| it.contains_key(number.to_be_bytes()).unwrap())
        };
        let mut before = true;
        for number in 0..12 {
            let parts = ["ordered", "keep", "seen"].map(|name| has(name, number));
            assert!(parts == [true; 3] || parts == [false; 3], "change {point}: {parts:?}");
            assert!(before || !parts[0], "change {point}: a batch without the one before it");
            before = parts[0];
        }
        drop(db);
        point += 1;
    }
    assert!(changes > 40, "{changes} changes");
}

/// The figures of the design: an entry is written once, and the filters of all runs together let a hundredth
/// of a useless read of a missing key pass.
#[test]
fn entries_are_written_once_and_misses_read_nothing() {
    let db = stepped(&common::memory(), 1).open().unwrap();
    let seen = db.create_keyspace_opt("seen", &window(1 << 30)).unwrap();
    let mut rng = Rng::new(1);
    for run in 0..24u32 {
        for number in 0..1500u32 {
            let mut value = vec![0; 240];
            rng.fill(&mut value);
            let key = [run.to_be_bytes(), number.to_be_bytes()].concat();
            seen.put_opt(key, value, &unlogged()).unwrap();
        }
        seen.flush().unwrap();
    }
    db.wait_until_settled().unwrap();
    let found = statistics(&db, "seen");
    assert_eq!((found.runs, found.merge_bytes, found.evicted_entries), (24, 0, 0));
    let amplification = found.flush_bytes as f64 / found.user_bytes as f64;
    assert!(amplification < 1.15, "{amplification}");
    let log = db.statistics().log;
    assert!(log.record_bytes < 1 << 10, "{log:?}");
    for number in 0..20_000u32 {
        assert_eq!(
            seen.get([b"missing".as_slice(), &number.to_be_bytes()].concat()).unwrap(),
            None
        );
    }
    let lookups = statistics(&db, "seen").lookups;
    let useless = lookups.miss_false_reads as f64 / lookups.misses as f64;
    // At most 1 % of misses may read a page in vain, plus four standard deviations. The true rate is lower,
    // because reads of cached pages do not count.
    assert!(lookups.misses == 20_000 && useless <= 0.01 + 4.0 * (0.01f64 / 20_000.0).sqrt());
    assert_eq!(lookups.miss_reads, lookups.miss_false_reads, "no other read of a missing key");
}
