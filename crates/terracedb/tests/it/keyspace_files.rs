//! The files of keyspaces that are not ordered: without a manifest and without a table, a repair makes such a
//! keyspace from its file and its log records what it was. Opens and drops keep the files in step.

use std::sync::Arc;

use media::{Medium, MemoryMedium};
use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::tools::{RepairOptions, check, repair};
use terracedb::{Db, ErrorKind, KeyspaceOptions};

use crate::common::{self, Image};

/// A keyspace of each kind, their names and policies.
fn kinds() -> Vec<(&'static str, KeyspaceOptions)> {
    let hashed = |policy| KeyspaceOptions::new().hashed(policy);
    let window = |discard| hashed(HashedPolicy::Window { bytes: 1 << 20, discard });
    vec![
        ("ordered", KeyspaceOptions::new()),
        ("keep", hashed(HashedPolicy::Keep)),
        ("filtered", hashed(HashedPolicy::Keep).base_filter_bits(7)),
        ("window", window(Discard::Fifo)),
        ("clock", window(Discard::Clock)),
    ]
}

/// A store with a keyspace of each kind. Its writes are in the log only.
fn store() -> (Arc<MemoryMedium>, Vec<String>) {
    let medium = Arc::new(MemoryMedium::new());
    let db = open(&medium);
    for (name, options) in kinds() {
        let keyspace = db.create_keyspace_opt(name, &options).unwrap();
        for number in 0..50 {
            keyspace.put(common::key(number), format!("{name} {number}")).unwrap();
        }
    }
    db.create_keyspace_opt("empty", &kinds().remove(1).1).unwrap();
    let shown = shown(&db);
    drop(db);
    (medium, shown)
}

fn open(medium: &Arc<MemoryMedium>) -> Db {
    let shared = Arc::clone(medium) as Arc<dyn Medium>;
    common::stepped(&shared, 1).open().unwrap()
}

/// The kind of each keyspace.
fn shown(db: &Db) -> Vec<String> {
    db.statistics().keyspaces.iter().map(|it| format!("{} {:?}", it.name, it.kind)).collect()
}

fn files(medium: &MemoryMedium) -> Vec<String> {
    let names = medium.list().unwrap().into_iter().map(|file| file.name);
    names.filter(|name| name.starts_with("keyspace-")).collect()
}

fn remove(medium: &MemoryMedium, prefix: &str) {
    for file in medium.list().unwrap() {
        if file.name.starts_with(prefix) {
            medium.remove(&file.name).unwrap();
        }
    }
}

fn repaired(medium: &Arc<MemoryMedium>, dry_run: bool) -> terracedb::tools::RepairReport {
    let shared = Arc::clone(medium) as Arc<dyn Medium>;
    repair(&shared, RepairOptions { dry_run, ..Default::default() }, &mut |_, _| {}).unwrap()
}

fn problems(medium: &Arc<MemoryMedium>) -> Vec<String> {
    let shared = Arc::clone(medium) as Arc<dyn Medium>;
    let report = check(&shared, &mut |_, _| {}).unwrap();
    report.problems.iter().map(|problem| format!("{problem:?}")).collect()
}

