//! A broken invariant, in a child process, because the record of it belongs to the process.

use std::panic::catch_unwind;

use base::ErrorKind;
use terracedb::{Db, Durability, WriteBatch, WriteOptions};

use crate::alone;
use crate::common::{self, child};

const HOLDS: &str = "numbers add up";

/// Child: writes, breaks an invariant, and checks what still works.
#[test]
fn breaks_an_invariant() {
    let Some(directory) = child::directory() else { return };
    let db = Db::builder(&directory).memory(common::MEMORY).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    keyspace.put("key", "before").unwrap();
    // A build with debug assertions panics; the record is the same.
    let _ = catch_unwind(|| base::note_broken(HOLDS, "sum.rs", 7));
    let mut batch = WriteBatch::new();
    batch.put(&keyspace, "key", "batch").unwrap();
    let errors = [
        keyspace.put("key", "after").unwrap_err(),
        keyspace.delete("key").unwrap_err(),
        db.write_opt(&batch, &WriteOptions::new().durability(Durability::Sync)).unwrap_err(),
        db.open_or_create_keyspace("new").unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        assert!(!error.is_retryable() && error.to_string().contains(HOLDS), "{error}");
    }
    assert_eq!(keyspace.get("key").unwrap().unwrap(), "before");
    let entries: Vec<_> = keyspace.iter().unwrap().map(|entry| entry.unwrap().0).collect();
    assert!(entries.iter().eq(["key"]), "{entries:?}");
    drop((keyspace, db));
    child::say("checked");
}

/// Invariant: nothing is written after a broken one. What was acknowledged before is there at the next open.
#[test]
fn after_a_broken_invariant_writes_fail_and_reads_go_on() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let child = child::spawn("broken_invariant::breaks_an_invariant", directory.path());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.lines().filter_map(child::said).eq(["checked"]),
        "{text}"
    );
    let db = Db::builder(directory.path()).memory(common::MEMORY).open().unwrap();
    assert_eq!(db.open_or_create_keyspace("k").unwrap().get("key").unwrap().unwrap(), "before");
    db.open_or_create_keyspace("k").unwrap().put("key", "after").unwrap();
}
