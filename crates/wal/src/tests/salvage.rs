//! Past damage: what can be read behind it is replayed, and what cannot is told exactly. The log is whole
//! again once what was replayed is flushed and freed.

use base::LaneId;
use media::{Fault, Faulty, OpKind, Rule};

use super::damage::{image, written};
use super::*;
use crate::{Cut, Loss};

pub(super) fn salvage() -> Options {
    Options { recover: Recover::PastDamage, ..options() }
}

const ALL: fn(KeyspaceId) -> Option<Seqno> = |_| Some(Seqno::ZERO);

/// Opens past damage, twice, and asserts that what is missing of `expected` is what is told; then flushes and
/// frees, appends, and opens the log as any other. The missing seqnos.
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
    let mut told = told(&recovery.losses, log.last().get());
    told.retain(|seqno| expected.iter().any(|(first, _)| first == seqno));
    assert_eq!(told, missing, "{context}: {recovery:?}");
    assert_eq!(append(&log, 1, 1, b"on it goes").unwrap().get(), log.last().get(), "{context}");
    drop(log);

    // Until it is freed it stays damaged, where what was lost was durable.
    if recovery.losses.iter().any(|loss| loss.records != Some(0)) {
        let error = open(medium).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{context}: {error}");
    }
    let (log, recovery, again) = open_with(medium, salvage(), &ALL).unwrap();
    assert!(again[..replayed.len()] == replayed, "{context}");
    assert_eq!(again.last().unwrap().1, b"on it goes", "{context}");
    assert!(recovery.damage.is_some(), "{context}");
    let below = Seqno::new(log.last().get() + 1);
    (1..4).for_each(|keyspace| log.flushed(KeyspaceId(keyspace), below));
    let start = std::cell::RefCell::new(Start::new());
    log.free(&|begins| {
        begins.iter().for_each(|(lane, segment)| start.borrow_mut().raise(lane, segment));
        Ok(())
    })
    .unwrap();
    append(&log, 1, 1, b"whole again").unwrap();
    drop(log);
    let options = Options { start: start.into_inner(), floor: below.before(), ..options() };
    let (_, recovery, last) = open_with(medium, options, &|_| Some(below)).unwrap();
    assert_eq!(last, [(below.get(), b"whole again".to_vec())], "{context}");
    assert!(recovery.damage.is_none(), "{context}");
    missing
}

/// The seqnos that are told to be lost, up to `last`.
fn told(losses: &[Loss], last: u64) -> Vec<u64> {
    let range = |loss: &Loss| {
        let (from, below) = loss.seqnos;
        from.get().max(1)..below.map_or(last + 1, Seqno::get)
    };
    losses.iter().flat_map(range).collect()
}

/// A log of `segments` segments, of records of 3000 bytes and one operation, and what is in it; each is
/// synced, or none.
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
        // A Mark vouches for all of it.
        log.sync(log.last()).unwrap();
    }
    drop(log);
    let names = medium.list().unwrap().into_iter().map(|file| file.name);
    let files = names.map(|name| (name.clone(), medium.content(&name).unwrap())).collect();
    (files, expected)
}

/// The records of a segment: kind and offsets.
fn records(files: &[(String, Vec<u8>)], name: &str) -> Vec<(&'static str, u64, u64)> {
    let mut records = Vec::new();
    crate::inspect(&*image(files), name, &mut |entry| {
        records.extend(match entry {
            crate::LogEntry::Begin { offset, .. } => Some(("begin", offset, offset + 37)),
            crate::LogEntry::Mark { offset, .. } => Some(("mark", offset, offset + 28)),
            crate::LogEntry::Batch { offset, bytes, .. } => Some(("batch", offset, offset + bytes)),
            crate::LogEntry::Header(_) | crate::LogEntry::End { .. } => None,
        });
        Ok(())
    })
    .unwrap();
    records
}

