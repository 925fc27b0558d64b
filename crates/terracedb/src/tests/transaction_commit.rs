//! Writes that race with the validation of a transaction: each test holds a writer between the assignment of
//! its sequence number and its insert into the memtable.

use std::sync::{Arc, mpsc};
use std::thread::yield_now;

use base::{Durability, ErrorKind, Result};
use engine::Transactions;
use media::MemoryMedium;
use wal::Batch;

use crate::{Db, Keyspace, Transaction, WriteBatch};

struct World {
    db: Db,
    keyspace: Keyspace,
}

impl World {
    fn new() -> Self {
        let db = Db::on_medium(Arc::new(MemoryMedium::new())).memory(64 << 20).open().unwrap();
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        keyspace.put("read", "old").unwrap();
        Self { db, keyspace }
    }

    /// A transaction that read `read` and a range, and writes `out`.
    fn transaction(&self) -> Transaction {
        let mut transaction = self.db.transaction();
        assert!(transaction.get(&self.keyspace, "read").unwrap().is_some());
        assert_eq!(transaction.prefix(&self.keyspace, "none").unwrap().count(), 0);
        transaction.put(&self.keyspace, "out", "new").unwrap();
        transaction
    }

    /// Writes `key`; runs `meanwhile` when the write has its sequence number but is not visible yet.
    fn write(&self, key: &str, meanwhile: impl FnOnce()) {
        let mut batch = WriteBatch::new();
        batch.put(&self.keyspace, key, "value").unwrap();
        let store = self.db.store();
        let append = |record: Batch<'_>| {
            let first = store.log.append_at(record);
            meanwhile();
            first
        };
        store.committer.commit(batch.encoded(), Durability::None, append).unwrap();
    }

    fn transactions(&self) -> &Transactions {
        &self.db.store().transactions
    }

    fn wait_for(&self, condition: impl Fn(&Self) -> bool) {
        let came = (0..50_000_000).any(|_| {
            yield_now();
            condition(self)
        });
        assert!(came, "the condition never became true");
    }

    /// Commits a transaction while a write of `first` is in flight. While the transaction waits for that
    /// write, another thread writes `second`.
    fn commit_amid(&self, first: &str, second: Option<&str>) -> Result<()> {
        let transaction = self.transaction();
        std::thread::scope(|scope| {
            let (send, receive) = mpsc::channel();
            self.write(first, || {
                scope.spawn(move || send.send(transaction.commit()).unwrap());
                self.wait_for(|world| world.transactions().is_watching());
                if let Some(second) = second {
                    let before = self.db.store().log.last();
                    scope.spawn(move || self.write(second, || {}));
                    self.wait_for(|world| world.db.store().log.last() > before);
                }
            });
            receive.recv().unwrap()
        })
    }
}

#[test] // I1
fn a_write_with_a_seqno_from_before_the_watch_is_waited_for() {
    for key in ["read", "none of these yet"] {
        let world = World::new();
        let error = world.commit_amid(key, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("keyspace `k`"), "{error}");
        assert_eq!(world.keyspace.get("out").unwrap(), None);
    }
    let world = World::new();
    world.commit_amid("unrelated", None).unwrap();
    assert!(world.keyspace.contains_key("out").unwrap());
}

#[test]
fn a_write_with_a_seqno_from_after_the_watch_is_a_conflict() {
    for key in ["read", "none of these yet"] {
        let world = World::new();
        let error = world.commit_amid("unrelated", Some(key)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains(key), "{error}");
    }
    let world = World::new();
    world.commit_amid("unrelated", Some("another")).unwrap();
    assert!(!world.transactions().is_watching());
    assert_eq!(
        (world.transactions().committed.get(), world.transactions().conflicts.get()),
        (1, 0)
    );
}

/// More writes than the watch records: validation searches the memtables again.
#[test]
fn writes_that_overflow_the_watch_are_found_in_memtables() {
    for (key, conflicts) in [("read", true), ("no matter", false)] {
        let world = World::new();
        let transaction = world.transaction();
        let committed = std::thread::scope(|scope| {
            let (send, receive) = mpsc::channel();
            world.write("unrelated", || {
                scope.spawn(move || send.send(transaction.commit()).unwrap());
                world.wait_for(|world| world.transactions().is_watching());
                let before = world.db.store().log.last();
                let mut batch = WriteBatch::new();
                batch.put(&world.keyspace, key, "first of many").unwrap();
                for at in 0..2000 {
                    batch.put(&world.keyspace, format!("many {at}"), "").unwrap();
                }
                let db = world.db.clone();
                scope.spawn(move || db.write(&batch).unwrap());
                world.wait_for(|world| world.db.store().log.last() > before);
            });
            receive.recv().unwrap()
        });
        assert_eq!(committed.is_err_and(|error| error.is_conflict()), conflicts, "{key}");
    }
}
