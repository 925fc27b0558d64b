//! Replay of a log whose records do not fit the manifest.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::sync::Arc;

use media::{FileMedium, FileOptions, Medium};
use terracedb::tools::{RepairOptions, repair};
use terracedb::{Db, ErrorKind};

fn copy_files(from: &Path, to: &Path, prefix: &str) {
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        if name.starts_with(prefix) {
            std::fs::copy(file.path(), to.join(&name)).unwrap();
        }
    }
}

fn open(path: &Path, recover_damaged_log: bool) -> terracedb::Result<Db> {
    Db::builder(path).memory(64 << 20).recover_damaged_log(recover_damaged_log).open()
}

/// The log of a store is put beside a manifest from before its first keyspace.
#[test]
fn a_log_record_of_a_keyspace_that_the_manifest_never_had_is_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    drop(open(&new, false).unwrap());
    std::fs::create_dir(&old).unwrap();
    copy_files(&new, &old, "manifest");

    let db = open(&new, false).unwrap();
    db.open_or_create_keyspace("k").unwrap().put("key", "value").unwrap();
    drop(db);
    copy_files(&new, &old, "log");

    let error = open(&old, false).expect_err("the log does not belong to the manifest");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("keyspace of a log record"), "{error}");
    let repaired = dir.path().join("repaired");
    std::fs::create_dir(&repaired).unwrap();
    copy_files(&old, &repaired, "");

    // The setting gives the record up. No later keyspace gets its id, which would replay it.
    let db = open(&old, true).unwrap();
    assert!(db.recovery().log_damage.is_some());
    db.open_or_create_keyspace("other").unwrap().put("own", "value").unwrap();
    drop(db);
    let db = open(&old, false).unwrap();
    let other = db.open_or_create_keyspace("other").unwrap();
    assert!(other.get("own").unwrap().is_some());
    assert_eq!(other.get("key").unwrap(), None);

    // A repair keeps the write, in a keyspace without its name.
    let options = FileOptions { create: false, ..FileOptions::default() };
    let medium: Arc<dyn Medium> = Arc::new(FileMedium::open(&repaired, options).unwrap());
    let report = repair(&medium, RepairOptions::default(), &mut |_, _| {}).unwrap();
    assert!(report.manifest.is_some(), "{report:?}");
    assert_eq!(report.uncertain, ["recovered-1"]);
    drop(medium);
    let db = open(&repaired, false).unwrap();
    let keyspace = db.keyspace("recovered-1").unwrap();
    assert_eq!(keyspace.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}
