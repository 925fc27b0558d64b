//! Key-value separation: every kind of read finds long values, and a value file is removed when no pointer
//! into it is left.

use std::sync::Arc;

use base::limits::{PAGE_BYTES, VALUE_APART_BYTES};
use base::{ErrorKind, Rng};
use media::{Fault, Faulty, Medium, MemoryMedium, OpKind, Rule};
use table::parse_values_file_name;
use terracedb::operators::Append;
use terracedb::tools::check;
use terracedb::{Codec, Db, EntryOptions, KeyspaceOptions};

use crate::common;

/// Lengths around the limit of inline values, and long ones.
const LENGTHS: [usize; 6] =
    [VALUE_APART_BYTES - 1, VALUE_APART_BYTES, VALUE_APART_BYTES + 1, 70_000, 1 << 20, 3 << 20];

fn value(rng: &mut Rng, length: usize) -> Vec<u8> {
    let mut value = vec![b'.'; length];
    rng.fill(&mut value[length / 2..]);
    value
}

/// The value files of a store, and their bytes.
fn value_files(medium: &Arc<dyn Medium>) -> Vec<(String, u64)> {
    let files = medium.list().unwrap();
    let values = files.into_iter().filter(|file| parse_values_file_name(&file.name).is_some());
    values.map(|file| (file.name, file.len)).collect()
}

#[test]
fn long_values_are_separated_and_every_read_finds_them() {
    let (mut rng, seed) = Rng::from_env();
    let medium = common::memory();
    let open = || common::threaded(&medium).open().unwrap();
    let mut model = common::Model::new();
    let mut db = open();
    for round in 0..3 {
        let ks = db.open_or_create_keyspace("k").unwrap();
        for number in 0..24 {
            let length = LENGTHS[rng.below(LENGTHS.len() as u64) as usize];
            let key = format!("key{number:02}").into_bytes();
            let value = value(&mut rng, length);
            ks.put(&key, &value).unwrap();
            model.insert(key, value);
            ks.put(format!("small{round}{number}"), "x").unwrap();
            model.insert(format!("small{round}{number}").into_bytes(), b"x".to_vec());
        }
        let before = db.snapshot();
        let old = model.clone();
        db.flush().unwrap();
        assert!(!value_files(&medium).is_empty());
        common::assert_same(&ks, &model, &format!("seed {seed}"));
        let keys: Vec<_> = model.keys().cloned().collect();
        for keys in keys.chunks(3) {
            for (key, got) in keys.iter().zip(ks.multi_get(keys).unwrap()) {
                assert!(got.unwrap().as_deref() == Some(&model[key][..]), "seed {seed}");
            }
        }
        ks.delete("key05").unwrap();
        model.remove(&b"key05"[..]);
        db.flush().unwrap();
        ks.compact_range::<&[u8]>(..).unwrap();
        common::assert_same(&ks, &model, &format!("seed {seed}"));
        let then = before.get(&ks, "key05").unwrap();
        assert!(then.as_deref() == Some(&old[&b"key05"[..]][..]), "seed {seed}");
        drop((before, ks));
        drop(db);
        let report = check(&medium, &mut |_, _| ()).unwrap();
        assert!(report.is_clean() && report.unowned.is_empty(), "seed {seed}: {report:?}");
        assert!(report.values > 0);
        db = open();
        common::assert_same(
            &db.open_or_create_keyspace("k").unwrap(),
            &model,
            &format!("seed {seed}"),
        );
    }
}

fn total(medium: &Arc<dyn Medium>) -> u64 {
    value_files(medium).iter().map(|(_, bytes)| bytes).sum()
}

