//! One read path: gets, multi-gets, queued gets and cursors use the same state machine and page sources,
//! and request as many pages as designed.
//!
//! I8: every kind of read reports a damaged page in the same words. I6: an evicted page is read and
//! verified again.

use std::sync::Arc;

use base::ErrorKind;
use media::{Access, Buf, Faulty, Medium, Purpose};
use terracedb::stats::Hits;
use terracedb::{Bytes, Codec, Db, Keyspace, Result};

use crate::common::Stepped;

const KEYS: u32 = 4000;

fn key(number: u32) -> [u8; 4] {
    (2 * number).to_be_bytes()
}

/// 400 bytes: about ten values per page.
fn value(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(100)
}

/// A device with one table of `KEYS` keys.
fn filled() -> Arc<Faulty> {
    let device = Arc::new(Faulty::new(1));
    let db = open(&device);
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for number in 0..KEYS {
        keyspace.put(key(number), value(number)).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.statistics().keyspaces[0].tables, 1);
    device
}

/// The store with empty caches.
fn open(device: &Arc<Faulty>) -> Db {
    Stepped::new(1).on(Arc::clone(device) as _).codec(Codec::None).open().unwrap()
}

type Read = fn(&Db, &Keyspace, u32) -> Result<Option<Bytes>>;

fn get(_: &Db, keyspace: &Keyspace, number: u32) -> Result<Option<Bytes>> {
    keyspace.get(key(number))
}

fn multi_get(_: &Db, keyspace: &Keyspace, number: u32) -> Result<Option<Bytes>> {
    keyspace.multi_get(&[key(number)]).unwrap().remove(0)
}

fn submit(db: &Db, keyspace: &Keyspace, number: u32) -> Result<Option<Bytes>> {
    let mut queue = db.read_queue(4).unwrap();
    keyspace.submit(&mut queue, key(number), 7).unwrap();
    let mut done = Vec::new();
    assert_eq!(queue.wait(1, &mut done).unwrap(), 1);
    assert_eq!(done[0].token, 7);
    done.remove(0).result
}

fn iterate(_: &Db, keyspace: &Keyspace, number: u32) -> Result<Option<Bytes>> {
    let entry = keyspace.range(key(number)..=key(number)).unwrap().next();
    entry.transpose().map(|entry| entry.map(|(_, value)| value))
}

const READS: [(&str, Read); 4] =
    [("get", get), ("multi_get", multi_get), ("submit", submit), ("iterate", iterate)];

/// Data and metadata pages read from the device so far.
fn pages(db: &Db) -> (u64, u64) {
    let device = db.statistics().device;
    (device.of(Purpose::Data).read_ops, device.of(Purpose::Meta).read_ops)
}

#[test]
fn every_read_steps_the_same_machine_for_the_same_pages() {
    let device = filled();
    let mut costs = Vec::new();
    for (name, read) in READS {
        let db = open(&device);
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        let before = (db.statistics().read_steps, pages(&db));
        assert_eq!(read(&db, &keyspace, 1234).unwrap().unwrap(), value(1234), "{name}");
        let after = (db.statistics().read_steps, pages(&db));
        let (data, meta) = (after.1.0 - before.1.0, after.1.1 - before.1.1);
        assert_eq!((data, meta), (1, 1), "{name}: one metadata page, one data page");
        // One step per page, and the first one.
        assert!(after.0 - before.0 >= 3, "{name}: {} steps", after.0 - before.0);
        // The same page again comes from the cache, for any kind of read.
        for (other, again) in READS {
            assert_eq!(again(&db, &keyspace, 1234).unwrap().unwrap(), value(1234), "{other}");
        }
        assert_eq!(pages(&db), after.1, "{name} cached the pages it read");
        costs.push((name, after.0 - before.0));
    }
    let gets: Vec<u64> = costs.iter().take(3).map(|(_, steps)| *steps).collect();
    assert!(gets.iter().all(|steps| *steps == gets[0]), "{costs:?}");
}

/// The file and page that hold `key`'s value, found by content.
fn page_of(device: &Faulty, number: u32) -> (String, u64) {
    let listed = device.list().unwrap();
    let name = listed.into_iter().find(|file| file.name.ends_with(".table")).unwrap().name;
    let file = device.open(&name, Access::Direct).unwrap();
    let wanted = value(number);
    for page in 0..file.size().unwrap() / 4096 {
        let (buf, read) = file.read(page * 4096, Buf::pages(1), Purpose::Scrub);
        read.unwrap();
        if buf.windows(wanted.len()).any(|window| window == wanted) {
            return (name, page);
        }
    }
    panic!("key {number} is in no page");
}

