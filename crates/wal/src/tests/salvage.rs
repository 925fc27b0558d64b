//! Recovery past damage: readable records after the damage are replayed, and the losses are reported
//! exactly. The log is sound again once the replayed records are flushed and freed.

use base::LaneId;
use media::{Fault, Faulty, OpKind, Rule};

use super::damage::{image, written};
use super::*;
use crate::{Cut, Loss};

pub(super) fn salvage() -> Options {
    Options { recover: Recover::PastDamage, ..options() }
}

const ALL: fn(KeyspaceId) -> Option<Seqno> = |_| Some(Seqno::ZERO);

/// Opens past damage twice, and asserts that the records missing from `expected` are those reported
/// lost. Then flushes, frees, appends, and opens the log strictly. Returns the missing seqnos.
pub(super) fn assert_salvaged(
    medium: &Arc<dyn Medium>,
    expected: &Replayed,
    context: &str,
) -> Vec<u64> {
    let (log, recovery, replayed) = open_with(medium, salvage(), &ALL).unwrap();
    assert!(recovery.damage.is_some() && !recovery.losses.is_empty(), "{context}");
    let missing: Vec<_> = expected.iter().filter(|record| !replayed.contains(record)).collect();
    assert_eq!(missing.len() + replayed.len(), expected.len(), "{context}: {replayed:?}");
    assert!(replayed.is_sorted(), "{context}");
    let missing: Vec<_> = missing.into_iter().map(|(seqno, _)| *seqno).collect();
    let mut reported = reported(&recovery.losses, log.last().get());
    reported.retain(|seqno| expected.iter().any(|(first, _)| first == seqno));
    assert_eq!(reported, missing, "{context}: {recovery:?}");
    assert_eq!(append(&log, 1, 1, b"appended later").unwrap().get(), log.last().get(), "{context}");
    drop(log);

    // Until it is freed, the log stays damaged if durable records were lost.
    if recovery.losses.iter().any(|loss| loss.records != Some(0)) {
        let error = open(medium).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{context}: {error}");
    }
    let (log, recovery, again) = open_with(medium, salvage(), &ALL).unwrap();
    assert!(again[..replayed.len()] == replayed, "{context}");
    assert_eq!(again.last().unwrap().1, b"appended later", "{context}");
    assert!(recovery.damage.is_some(), "{context}");
    let below = Seqno::new(log.last().get() + 1);
    (1..4).for_each(|keyspace| log.flushed(KeyspaceId(keyspace), below));
    let start = std::cell::RefCell::new(Start::new());
    log.free(&|begins| {
        begins.iter().for_each(|(lane, segment)| start.borrow_mut().raise(lane, segment));
        Ok(())
    })
    .unwrap();
    append(&log, 1, 1, b"sound again").unwrap();
    drop(log);
    let options = Options { start: start.into_inner(), floor: below.before(), ..options() };
    let (_, recovery, last) = open_with(medium, options, &|_| Some(below)).unwrap();
    assert_eq!(last, [(below.get(), b"sound again".to_vec())], "{context}");
    assert!(recovery.damage.is_none(), "{context}");
    missing
}

/// The seqnos reported lost, up to `last`.
fn reported(losses: &[Loss], last: u64) -> Vec<u64> {
    let range = |loss: &Loss| {
        let (from, below) = loss.seqnos;
        from.get().max(1)..below.map_or(last + 1, Seqno::get)
    };
    losses.iter().flat_map(range).collect()
}

/// A log of `segments` segments with records of 3000 bytes and one operation each, and its records. Each
/// record is synced, or none.
fn long(segments: usize, synced: bool) -> (Vec<(String, Vec<u8>)>, Replayed) {
    let medium = Arc::new(MemoryMedium::new());
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let (log, ..) = open(&device).unwrap();
    let mut expected = Replayed::new();
    while medium.list().unwrap().len() < segments || expected.len() % 4 != 3 {
        let body = vec![expected.len() as u8 + 1; 3000];
        expected.push((append(&log, 1, 1, &body).unwrap().get(), body));
        if synced {
            log.sync(log.last()).unwrap();
        }
    }
    if !synced {
        // A Mark vouches for all records.
        log.sync(log.last()).unwrap();
    }
    drop(log);
    let names = medium.list().unwrap().into_iter().map(|file| file.name);
    let files = names.map(|name| (name.clone(), medium.content(&name).unwrap())).collect();
    (files, expected)
}

