//! Superseded versions kept for snapshots: they are dropped after the snapshots, and not before.

use std::sync::Arc;

use base::Rng;
use compact::plan::Options;
use media::{Medium, MemoryMedium};
use terracedb::tools::{RepairOptions, repair};
use terracedb::{Db, Keyspace, Snapshot};

use crate::common::{self, Image, Model, assert_same, key};

const KEYS: u64 = 4000;

fn open(medium: &Arc<dyn Medium>) -> Db {
    let tiny = Options { fanout: 3, settled_runs: 2, slice_bytes: 1 << 20, ..Options::default() };
    common::stepped(medium, 7).compaction_options(tiny).open().unwrap()
}

/// Writes every key once, with incompressible values of `bytes`.
fn overwrite(keyspace: &Keyspace, rng: &mut Rng, bytes: usize) -> Model {
    let mut model = Model::new();
    for number in 0..KEYS.min((4 << 20) / bytes as u64) {
        let mut value = vec![0; bytes];
        rng.fill(&mut value);
        keyspace.put(key(number), &value).unwrap();
        model.insert(key(number), value);
    }
    model
}

/// Bytes of table files and value files.
fn stored(medium: &dyn Medium) -> u64 {
    let files = medium.list().unwrap().into_iter();
    let kept = |name: &str| name.ends_with(".table") || name.ends_with(".values");
    files.filter(|file| kept(&file.name)).map(|file| file.len).sum()
}

fn written(db: &Db) -> u64 {
    db.statistics().compaction.bytes_written()
}

fn assert_reads(snapshot: &Snapshot, keyspace: &Keyspace, model: &Model) {
    let entries = snapshot.iter(keyspace).unwrap().map(Result::unwrap);
    let found: Model = entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert!(found == *model);
}

#[test]
fn a_copy_of_a_snapshot_keeps_its_versions_after_the_first_is_dropped() {
    let medium = common::memory();
    let db = open(&medium);
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    let mut rng = Rng::new(1);
    let before = overwrite(&keyspace, &mut rng, 400);
    let snapshot = db.snapshot();
    let copy = snapshot.clone();
    assert_eq!((copy.seqno(), db.statistics().snapshots), (snapshot.seqno(), 2));
    drop(snapshot);
    overwrite(&keyspace, &mut rng, 400);
    db.compact().unwrap();
    assert_reads(&copy, &keyspace, &before);
    drop(copy);
    assert_eq!(db.statistics().snapshots, 0);
}

/// With inline and with separated values.
#[test]
fn a_compaction_frees_versions_kept_for_a_snapshot() {
    for bytes in [400, 20_000] {
        let medium = common::memory();
        let db = open(&medium);
        let keyspace = db.open_or_create_keyspace("fruit").unwrap();
        let mut rng = Rng::new(1);
        let before = overwrite(&keyspace, &mut rng, bytes);
        db.compact().unwrap();
        let once = stored(&*medium);
        let snapshot = db.snapshot();
        let after = overwrite(&keyspace, &mut rng, bytes);
        db.compact().unwrap();
        assert!(stored(&*medium) > once * 19 / 10, "all is there twice");
        // While the snapshot lives, nothing is rewritten again and again.
        let settled = written(&db);
        db.compact().unwrap();
        db.wait_until_settled().unwrap();
        assert_eq!(written(&db), settled);
        assert_reads(&snapshot, &keyspace, &before);
        drop(snapshot);
        db.compact().unwrap();
        // Passed-through blocks and short tables leave some slack.
        assert!(stored(&*medium) < once * 12 / 10, "{} of {once}", stored(&*medium));
        assert_same(&keyspace, &after, "without the snapshot");
        // Compaction drops all of them.
        let settled = written(&db);
        db.compact().unwrap();
        assert_eq!(written(&db), settled);
    }
}

/// Background merges drop them without a request, from the information that a reopened store has.
#[test]
fn background_merges_free_versions_kept_for_a_snapshot() {
    for reopened in [false, true] {
        let medium = common::memory();
        let mut db = open(&medium);
        let mut keyspace = db.open_or_create_keyspace("fruit").unwrap();
        let mut rng = Rng::new(2);
        overwrite(&keyspace, &mut rng, 400);
        db.compact().unwrap();
        let once = stored(&*medium);
        let snapshot = db.snapshot();
        let after = overwrite(&keyspace, &mut rng, 400);
        db.compact().unwrap();
        assert!(stored(&*medium) > once * 19 / 10);
        drop(snapshot);
        if reopened {
            drop((keyspace, db));
            db = open(&medium);
            keyspace = db.open_or_create_keyspace("fruit").unwrap();
        }
        db.wait_until_settled().unwrap();
        assert!(stored(&*medium) < once * 13 / 10, "{} of {once}", stored(&*medium));
        assert_same(&keyspace, &after, "settled");
    }
}

