//! A store written by the first form of every format opens, holds what it held, and checks clean.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use common::{Model, assert_same};
use media::{Access, Buf, Medium, MemoryMedium, Purpose};

/// Every file of the store: its name and length, then its pages in hex that are not all zero, cut
/// where only zeros follow.
const STORE: &str = include_str!("../golden/store-1.pages");

fn medium() -> Arc<dyn Medium> {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let mut file = None;
    for line in STORE.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        if let ["file", name, length] = fields[..] {
            let access = if name.ends_with(".table") { Access::Direct } else { Access::Bytes };
            file = Some(medium.create(name, access, length.parse().unwrap()).unwrap());
            continue;
        }
        let page: u64 = fields[0].parse().unwrap();
        let mut buf = Buf::pages(1);
        for (byte, digits) in buf.iter_mut().zip(fields[1].as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        }
        let file = file.as_ref().unwrap();
        let at = page * PAGE_BYTES as u64;
        file.write(at, buf, Purpose::Scrub).1.unwrap();
    }
    medium
}

/// What was written: three rounds, each flushed, then a batch that is in the log alone.
fn fruit() -> Model {
    let mut model = Model::new();
    for round in 0..3usize {
        for n in (round..120).step_by(round + 1) {
            let value = format!("round {round} of {n} {}", "x".repeat(n % 40));
            model.insert(format!("key{n:04}").into(), value.into());
        }
        for n in (0..120).step_by(17) {
            model.remove(format!("key{:04}", n + round).as_bytes());
        }
    }
    model.insert("key9999".into(), "in the log".into());
    model.remove(&b"key0001"[..]);
    model
}

fn trees() -> Model {
    let parts = ["a", "b", "c"].into_iter().flat_map(|part| (0..20).map(move |n| (part, n)));
    let mut model: Model = parts
        .map(|(part, n)| (format!("{part}{n:02}").into(), format!("tree {n}").into()))
        .collect();
    model.insert("d00".into(), "in the log too".into());
    model
}

#[test]
fn the_first_store_opens() {
    let medium = medium();
    let report = terracedb::check(&medium, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    for round in 0..2 {
        let db = common::stepped(&medium, 1).open().unwrap();
        let recovery = db.recovery();
        assert_eq!((recovery.log_records > 0, recovery.damaged_tables.len()), (true, 0));
        assert_same(&db.existing_keyspace("fruit").unwrap(), &fruit(), "fruit");
        assert_same(&db.existing_keyspace("trees").unwrap(), &trees(), "trees");
        assert!(db.existing_keyspace("gone").is_none());
        let runs: Vec<_> =
            db.statistics().keyspaces.iter().map(|it| (it.runs, it.tables)).collect();
        assert_eq!(runs, [(3, 3), (1, 3)], "round {round}");
    }
    let db = common::stepped(&medium, 1).open().unwrap();
    db.flush().unwrap();
    assert_same(&db.existing_keyspace("fruit").unwrap(), &fruit(), "fruit, flushed");
    drop(db);
    let report = terracedb::check(&medium, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}
