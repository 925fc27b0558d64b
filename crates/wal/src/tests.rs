//! Tests of the log on devices that lose, tear, damage and refuse writes.

mod crash;
mod damage;
mod extents;
mod faults;
mod fenced;
mod freeing;
mod gaps;
mod golden;
mod group_commit;
mod lanes;
mod lost;
mod observer;
mod process;
mod salvage;
mod slow_syncs;

use std::sync::Arc;

use base::{Account, ErrorKind, KeyspaceId, LaneId, Result, Seqno, StoreId};
use media::{Medium, MemoryMedium};

use crate::{Batch, Known, Log, Options, Recover, Recovery, SEGMENT_BYTES_MIN, Start};

/// Small segments, so that short scripts cross many.
fn options() -> Options {
    Options { segment_bytes: SEGMENT_BYTES_MIN, ..Options::new(StoreId(0x5704e)) }
}

/// `lanes` fenced lanes, numbered as those of a device are.
fn fenced(lanes: u16) -> Options {
    let lanes = (1..=lanes).map(LaneId).collect();
    Options { lanes, is_fenced: true, ..options() }
}

/// Replayed records: first seqnos and bodies.
type Replayed = Vec<(u64, Vec<u8>)>;

fn open_with(
    medium: &Arc<dyn Medium>,
    options: Options,
    from: &dyn Fn(KeyspaceId) -> Option<Seqno>,
) -> Result<(Log, Recovery, Replayed)> {
    let mut replayed = Vec::new();
    let account = Account::unlimited("log");
    let (log, recovery) =
        Log::open(Arc::clone(medium), options, &account, from, &mut |appended, body| {
            replayed.push((appended.first.get(), body.to_vec()));
            Ok(())
        })?;
    Ok((log, recovery, replayed))
}

fn open(medium: &Arc<dyn Medium>) -> Result<(Log, Recovery, Replayed)> {
    open_with(medium, options(), &|_| Some(Seqno::ZERO))
}

fn append(log: &Log, keyspace: u32, ops: u32, body: &[u8]) -> Result<Seqno> {
    log.append(Batch { keyspaces: &[KeyspaceId(keyspace)], ops, body })
}

/// Frees every dead segment, on a device on which removals are durable.
fn free(log: &Log) -> usize {
    log.free(&|_| Ok(())).unwrap()
}

fn memory() -> Arc<dyn Medium> {
    Arc::new(MemoryMedium::new())
}

#[test]
fn appended_batches_are_replayed_in_order_by_every_open() {
    let medium = memory();
    let mut expected = Replayed::new();
    for round in 0..5u8 {
        let (log, recovery, replayed) = open(&medium).unwrap();
        assert_eq!(replayed, expected);
        assert_eq!(log.last().get(), round as u64 * 60);
        assert_eq!((recovery.last, recovery.records), (log.last(), expected.len() as u64));
        assert_eq!(log.durable(), log.last());
        for at in 0..20u8 {
            let body = vec![round ^ at; usize::from(at) * 100];
            let first = append(&log, 1, 3, &body).unwrap();
            expected.push((first.get(), body));
        }
        assert_eq!(log.last().get(), (round as u64 + 1) * 60);
    }
}

#[test]
fn a_record_larger_than_a_segment_gets_one_of_its_own() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    log.prepare(1).unwrap();
    let bodies = [vec![1; 10], vec![2; 100_000], vec![3; 10], vec![4; 700_000], vec![5; 20_000]];
    for body in &bodies {
        append(&log, 1, 1, body).unwrap();
    }
    log.sync(log.last()).unwrap();
    let (_, recovery, replayed) = open(&medium).unwrap();
    assert!(replayed.iter().map(|(_, body)| body).eq(&bodies));
    assert!(recovery.torn.is_none());
}