/// Every field of every record of a log: a batch costs itself, what the log notes for itself costs nothing.
#[test]
fn any_damaged_field_costs_its_own_record() {
    for synced in [true, false] {
        let (files, expected) = long(3, synced);
        let mut lost = 0;
        for (file, (name, _)) in files.iter().enumerate() {
            for (kind, from, to) in records(&files, name) {
                // Checksum, length, kind, lane sequence, seqno, what follows.
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

/// Several records here and there, headers and Begins too.
#[test]
fn much_damage_costs_no_more_than_what_is_damaged() {
    let (mut rng, seed) = base::Rng::from_env();
    for round in 0..60 {
        let (files, expected) = long(4, rng.one_in(2));
        let (mut bad, mut damaged) = (files.clone(), 0);
        for (file, (name, _)) in files.iter().enumerate() {
            for (kind, from, to) in records(&files, name) {
                // The last Mark says that all of it was durable.
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

/// A segment that is gone, emptied, or another's costs its own records; the first one too.
#[test]
fn a_lost_segment_costs_its_own_records() {
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
                assert!(told(&recovery.losses, 0).len() == batches, "{context}: {recovery:?}");
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

/// A page that the device does not give costs the records on it at most, and nothing where it gives it when
/// asked again.
#[test]
fn an_unreadable_page_costs_its_records() {
    let (files, expected) = long(3, true);
    let mut opened = 0;
    for (nth, times) in (0..60).flat_map(|nth| [(nth, 1), (nth, 2)]) {
        let device = Arc::new(Faulty::over(&memory_of(&files), 1).unwrap());
        device.inject(Rule::new(OpKind::Read, Fault::Io).after(nth).times(times)).unwrap();
        let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
        let (recovery, replayed) = match open_with(&medium, salvage(), &ALL) {
            Ok((_, recovery, replayed)) => (recovery, replayed),
            Err(error) => {
                // What was replayed could not be read again, to be stored once more.
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

/// A body may hold what looks like records of this very segment: the damaged record's length leads past it.
#[test]
fn what_a_damaged_body_holds_is_no_record() {
    let seed = crate::SegmentHeader {
        store: options().store,
        lane: LaneId(0),
        segment: base::SegmentId(1),
        capacity: 0,
    }
    .seed();
    // What the record behind the damaged one will be, but for its body.
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

/// A segment of nothing but what could begin records takes no more work than its length allows.
#[test]
fn a_segment_of_false_records_is_searched_in_bounded_time() {
    let (files, expected) = long(2, true);
    let mut bad = files;
    let name = bad[0].0.clone();
    let content = &mut bad[0].1;
    let end = content.len();
    // Each claims a body up to half of the segment.
    for at in (8192..end - 64).step_by(20) {
        let length = ((end - at) / 2) as u32;
        content[at + 4..at + 8].copy_from_slice(&(1 << 28 | length).to_le_bytes());
        content[at + 8..at + 12].copy_from_slice(&2u32.to_le_bytes());
        content[at + 12..at + 20].copy_from_slice(&2u64.to_le_bytes());
    }
    let account = Account::unlimited("test");
    let place = crate::parse_segment_name(&name).unwrap();
    let medium = image(&bad);
    let (mut reader, header) = crate::reader::SegmentReader::open(
        &*medium,
        place,
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

/// A device that reads nothing for a while costs nothing, where nobody flushed what was read meanwhile.
#[test]
fn what_could_not_be_read_counts_again_where_it_can_be() {
    let (files, expected) = long(3, true);
    for nth in [0, 3, 7, 12, 20] {
        let device = Arc::new(Faulty::over(&memory_of(&files), 1).unwrap());
        device.inject(Rule::new(OpKind::Read, Fault::Io).after(nth).times(u64::MAX)).unwrap();
        let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
        let opened = open_with(&medium, salvage(), &ALL);
        let is_told = opened.map_or(true, |(_, recovery, _)| recovery.damage.is_some());
        assert!(is_told || device.struck() == 0, "read {nth}");
        device.heal();
        let (_, _, replayed) = open_with(&medium, salvage(), &ALL).unwrap();
        assert_eq!(replayed, expected, "read {nth}");
    }
}

/// Where damage leaves nothing, the log goes on behind it all the same.
#[test]
fn a_log_of_which_nothing_is_left_goes_on() {
    let (mut files, expected) = written();
    for (_, content) in &mut files {
        content[4096..].fill(0xff);
    }
    let (log, recovery, replayed) = open_with(&image(&files), salvage(), &ALL).unwrap();
    assert!(replayed.is_empty() && recovery.damage.is_some() && !expected.is_empty());
    let Loss { from, to, .. } = recovery.losses[0].clone();
    assert_eq!((from.segment.0, to), (1, None::<Cut>));
    append(&log, 1, 1, b"on it goes").unwrap();
}
