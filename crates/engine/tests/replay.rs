//! Replay of a log whose records do not fit the manifest.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

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
    db.keyspace("k").unwrap().put("key", "value").unwrap();
    drop(db);
    copy_files(&new, &old, "log");

    let error = open(&old, false).expect_err("the log does not belong to the manifest");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("keyspace of a log record"), "{error}");
    // A rebuilt manifest may lack keyspaces, and repairs open with this setting.
    let db = open(&old, true).unwrap();
    assert_eq!(db.keyspace("k").unwrap().get("key").unwrap(), None);
}
