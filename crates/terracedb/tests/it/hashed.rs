//! Hashed keyspaces: the same point operations as ordered ones, and a refusal by name of whatever needs an
//! order of keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::Rng;
use media::Medium;
use terracedb::hashed::HashedPolicy;
use terracedb::{Db, Entry, ErrorKind, Keyspace, KeyspaceOptions, Result, WriteBatch, operators};

use crate::common::{self, faulty, threaded};

fn keep() -> KeyspaceOptions {
    KeyspaceOptions::new().hashed(HashedPolicy::Keep)
}

fn open(medium: &Arc<dyn Medium>) -> (Db, Keyspace) {
    let db = threaded(medium).open().unwrap();
    let keyspace = db.open_or_create_keyspace_opt("photos", &keep()).unwrap();
    (db, keyspace)
}

fn refused<T>(result: Result<T>, operation: &str) {
    let error = result.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let text = error.to_string();
    assert!(text.contains(operation) && text.contains("hashed"), "{text}");
}

#[test]
fn operations_that_need_an_order_are_refused_by_name() {
    let (db, keyspace) = open(&common::memory());
    keyspace.put("a", "1").unwrap();
    refused(keyspace.iter(), "range read");
    refused(keyspace.range("a".."b"), "range read");
    refused(keyspace.prefix("a"), "prefix read");
    refused(keyspace.cursor(), "cursor");
    refused(keyspace.ingest(), "ingest");
    refused(keyspace.delete_range("a".."b"), "delete of a key range");
    refused(keyspace.compact_range("a".."b"), "compaction of a key range");
    refused(keyspace.merge("a", "1"), "merge");
    let snapshot = db.snapshot();
    refused(snapshot.iter(&keyspace), "range read");
    refused(snapshot.prefix(&keyspace, "a"), "prefix read");
    refused(snapshot.cursor(&keyspace), "cursor");
    let mut batch = WriteBatch::new();
    refused(batch.delete_range(&keyspace, "a"..), "delete of a key range");
    assert!(batch.is_empty());
    let mut transaction = db.transaction();
    refused(transaction.iter(&keyspace), "range read");
    refused(transaction.prefix(&keyspace, "a"), "prefix read");
    refused(transaction.delete_range(&keyspace, ..="a"), "delete of a key range");
    assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn the_kind_of_a_keyspace_is_fixed() {
    let medium = common::memory();
    let (db, _) = open(&medium);
    db.create_keyspace("ordered").unwrap();
    let kinds = |db: &Db| {
        let policy = |name: &str| db.keyspace(name).unwrap().hashed_policy().cloned();
        assert_eq!(policy("photos"), Some(HashedPolicy::Keep));
        assert_eq!(policy("ordered"), None);
        refused(db.open_or_create_keyspace_opt("ordered", &keep()), "kind of a keyspace");
    };
    kinds(&db);
    let counting = KeyspaceOptions::new().merge_operator(operators::I64Add::NAME);
    refused(db.open_or_create_keyspace_opt("photos", &counting), "merge operator");
    refused(db.create_keyspace_opt("both", &counting.hashed(HashedPolicy::Keep)), "merge operator");
    drop(db);
    kinds(&threaded(&medium).open().unwrap());
}

/// Filters of the base: fixed at creation, kept over reopening, 0.13 bytes of memory a key and bit, and
/// hardly a page read for a missing key.
#[test]
fn a_base_has_filters_if_they_were_asked_for() {
    let medium = common::memory();
    let filtered = || keep().base_filter_bits(8);
    let (mut metadata, mut reads) = (Vec::new(), Vec::new());
    for (name, options) in [("bare", keep()), ("filtered", filtered())] {
        let db = threaded(&medium).open().unwrap();
        let keyspace = db.create_keyspace_opt(name, &options).unwrap();
        for number in 0..20_000u32 {
            keyspace.put(number.to_be_bytes(), [7; 100]).unwrap();
        }
        db.compact().unwrap();
        let statistics = db.statistics();
        let of = statistics.keyspaces.iter().find(|it| it.name == name).unwrap();
        metadata.push(of.metadata_bytes);
        let searched = |db: &Db| db.statistics().hits.absent_searched;
        let before = searched(&db);
        for number in 0..2000u32 {
            assert_eq!(keyspace.get((1 << 30 | number).to_be_bytes()).unwrap(), None);
            assert!(keyspace.get(number.to_be_bytes()).unwrap().is_some());
        }
        reads.push(searched(&db) - before);
    }
    // Without a filter a missing key is looked for on a page, unless its hash, under a random key, lies
    // between two tables; with one about 8 of 2000 are.
    assert!(reads[0] > 1900 && reads[1] < 30, "{reads:?}");
    let more = (metadata[1] - metadata[0]) as f64 / 20_000.0;
    assert!((1.0..1.3).contains(&more), "{metadata:?}: {more} bytes a key");
    let db = threaded(&medium).open().unwrap();
    let kinds: Vec<String> =
        db.statistics().keyspaces.iter().map(|it| it.kind.to_string()).collect();
    assert_eq!(kinds, ["hashed keep", "hashed keep, base-filter-bits 8"]);
    db.open_or_create_keyspace_opt("filtered", &filtered()).unwrap();
    db.open_or_create_keyspace_opt("filtered", &keep()).unwrap();
    for (name, options, why) in [
        ("bare", filtered(), "base-filter-bits"),
        ("filtered", keep().base_filter_bits(9), "base-filter-bits"),
        ("new", keep().base_filter_bits(11), "0..=10"),
        ("new", KeyspaceOptions::new().base_filter_bits(1), "hashed"),
    ] {
        let error = db.open_or_create_keyspace_opt(name, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn keys_may_have_65528_bytes() {
    let (_db, keyspace) = open(&common::memory());
    let longest = vec![b'k'; base::HASHED_KEY_BYTES_MAX];
    keyspace.put(&longest, "value").unwrap();
    assert_eq!(keyspace.get(&longest).unwrap().as_deref(), Some(&b"value"[..]));
    let longer = [&longest[..], b"k"].concat();
    let error = keyspace.put(&longer, "value").unwrap_err();
    assert!(error.to_string().contains("65528"), "{error}");
    assert!(keyspace.get(&longer).is_err() && keyspace.multi_get(&[&longer]).is_err());
}

/// Writes of every durability, in batches over both kinds, survive the loss of the process; the entries of
/// an export are those that were written.
#[test]
fn entries_are_those_written_and_batches_over_kinds_are_whole() {
    let (device, medium) = faulty(1);
    let (db, hashed) = open(&medium);
    let ordered = db.create_keyspace("ordered").unwrap();
    let mut expected = BTreeSet::new();
    for number in 0..3000u32 {
        let mut batch = WriteBatch::new();
        let key = format!("key {number}");
        batch.put(&ordered, &key, "there").unwrap();
        batch.put(&hashed, &key, number.to_string()).unwrap();
        if number % 3 == 0 {
            batch.delete(&hashed, &key).unwrap();
        } else {
            expected.insert((key.into_bytes(), number.to_string().into_bytes()));
        }
        db.write(&batch).unwrap();
        if number % 700 == 0 {
            db.flush().unwrap();
        }
    }
    let entries = |keyspace: &Keyspace| -> BTreeSet<_> {
        let owned = |entry: Result<Entry>| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap();
        keyspace.entries().unwrap().map(owned).collect()
    };
    assert_eq!(entries(&hashed), expected);
    let image = device.process_death_image().unwrap();
    drop(db);
    let image: Arc<dyn Medium> = Arc::new(image);
    let (db, hashed) = open(&image);
    assert_eq!(entries(&hashed), expected);
    assert_eq!(db.keyspace("ordered").unwrap().iter().unwrap().count(), 3000);
    db.compact().unwrap();
    assert_eq!(entries(&hashed), expected);
    hashed.delete_range::<&str>(..).unwrap();
    assert_eq!(entries(&hashed), BTreeSet::new());
}

#[test]
fn transactions_conflict_on_hashed_keys_as_on_ordered_ones() {
    let (db, keyspace) = open(&common::memory());
    keyspace.put("ada", "100").unwrap();
    let mut transaction = db.transaction();
    assert_eq!(transaction.get(&keyspace, "ada").unwrap().as_deref(), Some(&b"100"[..]));
    transaction.put(&keyspace, "ada", "90").unwrap();
    assert_eq!(transaction.get(&keyspace, "ada").unwrap().as_deref(), Some(&b"90"[..]));
    let both = transaction.multi_get(&keyspace, &["ada", "bob"]).unwrap();
    let both: Vec<_> = both.into_iter().map(Result::unwrap).collect();
    assert_eq!(both, [Some("90".into()), None]);
    keyspace.put("ada", "95").unwrap();
    assert!(transaction.commit().unwrap_err().is_conflict());
    let mut transaction = db.transaction();
    transaction.delete_range::<&str>(&keyspace, ..).unwrap();
    assert_eq!(transaction.get(&keyspace, "ada").unwrap(), None);
    transaction.commit().unwrap();
    assert_eq!(keyspace.get("ada").unwrap(), None);
}

/// A run that merges cut in part pins no more after a reopening than before.
#[test]
fn a_reopened_store_pins_no_more_metadata() {
    let medium = common::memory();
    let (db, keyspace) = open(&medium);
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    for round in 0..12u32 {
        for number in (round % 4..40_000).step_by(4) {
            let mut value = [0; 200];
            rng.fill(&mut value);
            keyspace.put(number.to_be_bytes(), value).unwrap();
        }
        keyspace.flush().unwrap();
        db.wait_until_settled().unwrap();
    }
    let pinned = |db: &Db| {
        let mut keyspaces = db.statistics().keyspaces.into_iter();
        keyspaces.find(|it| it.name == "photos").unwrap().pinned_bytes
    };
    let before = pinned(&db);
    db.close().unwrap();
    drop((db, keyspace));
    let after = pinned(&open(&medium).0);
    assert!(after <= before, "{after} bytes, {before} before");
}
