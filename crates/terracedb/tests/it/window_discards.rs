//! Partial discards of windows: entries that were read lately, or that a function values, outlive their run.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Rng;
use media::{Freeze, Medium, MemoryMedium};
use terracedb::events::Event;
use terracedb::hashed::{Discard, FirstByte, HashedPolicy, WindowPriority};
use terracedb::stats::KeyspaceStatistics;
use terracedb::tools::{Backup, RepairOptions, check, repair};
use terracedb::{
    Builder, Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, Resources, WriteOptions,
};

use crate::common::{self, EventRecorder, noise, stepped, text, threaded};

/// The values written to a key, and the number of them that are synced.
type History = (Vec<Option<Vec<u8>>>, usize);

const WINDOW: u64 = 640 << 10;

/// Entries of a run.
const RUN: u32 = 160;

fn options(discard: Discard) -> KeyspaceOptions {
    KeyspaceOptions::new().hashed(HashedPolicy::Window { bytes: WINDOW, discard })
}

fn statistics(db: &Db) -> KeyspaceStatistics {
    db.statistics().keyspaces.into_iter().find(|keyspace| keyspace.name == "seen").unwrap()
}

/// Writes a run of entries of 240 B from `first` on, whose values begin with `priority`.
fn flush_run(keyspace: &Keyspace, rng: &mut Rng, first: u32, priority: impl Fn(u32) -> u8) {
    for number in first..first + RUN {
        let mut value = vec![0; 240];
        rng.fill(&mut value);
        value[0] = priority(number);
        keyspace.put(number.to_be_bytes(), value).unwrap();
    }
    keyspace.flush().unwrap();
}

fn has(keyspace: &Keyspace, number: u32) -> bool {
    keyspace.contains_key(number.to_be_bytes()).unwrap()
}

/// Writes five times the window, and reads every fortieth entry of the first run again and again. Returns the
/// entries of the first run that are there at the end.
fn hot_entries_left(discard: Discard, rows: bool) -> (Db, usize, usize) {
    let resources = Resources::builder().memory(common::MEMORY);
    let resources = if rows { resources } else { resources.without_rows() }.build().unwrap();
    let db = Db::on_medium(common::memory()).resources(&resources).open().unwrap();
    let seen = db.create_keyspace_opt("seen", &options(discard)).unwrap();
    let mut rng = Rng::new(1);
    let mut run_bytes = 0;
    for run in 0..60 {
        flush_run(&seen, &mut rng, run * RUN, |_| 1);
        db.wait_until_settled().unwrap();
        if run == 0 {
            run_bytes = statistics(&db).table_bytes;
        }
        assert!(statistics(&db).table_bytes <= WINDOW, "run {run}");
        for number in (0..RUN).step_by(40) {
            let _ = has(&seen, number);
        }
    }
    let hot = (0..RUN).step_by(40).filter(|number| has(&seen, *number)).count();
    let cold = (0..RUN).filter(|number| number % 40 != 0 && has(&seen, *number)).count();
    // Nothing younger than the window allows is lost: three quarters, less what one discard takes at once.
    let young = (WINDOW * 3 / 4 - WINDOW / 16) / run_bytes - 1;
    assert!(young >= 5, "{run_bytes}");
    for number in (60 - young as u32) * RUN..60 * RUN {
        assert!(has(&seen, number), "{number} is lost");
    }
    (db, hot, cold)
}

#[test]
fn entries_that_are_read_outlive_their_run() {
    for rows in [true, false] {
        let (db, hot, cold) = hot_entries_left(Discard::Clock, rows);
        assert_eq!(hot, 4, "with rows: {rows}");
        // Entries that share a counter of the clock with one that is read.
        assert!(cold < 12, "{cold}");
        let found = statistics(&db);
        assert!(
            found.retained_bytes > 0 && found.evicted_entries > 30 * u64::from(RUN),
            "{found:?}"
        );
        assert_eq!(found.kind, "hashed window=640.0 KiB,clock");
        let merged = db.statistics().compaction;
        assert_eq!(merged.entries.evicted, found.evicted_entries, "nothing was dropped unread");
        // Few entries are hot, so that few are written twice.
        assert!(merged.entries.read < found.evicted_entries * 5 / 4, "{merged:?}");
    }
}

