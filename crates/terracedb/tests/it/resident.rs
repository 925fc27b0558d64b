//! Resident keyspaces: their entries stay in the log on storage-class memory. Against a model, over reopens
//! and power cuts, in batches and transactions with other kinds, and refused where they cannot be.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Rng;
use media::Medium;
use terracedb::hashed::HashedPolicy;
use terracedb::tools::LogConfig;
use terracedb::{
    Db, Durability, EntryOptions, ErrorKind, Keyspace, KeyspaceOptions, Result, WriteBatch,
    WriteOptions,
};

use crate::common::{self, Views, assert_same, text};

pub(crate) fn resident() -> KeyspaceOptions {
    KeyspaceOptions::new().hashed(HashedPolicy::Resident)
}

/// A store with its log on two devices, each of two lanes.
pub(crate) fn open_in(devices: &Arc<Views>, memory: u64) -> Result<Db> {
    Db::on_medium(Arc::clone(&devices.device))
        .memory(memory)
        .log_path(["one", "two"])
        .log_lanes(2)
        .log_devices(Arc::clone(devices) as _)
        .open()
}

pub(crate) fn open(devices: &Arc<Views>) -> (Db, Keyspace) {
    let db = open_in(devices, common::MEMORY).unwrap();
    let keyspace = db.open_or_create_keyspace_opt("r", &resident()).unwrap();
    (db, keyspace)
}