#[test] // I8
fn every_read_reports_a_damaged_page_in_the_same_words() {
    let device = filled();
    let (name, page) = page_of(&device, 1234);
    device.flip(&name, page * 4096 + 700, 0x10).unwrap();
    let mut messages = Vec::new();
    for (read, of) in READS {
        let db = open(&device);
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        let error = of(&db, &keyspace, 1234).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{read}: {error}");
        assert!(error.to_string().contains(&format!("page {page}")), "{read}: {error}");
        assert_eq!(db.statistics().pages_damaged, 1, "{read}");
        // A damaged page is not cached: the next read checks again.
        assert!(of(&db, &keyspace, 1234).is_err(), "{read}");
        assert_eq!(of(&db, &keyspace, 3000).unwrap().unwrap(), value(3000), "{read}");
        messages.push(error.to_string());
    }
    assert!(messages.iter().all(|words| *words == messages[0]), "{messages:#?}");
    // One bad page makes only its keys unreadable.
    let db = open(&device);
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let lost = (0..KEYS).filter(|number| match keyspace.get(key(*number)) {
        Ok(got) => {
            assert_eq!(got.unwrap(), value(*number));
            false
        }
        Err(_) => true,
    });
    assert!((1..=12).contains(&lost.count()));
    // An iterator ends at the damage; one that begins behind it works.
    let mut met = keyspace.iter().unwrap();
    assert!(met.by_ref().any(|entry| entry.is_err()) && met.next().is_none());
    assert_eq!(keyspace.range(key(1300)..).unwrap().count(), KEYS as usize - 1300);
    // The next read sees the repaired page without a reopen.
    device.flip(&name, page * 4096 + 700, 0x10).unwrap();
    assert_eq!(keyspace.get(key(1234)).unwrap().unwrap(), value(1234));
}

#[test]
fn a_cold_get_reads_one_data_page_and_an_absent_key_none() {
    let device = filled();
    let db = open(&device);
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    // Absent keys between existing ones: filters in memory answer.
    for number in 0..KEYS {
        assert_eq!(keyspace.get((2 * number + 1).to_be_bytes()).unwrap(), None);
    }
    let (data, meta) = pages(&db);
    assert!(data <= u64::from(KEYS) / 50, "{data} data pages for {KEYS} missing keys");
    assert!(meta <= 16, "{meta} metadata pages");
    let (before, _) = pages(&db);
    let mut gets = 0;
    for number in (0..KEYS).step_by(97) {
        assert!(keyspace.get(key(number)).unwrap().is_some());
        gets += 1;
    }
    let (after, meta_after) = pages(&db);
    assert_eq!(meta_after, meta, "metadata stays cached");
    assert!(after - before <= gets, "{} data pages for {gets} gets", after - before);
    let hits = db.statistics().hits;
    assert!(hits.flash >= after - before, "{hits:?}");
}

/// A lookup that finds no value counts as no tier's hit, and as having searched pages; for a get and for a
/// queued get.
#[test]
fn a_lookup_without_a_value_is_no_hit() {
    let device = filled();
    let db = open(&device);
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let mut between = key(7).to_vec();
    between.push(0);
    let behind = [0xff; 20];
    for (turn, missing) in [&between[..], &behind].into_iter().enumerate() {
        let before = db.statistics().hits;
        assert!(keyspace.get(missing).unwrap().is_none());
        assert!(keyspace.multi_get(&[missing]).unwrap().remove(0).unwrap().is_none());
        // The first get reads the filter on its page; the second needs no page, because the filter is held.
        let absent_searched = before.absent_searched + if turn == 0 { 1 } else { 0 };
        let expected = Hits { absent: before.absent + 2, absent_searched, ..before };
        assert_eq!(db.statistics().hits, expected, "{}", missing.escape_ascii());
    }
}

#[test]
fn a_queue_keeps_reads_in_flight() {
    let device = filled();
    let db = open(&device);
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let keys: Vec<_> = (0..KEYS).step_by(31).map(key).collect();
    let values = keyspace.multi_get(&keys).unwrap();
    for (number, value_found) in (0..KEYS).step_by(31).zip(values) {
        assert_eq!(value_found.unwrap().unwrap(), value(number));
    }
    let mut queue = db.read_queue(16).unwrap();
    for number in 0..16 {
        keyspace.submit(&mut queue, key(number * 200 + 7), u64::from(number)).unwrap();
    }
    assert!(queue.in_flight() > 8, "{queue:?}");
    let full = keyspace.submit(&mut queue, key(3999), 99);
    if queue.in_flight() == queue.depth() {
        assert_eq!(full.unwrap_err().kind(), ErrorKind::Retry);
    }
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.wait(4, &mut done).unwrap();
    }
    queue.poll(&mut done).unwrap();
    assert!(done.len() >= 16);
    assert!(done.iter().all(|completed| completed.result.as_ref().unwrap().is_some()));
}

