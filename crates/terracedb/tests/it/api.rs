//! The public API as a new user would call it, on a real directory.

use base::ErrorKind;
use terracedb::{Codec, Db, Durability, Resources, WriteBatch, WriteOptions};

use crate::common::{self, memory};

fn open(dir: &tempfile::TempDir) -> Db {
    Db::builder(dir.path()).memory(common::MEMORY).open().unwrap()
}

#[test]
fn values_come_back_before_and_after_flush_and_reopen() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let db = open(&dir);
        assert_eq!(db.recovery().created, round == 0);
        let fruit = db.open_or_create_keyspace("fruit").unwrap();
        if round == 0 {
            fruit.put("apple", "red").unwrap();
            fruit.put("empty", "").unwrap();
            fruit.put("gone", "soon").unwrap();
            fruit.delete("gone").unwrap();
        }
        for key in ["apple", "empty", "gone", "never"] {
            let expected = match key {
                "apple" => Some(&b"red"[..]),
                "empty" => Some(&b""[..]),
                _ => None,
            };
            assert_eq!(fruit.get(key).unwrap().as_deref(), expected, "{key} in round {round}");
        }
        if round == 1 {
            db.flush().unwrap();
        }
    }
}

#[test]
fn keys_and_values_are_bounded_at_the_edge() {
    let db = Db::on_medium(memory()).memory(common::MEMORY).open().unwrap();
    let ks = db.open_or_create_keyspace("k").unwrap();
    assert_eq!(ks.put("", "v").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(ks.put(vec![0; 65_537], "v").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(ks.get("").unwrap_err().kind(), ErrorKind::Invalid);
    let long_key = vec![7; 65_536];
    ks.put(&long_key, "v").unwrap();
    assert_eq!(ks.get(&long_key).unwrap().as_deref(), Some(&b"v"[..]));
    // An eighth of the memory limit, exactly.
    let largest = vec![1; (common::MEMORY / 8) as usize];
    ks.put("large", &largest).unwrap();
    let mut too_large = largest.clone();
    too_large.push(1);
    let error = ks.put("larger", &too_large).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("8388608"), "{error}");
    assert_eq!(ks.get("large").unwrap().unwrap(), largest);
    db.flush().unwrap();
    assert_eq!(ks.get("large").unwrap().unwrap(), largest);
    assert_eq!(ks.get(&long_key).unwrap().as_deref(), Some(&b"v"[..]));
}

#[test] // I2
fn a_batch_spans_keyspaces() {
    let db = Db::on_medium(memory()).memory(common::MEMORY).open().unwrap();
    let (a, b) =
        (db.open_or_create_keyspace("a").unwrap(), db.open_or_create_keyspace("b").unwrap());
    let mut batch = WriteBatch::new();
    batch.put(&a, "k", "1").unwrap();
    batch.put(&b, "k", "2").unwrap();
    batch.put(&a, "k", "3").unwrap();
    batch.delete(&b, "other").unwrap();
    assert_eq!(batch.len(), 4);
    db.write_opt(&batch, &WriteOptions::new().durability(Durability::Sync)).unwrap();
    assert_eq!(a.get("k").unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!(b.get("k").unwrap().as_deref(), Some(&b"2"[..]));
    batch.clear();
    db.write(&batch).unwrap();

    let other = Db::on_medium(memory()).memory(common::MEMORY).open().unwrap();
    let mut foreign = WriteBatch::new();
    foreign.put(&other.open_or_create_keyspace("a").unwrap(), "k", "v").unwrap();
    assert_eq!(db.write(&foreign).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn ranges_prefixes_and_reverse() {
    let db = Db::on_medium(memory()).memory(common::MEMORY).open().unwrap();
    let ks = db.open_or_create_keyspace("k").unwrap();
    for (number, name) in ["a", "ab", "abc", "b", "ba", "c"].iter().enumerate() {
        ks.put(name, number.to_string()).unwrap();
        if number == 2 {
            db.flush().unwrap();
        }
    }
    let keys = |iter: terracedb::Iter| -> Vec<String> {
        iter.map(|entry| String::from_utf8(entry.unwrap().0.to_vec()).unwrap()).collect()
    };
    assert_eq!(keys(ks.iter().unwrap()), ["a", "ab", "abc", "b", "ba", "c"]);
    assert_eq!(keys(ks.prefix("ab").unwrap()), ["ab", "abc"]);
    assert_eq!(keys(ks.range("ab".."b").unwrap()), ["ab", "abc"]);
    assert_eq!(keys(ks.range("ab"..="b").unwrap()), ["ab", "abc", "b"]);
    assert_eq!(keys(ks.range("bb"..).unwrap()), ["c"]);
    assert_eq!(keys(ks.range(.."a").unwrap()), [""; 0]);
    let reversed = |iter: terracedb::Iter| -> Vec<String> {
        iter.rev().map(|entry| String::from_utf8(entry.unwrap().0.to_vec()).unwrap()).collect()
    };
    assert_eq!(reversed(ks.range("ab"..="b").unwrap()), ["b", "abc", "ab"]);
    assert_eq!(reversed(ks.prefix("b").unwrap()), ["ba", "b"]);
    let mut both = ks.iter().unwrap();
    let mut met = Vec::new();
    while let Some(entry) = both.next() {
        met.push(entry.unwrap().0);
        if let Some(entry) = both.next_back() {
            met.push(entry.unwrap().0);
        }
    }
    assert_eq!(met, ["a", "c", "ab", "ba", "abc", "b"]);
    assert!(both.next_back().is_none());
}

#[test]
fn a_cursor_turns_round_anywhere() {
    let db = Db::on_medium(memory()).memory(common::MEMORY).open().unwrap();
    let ks = db.open_or_create_keyspace("k").unwrap();
    for name in ["a", "b", "c", "d"] {
        ks.put(name, name).unwrap();
        if name == "b" {
            db.flush().unwrap();
        }
    }
    ks.delete("b").unwrap();
    let mut cursor = ks.cursor().unwrap();
    assert!(!cursor.valid() && !cursor.next().unwrap());
    assert!(cursor.seek("b").unwrap());
    assert_eq!(cursor.key(), Some(&b"c"[..]));
    assert!(cursor.prev().unwrap());
    assert_eq!(cursor.key(), Some(&b"a"[..]));
    assert!(cursor.next().unwrap());
    assert_eq!(cursor.key(), Some(&b"c"[..]));
    assert!(cursor.next().unwrap() && !cursor.next().unwrap());
    assert!(!cursor.prev().unwrap());
    assert!(cursor.seek_to_last().unwrap());
    assert_eq!(cursor.value().unwrap(), b"d");
    assert!(cursor.seek_before("a").is_ok_and(|valid| !valid));
    assert!(cursor.seek_to_first().unwrap());
    assert_eq!(cursor.key(), Some(&b"a"[..]));
}

#[test]
fn a_snapshot_and_an_iterator_stay_as_they_were() {
    let db = Db::on_medium(memory()).memory(common::MEMORY).open().unwrap();
    let ks = db.open_or_create_keyspace("k").unwrap();
    ks.put("a", "old").unwrap();
    ks.put("b", "old").unwrap();
    let snapshot = db.snapshot();
    let mut iter = ks.iter().unwrap();
    ks.put("a", "new").unwrap();
    ks.delete("b").unwrap();
    ks.put("c", "new").unwrap();
    db.flush().unwrap();
    assert_eq!(snapshot.get(&ks, "a").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(snapshot.get(&ks, "b").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(snapshot.get(&ks, "c").unwrap(), None);
    assert_eq!(snapshot.iter(&ks).unwrap().count(), 2);
    let many = snapshot.multi_get(&ks, &["c", "b", "a"]).unwrap();
    let many: Vec<_> = many.into_iter().map(|value| value.unwrap()).collect();
    assert_eq!(many[0], None);
    assert_eq!(many[1].as_deref(), Some(&b"old"[..]));
    assert_eq!(iter.next().unwrap().unwrap().1.as_ref(), b"old");
    assert_eq!(iter.count(), 1);
    assert_eq!(ks.get("a").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(db.statistics().snapshots, 1);
    drop(snapshot);
    assert_eq!(db.statistics().snapshots, 0);
}

#[test]
fn keyspaces_are_created_listed_and_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let tables = || {
        let entries = std::fs::read_dir(dir.path()).unwrap();
        entries
            .filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|e| e == "table"))
            .count()
    };
    {
        let db = open(&dir);
        for name in ["one", "two", "three"] {
            let ks = db.open_or_create_keyspace(name).unwrap();
            ks.put("name", name).unwrap();
        }
        db.flush().unwrap();
        assert_eq!(tables(), 3);
        let two = db.keyspace("two").unwrap();
        let snapshot = db.snapshot();
        let mut iter = two.iter().unwrap();
        assert!(db.drop_keyspace("two").unwrap());
        assert!(!db.drop_keyspace("two").unwrap());
        assert_eq!(two.get("name").unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(two.put("name", "x").unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(snapshot.get(&two, "name").unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(iter.next().unwrap().unwrap().1.as_ref(), b"two");
        let again = db.open_or_create_keyspace("two").unwrap();
        assert_eq!(again.get("name").unwrap(), None);
        drop((iter, two));
        assert_eq!(db.open_or_create_keyspace("").unwrap_err().kind(), ErrorKind::Invalid);
    }
    let db = open(&dir);
    let names: Vec<_> = db.keyspaces().iter().map(|ks| ks.name().to_owned()).collect();
    assert_eq!(names, ["one", "three", "two"]);
    assert_eq!(db.keyspace("two").unwrap().get("name").unwrap(), None);
    assert_eq!(db.keyspace("three").unwrap().get("name").unwrap().as_deref(), Some(&b"three"[..]));
    assert_eq!(tables(), 2);
    assert_eq!(db.keyspace("never").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_wrong_name_opens_and_creates_no_keyspace() {
    let db = Db::on_medium(memory()).memory(64 << 20).open().unwrap();
    let error = db.keyspace("users").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("the store has none"), "{error}");
    db.create_keyspace("users").unwrap().put("ada", "1").unwrap();
    let error = db.keyspace("usres").unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::NotFound, false));
    assert!(error.to_string().contains("one of `users`, got `usres`"), "{error}");
    assert_eq!(db.create_keyspace("users").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(db.keyspaces().len(), 1);
    let opened = db.open_or_create_keyspace("users").unwrap();
    assert_eq!(opened.get("ada").unwrap(), db.keyspace("users").unwrap().get("ada").unwrap());
    for number in 0..20 {
        db.open_or_create_keyspace(&format!("k{number}")).unwrap();
    }
    let error = db.keyspace("k").unwrap_err();
    assert!(error.to_string().contains("`k14`, or 5 more, got `k`"), "{error}");
}

#[test]
fn many_gets_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let ks = db.open_or_create_keyspace("k").unwrap();
    for number in 0..5000u32 {
        ks.put(number.to_be_bytes(), number.to_string().repeat(20)).unwrap();
    }
    db.flush().unwrap();
    let mut queue = db.read_queue(32).unwrap();
    let (mut next, mut done) = (0u32, Vec::new());
    let mut seen = vec![false; 6000];
    while seen.iter().any(|seen| !seen) {
        while next < 6000 && queue.in_flight() < queue.depth() {
            ks.submit(&mut queue, next.to_be_bytes(), u64::from(next)).unwrap();
            next += 1;
        }
        queue.wait(1, &mut done).unwrap();
        for completed in done.drain(..) {
            let number = completed.token as u32;
            let expected = (number < 5000).then(|| number.to_string().repeat(20));
            let found = completed.result.unwrap();
            assert_eq!(found.as_deref(), expected.as_deref().map(str::as_bytes));
            assert!(!std::mem::replace(&mut seen[number as usize], true));
        }
    }
    let keys: Vec<_> = (0..6000u32).rev().map(u32::to_be_bytes).collect();
    let values = ks.multi_get(&keys).unwrap();
    for (key, value) in keys.iter().zip(values) {
        let number = u32::from_be_bytes(*key);
        assert_eq!(value.unwrap().is_some(), number < 5000);
    }
    let other = Db::on_medium(memory()).memory(common::MEMORY).open().unwrap();
    let mut foreign = other.read_queue(1).unwrap();
    assert_eq!(ks.submit(&mut foreign, "k", 0).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(db.read_queue(0).is_err());
}

#[test]
fn the_directory_belongs_to_one() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let error = Db::builder(dir.path()).memory(common::MEMORY).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    drop(db);
    open(&dir);
}

#[test]
fn a_missing_store_is_not_created_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Db::builder(dir.path().join("none")).memory(common::MEMORY);
    let error = builder.create_if_missing(false).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(!dir.path().join("none").exists());
}

#[test]
fn stores_share_resources_and_not_pages() {
    let resources = Resources::builder().memory(128 << 20).build().unwrap();
    let dbs: Vec<_> =
        (0..2).map(|_| Db::on_medium(memory()).resources(&resources).open().unwrap()).collect();
    for (number, db) in dbs.iter().enumerate() {
        let ks = db.open_or_create_keyspace("k").unwrap();
        for key in 0..1000u32 {
            ks.put(key.to_be_bytes(), format!("store {number} key {key}")).unwrap();
        }
        db.flush().unwrap();
    }
    for _ in 0..2 {
        for (number, db) in dbs.iter().enumerate() {
            let ks = db.open_or_create_keyspace("k").unwrap();
            for key in 0..1000u32 {
                let value = ks.get(key.to_be_bytes()).unwrap().unwrap();
                assert_eq!(value, format!("store {number} key {key}"));
            }
        }
    }
}

#[test]
fn every_codec_round_trips() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd, Codec::Deflate] {
        let db = Db::on_medium(memory()).memory(common::MEMORY).codec(codec).open().unwrap();
        let ks = db.open_or_create_keyspace("k").unwrap();
        for number in 0..2000u32 {
            ks.put(number.to_be_bytes(), format!("value {number} ").repeat(30)).unwrap();
        }
        db.flush().unwrap();
        for number in 0..2000u32 {
            let value = ks.get(number.to_be_bytes()).unwrap().unwrap();
            assert_eq!(value, format!("value {number} ").repeat(30), "{codec:?}");
        }
    }
}

/// A transaction's iterator goes on with its own writes when one side of the stored entries has ended.
#[test]
fn both_sides_of_an_iterator_end_where_the_first_one_ended() {
    let db = Db::on_medium(memory()).memory(common::MEMORY).open().unwrap();
    let ks = db.open_or_create_keyspace("k").unwrap();
    for key in ["a", "b", "c"] {
        ks.put(key, "v").unwrap();
    }
    let mut front_first = ks.iter().unwrap();
    while front_first.next_key().unwrap().is_some() {}
    assert!(front_first.next_key_back().unwrap().is_none());
    let mut back_first = ks.iter().unwrap();
    while back_first.next_key_back().unwrap().is_some() {}
    assert!(back_first.next_key().unwrap().is_none());
}
