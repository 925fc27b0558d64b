//! Stores that are opened often and written little, and opens on a device that fails for a moment.

use std::sync::Arc;

use base::{Codec, ErrorKind, Rng};
use media::{Fault, Faulty, Medium, OpKind, Rule};
use terracedb::Db;

use crate::common::{self, Model, Stepped, assert_same, memory};

/// Scenario: a tool opens the store, writes one key and closes it, many times.
#[test]
fn the_log_of_a_store_that_is_opened_often_stays_short() {
    let medium = memory();
    for round in 0..40u32 {
        // Closed at any point of the background work.
        let stepped = Stepped::new(round.into());
        let db = stepped.on(Arc::clone(&medium)).open().unwrap();
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        for earlier in 0..round {
            assert!(keyspace.get(earlier.to_be_bytes()).unwrap().is_some(), "{earlier} of {round}");
        }
        keyspace.put(round.to_be_bytes(), b"value").unwrap();
        stepped.work(u64::from(round % 8 * 5));
    }
    let names = medium.list().unwrap().into_iter().map(|listing| listing.name);
    let segments = names.filter(|name| name.starts_with("log-")).count();
    assert!(segments <= 8, "{segments} log segments");
}

/// Each read of an open fails once, or returns a wrong bit: the open refuses, or the store has all that it
/// had. Nothing is lost or quarantined, also not by the merges that follow.
#[test] // I8
fn a_read_that_fails_once_at_an_open_loses_and_quarantines_nothing() {
    let (mut model, mut rng) = (Model::new(), Rng::new(7));
    let original = Arc::new(Faulty::new(1));
    let open = |device: &Arc<Faulty>, seed| -> terracedb::Result<Db> {
        let medium = Arc::clone(device) as Arc<dyn Medium>;
        Stepped::new(seed).on(medium).codec(Codec::Zstd).open()
    };
    let db = open(&original, 1).unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for round in 0..4u64 {
        for number in 0..300 {
            let key = format!("key{:05}", number * (round + 1)).into_bytes();
            let mut value = vec![b'v'; if number == 9 { 30_000 } else { 200 }];
            rng.fill(&mut value[..100]);
            keyspace.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        keyspace
            .delete_range(format!("key{:05}", 20 * round)..format!("key{:05}", 20 * round + 5))
            .unwrap();
        let (from, to) = (format!("key{:05}", 20 * round), format!("key{:05}", 20 * round + 5));
        model.retain(|key, _| !(from.as_bytes()..to.as_bytes()).contains(&&**key));
        if round < 3 {
            db.flush().unwrap();
        }
    }
    drop((keyspace, db));
    let image = original.process_death_image().unwrap();
    for fault in [Fault::Io, Fault::Flip] {
        let (mut refused, mut opened) = (0, 0);
        for after in 0.. {
            let why = format!("{fault:?} of read {after}");
            let device = Arc::new(Faulty::over(&image, after).unwrap());
            device.inject(Rule::new(OpKind::Read, fault.clone()).after(after)).unwrap();
            let first = open(&device, after);
            let is_over = device.struck() == 0;
            device.heal();
            let db = match first {
                Ok(db) => {
                    opened += 1;
                    db
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{why}: {error}");
                    refused += 1;
                    open(&device, after).unwrap_or_else(|error| panic!("{why}: {error}"))
                }
            };
            assert_eq!(db.recovery().damaged_tables.len(), 0, "{why}");
            let keyspace = db.keyspace("k").unwrap();
            assert_same(&keyspace, &model, &why);
            db.compact().unwrap_or_else(|error| panic!("{why}: {error}"));
            assert_same(&keyspace, &model, &why);
            assert_eq!(db.statistics().compaction.damaged_tables, 0, "{why}");
            drop((keyspace, db));
            let medium = Arc::clone(&device) as Arc<dyn Medium>;
            let report = terracedb::tools::check(&medium, &mut |_, _| {}).unwrap();
            assert!(report.is_clean(), "{why}: {:?}", report.problems);
            let db = open(&device, after).unwrap();
            common::assert_tidy(&db, &*device, &why);
            assert_same(&db.keyspace("k").unwrap(), &model, &why);
            if is_over {
                break;
            }
        }
        assert!(opened > 4 && refused > 0, "{fault:?}: {opened} opened, {refused} refused");
    }
}
