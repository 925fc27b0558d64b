//! Calls of programs that must not block: writes that do not wait, and a read queue that tells when it is
//! ready.

use std::time::Duration;

use base::{Durability, ErrorKind};
use media::Purpose;
use terracedb::polling::{TryGet, TryWrite};
use terracedb::{Db, ReadQueue, WriteBatch, WriteOptions};

use crate::common::{self, MEMORY, Stepped};

fn batch(db: &Db, number: u32) -> WriteBatch {
    let (a, b) = (db.keyspace("a").unwrap(), db.keyspace("b").unwrap());
    let mut batch = WriteBatch::new();
    batch.put(&a, number.to_be_bytes(), [7; 8000]).unwrap();
    batch.put(&b, number.to_be_bytes(), "short").unwrap();
    batch
}

/// No background work runs, so the write buffers fill; a write says so instead of waiting for ever.
#[test]
fn a_write_that_does_not_wait_says_when_to_try_again() {
    let stepped = Stepped::new(1);
    let db = stepped.on(common::memory()).open().unwrap();
    for name in ["a", "b"] {
        db.create_keyspace(name).unwrap();
    }
    let options = WriteOptions::new().durability(Durability::None);
    let most = u32::try_from(MEMORY / 8000).unwrap();
    let written = (0..most).find(|number| {
        let outcome = db.try_write(&batch(&db, *number), &options).unwrap();
        // A refused write reserves nothing, however often it is repeated.
        outcome != TryWrite::Done
            && (0..1000)
                .all(|_| db.try_write(&batch(&db, *number), &options).unwrap() != TryWrite::Done)
    });
    let written = written.expect("the buffers are smaller than the memory limit");
    let used =
        db.statistics().memory.components.iter().map(|component| component.used).sum::<u64>();
    assert!(used <= MEMORY, "{used}");
    assert_eq!(
        db.keyspace("a").unwrap().get(written.to_be_bytes()).unwrap(),
        None,
        "nothing of it"
    );
    stepped.work(100_000);
    stepped.pass(Duration::from_secs(1));
    assert_eq!(db.try_write(&batch(&db, written), &options).unwrap(), TryWrite::Done);
    for name in ["a", "b"] {
        let keys = db.keyspace(name).unwrap().iter().unwrap().count();
        assert_eq!(keys, written as usize + 1, "{name}");
    }
}

#[test]
fn a_write_that_does_not_wait_cannot_ask_for_a_sync() {
    let db = Db::on_medium(common::memory()).open().unwrap();
    db.create_keyspace("a").unwrap();
    db.create_keyspace("b").unwrap();
    let sync = WriteOptions::new().durability(Durability::Sync);
    let error = db.try_write(&batch(&db, 1), &sync).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(db.keyspace("a").unwrap().iter().unwrap().count(), 0);
    db.close().unwrap();
    let none = WriteOptions::new().durability(Durability::None);
    assert_eq!(db.try_write(&batch(&db, 1), &none).unwrap_err().kind(), ErrorKind::Closed);
}

/// Waits until the queue's descriptor is readable.
fn wait_for(queue: &mut ReadQueue) {
    use rustix::event::{PollFd, PollFlags, poll};
    let descriptor = queue.descriptor().unwrap().expect("files tell when they are done");
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut polled, None).unwrap();
}

/// Every result arrives by waiting for the descriptor alone: a lost signal would make the test hang.
#[test]
fn the_descriptor_of_a_read_queue_is_readable_when_gets_have_ended() {
    let directory = tempfile::tempdir().unwrap();
    let keys = 3000_u32;
    {
        let db = Db::builder(directory.path()).memory(MEMORY).open().unwrap();
        let keyspace = db.create_keyspace("k").unwrap();
        for key in 0..keys {
            keyspace.put(key.to_be_bytes(), [key as u8; 1500]).unwrap();
        }
        db.flush().unwrap();
    }
    let db = Db::builder(directory.path()).memory(MEMORY).open().unwrap();
    let keyspace = db.keyspace("k").unwrap();
    let mut queue = db.read_queue(32).unwrap();
    let (mut submitted, mut got, mut out) = (0, 0, Vec::new());
    while got < keys {
        while submitted < keys && queue.room() > 0 {
            let key = submitted.wrapping_mul(2_654_435_761) % keys;
            keyspace.submit(&mut queue, key.to_be_bytes(), u64::from(key)).unwrap();
            submitted += 1;
        }
        if queue.poll_all(&mut out).unwrap() == 0 && queue.in_flight() > 0 {
            wait_for(&mut queue);
            queue.poll_all(&mut out).unwrap();
        }
        for done in out.drain(..) {
            let value = done.result.unwrap().unwrap();
            assert!(value.len() == 1500 && value.iter().all(|byte| *byte == done.token as u8));
            got += 1;
        }
    }
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn a_queue_of_a_device_that_cannot_tell_has_no_descriptor() {
    let db = Db::on_medium(common::memory()).open().unwrap();
    let mut queue = db.read_queue(4).unwrap();
    assert!(queue.descriptor().unwrap().is_none());
}

/// A get that does not wait is decided by memory, or tells that a device is needed and reads none.
#[test]
fn try_get_answers_from_memory_and_reads_no_device() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Db::builder(dir.path()).memory(MEMORY).open().unwrap();
    let db = open();
    let keyspace = db.create_keyspace("k").unwrap();
    for number in 0u64..2000 {
        keyspace.put(number.to_be_bytes(), vec![number as u8; 100]).unwrap();
    }
    let value = |number: u64| Some(vec![number as u8; 100].into());
    assert_eq!(keyspace.try_get(7u64.to_be_bytes()).unwrap(), TryGet::Done(value(7)));
    assert_eq!(keyspace.try_get("missing").unwrap(), TryGet::Done(None));
    keyspace.delete(7u64.to_be_bytes()).unwrap();
    assert_eq!(keyspace.try_get(7u64.to_be_bytes()).unwrap(), TryGet::Done(None));
    db.flush().unwrap();
    drop((keyspace, db));
    let db = open();
    let keyspace = db.keyspace("k").unwrap();
    let mut waited = 0;
    for number in (0u64..2000).step_by(97) {
        let reads = || db.statistics().device.of(Purpose::Data).read_ops;
        let before = reads();
        let tried = keyspace.try_get(number.to_be_bytes()).unwrap();
        assert_eq!(reads(), before, "it reads no device");
        match tried {
            TryGet::Done(found) => assert_eq!(found, value(number)),
            TryGet::Wait => {
                waited += 1;
                assert_eq!(keyspace.get(number.to_be_bytes()).unwrap(), value(number));
                let again = keyspace.try_get(number.to_be_bytes()).unwrap();
                assert_eq!(again, TryGet::Done(value(number)), "the page is cached now");
            }
        }
    }
    assert!(waited > 0, "pages of a store that was just opened are on the device");
    db.drop_keyspace("k").unwrap();
    assert_eq!(keyspace.try_get("a").unwrap_err().kind(), ErrorKind::Closed);
}