/// The control of the test above: without a clock, the reads do not matter.
#[test]
fn entries_of_a_window_without_a_clock_go_although_they_are_read() {
    let (db, hot, cold) = hot_entries_left(Discard::Fifo, false);
    assert_eq!((hot, cold), (0, 0));
    assert_eq!(statistics(&db).retained_bytes, 0);
}

#[derive(Debug)]
struct Fifths;

impl WindowPriority for Fifths {
    fn name(&self) -> &str {
        "test.fifths.1"
    }

    fn priority(&self, key: &[u8], _value: Option<&[u8]>) -> u8 {
        u8::from(u32::from_be_bytes(key.try_into().unwrap()).is_multiple_of(50))
    }
}

fn with_fifths(medium: &Arc<dyn Medium>) -> Builder {
    threaded(medium).window_priority(Arc::new(Fifths))
}

#[test]
fn a_priority_retains_what_it_values_and_is_required_by_name() {
    let medium = common::memory();
    let recorder = Arc::new(EventRecorder::default());
    let db = with_fifths(&medium).listener(Arc::clone(&recorder) as _).open().unwrap();
    let named = |name: &str| options(Discard::Priority(name.to_owned()));
    let error = db.create_keyspace_opt("other", &named("test.other.1")).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("`test.other.1`"));
    let seen = db.create_keyspace_opt("seen", &named("test.fifths.1")).unwrap();
    let mut rng = Rng::new(1);
    (0..60).for_each(|run| flush_run(&seen, &mut rng, run * RUN, |_| 1));
    db.wait_until_settled().unwrap();
    let valued = (0..60 * RUN).step_by(50).filter(|number| has(&seen, *number)).count();
    assert_eq!(valued, 192, "all of them fit a quarter of the window");
    assert!((0..1000).filter(|number| number % 50 != 0).all(|number| !has(&seen, number)));
    let evicted = recorder.take(|it| matches!(it, Event::Evicted { .. }));
    assert!(!evicted.is_empty() && statistics(&db).retained_bytes > 0);
    drop((db, seen));

    let error = threaded(&medium).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("`test.fifths.1`"), "{error}");
    assert!(error.to_string().contains("keyspace `seen`"), "{error}");
    // Tools that need no priority work.
    assert!(check(&medium, &mut |_, _| ()).unwrap().is_clean());
    let db = with_fifths(&medium).open().unwrap();
    let seen = db.keyspace("seen").unwrap();
    assert_eq!((0..60 * RUN).step_by(50).filter(|number| has(&seen, *number)).count(), 192);
    let twice = with_fifths(&common::memory()).window_priority(Arc::new(Fifths)).open();
    assert!(twice.unwrap_err().to_string().contains("not registered yet"));
}

/// More entries are valued than a quarter of the window holds: the highest priorities stay.
#[test]
fn the_highest_priorities_stay_if_not_all_fit() {
    let db = stepped(&common::memory(), 1).open().unwrap();
    let seen = db
        .create_keyspace_opt("seen", &options(Discard::Priority(FirstByte::NAME.to_owned())))
        .unwrap();
    let mut rng = Rng::new(1);
    let priority = |number: u32| match number % 40 {
        0 => 9,
        1..30 => 3,
        _ => 0,
    };
    (0..50).for_each(|run| flush_run(&seen, &mut rng, run * RUN, priority));
    db.wait_until_settled().unwrap();
    let old = |wanted: u8| (0..4800).filter(move |number| priority(*number) == wanted);
    let left = |wanted| old(wanted).filter(|number| has(&seen, *number)).count();
    assert_eq!((left(9), left(0)), (120, 0));
    let third = left(3);
    assert!(third > 20 && third < 700, "{third} of 3480");
    assert!(statistics(&db).table_bytes <= WINDOW);
}