/// The oldest segment made ahead stays, and segment numbers are not reused.
#[test]
fn segments_made_ahead_are_removed_and_made_again() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    let names = || medium.list().unwrap().into_iter().map(|file| file.name).collect::<Vec<_>>();
    assert!(log.prepare(3).unwrap() && log.prepare(3).unwrap() && log.prepare(3).unwrap());
    let all = names();
    assert_eq!((log.prepared(), all.len()), (3, 4));
    assert_eq!((log.give_back(1).unwrap(), log.give_back(1).unwrap()), (2, 0));
    assert_eq!((log.prepared(), names()), (1, all[..2].to_vec()));
    assert!(log.prepare(2).unwrap());
    assert!(names().last() > all.last(), "{:?}", names());
    let bodies: Vec<Vec<u8>> = (1..60).map(|size| vec![size; 10_000]).collect();
    for (number, body) in bodies.iter().enumerate() {
        append(&log, 1, 1, body).unwrap();
        if number % 7 == 0 {
            log.prepare(2).unwrap();
            log.give_back(number % 2).unwrap();
        }
    }
    drop(log);
    let (log, recovery, replayed) = open(&medium).unwrap();
    assert!(replayed.iter().map(|(_, body)| body).eq(&bodies) && recovery.torn.is_none());
    assert_eq!(log.prepared(), 0, "an open makes no segment ahead");
}

#[test]
fn seqnos_start_above_the_floor_and_are_contiguous() {
    let medium = memory();
    let floor = Options { floor: Seqno::new(500), ..options() };
    let (log, recovery, _) = open_with(&medium, floor, &|_| None).unwrap();
    assert_eq!((log.last().get(), recovery.last.get()), (500, 500));
    assert_eq!(append(&log, 1, 3, b"x").unwrap().get(), 501);
    assert_eq!(append(&log, 1, 1, b"y").unwrap().get(), 504);
    drop(log);
    // A jump of the seqnos that an open recorded is no gap.
    let floor = Options { floor: Seqno::new(900), ..options() };
    let (log, ..) = open_with(&medium, floor, &|_| None).unwrap();
    assert_eq!(append(&log, 1, 1, b"z").unwrap().get(), 901);
    drop(log);
    let (log, recovery, replayed) = open(&medium).unwrap();
    let seqnos: Vec<u64> = replayed.iter().map(|(seqno, _)| *seqno).collect();
    assert_eq!((seqnos, log.last().get()), (vec![501, 504, 901], 901));
    assert_eq!(recovery.first.get(), 501);
}

#[test]
fn the_largest_seqno_ends_appends_but_not_reads() {
    let medium = memory();
    let floor = |below: u64| Options { floor: Seqno::new(Seqno::MAX.get() - below), ..options() };
    assert_eq!(open_with(&medium, floor(0), &|_| None).unwrap_err().kind(), ErrorKind::Corrupt);
    let (log, ..) = open_with(&medium, floor(3), &|_| None).unwrap();
    append(&log, 1, 2, b"x").unwrap();
    assert_eq!(append(&log, 1, 1, b"y").unwrap_err().kind(), ErrorKind::Corrupt);
    log.sync(log.last()).unwrap();
    drop(log);
    let (log, _, replayed) = open(&medium).unwrap();
    assert_eq!((replayed.len(), log.last()), (1, Seqno::MAX.before()));
}

#[test]
fn a_barrier_separates_earlier_seqnos_from_later_ones() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    append(&log, 1, 5, b"x").unwrap();
    let mut next = Seqno::ZERO;
    log.barrier(&mut |seqno| next = seqno);
    assert_eq!(next.get(), 6);
    assert_eq!(append(&log, 1, 1, b"y").unwrap(), next);
}