/// The records of a segment: kinds and offsets.
fn records(files: &[(String, Vec<u8>)], name: &str) -> Vec<(&'static str, u64, u64)> {
    let mut records = Vec::new();
    crate::inspect(&*image(files), name, &mut |entry| {
        records.extend(match entry {
            crate::LogEntry::Begin { offset, .. } => Some(("begin", offset, offset + 37)),
            crate::LogEntry::Mark { offset, .. } => Some(("mark", offset, offset + 28)),
            crate::LogEntry::Batch { offset, bytes, .. } => Some(("batch", offset, offset + bytes)),
            crate::LogEntry::Gap { offset, .. } => Some(("gap", offset, offset + 28)),
            crate::LogEntry::Header(_) | crate::LogEntry::End { .. } => None,
        });
        Ok(())
    })
    .unwrap();
    records
}

/// Damages every field of every record of a log: a damaged batch costs only itself, a damaged Mark or
/// Begin costs no batch.
#[test] // I8
fn a_damaged_field_costs_only_its_own_record() {
    for synced in [true, false] {
        let (files, expected) = long(3, synced);
        let mut lost = 0;
        for (file, (name, _)) in files.iter().enumerate() {
            for (kind, from, to) in records(&files, name) {
                // Checksum, length, kind, lane sequence, seqno, the rest.
                for field in [0, 4, 5, 6, 7, 8, 11, 12, 20, to - from - 1] {
                    let mut bad = files.clone();
                    bad[file].1[(from + field) as usize] ^= 1 << (field % 8);
                    let context = format!("{synced}: {kind} at {from} of {name}, byte {field}");
                    if open(&image(&bad)).is_ok() {
                        continue;
                    }
                    let missing = assert_salvaged(&image(&bad), &expected, &context);
                    assert_eq!(missing.len(), usize::from(kind == "batch"), "{context}");
                    lost += missing.len();
                }
            }
            // The header.
            for at in [0, 9, 20, 33, 41, 4094] {
                let mut bad = files.clone();
                bad[file].1[at] ^= 1;
                let context = format!("{synced}: byte {at} of the header of {name}");
                let missing = assert_salvaged(&image(&bad), &expected, &context);
                assert!(missing.is_empty(), "{context}: {missing:?}");
            }
        }
        assert!(lost > 100, "{lost} lost");
    }
}

/// Damages several records, headers and Begins.
#[test]
fn damage_at_several_places_costs_only_the_damaged_records() {
    let (mut rng, seed) = base::Rng::from_env();
    for round in 0..60 {
        let (files, expected) = long(4, rng.one_in(2));
        let (mut bad, mut damaged) = (files.clone(), 0);
        for (file, (name, _)) in files.iter().enumerate() {
            for (kind, from, to) in records(&files, name) {
                // The last Mark says that every record was durable.
                let is_last = file + 1 == files.len() && kind == "mark";
                if rng.one_in(5) && !is_last {
                    let at = from + rng.below(to - from);
                    bad[file].1[at as usize] ^= 1 << rng.below(8);
                    damaged += usize::from(kind == "batch");
                }
            }
            if rng.one_in(4) {
                bad[file].1[rng.below(100) as usize] ^= 1;
            }
        }
        let context = format!("TERRACE_SEED={seed}, round {round}");
        if open(&image(&bad)).is_ok() {
            continue;
        }
        let missing = assert_salvaged(&image(&bad), &expected, &context);
        assert!(missing.len() <= damaged, "{context}: {missing:?} of {damaged}");
    }
}

