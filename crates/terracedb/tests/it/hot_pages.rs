//! Hot pages and rows over a restart: device reads and hits are counted, not time.

use std::sync::Arc;

use media::{Access, Medium, MemoryMedium, Purpose};
use terracedb::{Codec, Db, Keyspace};

use crate::common::Stepped;

const KEYS: u32 = 16_000;

/// The hot keys are a part of all.
const HOT: u32 = 3000;

fn key(number: u32) -> [u8; 8] {
    u64::from(number.wrapping_mul(0x9e37_79b1)).to_be_bytes()
}

fn device_reads(db: &Db) -> u64 {
    let device = db.statistics().device;
    [Purpose::Data, Purpose::Meta].map(|purpose| device.of(purpose).read_ops).iter().sum()
}

fn open(medium: &Arc<MemoryMedium>, hot_pages: bool, memory: u64) -> (Stepped, Db, Keyspace) {
    let stepped = Stepped::with_memory(1, memory);
    let builder = stepped.on(Arc::clone(medium) as _).codec(Codec::None);
    let db = builder.hot_pages(hot_pages).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    (stepped, db, keyspace)
}

/// Device reads of one get of every hot key.
fn reads_of_hot_gets(db: &Db, keyspace: &Keyspace) -> u64 {
    let before = device_reads(db);
    (0..HOT).for_each(|number| assert!(keyspace.get(key(number)).unwrap().is_some()));
    device_reads(db) - before
}

/// A store in which the hot keys were read since the last restart and the others were not.
fn used_store(hot_pages: bool) -> Arc<MemoryMedium> {
    let medium = Arc::new(MemoryMedium::new());
    let (_stepped, db, keyspace) = open(&medium, hot_pages, 256 << 20);
    for number in 0..KEYS {
        keyspace.put(key(number), format!("{number:08} {}", "value".repeat(20))).unwrap();
    }
    db.flush().unwrap();
    drop((keyspace, db));
    let (_stepped, db, keyspace) = open(&medium, hot_pages, 256 << 20);
    reads_of_hot_gets(&db, &keyspace);
    db.close().unwrap();
    medium
}

fn has_list(medium: &MemoryMedium) -> bool {
    medium.list().unwrap().iter().any(|file| file.name == "hot-pages")
}

#[test]
fn hot_pages_are_in_the_cache_after_a_restart() {
    let reads = [true, false].map(|is_on| {
        let medium = used_store(is_on);
        assert_eq!(has_list(&medium), is_on);
        let (stepped, db, keyspace) = open(&medium, is_on, 256 << 20);
        stepped.work(2000);
        let ahead = db.statistics().device.of(Purpose::ReadAhead).read_bytes;
        assert_eq!(ahead > 0, is_on, "{ahead} bytes");
        reads_of_hot_gets(&db, &keyspace)
    });
    assert!(
        reads[1] > 200 && reads[0] * 10 <= reads[1],
        "{reads:?} device reads, with and without"
    );
}

/// Of a get of every tenth hot key, those that a row answered, and those that a row or a page in DRAM did.
fn hits_of_some_gets(db: &Db, keyspace: &Keyspace) -> (u64, u64) {
    let hits = || {
        let hits = db.statistics().hits;
        (hits.row, hits.row + hits.page)
    };
    let before = hits();
    for number in (0..HOT).step_by(10) {
        assert!(keyspace.get(key(number)).unwrap().is_some());
    }
    (hits().0 - before.0, hits().1 - before.1)
}

/// The first gets after a restart have nine tenths of the hits of the gets before it, rows too; without the
/// list they have less than three quarters, and no row.
#[test]
fn the_first_gets_after_a_restart_hit_as_often_as_before() {
    for is_on in [true, false] {
        let medium = used_store(is_on);
        let (stepped, db, keyspace) = open(&medium, is_on, 256 << 20);
        stepped.work(2000);
        reads_of_hot_gets(&db, &keyspace);
        let before = hits_of_some_gets(&db, &keyspace);
        let all = u64::from(HOT / 10);
        assert!(before.0 * 10 >= all * 9 && before.1 == all, "{before:?} hits");
        db.close().unwrap();
        drop((keyspace, db));
        let (stepped, db, keyspace) = open(&medium, is_on, 256 << 20);
        stepped.work(2000);
        let lookups = db.statistics().hits;
        assert_eq!(
            (lookups.row, lookups.page, lookups.flash),
            (0, 0, 0),
            "no caller read anything"
        );
        let after = hits_of_some_gets(&db, &keyspace);
        match is_on {
            true => assert!(after.0 * 10 >= before.0 * 9, "{after:?} hits, {before:?} before"),
            // Some of the keys share a page.
            false => assert!(after.0 == 0 && after.1 * 4 < before.1 * 3, "{after:?} hits"),
        }
    }
}

