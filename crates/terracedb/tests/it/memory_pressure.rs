//! The event `MemoryPressure` is sent when the pinned memory of tables exceeds half of the memory limit,
//! and when it fits again; once each, and at no other time.

use std::sync::Arc;
use std::time::Duration;

use base::Rng;
use terracedb::events::Event;
use terracedb::{Codec, Db};

use crate::common::{self, EventRecorder, MEMORY, Stepped, memory};

/// Keys that differ only in their last byte: separators between blocks are as long as the keys.
const KEY_BYTES: usize = 30_000;
const ALIKE: u8 = 8;

/// Adds about `bytes` of keys, most of which become metadata.
fn add(db: &Db, bytes: usize) {
    let mut ingest = db.open_or_create_keyspace("k").unwrap().ingest().unwrap();
    let value = common::noise(5000);
    for number in 0..(bytes / KEY_BYTES / usize::from(ALIKE)) as u64 {
        let mut key = vec![0; KEY_BYTES];
        Rng::new(number).fill(&mut key);
        key[..8].copy_from_slice(&number.to_be_bytes());
        for last in 0..ALIKE {
            *key.last_mut().unwrap() = last;
            ingest.put(&key, &value).unwrap();
        }
    }
    ingest.finish().unwrap();
}

#[test]
fn memory_pressure_is_reported_when_it_begins_and_when_it_ends() {
    let (stepped, recorder) = (Stepped::new(1), Arc::new(EventRecorder::default()));
    stepped.set_memory(4 * MEMORY);
    let builder = stepped.on(memory()).codec(Codec::None).listener(Arc::clone(&recorder) as _);
    let db = builder.open().unwrap();
    let heard = || {
        // Later checks send no event without a change.
        (0..5).for_each(|_| stepped.pass(Duration::from_secs(1)));
        recorder.take(|event| matches!(event, Event::MemoryPressure { .. }))
    };
    let metadata = || db.statistics().keyspaces.iter().map(|it| it.metadata_bytes).sum::<u64>();
    add(&db, MEMORY as usize / 4 * 3);
    let needed = metadata();
    assert!(needed > MEMORY / 2 && needed < MEMORY, "{needed}");
    assert_eq!(heard(), [""; 0], "it fits half of what there is");

    let expect_one = |heard: Vec<String>, words: &str| {
        assert!(heard.len() == 1 && heard[0].contains(words), "{heard:?}, not {words}");
    };
    stepped.set_memory(MEMORY);
    expect_one(heard(), "over half");
    assert_eq!(heard(), [""; 0], "reported once");
    // Exactly half still fits.
    stepped.set_memory(2 * needed);
    expect_one(heard(), "fits half");
    stepped.set_memory(2 * needed - 2);
    expect_one(heard(), "over half");

    db.drop_keyspace("k").unwrap();
    assert_eq!(metadata(), 0);
    expect_one(heard(), "fits half");
    db.open_or_create_keyspace("k").unwrap().put("a", "b").unwrap();
    db.flush().unwrap();
    assert_eq!(heard(), [""; 0]);
}

/// A write that needs more than half of the write buffers: the memtable that makes room for it is its own
/// keyspace's.
#[test]
fn a_large_write_flushes_no_empty_memtable() {
    let stepped = Stepped::new(2);
    let db = stepped.on(memory()).codec(Codec::None).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let value = common::noise(6 << 20);
    for number in 0..4u8 {
        keyspace.put([number], &value).unwrap();
        stepped.pass(Duration::from_secs(1));
        assert!(
            db.statistics().flushes <= u64::from(number),
            "{number}: {}",
            db.statistics().flushes
        );
    }
    assert_eq!(keyspace.get([3]).unwrap().as_deref(), Some(&value[..]));
}