/// A segment that is gone, empty, or another's costs only its own records; also the first one.
#[test]
fn a_lost_segment_costs_only_its_own_records() {
    let (files, expected) = long(5, true);
    for lost in 0..files.len() - 1 {
        let batches =
            records(&files, &files[lost].0).iter().filter(|(kind, ..)| *kind == "batch").count();
        let (gone, mut zeros, mut other) = (without(&files, lost), files.clone(), files.clone());
        zeros[lost].1.fill(0);
        other[lost].1 = files[lost + 1].1.clone();
        for (what, bad) in [("gone", gone), ("zeros", zeros), ("another", other)] {
            let context = format!("{} is {what}", files[lost].0);
            let is_first = lost == 0 && what == "gone";
            let mut start = Start::new();
            start.raise(LaneId(0), crate::parse_segment_name(&files[0].0).unwrap().1);
            if is_first {
                let options = Options { start, ..salvage() };
                let (_, recovery, replayed) = open_with(&image(&bad), options, &ALL).unwrap();
                assert_eq!(replayed.len() + batches, expected.len(), "{context}");
                assert!(reported(&recovery.losses, 0).len() == batches, "{context}: {recovery:?}");
                continue;
            }
            let missing = assert_salvaged(&image(&bad), &expected, &context);
            assert_eq!(missing.len(), batches, "{context}");
        }
    }
}

fn without(files: &[(String, Vec<u8>)], index: usize) -> Vec<(String, Vec<u8>)> {
    let kept = files.iter().enumerate().filter(|(at, _)| *at != index);
    kept.map(|(_, file)| file.clone()).collect()
}

/// A page that the device cannot read costs at most the records on it, and none if a second read
/// succeeds.
#[test]
fn an_unreadable_page_costs_only_its_records() {
    let (files, expected) = long(3, true);
    let mut opened = 0;
    for (nth, times) in (0..60).flat_map(|nth| [(nth, 1), (nth, 2)]) {
        let device = Arc::new(Faulty::over(&memory_of(&files), 1).unwrap());
        device.inject(Rule::new(OpKind::Read, Fault::Io).after(nth).times(times)).unwrap();
        let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
        let (recovery, replayed) = match open_with(&medium, salvage(), &ALL) {
            Ok((_, recovery, replayed)) => (recovery, replayed),
            Err(error) => {
                // Replayed records could not be read again to be stored once more.
                assert_eq!(error.kind(), ErrorKind::Corrupt, "read {nth}: {error}");
                continue;
            }
        };
        opened += 1;
        let missing = expected.iter().filter(|record| !replayed.contains(record)).count();
        let most = 2 * (times - 1) as usize;
        assert!(missing <= most, "read {nth}: {missing} missing, {recovery:?}");
        assert!(replayed.iter().all(|record| expected.contains(record)), "read {nth}");
    }
    assert!(opened > 60, "{opened} opened");
}

fn memory_of(files: &[(String, Vec<u8>)]) -> MemoryMedium {
    let medium = MemoryMedium::new();
    for (name, content) in files {
        medium.insert(name, content.clone()).unwrap();
    }
    medium
}