/// A row that was written, deleted or covered by a range delete after the list was stored is not read ahead
/// as it was, and rows of a keyspace that is gone are none.
#[test]
fn rows_that_changed_since_are_read_as_they_are() {
    let medium = used_store(true);
    let (_stepped, db, keyspace) = open(&medium, false, 256 << 20);
    keyspace.put(key(0), b"new").unwrap();
    keyspace.delete(key(1)).unwrap();
    keyspace.delete_range(key(2)..=key(2)).unwrap();
    db.flush().unwrap();
    keyspace.put(key(3), b"in the log").unwrap();
    drop((keyspace, db));
    let (stepped, db, keyspace) = open(&medium, true, 256 << 20);
    stepped.work(2000);
    assert!(db.statistics().rows.ahead > u64::from(HOT) / 2, "{:?}", db.statistics().rows);
    let get = |number| keyspace.get(key(number)).unwrap();
    assert_eq!(get(0).as_deref(), Some(&b"new"[..]));
    assert_eq!((get(1), get(2)), (None, None));
    assert_eq!(get(3).as_deref(), Some(&b"in the log"[..]));
    drop((keyspace, db));
    let (_stepped, db, keyspace) = open(&medium, false, 256 << 20);
    drop(keyspace);
    db.drop_keyspace("k").unwrap();
    drop(db);
    let (stepped, db, keyspace) = open(&medium, true, 256 << 20);
    stepped.work(2000);
    assert_eq!(db.statistics().rows.ahead, 0);
    assert_eq!(keyspace.get(key(5)).unwrap(), None);
}

/// The cache takes what fits, and evicts nothing for the rest.
#[test]
fn no_more_is_read_ahead_than_the_cache_has_room_for() {
    let medium = used_store(true);
    let (stepped, db, keyspace) = open(&medium, true, 64 << 20);
    stepped.work(2000);
    assert_eq!(db.statistics().cache.data.evicted, 0);
    reads_of_hot_gets(&db, &keyspace);
}

/// A list that is damaged, of another store, or of tables that are gone costs warmth only.
#[test]
fn a_list_that_cannot_be_used_is_ignored() {
    let medium = used_store(true);
    let other = used_store(true);
    let list = |medium: &MemoryMedium| {
        let len = medium.list().unwrap().iter().find(|file| file.name == "hot-pages").unwrap().len;
        let file = medium.open("hot-pages", Access::Bytes).unwrap();
        let mut bytes = vec![0; len as usize];
        file.load(0, &mut bytes, Purpose::Manifest).unwrap();
        bytes
    };
    let mut damaged = list(&medium);
    damaged[40] ^= 1;
    for bytes in [damaged, list(&other), vec![], vec![7; 5 << 20]] {
        medium.remove("hot-pages").unwrap();
        let file = medium.create("hot-pages", Access::Bytes, bytes.len() as u64).unwrap();
        file.store(0, &bytes, Purpose::Manifest).unwrap();
        let (stepped, db, keyspace) = open(&medium, true, 256 << 20);
        stepped.work(2000);
        assert_eq!(db.statistics().device.of(Purpose::ReadAhead).read_ops, 0);
        assert!(reads_of_hot_gets(&db, &keyspace) > 200);
        db.close().unwrap();
    }
    // The tables of the list are merged before it is used. Its rows are read as they are.
    let (_stepped, db, keyspace) = open(&medium, false, 256 << 20);
    (0..KEYS).for_each(|number| keyspace.put(key(number), b"new").unwrap());
    db.compact().unwrap();
    drop((keyspace, db));
    let (stepped, db, keyspace) = open(&medium, true, 256 << 20);
    stepped.work(2000);
    assert_eq!(keyspace.get(key(0)).unwrap().as_deref(), Some(&b"new"[..]));
    let hits = hits_of_some_gets(&db, &keyspace);
    assert!(hits.0 * 10 >= u64::from(HOT / 10) * 9, "{hits:?}");
}