/// A repaired table reports the same share of garbage as the damaged one did.
#[test]
fn versions_kept_for_a_snapshot_are_dropped_after_a_repair_too() {
    let memory = Arc::new(MemoryMedium::new());
    let medium = Arc::clone(&memory) as Arc<dyn Medium>;
    let db = open(&medium);
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    let mut rng = Rng::new(5);
    overwrite(&keyspace, &mut rng, 400);
    db.compact().unwrap();
    let once = stored(&*medium);
    let snapshot = db.snapshot();
    overwrite(&keyspace, &mut rng, 400);
    db.compact().unwrap();
    drop((snapshot, keyspace, db));
    let files = Image::of(&memory);
    let tables = files.named(".table").into_iter().cloned().collect::<Vec<_>>();
    // Damages a page of each table.
    for name in &tables {
        let mut content = files.0[name].clone();
        content[5000] ^= 1;
        memory.insert(name, content).unwrap();
    }
    let report = repair(&medium, RepairOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!(report.repaired.len(), tables.len(), "{report:?}");
    assert!(stored(&*medium) > once * 18 / 10, "unneeded versions are salvaged too");
    let db = open(&medium);
    db.wait_until_settled().unwrap();
    assert!(stored(&*medium) < once * 13 / 10, "{} of {once}", stored(&*medium));
}

/// A flush keeps versions for snapshots too, and each snapshot pins only the versions it reads.
#[test] // I5
fn dropping_one_of_several_snapshots_frees_only_its_versions() {
    let medium = common::memory();
    let db = open(&medium);
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    let mut rng = Rng::new(3);
    let empty = db.snapshot();
    overwrite(&keyspace, &mut rng, 400);
    let middle = db.snapshot();
    let after = overwrite(&keyspace, &mut rng, 400);
    let newest = db.snapshot();
    // One memtable holds both versions.
    db.flush().unwrap();
    db.compact().unwrap();
    let twice = stored(&*medium);
    drop(middle);
    db.compact().unwrap();
    assert!(stored(&*medium) < twice * 6 / 10, "{} of {twice}", stored(&*medium));
    assert_reads(&empty, &keyspace, &Model::new());
    assert_reads(&newest, &keyspace, &after);
}

/// Data under a range delete that only a snapshot reads is dropped after the snapshot, and so is the range
/// delete.
#[test]
fn range_deleted_data_is_dropped_after_the_snapshot() {
    let medium = common::memory();
    let db = open(&medium);
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    let mut rng = Rng::new(4);
    let before = overwrite(&keyspace, &mut rng, 400);
    let snapshot = db.snapshot();
    keyspace.delete_range(key(0)..key(KEYS)).unwrap();
    keyspace.put("last", "one").unwrap();
    db.compact().unwrap();
    let kept = stored(&*medium);
    let settled = written(&db);
    db.compact().unwrap();
    assert_eq!(written(&db), settled, "nothing can go yet");
    assert_reads(&snapshot, &keyspace, &before);
    drop(snapshot);
    db.compact().unwrap();
    assert!(stored(&*medium) < kept / 10, "{} of {kept}", stored(&*medium));
    assert_eq!(keyspace.iter().unwrap().count(), 1);
}

/// A table that several range deletes of a newer table cover together is dropped unread only once no snapshot
/// is older than the newest of them.
#[test]
fn a_table_under_several_range_deletes_is_kept_for_a_snapshot_between_them() {
    let medium = common::memory();
    let db = open(&medium);
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    for name in ["a", "b", "c"] {
        keyspace.put(name, name).unwrap();
    }
    db.flush().unwrap();
    keyspace.delete_range("a".."b").unwrap();
    let snapshot = db.snapshot();
    keyspace.delete_range("b".."d").unwrap();
    db.flush().unwrap();
    db.wait_until_settled().unwrap();
    let left: Model = [b"b", b"c"].map(|key| (key.to_vec(), key.to_vec())).into();
    assert_reads(&snapshot, &keyspace, &left);
    drop(snapshot);
    db.wait_until_settled().unwrap();
    db.compact().unwrap();
    assert_eq!(stored(&*medium), 0);
}