/// Values of their own files: a discard copies those that stay, so that the files of the others go.
#[test]
fn long_values_that_stay_are_copied() {
    let db = stepped(&common::memory(), 1).open().unwrap();
    let seen = db.create_keyspace_opt("seen", &options(Discard::Clock)).unwrap();
    for number in 0..60u32 {
        seen.put(number.to_be_bytes(), noise(20_000 + number as usize)).unwrap();
        if number % 2 == 1 {
            seen.flush().unwrap();
            db.wait_until_settled().unwrap();
            let found = statistics(&db);
            assert!(found.value_file_bytes + found.table_bytes <= WINDOW * 5 / 4, "{found:?}");
        }
        assert!(has(&seen, 0), "{number} {:?}", statistics(&db));
    }
    assert_eq!(seen.get(0u32.to_be_bytes()).unwrap().unwrap(), noise(20_000));
    assert!(!has(&seen, 3));
}

/// Random overwrites, deletes, expiring puts, reads, transactions, flushes and reopenings: a read finds the
/// newest write or nothing, and the newest entries are there.
#[test] // I4, I5
fn a_window_that_retains_entries_answers_with_the_newest_write_or_with_none() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let unlogged = WriteOptions::new().durability(Durability::Unlogged);
    for discard in [Discard::Clock, Discard::Priority(FirstByte::NAME.to_owned())] {
        let medium = common::memory();
        let mut newest: BTreeMap<u32, Option<Vec<u8>>> = BTreeMap::new();
        // The keys in the order of their last write, with the bytes written up to then.
        let mut written = 0;
        let mut at: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut evicted, mut retained) = (0, 0);
        for life in 0..4u32 {
            let db = stepped(&medium, rng.next_u64()).open().unwrap();
            let seen = db.open_or_create_keyspace_opt("seen", &options(discard.clone())).unwrap();
            // Keeps old versions alive in tables.
            let mut held = None;
            let mut unflushed = 0;
            for step in 0..6000u32 {
                let key = rng.below(3000) as u32;
                match rng.below(12) {
                    0 => {
                        seen.delete(key.to_be_bytes()).unwrap();
                        newest.insert(key, None);
                    }
                    1..5 => {
                        let mut value = noise(rng.below(900) as usize + 1);
                        value[0] = rng.below(4) as u8;
                        value.extend_from_slice(&(life * 6000 + step).to_be_bytes());
                        written += value.len() as u64 + 100;
                        match rng.one_in(2) {
                            true => seen.put(key.to_be_bytes(), &value).unwrap(),
                            false => seen.put_opt(key.to_be_bytes(), &value, &unlogged).unwrap(),
                        }
                        newest.insert(key, Some(value));
                        at.insert(key, written);
                    }
                    _ => {
                        // Some keys are read more often.
                        let key = key % 500 * 5;
                        let found = seen.get(key.to_be_bytes()).unwrap();
                        let expected = newest.get(&key).and_then(Option::as_deref);
                        assert!(
                            found.is_none() || found.as_deref() == expected,
                            "key {key} is stale"
                        );
                    }
                }
                // A discard takes whole runs: long ones would leave little of the window to the newest.
                unflushed += 1;
                if rng.one_in(300) || unflushed == 600 {
                    seen.flush().unwrap();
                    unflushed = 0;
                }
                if rng.one_in(300) {
                    held = rng.one_in(2).then(|| db.snapshot());
                }
            }
            drop(held);
            seen.flush().unwrap();
            db.wait_until_settled().unwrap();
            let mut entries = 0;
            for entry in seen.entries().unwrap() {
                let (key, value) = entry.unwrap();
                let key = u32::from_be_bytes((*key).try_into().unwrap());
                assert_eq!(newest[&key].as_deref(), Some(&*value), "key {key} is stale");
                entries += 1;
            }
            // Retained entries take a quarter at most, and a discard a run more than it needs; tables of few
            // entries are longer than their entries.
            let young = written.saturating_sub(WINDOW / 5);
            for (key, value) in &newest {
                let found = seen.get(key.to_be_bytes()).unwrap();
                assert!(found.is_none() || found.as_deref() == value.as_deref(), "key {key}");
                if value.is_some() && at[key] > young {
                    assert!(
                        found.is_some(),
                        "key {key}, written {} of {written} bytes in life {life}: {:?}",
                        at[key],
                        statistics(&db)
                    );
                }
            }
            let found = statistics(&db);
            assert!(found.table_bytes <= WINDOW, "{found:?}");
            assert!(entries > 200, "{entries}");
            evicted += found.evicted_entries;
            retained += found.retained_bytes;
        }
        assert!(evicted > 1000 && retained > 0, "{discard:?}: {evicted} {retained}");
        let report = check(&medium, &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

/// A transaction that might have missed a write because a discard evicted it conflicts.
#[test]
fn a_transaction_conflicts_with_a_discard_of_what_it_might_have_missed() {
    let db = stepped(&common::memory(), 1).open().unwrap();
    let seen = db.create_keyspace_opt("seen", &options(Discard::Clock)).unwrap();
    seen.put("mine", "1").unwrap();
    let mut transaction = db.transaction();
    assert_eq!(text(transaction.get(&seen, "mine").unwrap()), "1");
    transaction.put(&seen, "mine", "2").unwrap();
    seen.put("mine", "other").unwrap();
    let mut rng = Rng::new(1);
    (0..20).for_each(|run| flush_run(&seen, &mut rng, run * RUN, |_| 1));
    db.wait_until_settled().unwrap();
    assert_eq!(seen.get("mine").unwrap(), None);
    assert!(transaction.commit().unwrap_err().is_conflict());
}

/// Small windows that retain entries, with logged, synced and unlogged writes; the power is cut or the
/// process dies at any change. A key then has a value that is at least as new as its last synced one, or
/// none.
#[test] // I4, I11
fn a_crash_of_a_window_that_retains_entries_brings_back_no_old_value() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (mut evicted, mut found_any) = (0, 0);
    for round in 0..24u64 {
        let (device, medium) = common::faulty(rng.next_u64());
        device.freeze(Freeze::AtChange(100 + rng.below(1500)));
        let discard = match round % 3 {
            0 => Discard::Fifo,
            1 => Discard::Clock,
            _ => Discard::Priority(FirstByte::NAME.to_owned()),
        };
        let db = stepped(&medium, rng.next_u64()).open().unwrap();
        let seen = db.open_or_create_keyspace_opt("seen", &options(discard.clone())).unwrap();
        // The values of each key, oldest first, and the first that a crash may bring back.
        let mut written: BTreeMap<u32, History> = BTreeMap::new();
        for step in 0..4000u32 {
            if device.is_frozen() {
                break;
            }
            let key = rng.below(1200) as u32;
            let durability = match rng.below(10) {
                0 => Durability::Sync,
                1..4 => Durability::Unlogged,
                _ => Durability::None,
            };
            let write = WriteOptions::new().durability(durability);
            let value = (!rng.one_in(8)).then(|| {
                let mut value = noise(300 + rng.below(400) as usize);
                value[0] = rng.below(3) as u8;
                value.extend_from_slice(&step.to_be_bytes());
                value
            });
            match &value {
                Some(value) => seen.put_opt(key.to_be_bytes(), value, &write).unwrap(),
                None => seen.delete_opt(key.to_be_bytes(), &write).unwrap(),
            }
            let (values, least) = written.entry(key).or_insert_with(|| (vec![None], 0));
            values.push(value);
            if durability == Durability::Sync && !device.is_frozen() {
                *least = values.len() - 1;
            }
            let _ = seen.get((key / 2).to_be_bytes()).unwrap();
            if rng.one_in(150) {
                seen.flush().unwrap();
                if !device.is_frozen() {
                    // The flush made all of them durable.
                    written.values_mut().for_each(|(values, least)| *least = values.len() - 1);
                }
                db.wait_until_settled().unwrap();
            }
        }
        evicted += statistics(&db).evicted_entries;
        let image = match rng.one_in(3) {
            true => device.process_death_image().unwrap(),
            false => device.crash_image(rng.next_u64()).unwrap(),
        };
        drop((db, seen));
        let image: Arc<dyn Medium> = Arc::new(image);
        let db = stepped(&image, 1).open().unwrap_or_else(|error| panic!("{round}: {error}"));
        let Ok(seen) = db.keyspace("seen") else { continue };
        for (key, (values, least)) in &written {
            let found = seen.get(key.to_be_bytes()).unwrap().map(|value| value.to_vec());
            let is_new = found.is_none() || values[*least..].contains(&found);
            assert!(is_new, "round {round}, {discard:?}: key {key} is stale");
            found_any += usize::from(found.is_some());
        }
        drop((db, seen));
        let report = check(&image, &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "round {round}: {report:?}");
    }
    assert!(evicted > 0 && found_any > 100, "{evicted} {found_any}");
}

