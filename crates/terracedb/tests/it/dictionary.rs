//! Dictionaries: a flush trains one if it improves compression, tables share it, and reopening finds it.

use std::sync::Arc;

use base::{ErrorKind, Rng};
use media::{Fault, Faulty, Medium, MemoryMedium, OpKind, Purpose, Rule};
use terracedb::{Builder, Codec, Db, Keyspace};

use crate::common::{Stepped, record};

/// Enough memory to train dictionaries. Background work runs only while a caller waits, so the tables and
/// dictionaries do not depend on thread timing.
fn builder(medium: &Arc<dyn Medium>, codec: Codec) -> Builder {
    Stepped::with_memory(1, 256 << 20).on(Arc::clone(medium)).codec(codec)
}

fn fill(keyspace: &Keyspace, numbers: std::ops::Range<u64>) {
    for number in numbers {
        keyspace.put(number.to_be_bytes(), record(number)).unwrap();
    }
}

fn check(keyspace: &Keyspace, numbers: std::ops::Range<u64>) {
    for number in numbers.step_by(37) {
        let value = keyspace.get(number.to_be_bytes()).unwrap().unwrap();
        assert_eq!(value, record(number), "record {number}");
    }
}

fn dictionaries(medium: &dyn Medium) -> Vec<String> {
    let names = medium.list().unwrap().into_iter().map(|listing| listing.name);
    names.filter(|name| name.ends_with(".dictionary")).collect()
}

fn table_bytes(db: &Db) -> u64 {
    db.statistics().keyspaces.iter().map(|keyspace| keyspace.table_bytes).sum()
}

#[test]
fn tables_share_a_dictionary_that_survives_reopening() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    for round in 0..3u64 {
        let db = builder(&medium, Codec::Zstd).open().unwrap();
        let keyspace = db.open_or_create_keyspace("records").unwrap();
        check(&keyspace, 0..round * 20_000);
        for half in 0..2 {
            let start = round * 20_000 + half * 10_000;
            fill(&keyspace, start..start + 10_000);
            db.flush().unwrap();
        }
        check(&keyspace, 0..(round + 1) * 20_000);
        assert_eq!(
            dictionaries(&*medium).len(),
            1,
            "the data does not change, nor what it is made of"
        );
        let memory = db.statistics().memory;
        assert!(memory.component("dictionaries").is_some_and(|component| component.used > 0));
    }
}

#[test]
fn a_dictionary_makes_structured_data_smaller_and_noise_gets_none() {
    let bytes = |codec, noise: bool| {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let db = builder(&medium, codec).open().unwrap();
        let keyspace = db.open_or_create_keyspace("records").unwrap();
        let mut rng = Rng::new(1);
        for number in 0..20_000u64 {
            let mut value = record(number).into_bytes();
            if noise {
                rng.fill(&mut value);
            }
            keyspace.put(number.to_be_bytes(), value).unwrap();
        }
        db.flush().unwrap();
        (table_bytes(&db), dictionaries(&*medium).len())
    };
    let (zstd, trained) = bytes(Codec::Zstd, false);
    let (lz4, untrained) = bytes(Codec::Lz4, false);
    assert_eq!((trained, untrained), (1, 0));
    assert!(zstd < lz4, "{zstd} bytes with a dictionary, {lz4} with LZ4");
    assert_eq!(bytes(Codec::Zstd, true).1, 0);
}

/// Scenario: the file of the dictionary is lost. Keys of its tables answer with an error; other keys and
/// new writes work.
#[test]
fn a_lost_dictionary_makes_only_its_tables_unreadable() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    {
        let db = builder(&medium, Codec::Zstd).open().unwrap();
        fill(&db.open_or_create_keyspace("records").unwrap(), 0..10_000);
        db.flush().unwrap();
        db.open_or_create_keyspace("plain").unwrap().put("key", "value").unwrap();
    }
    let names = dictionaries(&*medium);
    medium.remove(&names[0]).unwrap();
    let db = builder(&medium, Codec::Zstd).open().unwrap();
    let records = db.open_or_create_keyspace("records").unwrap();
    let error = records.get(5u64.to_be_bytes()).unwrap_err();
    assert!(error.to_string().contains("dictionary"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(
        db.open_or_create_keyspace("plain").unwrap().get("key").unwrap().as_deref(),
        Some(&b"value"[..])
    );
    fill(&records, 20_000..30_000);
    db.flush().unwrap();
    check(&records, 20_000..30_000);
}

/// I3: a file that a failed manifest append may name is kept until the next open decides.
#[test]
fn a_dictionary_that_a_failed_manifest_may_name_stays() {
    let device = Arc::new(Faulty::new(1));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let db = builder(&medium, Codec::Zstd).open().unwrap();
    let keyspace = db.open_or_create_keyspace("records").unwrap();
    // Reserves table ids; too little data to train on.
    fill(&keyspace, 0..1);
    db.flush().unwrap();
    fill(&keyspace, 0..10_000);
    device.inject(Rule::new(OpKind::Sync, Fault::Io).purpose(Purpose::Manifest)).unwrap();
    for attempt in 0..3 {
        db.flush().unwrap_err();
        assert_eq!(dictionaries(&*medium).len(), 1, "attempt {attempt}");
    }
    drop((keyspace, db));
    let db = builder(&medium, Codec::Zstd).open().unwrap();
    let keyspace = db.keyspace("records").unwrap();
    check(&keyspace, 0..10_000);
    db.flush().unwrap();
    assert_eq!(dictionaries(&*medium).len(), 1);
    assert!(table_bytes(&db) < 10_000 * 100, "{} bytes of tables", table_bytes(&db));
}