#[test]
fn batches_outside_the_limits_are_refused() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    let batch = Batch { keyspaces: &[KeyspaceId(1)], ops: 1, body: b"x" };
    for bad in [
        Batch { ops: 0, ..batch },
        Batch { ops: u32::MAX, ..batch },
        Batch { keyspaces: &[], ..batch },
    ] {
        assert_eq!(log.append(bad).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!(log.sync(Seqno::new(1)).is_err());
    assert_eq!(log.last(), Seqno::ZERO);
    let tiny = Options { segment_bytes: 100, ..options() };
    assert!(open_with(&memory(), tiny, &|_| None).is_err());
}

#[test]
fn another_stores_log_is_refused_and_unchanged() {
    let medium = memory();
    drop(open(&medium).unwrap());
    let before = medium.list().unwrap();
    let other = Options { store: StoreId(2), recover: Recover::PastDamage, ..options() };
    let error = open_with(&medium, other, &|_| None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(medium.list().unwrap(), before);
}

/// A group costs at most 1.3 log bytes per byte of keys and values, for keys of 16 bytes, values of 100
/// bytes and 4 bytes that the engine adds.
#[test]
fn unsynced_appends_take_at_most_1_3_log_bytes_per_byte() {
    let medium = memory();
    let (log, ..) =
        open_with(&medium, Options { segment_bytes: 1 << 20, ..options() }, &|_| None).unwrap();
    let before = log.bytes();
    for _ in 0..1000 {
        append(&log, 100, 1, &[0; 120]).unwrap();
    }
    let ratio = (log.bytes() - before) as f64 / (1000.0 * 116.0);
    assert!(ratio <= 1.3, "{ratio} log bytes per user byte");
}

#[test]
fn statistics_count_records_groups_syncs_and_segments() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    append(&log, 1, 2, &[0; 100]).unwrap();
    append(&log, 1, 2, &[0; 100]).unwrap();
    log.sync(log.last()).unwrap();
    assert!(log.prepare(1).unwrap() && !log.prepare(1).unwrap());
    let statistics = log.statistics();
    assert_eq!((statistics.records, statistics.groups, statistics.syncs), (2, 2, 1));
    assert_eq!((statistics.body_bytes, statistics.record_bytes), (200, 2 * 123));
    assert_eq!((statistics.segments_created, statistics.segments_live), (2, 1));
    assert_eq!(statistics.padding_bytes, 4096 - 2 * 123);
}

/// A read-only check sees the records that recovery would replay, and changes nothing.
#[test]
fn check_and_inspect_report_every_record_and_write_nothing() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    for at in 0..40u8 {
        log.append(Batch {
            keyspaces: &[KeyspaceId(1), KeyspaceId(300)],
            ops: 2,
            body: &vec![at; 900],
        })
        .unwrap();
        log.sync(log.last()).unwrap();
    }
    drop(log);
    let before = medium.list().unwrap();
    let recovery = crate::check(
        &medium,
        Some(options().store),
        &Known::default(),
        Recover::Strict,
        &Account::unlimited("check"),
    )
    .unwrap();
    assert_eq!((recovery.records, recovery.last.get()), (40, 80));
    let (mut batches, mut marks, mut ends) = (0, 0, 0);
    for file in &before {
        crate::inspect(&*medium, &file.name, &mut |entry| {
            match entry {
                crate::LogEntry::Batch { ops, keyspaces, body_bytes, .. } => {
                    assert_eq!((ops, body_bytes), (2, 900));
                    assert_eq!(keyspaces, [KeyspaceId(1), KeyspaceId(300)]);
                    batches += 1;
                }
                crate::LogEntry::Mark { .. } => marks += 1,
                crate::LogEntry::End { unreadable, .. } => {
                    assert!(unreadable.is_none(), "{unreadable:?}");
                    ends += 1;
                }
                crate::LogEntry::Gap { .. } => panic!("every batch is logged"),
                crate::LogEntry::Header(_) | crate::LogEntry::Begin { .. } => {}
            }
            Ok(())
        })
        .unwrap();
    }
    assert_eq!((batches, ends), (40, before.len()));
    assert!(marks >= 20, "{marks} marks");
    assert_eq!(medium.list().unwrap(), before);
    assert!(crate::inspect(&*medium, "MANIFEST", &mut |_| Ok(())).is_err());
}