/// The manifests are lost, and the file of the keyspace or not. Tables state the policy of their window too,
/// and seqnos that no log had are no loss.
#[test]
fn a_window_is_rebuilt_as_a_window() {
    let discards = [Discard::Fifo, Discard::Clock, Discard::Priority(FirstByte::NAME.to_owned())];
    for (number, discard) in discards.into_iter().cycle().take(6).enumerate() {
        let (lost, name) = if number < 3 { ("keyspace-", "recovered-2") } else { ("none", "seen") };
        let device = Arc::new(MemoryMedium::new());
        let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
        let db = stepped(&medium, 1).open().unwrap();
        let ordered = db.create_keyspace("ordered").unwrap();
        let seen = db.create_keyspace_opt("seen", &options(discard)).unwrap();
        ordered.put("a", "1").unwrap();
        ordered.flush().unwrap();
        let mut rng = Rng::new(1);
        (0..20).for_each(|run| flush_run(&seen, &mut rng, run * RUN, |_| 1));
        let unlogged = WriteOptions::new().durability(Durability::Unlogged);
        seen.put_opt("unlogged", "new", &unlogged).unwrap();
        seen.flush().unwrap();
        db.wait_until_settled().unwrap();
        let kind = statistics(&db).kind;
        let count = seen.entries().unwrap().count();
        drop((db, ordered, seen));
        for file in medium.list().unwrap() {
            if file.name.starts_with("manifest-") || file.name.starts_with(lost) {
                medium.remove(&file.name).unwrap();
            }
        }
        let report = repair(&medium, RepairOptions::default(), &mut |_, _| ()).unwrap();
        assert!(report.lost.is_empty(), "{report:?}");
        // The start of the log was in the manifest. Its end is not missing.
        assert!(!format!("{report:?}").contains("end of the log"), "{report:?}");
        assert!(check(&medium, &mut |_, _| ()).unwrap().is_clean());
        let db = stepped(&medium, 1).open().unwrap();
        let seen = db.keyspace(name).unwrap();
        let found = db.statistics().keyspaces.into_iter().find(|it| it.name == name);
        assert_eq!(found.unwrap().kind, kind);
        assert_eq!(seen.entries().unwrap().count(), count);
        assert_eq!(text(seen.get("unlogged").unwrap()), "new");
        assert_eq!(text(db.keyspace("recovered-1").unwrap().get("a").unwrap()), "1");
    }
}