/// A body may hold bytes that look like records of this segment: the damaged record's length leads past
/// them.
#[test] // I8
fn bytes_in_a_damaged_body_are_not_taken_for_records() {
    let seed = crate::SegmentHeader {
        version: 1,
        store: options().store,
        lane: LaneId(0),
        segment: base::SegmentId(1),
        capacity: 0,
    }
    .seed();
    // The record after the damaged one, except for its body.
    let forged = {
        let medium = Arc::new(MemoryMedium::new());
        let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
        let (log, ..) = open(&device).unwrap();
        append(&log, 1, 1, b"one").unwrap();
        append(&log, 1, 1, b"forged").unwrap();
        let content = medium.content("log-0-0000000001").unwrap();
        let at = content.windows(6).position(|bytes| bytes == b"forged").unwrap();
        let record = content[at - 23..at + 6].to_vec();
        assert!(crate::parse_record(seed, &record).is_ok());
        record
    };
    let medium = Arc::new(MemoryMedium::new());
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let (log, ..) = open(&device).unwrap();
    append(&log, 1, 1, &[&[7; 50][..], &forged, &[7; 50]].concat()).unwrap();
    append(&log, 1, 1, b"real").unwrap();
    log.sync(log.last()).unwrap();
    drop(log);
    let mut content = medium.content("log-0-0000000001").unwrap();
    let at = content.windows(10).position(|bytes| bytes == [7; 10]).unwrap();
    content[at] ^= 1;
    medium.insert("log-0-0000000001", content).unwrap();
    let (_, _, replayed) = open_with(&device, salvage(), &ALL).unwrap();
    assert_eq!(replayed, [(2, b"real".to_vec())]);
}

/// A segment full of bytes that may begin records takes no more work than its length allows.
#[test]
fn a_segment_of_false_records_is_searched_with_bounded_work() {
    let (files, expected) = long(2, true);
    let mut bad = files;
    let name = bad[0].0.clone();
    let content = &mut bad[0].1;
    let end = content.len();
    // Each claims a body of up to half of the segment.
    for at in (8192..end - 64).step_by(20) {
        let length = ((end - at) / 2) as u32;
        content[at + 4..at + 8].copy_from_slice(&(1 << 28 | length).to_le_bytes());
        content[at + 8..at + 12].copy_from_slice(&2u32.to_le_bytes());
        content[at + 12..at + 20].copy_from_slice(&2u64.to_le_bytes());
    }
    let account = Account::unlimited("test");
    let (lane, segment) = crate::parse_segment_name(&name).unwrap();
    let medium = image(&bad);
    let (mut reader, header) = crate::reader::SegmentReader::open(
        &*medium,
        lane,
        segment,
        None,
        media::Purpose::Replay,
        true,
        &account,
    )
    .unwrap();
    header.unwrap();
    let wanted = crate::reader::Wanted { sequence: 1, limit: u64::MAX, seqno: 1 };
    assert!(reader.search(&wanted).unwrap().is_none());
    assert!(reader.checked() <= 4 * end as u64, "{} bytes", reader.checked());
    assert!(reader.checked() > 3 * end as u64);
    let missing = assert_salvaged(&medium, &expected, "false records");
    assert!(missing.len() < expected.len());
}

/// A device whose reads fail for a while costs no record, unless the replayed records were flushed
/// meanwhile.
#[test]
fn records_that_become_readable_again_are_replayed() {
    let (files, expected) = long(3, true);
    for nth in [0, 3, 7, 12, 20] {
        let device = Arc::new(Faulty::over(&memory_of(&files), 1).unwrap());
        device.inject(Rule::new(OpKind::Read, Fault::Io).after(nth).times(u64::MAX)).unwrap();
        let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
        let opened = open_with(&medium, salvage(), &ALL);
        let is_reported = opened.map_or(true, |(_, recovery, _)| recovery.damage.is_some());
        assert!(is_reported || device.struck() == 0, "read {nth}");
        device.heal();
        let (_, _, replayed) = open_with(&medium, salvage(), &ALL).unwrap();
        assert_eq!(replayed, expected, "read {nth}");
    }
}

/// A log of which damage leaves no record continues after the damage.
#[test]
fn a_log_without_a_readable_record_continues() {
    let (mut files, expected) = written();
    for (_, content) in &mut files {
        content[4096..].fill(0xff);
    }
    let (log, recovery, replayed) = open_with(&image(&files), salvage(), &ALL).unwrap();
    assert!(replayed.is_empty() && recovery.damage.is_some() && !expected.is_empty());
    let Loss { from, to, .. } = recovery.losses[0].clone();
    assert_eq!((from.segment.0, to), (1, None::<Cut>));
    append(&log, 1, 1, b"appended later").unwrap();
}
