//! A forked child of a process with an open store: calls say so, and dropping the handles neither hangs nor
//! changes the store.

use std::io::Write;

use base::ErrorKind;
use terracedb::scm::Scm;
use terracedb::tools::{Backup, CheckpointOptions};
use terracedb::{Db, Durability, Error, Result, WriteBatch, WriteOptions};

use crate::alone;
use crate::common;

const SYNC: WriteOptions = WriteOptions::new().durability(Durability::Sync);

/// What a call in the child should answer.
fn is_refusal(error: &Error) -> bool {
    error.kind() == ErrorKind::Closed && error.to_string().contains("forked")
}

#[test]
fn a_forked_child_is_told_so_and_leaves_the_store_alone() {
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("store");
    let scm = Scm::new(root.path().join("scm").to_str().unwrap(), 16 << 20).unwrap();
    let db = Db::builder(&place).memory(common::MEMORY).scm(scm).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in 0..2000u32 {
        keyspace.put(number.to_be_bytes(), vec![7; 500]).unwrap();
    }
    db.flush().unwrap();
    keyspace.put_opt("key", "parent", &SYNC).unwrap();
    let backups = Backup::open(root.path().join("backups")).unwrap();
    let said = {
        // Handles of every kind, dropped in the child; the parent keeps its own copies of the same memory.
        let kept = (db.snapshot(), db.transaction(), keyspace.iter().unwrap());
        let (mut queue, ingest) = (db.read_queue(4).unwrap(), keyspace.ingest().unwrap());
        let compaction = db.start_compaction().unwrap();
        let mut all =
            Some((kept, queue_of(&mut queue, &keyspace), ingest, compaction, db, keyspace));
        let said = media::in_forked_child(|pipe| {
            let (kept, (), ingest, compaction, db, keyspace) = all.take().unwrap();
            let (snapshot, mut transaction, iter) = kept;
            let mut batch = WriteBatch::new();
            let mut check = |what: &str, result: Result<()>| match result {
                Err(error) if is_refusal(&error) => {}
                other => writeln!(pipe, "{what}: {other:?}").unwrap(),
            };
            check("put", keyspace.put("key", "child"));
            check("sync put", keyspace.put_opt("key", "child", &SYNC));
            check("merge", keyspace.delete("key"));
            check("delete range", keyspace.delete_range::<&str>(..));
            check("batch", batch.put(&keyspace, "key", "child"));
            check("get", keyspace.get("key").map(drop));
            check("multi get", keyspace.multi_get(&["key"]).map(drop));
            check("contains", keyspace.contains_key("key").map(drop));
            check("iter", keyspace.iter().map(drop));
            check("cursor", keyspace.cursor().map(drop));
            check("ingest", keyspace.ingest().map(drop));
            check("flush", keyspace.flush());
            check("compact", keyspace.compact_range::<&str>(..));
            check("snapshot get", db.snapshot().get(&keyspace, "key").map(drop));
            check("old snapshot", snapshot.get(&keyspace, "key").map(drop));
            check("transaction", transaction.put(&keyspace, "key", "child"));
            check("transaction get", transaction.get(&keyspace, "key").map(drop));
            check("new transaction", db.transaction().get(&keyspace, "key").map(drop));
            check("keyspace", db.keyspace("k").map(drop));
            check("create", db.create_keyspace("new").map(drop));
            check("drop", db.drop_keyspace("k").map(drop));
            check("flush all", db.flush());
            check("compact all", db.compact());
            check("sync", db.sync());
            check("settle", db.wait_until_settled());
            check("settings", db.change_settings(|_| {}).map(drop));
            check("scrub", db.scrub().map(drop));
            check("queue", db.read_queue(1).map(drop));
            check("checkpoint", db.checkpoint(root.path().join("copy")).map(drop));
            let options = CheckpointOptions::default().flush(true);
            check("flushed", db.checkpoint_opt(root.path().join("copy"), &options).map(drop));
            check("backup", backups.create(&db, "child").map(drop));
            check("list", backups.list().map(drop));
            let other = Db::builder(root.path().join("other")).resources(db.resources()).open();
            check("shared resources", other.map(drop));
            // Nothing of this joins a thread, writes, or waits for one.
            drop((snapshot, transaction, iter, ingest, compaction));
            drop(keyspace);
            drop(db);
            // A store of its own works.
            let own = Db::builder(root.path().join("own")).memory(common::MEMORY).open().unwrap();
            let own_keyspace = own.create_keyspace("k").unwrap();
            own_keyspace.put_opt("key", "own", &SYNC).unwrap();
            drop((own_keyspace, own));
        });
        let (_, (), ingest, compaction, db, keyspace) = all.take().unwrap();
        compaction.wait().unwrap();
        drop(ingest);
        keyspace.put_opt("after", "parent", &SYNC).unwrap();
        assert_eq!(keyspace.get("key").unwrap().unwrap(), "parent");
        drop((keyspace, db));
        said
    };
    assert_eq!(said.as_deref(), Ok(""));
    assert!(!root.path().join("copy").exists() && !root.path().join("other/manifest-1").exists());
    for (store, value) in [("store", "parent"), ("own", "own")] {
        let db = Db::builder(root.path().join(store)).memory(common::MEMORY).open().unwrap();
        assert_eq!(db.keyspace("k").unwrap().get("key").unwrap().unwrap(), value);
    }
}

/// A get in the queue, which is in flight at the fork.
fn queue_of(queue: &mut terracedb::ReadQueue, keyspace: &terracedb::Keyspace) {
    keyspace.submit(queue, 7u32.to_be_bytes(), 1).unwrap();
}