/// Files of the window that a backup copied may be evicted afterwards.
#[test]
fn a_backup_restores_the_window_of_its_time() {
    let db = stepped(&common::memory(), 1).open().unwrap();
    let seen = db.create_keyspace_opt("seen", &options(Discard::Clock)).unwrap();
    let mut rng = Rng::new(1);
    let mut write = |runs: std::ops::Range<u32>| {
        for run in runs {
            flush_run(&seen, &mut rng, run * RUN, |_| 1);
            db.wait_until_settled().unwrap();
            assert!(has(&seen, 0), "it is read again and again");
        }
    };
    let all = |seen: &Keyspace| -> BTreeMap<Vec<u8>, Vec<u8>> {
        let entries = seen.entries().unwrap().map(Result::unwrap);
        entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    };
    write(0..20);
    let expected = all(&seen);
    assert!(statistics(&db).evicted_entries > 0 && statistics(&db).retained_bytes > 0);
    let repository = Backup::on_medium(common::memory());
    let id = repository.create(&db, "").unwrap().id;
    write(20..40);
    assert!(!has(&seen, 19 * RUN));
    assert!(repository.verify(id).unwrap().is_clean());
    let to = common::memory();
    repository.restore_on(id, &to).unwrap();
    let restored = stepped(&to, 1).open().unwrap();
    assert_eq!(statistics(&restored).kind, statistics(&db).kind);
    assert_eq!(all(&restored.keyspace("seen").unwrap()), expected);
    drop(restored);
    assert!(check(&to, &mut |_, _| ()).unwrap().is_clean());
}