/// Overwriting leaves dead values in partly live files, which are collected.
#[test]
fn dead_values_take_at_most_as_much_space_as_live_ones() {
    const KEYS: u64 = 200;
    const BYTES: usize = 40_000;
    let (mut rng, seed) = Rng::from_env();
    let medium = common::memory();
    let mut model = common::Model::new();
    let db = common::stepped(&medium, seed).open().unwrap();
    let ks = db.open_or_create_keyspace("k").unwrap();
    for round in 0..8 {
        for number in 0..KEYS {
            let number = if round == 0 { number } else { rng.below(KEYS) };
            let key = format!("key{number:03}").into_bytes();
            let mut value = vec![round as u8; BYTES];
            rng.fill(&mut value);
            ks.put(&key, &value).unwrap();
            model.insert(key, value);
            if number % 25 == 0 {
                db.flush().unwrap();
            }
        }
        db.flush().unwrap();
        // A settled tree may keep superseded pointers in older runs, and their values.
        db.compact().unwrap();
        db.wait_until_settled().unwrap();
        let live = KEYS * BYTES as u64;
        let taken = total(&medium);
        assert!(taken <= 2 * live + live / 10, "seed {seed}, round {round}: {taken} for {live}");
    }
    common::assert_same(&ks, &model, &format!("seed {seed}"));
    let written = db.statistics().compaction;
    assert!(written.failed == 0, "seed {seed}: {written:?}");
    drop((ks, db));
    let report = check(&medium, &mut |_, _| ()).unwrap();
    assert!(report.is_clean() && report.unowned.is_empty(), "seed {seed}: {report:?}");
    let db = common::stepped(&medium, seed).open().unwrap();
    assert_eq!(db.recovery().orphans_removed, 0, "seed {seed}");
    common::assert_same(&db.open_or_create_keyspace("k").unwrap(), &model, &format!("seed {seed}"));
}

