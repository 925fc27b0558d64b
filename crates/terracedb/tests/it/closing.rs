//! Closing a store: acknowledged writes become durable, errors are reported, later changes are refused.

use std::sync::Arc;
use std::time::Duration;

use base::{Durability, Error, ErrorKind};
use media::{Fault, Faulty, Medium, OpKind, Rule};
use terracedb::{Db, Settings, WriteBatch, WriteOptions};

use crate::common::{self, Stepped};

const UNSYNCED: WriteOptions = WriteOptions::new().durability(Durability::None);

/// A store on a device with faults, with a keyspace that is durable.
fn open(stepped: &Stepped, device: &Arc<Faulty>) -> Db {
    let db = stepped.on(Arc::clone(device) as _).open().unwrap();
    db.open_or_create_keyspace("k").unwrap();
    db.sync().unwrap();
    db
}

/// Whether key `a` has its value after a power cut now, whichever unsynced changes it undoes.
fn is_durable(stepped: &Stepped, device: &Faulty) -> bool {
    (0..20).all(|seed| {
        let image: Arc<dyn Medium> = Arc::new(device.crash_image(seed).unwrap());
        let db = stepped.on(image).open().unwrap();
        db.keyspace("k").unwrap().get("a").unwrap().as_deref() == Some(b"1")
    })
}

#[test]
fn closing_makes_acknowledged_writes_durable_and_refuses_later_ones() {
    let (stepped, device) = (Stepped::new(1), Arc::new(Faulty::new(1)));
    let db = open(&stepped, &device);
    let k = db.keyspace("k").unwrap();
    let (mut ingest, mut transaction) = (k.ingest().unwrap(), db.transaction());
    ingest.put("ingested", "late").unwrap();
    transaction.put(&k, "a", "late").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&k, "a", "late").unwrap();
    k.put_opt("a", "1", &UNSYNCED).unwrap();
    assert!(!is_durable(&stepped, &device));

    db.close().unwrap();
    assert!(is_durable(&stepped, &device));
    let closed = |result: Result<(), Error>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Closed);
    };
    closed(k.put("a", "late"));
    closed(k.delete("a"));
    closed(k.delete_range::<&str>(..));
    closed(db.write(&batch));
    closed(transaction.commit());
    closed(ingest.finish().map(drop));
    closed(k.ingest().map(drop));
    closed(k.flush());
    closed(db.flush());
    closed(db.compact());
    closed(db.create_keyspace("new").map(drop));
    closed(db.open_or_create_keyspace("new").map(drop));
    closed(db.drop_keyspace("k").map(drop));
    assert_eq!(k.get("a").unwrap().as_deref(), Some(&b"1"[..]), "reads work on");
    assert_eq!(k.iter().unwrap().count(), 1);
    assert!(db.open_or_create_keyspace("k").is_ok(), "it is there already");
    db.close().unwrap();
    drop((k, db));
    let db = open(&stepped, &device);
    let k = db.keyspace("k").unwrap();
    assert_eq!(k.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(k.iter().unwrap().count(), 1);
}

#[test]
fn closing_reports_a_failed_sync_each_time() {
    let (stepped, device) = (Stepped::new(2), Arc::new(Faulty::new(2)));
    let db = open(&stepped, &device);
    let k = db.keyspace("k").unwrap();
    k.put_opt("a", "1", &UNSYNCED).unwrap();
    device.inject(Rule::new(OpKind::Sync, Fault::Io)).unwrap();
    let first = db.close().unwrap_err();
    assert_eq!(first.kind(), ErrorKind::Poisoned, "{first}");
    device.heal();
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Poisoned, "a second sync proves nothing");
    assert_eq!(k.put("b", "2").unwrap_err().kind(), ErrorKind::Closed);
    drop((k, db));
    drop(open(&stepped, &device));
}

/// A writer that waits for a flush is not left waiting.
#[test]
fn closing_ends_writers_that_wait() {
    let db = Db::on_medium(common::memory()).memory(common::MEMORY).open().unwrap();
    let k = db.create_keyspace("k").unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (0u64..).find_map(|number| k.put(number.to_be_bytes(), vec![1; 60_000]).err())
        });
        common::until("a flush", || (db.statistics().flushes > 0).then_some(()));
        db.close().unwrap();
        assert_eq!(writer.join().unwrap().unwrap().kind(), ErrorKind::Closed);
    });
}

#[test]
fn a_write_is_durable_after_the_sync_interval_by_default() {
    assert_eq!(Settings::default().durability, Durability::Interval);
    let (stepped, device) = (Stepped::new(3), Arc::new(Faulty::new(3)));
    let db = open(&stepped, &device);
    stepped.pass(Duration::from_millis(1));
    db.keyspace("k").unwrap().put("a", "1").unwrap();
    assert!(!is_durable(&stepped, &device));
    stepped.pass(db.settings().sync_interval);
    assert!(is_durable(&stepped, &device));
}