/// Both copies of the manifest are lost, and no keyspace has a table: all kinds and data come back, and the
/// names of those that have a file.
#[test]
fn keyspaces_that_only_log_records_name_keep_their_kinds() {
    let (medium, before) = store();
    assert_eq!(
        files(&medium),
        ["keyspace-2", "keyspace-3", "keyspace-4", "keyspace-5", "keyspace-6"]
    );
    remove(&medium, "manifest-");
    let dry = repaired(&medium, true);
    let report = repaired(&medium, false);
    assert!(report.manifest.is_some() && report.lost.is_empty(), "{report:?}");
    assert_eq!(dry.uncertain, report.uncertain);
    assert_eq!(problems(&medium), [""; 0]);
    assert!(repaired(&medium, false).is_clean());
    let db = open(&medium);
    let expected: Vec<_> =
        before.iter().map(|shown| shown.replacen("ordered ", "recovered-1 ", 1)).collect();
    assert_eq!(shown(&db), expected);
    for (name, options) in kinds() {
        let renamed = if name == "ordered" { "recovered-1" } else { name };
        // A keyspace of another kind would be refused.
        let keyspace = db.open_or_create_keyspace_opt(renamed, &options).unwrap();
        for number in 0..50 {
            let value = keyspace.get(common::key(number)).unwrap();
            assert_eq!(value.as_deref(), Some(format!("{name} {number}").as_bytes()), "{name}");
        }
    }
    assert_eq!(db.keyspace("empty").unwrap().entries().unwrap().count(), 0);
    db.flush().unwrap();
    drop(db);
    assert_eq!(problems(&medium), [""; 0]);
}

/// Without its file too, a keyspace that no table states is made an ordered one. Nothing else can be known.
#[test]
fn without_file_and_table_a_keyspace_is_ordered() {
    let (medium, _) = store();
    remove(&medium, "manifest-");
    remove(&medium, "keyspace-");
    repaired(&medium, false);
    let db = open(&medium);
    assert!(db.keyspace("keep").is_err());
    assert_eq!(db.keyspace("recovered-2").unwrap().hashed_policy(), None);
}

/// Stores of builds without such files get them; files of keyspaces that do not exist go.
#[test]
fn an_open_writes_missing_files_and_removes_stale_ones() {
    let (medium, before) = store();
    let image = Image::of(&medium);
    remove(&medium, "keyspace-");
    assert_eq!(problems(&medium), [""; 0], "as a build without such files left it");
    let db = open(&medium);
    assert_eq!(shown(&db), before);
    assert_eq!(files(&medium).len(), 5);
    for name in files(&medium) {
        assert_eq!(medium.content(&name), image.0.get(&name).cloned(), "{name}");
    }
    // A creation that a crash interrupted before the manifest had it, and a keyspace that is dropped.
    assert!(db.drop_keyspace("keep").unwrap() && db.drop_keyspace("ordered").unwrap());
    assert_eq!(files(&medium).len(), 4);
    drop(db);
    medium.insert("keyspace-9", image.0["keyspace-2"].clone()).unwrap();
    assert!(repaired(&medium, false).is_clean());
    drop(open(&medium));
    assert_eq!(files(&medium), ["keyspace-3", "keyspace-4", "keyspace-5", "keyspace-6"]);
}

/// A damaged file is found by a check, and written anew by a repair, or by an open.
#[test]
fn a_damaged_file_costs_nothing_beside_the_manifest() {
    let (medium, before) = store();
    let image = Image::of(&medium);
    for at in [0, 40, 100, 4095] {
        let damaged = image.flipped("keyspace-4", at, 1);
        let content = damaged.content("keyspace-4").unwrap();
        let found = problems(&damaged);
        assert!(found.len() == 1 && found[0].contains("keyspace-4"), "{found:?}");
        let report = repaired(&damaged, false);
        assert_eq!((report.repaired.len(), report.kept.len()), (1, 1), "{report:?}");
        assert_eq!(damaged.content(&report.kept[0]), Some(content));
        assert_eq!(problems(&damaged), [""; 0]);
        let opened = image.flipped("keyspace-4", at, 1);
        assert_eq!(shown(&open(&opened)), before);
        assert_eq!(opened.content("keyspace-4"), Some(image.0["keyspace-4"].clone()));
    }
    // Files of other keyspaces are not taken for a store.
    let alone = Arc::new(MemoryMedium::new());
    alone.insert("keyspace-4", image.0["keyspace-4"].clone()).unwrap();
    let shared = Arc::clone(&alone) as Arc<dyn Medium>;
    let error = common::stepped(&shared, 1).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}