/// `submit_many` fills a queue as far as it has room, and each result belongs to its key: from the device,
/// from pages, from rows and from a memtable.
#[test]
fn batches_are_submitted_as_far_as_there_is_room() {
    let device = filled();
    let db = open(&device);
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let numbers: Vec<u32> = (0..1000).map(|at| at * 7 % (KEYS + 50)).collect();
    let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
    keyspace.put(key(7), b"newer").unwrap();
    let mut queue = db.read_queue(16).unwrap();
    for turn in 0..3 {
        let mut answers = vec![None; keys.len()];
        let (mut submitted, mut taken) = (0, 0);
        let mut done = Vec::new();
        while taken < keys.len() {
            let more = keyspace.submit_many(&mut queue, &keys[submitted..], submitted as u64);
            let more = more.unwrap();
            assert!(more <= 16 && (more > 0 || submitted == keys.len() || queue.room() == 0));
            submitted += more;
            queue.wait(1, &mut done).unwrap();
            taken += done.len();
            for completed in done.drain(..) {
                let answer = &mut answers[completed.token as usize];
                assert!(answer.is_none());
                *answer = Some(completed.result.unwrap());
            }
        }
        for (number, answer) in numbers.iter().zip(answers) {
            let expected = match number {
                7 => Some(b"newer".to_vec()),
                _ => (*number < KEYS).then(|| value(*number)),
            };
            assert_eq!(answer.unwrap().as_deref(), expected.as_deref(), "{number}, turn {turn}");
        }
    }
    assert!(db.statistics().hits.row > 0 && db.statistics().hits.flash > 0);
    assert!(keyspace.submit_many(&mut queue, &[&[0; 70_000][..]], 0).is_err());
}

/// Every run of a tree is read ahead separately, however a scan alternates between them.
#[test]
fn a_scan_of_many_runs_reads_ahead_in_each() {
    const RUNS: u32 = 8;
    let device = Arc::new(Faulty::new(1));
    let open = || {
        let options =
            compact::plan::Options { fanout: 100, space_max: 100.0, ..Default::default() };
        let builder = Stepped::new(1).on(Arc::clone(&device) as _).codec(Codec::None);
        builder.compaction_options(options).open().unwrap()
    };
    let db = open();
    for run in 0..RUNS {
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        for number in 0..KEYS / 2 {
            keyspace.put(key(number * RUNS + run), value(number)).unwrap();
        }
        db.flush().unwrap();
    }
    let pages = db.statistics().keyspaces[0].table_bytes / 4096;
    drop(db);
    for is_backward in [false, true] {
        let db = open();
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        assert_eq!(db.statistics().keyspaces[0].runs, RUNS as usize);
        let reads = |purpose| db.statistics().device.of(purpose).read_ops;
        let before = reads(Purpose::Data);
        let entries = keyspace.iter().unwrap();
        let count = if is_backward { entries.rev().count() } else { entries.count() };
        assert_eq!(count as u32, KEYS / 2 * RUNS);
        let (single, ahead) = (reads(Purpose::Data) - before, reads(Purpose::ReadAhead));
        assert!(single <= u64::from(4 * RUNS), "{single} pages were read one by one");
        assert!(ahead <= pages / 16, "{ahead} reads for {pages} pages");
    }
}

/// Pages that short scans read repeatedly are all in DRAM afterwards; a long scan caches almost nothing.
#[test]
fn pages_of_repeated_short_scans_are_cached_and_those_of_long_scans_are_not() {
    let device = filled();
    let db = open(&device);
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let reads = || {
        let device = db.statistics().device;
        device.of(Purpose::Data).read_ops + device.of(Purpose::ReadAhead).read_ops
    };
    let scan = |from: u32, entries: usize| {
        let before = reads();
        let found: Vec<_> = keyspace.range(key(from)..).unwrap().take(entries).collect();
        for (number, entry) in (from..).zip(&found) {
            assert_eq!(entry.as_ref().unwrap().1, value(number));
        }
        (found.len(), reads() - before)
    };
    let (count, _) = scan(0, usize::MAX);
    assert_eq!(count as u32, KEYS);
    let resident = db.statistics().cache.data.resident;
    assert!(resident <= 32, "{resident} pages of a scan of everything");
    // Some six pages.
    let first = scan(KEYS / 2, 60).1;
    assert!((2..=3).contains(&first), "{first} reads");
    scan(KEYS / 2, 60);
    assert_eq!(scan(KEYS / 2, 60), (60, 0));
}
