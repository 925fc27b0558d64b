//! The row cache: gets fill it, every kind of read of a key uses it, and no write leaves a stale row.
//!
//! I1, I2: a row is as current as the memtables and tables that it stands for. I6: rows may be evicted at
//! any time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use base::Rng;
use terracedb::{
    Bytes, Db, EntryOptions, Expiry, Keyspace, KeyspaceOptions, ReadOptions, WriteBatch, operators,
};

use crate::common::{self, Stepped, memory, open_one, until};

/// A store without background work, except while a caller waits: rows stay where gets put them.
fn open() -> (Db, Keyspace) {
    let db = common::stepped(&memory(), 1).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    (db, keyspace)
}

/// The value that `get` finds, as text.
fn text(ks: &Keyspace, key: &str) -> Option<String> {
    ks.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

/// Gets `key` so that a row is cached if possible; true if there is one.
fn has_row(db: &Db, ks: &Keyspace, key: &str) -> bool {
    ks.get(key).unwrap();
    let before = db.statistics().hits.row;
    ks.get(key).unwrap();
    db.statistics().hits.row > before
}

#[test]
fn a_read_that_fills_no_row_uses_those_that_are_there() {
    let (db, ks) = open();
    for key in ["a", "b"] {
        ks.put(key, "value").unwrap();
    }
    db.flush().unwrap();
    let once = ReadOptions::new().fill_row_cache(false);
    let row_hits = || db.statistics().hits.row;
    for _ in 0..4 {
        assert!(ks.get_opt("a", &once).unwrap().is_some());
        assert!(ks.multi_get_opt(&["a", "b"], &once).unwrap().iter().all(Result::is_ok));
    }
    assert_eq!(row_hits(), 0);
    assert!(has_row(&db, &ks, "a"), "a plain get fills");
    let before = row_hits();
    assert!(ks.get_opt("a", &once).unwrap().is_some());
    assert!(ks.multi_get_opt(&["a"], &once).unwrap()[0].as_ref().unwrap().is_some());
    assert_eq!(row_hits(), before + 2);
}

#[test]
fn every_kind_of_get_finds_the_row_that_another_cached() {
    let (db, ks) = open();
    for key in 0..100u32 {
        ks.put(format!("key {key}"), format!("value {key}")).unwrap();
    }
    assert!(!has_row(&db, &ks, "key 99"), "a memtable's has none until it is flushed");
    db.flush().unwrap();
    let snapshot = db.snapshot();
    // A read of a snapshot caches no row.
    assert!(snapshot.get(&ks, "key 1").unwrap().is_some());
    assert_eq!(snapshot.multi_get(&ks, &["key 1"]).unwrap().len(), 1);
    let rows = db.statistics().rows;
    assert_eq!((rows.rows, rows.renewed), (1, 1));
    let mut queue = db.read_queue(4).unwrap();
    let mut submit = |key: &str| {
        ks.submit(&mut queue, key, 1).unwrap();
        let mut done = Vec::new();
        queue.wait(1, &mut done).unwrap();
        done.remove(0).result.unwrap().unwrap()
    };
    type Read<'a> = &'a mut dyn FnMut(&str) -> Bytes;
    let mut fills: [(&str, Read<'_>); 3] = [
        ("get", &mut |key| ks.get(key).unwrap().unwrap()),
        ("multi_get", &mut |key| ks.multi_get(&[key]).unwrap().remove(0).unwrap().unwrap()),
        ("submit", &mut submit),
    ];
    for number in 0..fills.len() {
        let (key, value) = (format!("key {number}"), format!("value {number}"));
        assert_eq!(fills[number].1(&key), value);
        assert_eq!(db.statistics().rows.fills, number as u64 + 1, "{}", fills[number].0);
        for (name, read) in &mut fills {
            let before = db.statistics();
            assert_eq!(read(&key), value);
            let after = db.statistics();
            assert_eq!(after.hits.row, before.hits.row + 1, "{name}");
            assert_eq!(after.read_steps, before.read_steps, "{name}: nothing else was looked at");
        }
        let before = db.statistics().hits.row;
        assert_eq!(snapshot.get(&ks, &key).unwrap().unwrap(), value);
        assert_eq!(snapshot.multi_get(&ks, &[&key]).unwrap().remove(0).unwrap().unwrap(), value);
        assert_eq!(db.statistics().hits.row, before + 2);
    }
}

#[test] // I1
fn every_kind_of_write_invalidates_the_row() {
    type Write = fn(&Db, &Keyspace);
    let writes: [(&str, Option<&str>, Write); 9] = [
        ("put", Some("new"), |_, ks| ks.put("m", "new").unwrap()),
        ("delete", None, |_, ks| ks.delete("m").unwrap()),
        ("merge", Some("oldnew"), |_, ks| ks.merge("m", "new").unwrap()),
        ("expiring", None, |_, ks| {
            ks.put_opt("m", "new", &EntryOptions::new().ttl(Duration::ZERO)).unwrap()
        }),
        ("range delete", None, |_, ks| ks.delete_range("a".."z").unwrap()),
        ("batch", Some("new"), |db, ks| {
            let mut batch = WriteBatch::new();
            batch.put(ks, "a", "1").unwrap();
            batch.put(ks, "m", "new").unwrap();
            db.write(&batch).unwrap();
        }),
        ("range delete in a batch", Some("new"), |db, ks| {
            let mut batch = WriteBatch::new();
            batch.delete_range::<&str>(ks, ..).unwrap();
            batch.put(ks, "m", "new").unwrap();
            db.write(&batch).unwrap();
        }),
        ("transaction", Some("old+"), |db, ks| {
            let mut transaction = db.transaction();
            let old = transaction.get(ks, "m").unwrap().unwrap();
            transaction.put(ks, "m", [&old[..], b"+"].concat()).unwrap();
            transaction.commit().unwrap();
        }),
        ("ingest", Some("new"), |_, ks| {
            let mut ingest = ks.ingest().unwrap();
            ingest.put("m", "new").unwrap();
            ingest.finish().unwrap();
        }),
    ];
    for (name, expected, write) in writes {
        let db = common::stepped(&memory(), 1).open().unwrap();
        let append = KeyspaceOptions::new().merge_operator(operators::Append::NAME);
        let ks = db.open_or_create_keyspace_opt("k", &append).unwrap();
        ks.put("m", "old").unwrap();
        db.flush().unwrap();
        assert!(has_row(&db, &ks, "m"), "{name}");
        let before = db.snapshot();
        write(&db, &ks);
        for _ in 0..3 {
            assert_eq!(text(&ks, "m").as_deref(), expected, "{name}");
            assert_eq!(before.get(&ks, "m").unwrap().unwrap(), "old", "{name}");
            db.flush().unwrap();
        }
        // A snapshot's read is no row for others, and their rows do not answer it.
        has_row(&db, &ks, "m");
        assert_eq!(before.get(&ks, "m").unwrap().unwrap(), "old", "{name}");
        assert_eq!(text(&ks, "m").as_deref(), expected, "{name}");
    }
}

#[test]
fn a_flush_renews_the_row_of_an_overwritten_key() {
    let stepped = Stepped::new(1);
    let db = stepped.on(memory()).open().unwrap();
    let append = KeyspaceOptions::new().merge_operator(operators::Append::NAME);
    let ks = db.open_or_create_keyspace_opt("k", &append).unwrap();
    let keys = ["put", "twice", "expiring", "deleted", "merged", "unread"];
    keys.iter().for_each(|key| ks.put(key, "old").unwrap());
    db.flush().unwrap();
    keys.iter().take(5).for_each(|key| assert!(has_row(&db, &ks, key), "{key}"));
    let expiry = UNIX_EPOCH + Duration::from_millis(stepped.now() + 60_000);
    let old = db.snapshot();
    ks.put("put", "new").unwrap();
    ks.put("twice", "between").unwrap();
    let between = db.snapshot();
    ks.put("twice", "new").unwrap();
    ks.put_opt("expiring", "new", &EntryOptions::new().expires_at(expiry)).unwrap();
    ks.delete("deleted").unwrap();
    ks.merge("merged", "new").unwrap();
    ks.put("unread", "new").unwrap();
    ks.put("read since", "new").unwrap();
    assert_eq!(text(&ks, "read since").as_deref(), Some("new"));
    db.flush().unwrap();
    assert_eq!(db.statistics().rows.renewed, 4);
    let expected = ["put", "twice", "expiring", "read since"].map(|key| (key, "new"));
    for (key, value) in expected {
        let before = db.statistics();
        assert_eq!(text(&ks, key).as_deref(), Some(value));
        let after = db.statistics();
        assert_eq!(after.hits.row, before.hits.row + 1, "{key}");
        assert_eq!(after.read_steps, before.read_steps, "{key}: nothing else was looked at");
    }
    assert_eq!(ks.expiry("expiring").unwrap(), Some(Expiry::At(expiry)));
    let before = db.statistics().hits.row;
    assert_eq!((text(&ks, "deleted"), text(&ks, "merged").as_deref()), (None, Some("oldnew")));
    assert_eq!(text(&ks, "unread").as_deref(), Some("new"));
    assert_eq!(
        db.statistics().hits.row,
        before,
        "the key was not read, or its value is not cached as a row"
    );
    // Snapshots read the old values.
    keys.iter().for_each(|key| assert_eq!(old.get(&ks, key).unwrap().unwrap(), "old", "{key}"));
    assert_eq!(between.get(&ks, "twice").unwrap().unwrap(), "between");
}

#[test]
fn a_flush_does_not_renew_rows_of_keys_written_or_range_deleted_since() {
    let (db, ks) = open();
    let keys = ["a", "b", "c"];
    keys.iter().for_each(|key| ks.put(key, "old").unwrap());
    db.flush().unwrap();
    keys.iter().for_each(|key| assert!(has_row(&db, &ks, key)));
    keys.iter().for_each(|key| ks.put(key, "new").unwrap());
    ks.delete_range("a".."c").unwrap();
    ks.put("b", "newest").unwrap();
    db.flush().unwrap();
    // The row of `c` could be renewed, but whether the range delete covers an entry is not checked.
    assert_eq!(db.statistics().rows.renewed, 1);
    for expected in [[None, Some("newest"), Some("new")]; 3] {
        let found = keys.map(|key| text(&ks, key));
        assert_eq!(found.each_ref().map(|found| found.as_deref()), expected);
    }
}

#[test]
fn a_dropped_keyspace_leaves_no_row_to_its_successor() {
    let (db, ks) = open();
    let name = ks.name().to_owned();
    ks.put("m", "old").unwrap();
    db.flush().unwrap();
    assert!(has_row(&db, &ks, "m"));
    db.drop_keyspace(&name).unwrap();
    assert!(ks.get("m").is_err() && ks.multi_get(&["m"]).is_err());
    let ks = db.open_or_create_keyspace(&name).unwrap();
    assert_eq!(text(&ks, "m"), None);
    ks.put("m", "new").unwrap();
    db.flush().unwrap();
    assert_eq!(text(&ks, "m").as_deref(), Some("new"));
}

#[test]
fn a_row_expires_with_its_value() {
    let stepped = Stepped::new(1);
    let db = stepped.on(memory()).open().unwrap();
    let ks = db.open_or_create_keyspace("k").unwrap();
    let expiry = stepped.now() + 1000;
    ks.put_opt(
        "m",
        "value",
        &EntryOptions::new().expires_at(UNIX_EPOCH + Duration::from_millis(expiry)),
    )
    .unwrap();
    db.flush().unwrap();
    assert!(has_row(&db, &ks, "m"));
    assert!(ks.expiry("m").unwrap().is_some(), "a row knows when it expires");
    stepped.set_now(expiry - 1);
    assert_eq!(text(&ks, "m").as_deref(), Some("value"));
    stepped.set_now(expiry);
    assert_eq!(text(&ks, "m"), None);
    assert!(ks.multi_get(&["m"]).unwrap().remove(0).unwrap().is_none());
    // Time does not run backwards, for rows either.
    stepped.set_now(expiry - 1);
    assert_eq!(text(&ks, "m"), None);
}

#[test]
fn long_and_merged_values_are_not_cached_as_rows() {
    let db = common::stepped(&memory(), 1).open().unwrap();
    let append = KeyspaceOptions::new().merge_operator(operators::Append::NAME);
    let ks = db.open_or_create_keyspace_opt("k", &append).unwrap();
    ks.put("apart", vec![b'a'; 20 << 10]).unwrap();
    ks.put("long", vec![b'l'; 3000]).unwrap();
    ks.put("short", vec![b's'; 1500]).unwrap();
    ks.put("merged", "1").unwrap();
    db.flush().unwrap();
    // Keeps the value and its operand as separate versions.
    let _kept = db.snapshot();
    ks.merge("merged", "2").unwrap();
    db.flush().unwrap();
    for key in ["apart", "long", "merged"] {
        assert!(!has_row(&db, &ks, key), "{key}");
    }
    assert!(has_row(&db, &ks, "short"));
    assert_eq!(text(&ks, "merged").as_deref(), Some("12"));
    assert!(db.statistics().rows.refused.large >= 2);
}

#[test]
fn rows_yield_memory_to_writers_and_come_back() {
    let (db, ks) = open();
    let value = vec![7; 400];
    for key in 0..20_000u32 {
        ks.put(key.to_be_bytes(), &value).unwrap();
    }
    db.flush().unwrap();
    let read = || {
        for key in 0..20_000u32 {
            assert_eq!(ks.get(key.to_be_bytes()).unwrap().unwrap(), value);
        }
    };
    for _ in 0..3 {
        read();
    }
    let full = db.statistics();
    assert!(full.rows.bytes >= 6 << 20 && full.hits.row > 20_000, "{:?}", full.rows);
    for key in 100_000..200_000u32 {
        ks.put(key.to_be_bytes(), &value).unwrap();
    }
    read();
    let memory = db.statistics().memory;
    assert!(memory.used <= memory.budget);
}

/// A value that packs to about half, and contains its key.
fn half(key: u32) -> Vec<u8> {
    let mut noise = vec![0; 200];
    Rng::new(key.into()).fill(&mut noise);
    noise.repeat(2)
}

#[test]
fn rows_are_packed_if_memory_is_short_and_read_unchanged() {
    const KEYS: u64 = 120_000;
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (db, ks) = open();
    for key in 0..KEYS as u32 {
        ks.put(key.to_be_bytes(), half(key)).unwrap();
    }
    db.flush().unwrap();
    let mut read = |some: &[[u8; 4]]| {
        let found = match rng.one_in(2) {
            true => ks.multi_get(some).unwrap(),
            false => some.iter().map(|key| ks.get(key)).collect(),
        };
        for (key, found) in some.iter().zip(found) {
            assert_eq!(found.unwrap().unwrap(), half(u32::from_be_bytes(*key)), "seed {seed}");
        }
    };
    // Zipf-like: each key is half as likely as one half as far from the first.
    let mut rng = Rng::new(seed);
    let mut skewed =
        || (((KEYS as f64).powf(rng.below(1 << 32) as f64 / 2f64.powi(32))) as u32).to_be_bytes();
    for _ in 0..4000 {
        let some: Vec<_> = (0..100).map(|_| skewed()).collect();
        read(&some);
    }
    let rows = db.statistics().rows;
    assert!(rows.packed > 5000, "{rows:?}");
    // Unpacked rows would take 440 bytes each.
    assert!((rows.bytes - rows.free_bytes) / rows.rows < 400, "{rows:?}");
    let hits = db.statistics().hits.row;
    assert!(hits > 200_000, "{hits}, {rows:?}");
}

/// One writer per key counts up, others read: a reader gets the last value acknowledged before its read, or
/// a newer one, during flushes, merges and range deletes.
#[test] // I1
fn no_get_is_older_than_a_write_acknowledged_before_it() {
    const KEYS: usize = 64;
    const WRITES: u64 = 12_000;
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (db, ks) = open_one();
    let acknowledged: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let name = |key: usize| format!("key {key:03}");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (ks, acknowledged, stop) = (&ks, &acknowledged, &stop);
            let mut rng = Rng::new(rng.next_u64());
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let keys: Vec<usize> =
                        (0..4).map(|_| rng.below(KEYS as u64) as usize).collect();
                    let least: Vec<u64> =
                        keys.iter().map(|key| acknowledged[*key].load(Ordering::Acquire)).collect();
                    let names: Vec<String> = keys.iter().map(|key| name(*key)).collect();
                    let found = match rng.one_in(2) {
                        true => ks.multi_get(&names).unwrap(),
                        false => names.iter().map(|name| ks.get(name)).collect(),
                    };
                    for (least, found) in least.iter().zip(found) {
                        let number = found
                            .unwrap()
                            .map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()));
                        assert!(number >= *least, "{number} after {least}, seed {seed}");
                    }
                }
            });
        }
        let mut write = |number: u64| {
            let key = rng.below(KEYS as u64) as usize;
            ks.put(name(key), number.to_le_bytes().repeat(20)).unwrap();
            acknowledged[key].store(number, Ordering::Release);
            if rng.one_in(300) {
                db.flush().unwrap();
            }
            if rng.one_in(1000) {
                // A range of keys that no reader uses.
                ks.delete_range("x".."y").unwrap();
            }
        };
        // Timing varies: writes go on until a reader found a row and a flush renewed one.
        let is_tried = || {
            let statistics = db.statistics();
            statistics.hits.row > 0 && statistics.rows.renewed > 0
        };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (1..=WRITES).for_each(&mut write);
            let mut next = WRITES + 1;
            until("rows that are found and renewed", || {
                (next..next + 1000).for_each(&mut write);
                next += 1000;
                is_tried().then_some(())
            });
        }));
        stop.store(true, Ordering::Relaxed);
        done.unwrap();
    });
    for (key, number) in acknowledged.iter().enumerate() {
        let number = number.load(Ordering::Acquire);
        let value = ks.get(name(key)).unwrap().unwrap_or_default();
        assert_eq!(value, number.to_le_bytes().repeat(if number > 0 { 20 } else { 0 }));
    }
}
