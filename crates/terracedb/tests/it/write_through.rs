//! Write-through: data that fits into memory is read from the cache from the first read on.

use std::sync::Arc;

use media::{MemoryMedium, Purpose};
use terracedb::{Codec, Db, Keyspace};

use crate::common::Stepped;

const KEYS: u32 = 40_000;

fn key(number: u32) -> [u8; 8] {
    u64::from(number.wrapping_mul(0x9e37_79b1)).to_be_bytes()
}

fn load(keyspace: &Keyspace, round: u32) {
    for number in (0..KEYS).filter(|number| number % 4 != round) {
        keyspace.put(key(number), format!("{number:08} {}", "value".repeat(20))).unwrap();
    }
}

/// Pages that reads took from the device.
fn device_reads(db: &Db) -> u64 {
    let device = db.statistics().device;
    [Purpose::Data, Purpose::Meta].map(|purpose| device.of(purpose).read_ops).iter().sum()
}

/// Device reads of one get of every key.
fn reads_of_gets(db: &Db, keyspace: &Keyspace) -> u64 {
    let before = device_reads(db);
    (0..KEYS).for_each(|number| assert!(keyspace.get(key(number)).unwrap().is_some()));
    device_reads(db) - before
}

fn opened(stepped: &Stepped, write_through: bool, memory: u64) -> (Db, Keyspace) {
    let builder = stepped.on(Arc::new(MemoryMedium::new())).codec(Codec::None).without_rows();
    let db = builder.write_through(write_through).memory(memory).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    (db, keyspace)
}

#[test]
fn data_that_fits_is_not_read_from_the_device_after_load_flush_and_compaction() {
    for is_on in [true, false] {
        let stepped = Stepped::new(1);
        let (db, keyspace) = opened(&stepped, is_on, 256 << 20);
        for round in 0..3 {
            load(&keyspace, round);
            db.flush().unwrap();
        }
        let flushed = reads_of_gets(&db, &keyspace);
        db.compact().unwrap();
        let compacted = reads_of_gets(&db, &keyspace);
        assert_eq!(compacted == 0, is_on, "{compacted} device reads");
        assert_eq!(flushed == 0, is_on, "{flushed} device reads");
        let written = db.statistics().cache.written;
        assert_eq!(written > 0, is_on, "{written} pages written through");
    }
}

#[test]
fn long_values_are_written_through() {
    let stepped = Stepped::new(1);
    let (db, keyspace) = opened(&stepped, true, 256 << 20);
    let value = vec![7; 20_000];
    (0..300).for_each(|number| keyspace.put(key(number), &value).unwrap());
    db.flush().unwrap();
    let before = device_reads(&db);
    (0..300).for_each(|number| assert_eq!(keyspace.get(key(number)).unwrap().unwrap(), value));
    assert_eq!(device_reads(&db), before);
}