fn refused<T>(result: Result<T>, words: &[&str]) {
    let error = result.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

/// Random puts, deletes and batches, flushes and reopens: every read agrees with the model.
#[test]
fn a_resident_keyspace_agrees_with_a_model_over_reopens() {
    let (mut rng, seed) = Rng::from_env();
    let devices = Views::of(common::memory());
    let (mut db, mut keyspace) = open(&devices);
    let mut model = common::Model::new();
    for step in 0..4000u64 {
        let key = common::key(rng.below(300));
        match rng.below(100) {
            0..20 => {
                keyspace.delete(&key).unwrap();
                model.remove(&key);
            }
            20..35 => {
                let mut batch = WriteBatch::new();
                for _ in 0..rng.below(30) {
                    let key = common::key(rng.below(300));
                    if rng.one_in(4) {
                        batch.delete(&keyspace, &key).unwrap();
                        model.remove(&key);
                    } else {
                        let value = common::value(&mut rng, &key, step);
                        batch.put(&keyspace, &key, &value).unwrap();
                        model.insert(key, value);
                    }
                }
                db.write(&batch).unwrap();
            }
            35..38 => keyspace.flush().unwrap(),
            38 if rng.one_in(4) => {
                drop((keyspace, db));
                (db, keyspace) = open(&devices);
                assert_same(&keyspace, &model, &format!("seed {seed}, step {step}, reopened"));
            }
            _ => {
                let value = common::value(&mut rng, &key, step);
                keyspace.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        let key = common::key(rng.below(320));
        let got = keyspace.get(&key).unwrap();
        assert_eq!(got.as_deref(), model.get(&key).map(Vec::as_slice), "seed {seed}, step {step}");
    }
    assert_same(&keyspace, &model, &format!("seed {seed}"));
    let keys: Vec<_> = (0..320).map(common::key).collect();
    for (key, got) in keys.iter().zip(keyspace.multi_get(&keys).unwrap()) {
        assert_eq!(got.unwrap().as_deref(), model.get(key).map(Vec::as_slice), "seed {seed}");
    }
    // No table holds an entry, and a flush of the memtables frees no segment that does.
    db.flush().unwrap();
    let found = db.statistics().keyspaces.into_iter().find(|it| it.name == "r").unwrap();
    assert_eq!((found.table_entries, found.tables), (0, 0));
    assert_same(&keyspace, &model, &format!("seed {seed}, flushed"));
}

#[test]
fn what_a_resident_keyspace_cannot_do_is_refused_by_name() {
    let devices = Views::of(common::memory());
    let (db, keyspace) = open(&devices);
    keyspace.put("a", "1").unwrap();
    let snapshot = db.snapshot();
    let instead = &["read at a snapshot", "`r`", "resident"];
    refused(snapshot.get(&keyspace, "a"), instead);
    refused(snapshot.multi_get(&keyspace, &["a"]), instead);
    refused(snapshot.entries(&keyspace), instead);
    refused(keyspace.iter(), &["range read"]);
    refused(keyspace.prefix("a"), &["prefix read"]);
    refused(keyspace.ingest(), &["ingest"]);
    refused(keyspace.merge("a", "1"), &["merge"]);
    refused(keyspace.delete_range("a".."b"), &["delete of a key range"]);
    refused(keyspace.delete_range::<&str>(..), &["delete of every key"]);
    let unlogged = WriteOptions::new().durability(Durability::Unlogged);
    refused(keyspace.put_opt("a", "2", &unlogged), &["unlogged write"]);
    let flash = common::threaded(&common::memory()).open().unwrap();
    let created = flash.create_keyspace_opt("r", &resident());
    refused(created, &["resident keyspace", "`r`", "log.path"]);
    let builder = Db::on_medium(Arc::clone(&devices.device)).memory(common::MEMORY);
    let reader = builder.log_devices(Arc::clone(&devices) as _).read_only(true);
    refused(reader.open(), &["opening for reading only", "resident keyspace `r`"]);
    let (config, store) = (LogConfig::at(Vec::new()), LogConfig::at(vec!["one".to_owned()]));
    drop((snapshot, keyspace, db));
    let from = LogConfig { devices: Arc::clone(&devices) as _, ..store };
    refused(
        terracedb::tools::move_log(&devices.device, &from, &config),
        &["move of the log", "`r`"],
    );
}

/// The conflict rule: a key that was written after the start of a transaction is a conflict, whether it is
/// still in a memtable or in the index.
#[test]
fn a_transaction_conflicts_with_a_later_write() {
    let devices = Views::of(common::memory());
    let (db, keyspace) = open(&devices);
    for flushes in [false, true] {
        keyspace.put("a", "1").unwrap();
        keyspace.put("b", "1").unwrap();
        keyspace.flush().unwrap();
        // Written before the read: the read itself is refused once only the index has the write.
        let transaction = db.transaction();
        keyspace.put("a", "2").unwrap();
        if flushes {
            keyspace.flush().unwrap();
            let error = transaction.get(&keyspace, "a").unwrap_err();
            assert!(error.is_conflict(), "{error}");
            let several = transaction.multi_get(&keyspace, &["a", "b"]).unwrap();
            assert!(several[0].as_ref().is_err_and(|error| error.is_conflict()));
            assert_eq!(several[1].as_ref().unwrap().as_deref(), Some(&b"1"[..]));
        } else {
            assert_eq!(text(transaction.get(&keyspace, "a").unwrap()), "1");
        }
        drop(transaction);
        // Written after the read.
        let mut transaction = db.transaction();
        assert_eq!(text(transaction.get(&keyspace, "a").unwrap()), "2");
        transaction.put(&keyspace, "c", "3").unwrap();
        keyspace.put("a", "4").unwrap();
        if flushes {
            keyspace.flush().unwrap();
        }
        assert!(transaction.commit().unwrap_err().is_conflict());
        // Another key, written meanwhile, is none.
        let mut transaction = db.transaction();
        assert_eq!(text(transaction.get(&keyspace, "b").unwrap()), "1");
        transaction.put(&keyspace, "b", "5").unwrap();
        keyspace.put("a", "6").unwrap();
        if flushes {
            keyspace.flush().unwrap();
        }
        transaction.commit().unwrap();
        assert_eq!(text(keyspace.get("b").unwrap()), "5");
    }
}

/// I10: when memory is full, new keys are refused by name, and keys that exist can be overwritten and
/// deleted.
#[test]
fn a_full_memory_refuses_new_keys_and_takes_updates() {
    let devices = Views::of(common::memory());
    let resources = terracedb::Resources::builder().memory(common::MEMORY).build().unwrap();
    let db = Db::on_medium(Arc::clone(&devices.device))
        .resources(&resources)
        .log_path(["one"])
        .log_devices(Arc::clone(&devices) as _)
        .open()
        .unwrap();
    let keyspace = db.open_or_create_keyspace_opt("r", &resident()).unwrap();
    let put = |number: u64, value: &str| keyspace.put(number.to_be_bytes(), value);
    for number in 0..20_000 {
        put(number, "1").unwrap();
    }
    keyspace.flush().unwrap();
    // The indexes share a limit with the metadata of tables: 3/8 of the memory less 20 MiB.
    let tables = engine::Components::account(&resources, "tables");
    let index = db.statistics().keyspaces[0].index_bytes;
    let taken = tables.charge((common::MEMORY - (20 << 20)) / 8 * 3 - index - (64 << 10)).unwrap();
    let refused = (20_000..200_000).find_map(|number| put(number, "1").err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
    assert!(refused.to_string().contains("index of a resident keyspace"), "{refused}");
    for number in 0..20_000u64 {
        match number % 3 {
            0 => keyspace.delete(number.to_be_bytes()).unwrap(),
            _ => put(number, "2").unwrap(),
        }
    }
    keyspace.flush().unwrap();
    for number in 0..20_000u64 {
        let expected = if number % 3 == 0 { "-" } else { "2" };
        assert_eq!(text(keyspace.get(number.to_be_bytes()).unwrap()), expected);
    }
    drop(taken);
    put(300_000, "1").unwrap();
}

/// A segment is freed once every entry in it was overwritten; a tombstone, which hides older versions in a
/// replay, keeps its segment.
#[test]
fn segments_without_live_entries_are_freed() {
    let devices = Views::of(common::memory());
    let (db, keyspace) = open(&devices);
    let value = common::noise(8 << 10);
    // 64 MiB in all, where a segment has 1 to 8 MiB.
    for round in 0..512u32 {
        for key in 0..16u8 {
            keyspace.put([key], [&round.to_le_bytes()[..], &value].concat()).unwrap();
        }
        if round.is_multiple_of(64) {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    db.wait_until_settled().unwrap();
    // The flush task looks for dead segments before each flush.
    keyspace.put("last", "1").unwrap();
    db.flush().unwrap();
    let log = db.statistics().log;
    assert!(log.segments_freed > 0, "{log:?}");
    // The tombstone keeps its segment, and with it the older version out of the replay.
    keyspace.put("deleted", &value).unwrap();
    keyspace.flush().unwrap();
    keyspace.delete("deleted").unwrap();
    for round in 0..512u32 {
        keyspace.put([99], [&round.to_le_bytes()[..], &value].concat()).unwrap();
    }
    db.flush().unwrap();
    drop((keyspace, db));
    let (_db, keyspace) = open(&devices);
    for key in 0..16u8 {
        assert_eq!(keyspace.get([key]).unwrap().unwrap()[..4], 511u32.to_le_bytes());
    }
    assert_eq!(text(keyspace.get("deleted").unwrap()), "-");
    assert_eq!(keyspace.entries().unwrap().count(), 18);
}

/// Values that expire are not returned after their time, and survive a reopen until then.
#[test]
fn entries_expire() {
    let devices = Views::of(common::memory());
    let (db, keyspace) = open(&devices);
    let hour = EntryOptions::new().ttl(std::time::Duration::from_secs(3600));
    keyspace.put_opt("later", "1", &hour).unwrap();
    keyspace.put_opt("gone", "1", &EntryOptions::new().ttl(std::time::Duration::ZERO)).unwrap();
    keyspace.flush().unwrap();
    drop((keyspace, db));
    let (_db, keyspace) = open(&devices);
    assert_eq!(text(keyspace.get("later").unwrap()), "1");
    assert_eq!(text(keyspace.get("gone").unwrap()), "-");
    assert!(keyspace.expiry("later").unwrap().is_some());
    assert_eq!(keyspace.entries().unwrap().count(), 1);
}

/// A flipped byte in the log is found when the entry is read, and fails no other key (I8).
#[test]
fn a_damaged_entry_is_corrupt_and_others_are_read() {
    let memory = Arc::new(media::MemoryMedium::new());
    let devices = Views::of(Arc::clone(&memory) as Arc<dyn Medium>);
    let (db, keyspace) = open(&devices);
    keyspace.put("good", "1").unwrap();
    keyspace.put("bad", "a value to be found").unwrap();
    // A record of several operations is verified when one of them is read first, in several steps.
    let long = common::noise(100 << 10);
    let batch = |place: &[u8]| {
        let mut batch = WriteBatch::new();
        batch.put(&keyspace, [place, b"long"].concat(), &long).unwrap();
        batch.put(&keyspace, [place, b"short"].concat(), "1").unwrap();
        db.write(&batch).unwrap();
    };
    batch(b"in order ");
    batch(b"damaged ");
    keyspace.flush().unwrap();
    assert_eq!(text(keyspace.get("bad").unwrap()), "a value to be found");
    let flip = |wanted: &[u8]| {
        let mut flipped = 0;
        for file in memory.list().unwrap().into_iter().filter(|it| it.name.contains("log-")) {
            let handle = memory.open(&file.name, media::Access::Bytes).unwrap();
            let mut bytes = vec![0; file.len as usize];
            handle.load(0, &mut bytes, media::Purpose::Data).unwrap();
            let found = bytes.windows(wanted.len()).position(|window| window == wanted);
            if let Some(at) = found {
                handle.store(at as u64, b"!", media::Purpose::Log).unwrap();
                flipped += 1;
            }
        }
        assert_eq!(flipped, 1);
    };
    flip(b"a value to be found");
    flip(b"damaged short");
    assert_eq!(keyspace.get("bad").unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(text(keyspace.get("good").unwrap()), "1");
    assert_eq!(keyspace.get("damaged long").unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(text(keyspace.get("in order short").unwrap()), "1");
    assert_eq!(keyspace.get("in order long").unwrap().as_deref(), Some(&long[..]));
    drop(db);
}

/// Threads write their own keys while others read them, over flushes: a reader never sees an older value than
/// it saw before, nor another key's.
#[test]
fn readers_never_go_back_while_memtables_become_part_of_the_index() {
    let devices = Views::of(common::memory());
    let (db, keyspace) = open(&devices);
    let written = [const { std::sync::atomic::AtomicU64::new(0) }; 2];
    let number_of = |value: &[u8]| u64::from_le_bytes(value[1..9].try_into().unwrap());
    std::thread::scope(|scope| {
        for thread in 0..2u8 {
            let (keyspace, written) = (&keyspace, &written[thread as usize]);
            scope.spawn(move || {
                for number in 1..=3000u64 {
                    let value = [&[thread][..], &number.to_le_bytes(), &[7; 200]].concat();
                    keyspace.put([thread], value).unwrap();
                    written.store(number, std::sync::atomic::Ordering::Release);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..40 {
                db.flush().unwrap();
            }
        });
        for thread in 0..2u8 {
            let (keyspace, written) = (&keyspace, &written[thread as usize]);
            scope.spawn(move || {
                let mut last = 0;
                while last < 3000 {
                    let least = written.load(std::sync::atomic::Ordering::Acquire).max(last);
                    let Some(value) = keyspace.get([thread]).unwrap() else {
                        assert_eq!(least, 0);
                        continue;
                    };
                    assert_eq!(value[0], thread);
                    let number = number_of(&value);
                    assert!(number >= least, "{number} after {least}");
                    last = number;
                }
            });
        }
    });
    let all: BTreeMap<_, _> = keyspace.entries().unwrap().map(Result::unwrap).collect();
    assert_eq!(all.len(), 2);
}