/// The smallest memory has no room for two Zstandard contexts: the table is compressed by Zstandard, its
/// values by LZ4.
#[test]
fn values_are_collected_with_zstd_in_the_least_memory() {
    let (mut rng, medium) = (Rng::new(1), common::memory());
    let db = common::stepped(&medium, 1).codec(Codec::Zstd).open().unwrap();
    let ks = db.open_or_create_keyspace("k").unwrap();
    let mut model = common::Model::new();
    for from in [0, 10] {
        for number in from..40 {
            let (key, value) = (format!("key{number:02}").into_bytes(), value(&mut rng, 40_000));
            ks.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        db.flush().unwrap();
    }
    let before = total(&medium);
    db.compact().unwrap();
    db.wait_until_settled().unwrap();
    assert!(total(&medium) < before - 20 * 20_000, "{} of {before}", total(&medium));
    assert_eq!(db.statistics().compaction.failed, 0);
    common::assert_same(&ks, &model, "collected");
}

/// The same without a requested compaction: a table's weight includes the values it points to, and tables
/// that consist mostly of pointers are merged as a whole.
#[test]
fn dead_values_of_a_settled_tree_are_bounded() {
    const KEYS: u64 = 200;
    const BYTES: usize = 40_000;
    let (mut rng, seed) = Rng::from_env();
    let medium = common::memory();
    let db = common::stepped(&medium, seed).open().unwrap();
    let ks = db.open_or_create_keyspace("k").unwrap();
    let live = KEYS * BYTES as u64;
    let mut value = vec![0; BYTES];
    for round in 0..12 {
        for number in 0..KEYS {
            let number = if round == 0 { number } else { rng.below(KEYS) };
            rng.fill(&mut value);
            ks.put(format!("key{number:03}"), &value).unwrap();
            if number % 25 == 0 {
                db.flush().unwrap();
            }
        }
        db.flush().unwrap();
        db.wait_until_settled().unwrap();
        let dead = total(&medium).saturating_sub(live);
        assert!(dead <= live, "seed {seed}, round {round}: {dead} for {live}");
    }
    let compaction = db.statistics().compaction;
    assert_eq!(compaction.failed, 0, "seed {seed}: {compaction:?}");
}

/// A merge that drops the last pointer into a file removes the file without reading a value.
#[test]
fn a_value_file_is_removed_with_the_last_pointer_into_it() {
    let medium = common::memory();
    let db = common::stepped(&medium, 1).open().unwrap();
    let ks = db.open_or_create_keyspace("k").unwrap();
    let long = vec![7; 50_000];
    for number in 0..20 {
        ks.put(format!("key{number:02}"), &long).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(value_files(&medium).len(), 1);
    let snapshot = db.snapshot();
    ks.delete_range("key".."kez").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    assert_eq!(value_files(&medium).len(), 1, "a snapshot reads it");
    assert!(snapshot.get(&ks, "key07").unwrap().as_deref() == Some(&long[..]));
    let mut cursor = snapshot.cursor(&ks).unwrap();
    assert!(cursor.seek("key08").unwrap());
    drop(snapshot);
    ks.put("other", "short").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    // The cursor reads on in files that no version names any more.
    while cursor.next().unwrap() {
        assert!(cursor.value() == Some(&long[..]));
    }
    drop(cursor);
    assert_eq!(value_files(&medium).len(), 1, "the last reader delays no removal");
    db.wait_until_settled().unwrap();
    assert_eq!(value_files(&medium), []);
    assert_eq!(ks.iter().unwrap().count(), 1);
}

#[test]
fn long_values_take_operands_and_expire_like_short_ones() {
    let medium = common::memory();
    let db = common::stepped(&medium, 1).open().unwrap();
    let ks = db
        .open_or_create_keyspace_opt("k", &KeyspaceOptions::new().merge_operator(Append::NAME))
        .unwrap();
    let mut text = vec![b'a'; 30_000];
    ks.put("text", &text).unwrap();
    let hour = std::time::Duration::from_secs(3600);
    ks.put_opt("mortal", &text, &EntryOptions::new().ttl(hour)).unwrap();
    ks.put("plain", "1").unwrap();
    db.flush().unwrap();
    for round in 0..5 {
        for key in ["text", "plain"] {
            ks.merge(key, "b").unwrap();
        }
        text.push(b'b');
        if round % 2 == 0 {
            db.flush().unwrap();
        }
        let expected = [&text[..], &b"bbbbb"[..=round]];
        let read = || {
            assert!(ks.get("text").unwrap().as_deref() == Some(&text[..]), "{round}");
            assert_eq!(ks.get("mortal").unwrap().map(|value| value.len()), Some(30_000));
            let values = ks.iter().unwrap().map(|entry| entry.unwrap().1.len());
            let lengths = [30_000, 1 + expected[1].len(), text.len()];
            assert_eq!(values.collect::<Vec<_>>(), lengths);
            let reversed = ks.iter().unwrap().rev().map(|entry| entry.unwrap().1.len());
            assert_eq!(reversed.collect::<Vec<_>>(), [lengths[2], lengths[1], lengths[0]]);
        };
        read();
        if round == 3 {
            db.compact().unwrap();
            read();
        }
    }
    db.compact().unwrap();
    assert!(ks.get("text").unwrap().as_deref() == Some(&text[..]));
    // The operands were merged with their base value.
    assert!(db.statistics().compaction.entries.merged >= 4);
}

/// A damaged page of a value file makes its value unreadable: the others are read, merged and collected.
#[test]
fn a_damaged_value_makes_no_other_unreadable() {
    let medium = Arc::new(MemoryMedium::new());
    let open = |medium: &Arc<MemoryMedium>| -> Db {
        common::stepped(&(Arc::clone(medium) as _), 1).open().unwrap()
    };
    let db = open(&medium);
    let ks = db.open_or_create_keyspace("k").unwrap();
    let mut rng = Rng::new(1);
    let mut model = common::Model::new();
    for number in 0..10 {
        let mut value = vec![0; 20_000];
        rng.fill(&mut value);
        ks.put(format!("key{number}"), &value).unwrap();
        model.insert(format!("key{number}").into_bytes(), value);
    }
    db.flush().unwrap();
    drop((ks, db));
    let shared: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let (name, _) = value_files(&shared).remove(0);
    let mut content = medium.content(&name).unwrap();
    // Six pages per value; the third page of the fourth value.
    content[(3 * 5 + 2) * PAGE_BYTES + 100] ^= 1;
    medium.remove(&name).unwrap();
    medium.insert(&name, content).unwrap();
    let report = check(&shared, &mut |_, _| ()).unwrap();
    assert_eq!(report.damages, 1, "{report:?}");
    assert_eq!(report.problems[0].file, name);
    assert_eq!(report.problems[0].keys, Some((b"key3".to_vec(), b"key3".to_vec())));
    let db = open(&medium);
    let ks = db.open_or_create_keyspace("k").unwrap();
    let ask = |model: &common::Model| {
        for (key, value) in model {
            match ks.get(key) {
                Ok(got) => assert!(got.as_deref() == Some(&value[..]) && key != b"key3"),
                Err(error) => {
                    assert_eq!((error.kind(), &key[..]), (ErrorKind::Corrupt, &b"key3"[..]));
                    assert!(error.to_string().contains(&name), "{error}");
                }
            }
        }
    };
    ask(&model);
    // Most of the file is dead; a value that cannot be copied out keeps the file, and merges go on.
    for number in [0, 1, 2, 5, 6, 7, 8, 9] {
        ks.put(format!("key{number}"), "short").unwrap();
        model.insert(format!("key{number}").into_bytes(), b"short".to_vec());
    }
    db.compact().unwrap();
    db.wait_until_settled().unwrap();
    ask(&model);
    assert_eq!(db.statistics().compaction.failed, 0);
    assert!(value_files(&shared).iter().any(|(found, _)| *found == name));
    ks.delete_range::<&[u8]>(..).unwrap();
    db.compact().unwrap();
    db.wait_until_settled().unwrap();
    assert!(!value_files(&shared).iter().any(|(found, _)| *found == name));
}

/// Without free space, values are refused or stay in the log, and unfinished files are removed.
#[test]
fn a_full_device_loses_no_value() {
    let device = Arc::new(Faulty::new(1));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let db = common::stepped(&medium, 1).open().unwrap();
    let ks = db.open_or_create_keyspace("k").unwrap();
    let mut long = vec![7; 100_000];
    Rng::new(1).fill(&mut long);
    for number in 0..10 {
        ks.put(format!("key{number}"), &long).unwrap();
    }
    let used: u64 = medium.list().unwrap().iter().map(|file| file.len).sum();
    device.set_capacity(Some(used + 100_000));
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(value_files(&medium), []);
    device.set_capacity(None);
    ks.put("resumed", "v").unwrap();
    db.flush().unwrap();
    assert_eq!(value_files(&medium).len(), 1);
    for number in 0..10 {
        let got = ks.get(format!("key{number}")).unwrap();
        assert!(got.as_deref() == Some(&long[..]));
    }
}

/// A value file that the device once failed to read is read as soon as the device works, whichever reader
/// met the failure.
#[test]
fn values_are_read_after_a_failed_open_of_their_file() {
    for fails in 1..8 {
        let device = Arc::new(Faulty::new(fails));
        let medium = Arc::clone(&device) as Arc<dyn Medium>;
        let db = common::threaded(&medium).open().unwrap();
        let ks = db.open_or_create_keyspace("k").unwrap();
        ks.put("long", vec![7; 40_000]).unwrap();
        device.inject(Rule::new(OpKind::Read, Fault::Io).name(".values").times(fails)).unwrap();
        let _ = db.flush();
        let _ = ks.get("long");
        device.heal();
        db.flush().unwrap();
        assert_eq!(value_files(&medium).len(), 1);
        assert!(ks.get("long").unwrap().as_deref() == Some(&[7; 40_000][..]), "{fails} failures");
        assert!(device.struck() > 0);
    }
}
