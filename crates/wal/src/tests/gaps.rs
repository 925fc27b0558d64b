//! Unlogged batches: they cost no byte of the log, the next batch is stored behind one Gap, and recovery
//! finds every logged batch at its seqno.

use media::{Fault, Faulty, OpKind, Purpose, Rule};

use super::*;
use crate::{Content, LogEntry, SegmentHeader, inspect, parse_record};

fn with_gaps() -> Options {
    Options { has_gaps: true, ..options() }
}

fn open_gaps(medium: &Arc<dyn Medium>) -> Result<(Log, Recovery, Replayed)> {
    open_with(medium, with_gaps(), &|_| Some(Seqno::ZERO))
}

fn assign(log: &Log, ops: u32) -> Seqno {
    log.assign(Batch { keyspaces: &[KeyspaceId(9)], ops, body: b"unlogged" }).unwrap()
}

/// The entries of all segments but headers, Begins and ends: what, first seqno, seqnos taken.
fn records(medium: &Arc<dyn Medium>) -> Vec<(&'static str, u64, u64)> {
    let mut found = Vec::new();
    for file in medium.list().unwrap() {
        let seen = inspect(&**medium, &file.name, &mut |entry| {
            match entry {
                LogEntry::Gap { seqno, count, .. } => found.push(("gap", seqno.get(), count)),
                LogEntry::Batch { seqno, ops, .. } => {
                    found.push(("batch", seqno.get(), u64::from(ops)));
                }
                _ => {}
            }
            Ok(())
        });
        seen.unwrap();
    }
    found
}

fn version(medium: &MemoryMedium, name: &str) -> u32 {
    SegmentHeader::decode(&medium.content(name).unwrap()[..4096]).unwrap().version
}

#[test]
fn unlogged_batches_cost_one_gap_before_the_next_batch() {
    let medium = memory();
    let (log, ..) = open_gaps(&medium).unwrap();
    append(&log, 1, 2, b"one").unwrap();
    let before = (log.bytes(), log.statistics().record_bytes);
    for at in 0..1000 {
        assert_eq!(assign(&log, 3).get(), 3 + at * 3);
    }
    assert_eq!((log.bytes(), log.statistics().record_bytes), before, "no byte of the log");
    assert_eq!((log.last().get(), log.stored_below().get()), (3002, 3));
    assert_eq!(log.ends()[0].last.get(), 2, "a copy up to here has no later record");
    // Nothing is left to sync, and no Gap is stored for it.
    log.sync(log.last()).unwrap();
    let (length, syncs) = (log.bytes(), log.statistics().syncs);
    assign(&log, 5);
    log.sync(log.last()).unwrap();
    assert_eq!((log.bytes(), log.statistics().syncs), (length, syncs));
    assert_eq!(log.durable(), log.last());
    assert_eq!(append(&log, 1, 1, b"two").unwrap().get(), 3008);
    append(&log, 1, 1, b"three").unwrap();
    assign(&log, 1);
    let statistics = log.statistics();
    assert_eq!((statistics.gaps, statistics.unlogged_ops), (1, 3006));
    let expected = [("batch", 1, 2), ("gap", 3, 3005), ("batch", 3008, 1), ("batch", 3009, 1)];
    assert_eq!(records(&medium), expected);
    drop(log);
    let (log, recovery, replayed) = open_gaps(&medium).unwrap();
    let expected = [(1, b"one".to_vec()), (3008, b"two".to_vec()), (3009, b"three".to_vec())];
    assert_eq!(replayed, expected);
    assert_eq!((recovery.records, recovery.torn), (3, None));
    assert_eq!(log.last().get(), 3009, "the last unlogged batch is lost with its seqno");
}

/// Older versions take a Gap for damage, so only segments that may have Gaps have the newer version.
#[test]
fn only_segments_that_may_have_gaps_have_the_newer_version() {
    let medium = Arc::new(MemoryMedium::new());
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let (log, ..) = open(&device).unwrap();
    log.prepare(2).unwrap();
    log.prepare(2).unwrap();
    append(&log, 1, 1, b"one").unwrap();
    let versions = || {
        let names = medium.list().unwrap().into_iter().map(|file| file.name);
        names.map(|name| version(&medium, &name)).collect::<Vec<_>>()
    };
    assert_eq!(versions(), [1, 1, 1]);
    log.allow_gaps().unwrap();
    assert_eq!(versions(), [1, 2], "segments made ahead are made anew");
    log.allow_gaps().unwrap();
    log.prepare(1).unwrap();
    assert_eq!(versions(), [1, 2, 2]);
    assign(&log, 7);
    append(&log, 1, 1, b"two").unwrap();
    drop(log);
    let (log, _, replayed) = open(&device).unwrap();
    assert_eq!(replayed, [(1, b"one".to_vec()), (9, b"two".to_vec())]);
    assert_eq!(versions().last(), Some(&1), "a store without windows goes back");
    drop(log);
    drop(open_gaps(&device).unwrap());
    assert_eq!(versions().last(), Some(&2));
}

#[test]
fn an_observer_sees_unlogged_batches_and_a_refused_one_takes_no_seqno() {
    #[derive(Debug, Default)]
    struct Seen(parking_lot::Mutex<Vec<(u64, Vec<u8>)>>);
    impl crate::Observer for Seen {
        fn appended(&self, first: Seqno, body: &[u8]) {
            self.0.lock().push((first.get(), body.to_vec()));
        }
    }
    let medium = memory();
    let (log, ..) = open_gaps(&medium).unwrap();
    let seen = Arc::new(Seen::default());
    assert_eq!(log.observe(Some(Arc::clone(&seen) as _)).get(), 1);
    assign(&log, 2);
    let batch = Batch { keyspaces: &[KeyspaceId(1)], ops: 1, body: b"refused" };
    let refused = log.assign_if(batch, &mut |next| {
        assert_eq!(next.get(), 3);
        Err(base::Error::conflict("test"))
    });
    assert!(refused.unwrap_err().is_conflict());
    append(&log, 1, 1, b"logged").unwrap();
    let expected = [(1, b"unlogged".to_vec()), (3, b"logged".to_vec())];
    assert_eq!(*seen.0.lock(), expected);
}

#[test]
fn a_poisoned_log_refuses_unlogged_batches() {
    let medium = Arc::new(Faulty::new(1));
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let (log, ..) = open_gaps(&device).unwrap();
    assign(&log, 1);
    medium.inject(Rule::new(OpKind::Write, Fault::Io).purpose(Purpose::Log)).unwrap();
    append(&log, 1, 1, b"fails").unwrap_err();
    let batch = Batch { keyspaces: &[KeyspaceId(1)], ops: 1, body: b"" };
    assert_eq!(log.assign(batch).unwrap_err().kind(), ErrorKind::Poisoned);
}

/// Every byte of a Gap flipped, with a durable batch behind it: damage, past which salvage finds the batch.
#[test] // I8
fn a_damaged_gap_is_damage_and_the_batch_behind_it_is_salvaged() {
    let clean = Arc::new(MemoryMedium::new());
    let device: Arc<dyn Medium> = Arc::clone(&clean) as _;
    let (log, ..) = open_gaps(&device).unwrap();
    append(&log, 1, 1, b"one").unwrap();
    assign(&log, 4);
    append(&log, 1, 1, b"two").unwrap();
    log.sync(log.last()).unwrap();
    append(&log, 1, 1, b"three").unwrap();
    drop(log);
    let name = "log-0-0000000001";
    let content = clean.content(name).unwrap();
    let seed = SegmentHeader::decode(&content[..4096]).unwrap().seed();
    let at = (8192..9000).find(|at| {
        let parsed = parse_record(seed, &content[*at..]);
        parsed.is_ok_and(|it| matches!(it.content, Content::Gap { count: 4 }))
    });
    let at = at.unwrap();
    for byte in at..at + crate::record::GAP_BYTES {
        let medium = MemoryMedium::new();
        let mut damaged = content.clone();
        damaged[byte] ^= 0x10;
        medium.insert(name, damaged).unwrap();
        let medium: Arc<dyn Medium> = Arc::new(medium);
        let error = open_gaps(&medium).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {byte}: {error}");
        let options = Options { recover: Recover::PastDamage, ..with_gaps() };
        let (log, recovery, replayed) =
            open_with(&medium, options, &|_| Some(Seqno::ZERO)).unwrap();
        let bodies: Vec<_> = replayed.into_iter().collect();
        let expected = [(1, b"one".to_vec()), (6, b"two".to_vec()), (7, b"three".to_vec())];
        assert_eq!(bodies, expected, "byte {byte}");
        assert_eq!(recovery.losses.len(), 1);
        assert!(log.last().get() >= 7);
    }
}

#[test]
fn gaps_out_of_range_are_refused() {
    let record = |seqno, count| crate::record::gap_record(3, 1, seqno, count);
    for (seqno, count) in [(1, 1), (1, 1 << 40), (5, Seqno::MAX.get() - 5)] {
        let record = record(seqno, count);
        let parsed = parse_record(3, &record).unwrap();
        assert_eq!((parsed.seqno.get(), parsed.content), (seqno, Content::Gap { count }));
        for len in 0..record.len() {
            assert!(parse_record(3, &record[..len]).is_err(), "cut at {len}");
        }
    }
    for (seqno, count) in [(1, 0), (1, Seqno::MAX.get()), (1, u64::MAX), (Seqno::MAX.get(), 1)] {
        assert!(parse_record(3, &record(seqno, count)).is_err(), "{seqno} {count}");
    }
}

/// Tables have seqnos of unlogged batches that the log lacks, and the device has no space for a segment: the
/// log reaches no further than its records. So a flush states no more, and the next open finds no damage.
#[test] // I11
fn a_full_device_at_open_leaves_the_seqnos_of_tables_uncovered() {
    let image = Arc::new(MemoryMedium::new());
    let medium: Arc<dyn Medium> = Arc::clone(&image) as _;
    let (log, ..) = open_gaps(&medium).unwrap();
    append(&log, 1, 2, b"one").unwrap();
    log.sync(log.last()).unwrap();
    drop(log);
    // A torn record, so that the segment is not cut to make room for a Begin.
    let name = "log-0-0000000001";
    let mut content = image.content(name).unwrap();
    let end = content.windows(3).position(|bytes| bytes == b"one").unwrap();
    content[end.next_multiple_of(4096)..][..100].fill(0xab);
    image.insert(name, content).unwrap();
    let device = Arc::new(Faulty::over(&image, 1).unwrap());
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    device.set_capacity(Some(options().segment_bytes));
    let floor = Seqno::new(100);
    let open = |logged: u64| {
        let known =
            Options { floor, logged: Seqno::new(logged), has_keyspaces: true, ..with_gaps() };
        open_with(&medium, known, &|_| Some(Seqno::ZERO))
    };
    let mut logged = 0;
    for life in 0..3 {
        let (log, recovery, replayed) = open(logged).unwrap();
        assert_eq!((log.last(), recovery.last, replayed.len()), (floor, floor, 1), "life {life}");
        assert_eq!(log.stored_below().get(), 3, "life {life}");
        assert_eq!(assign(&log, 5).get(), 101);
        assert_eq!(log.stored_below().get(), 3, "life {life}");
        log.sync(log.last()).unwrap();
        let error = append(&log, 1, 1, b"two").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        // A flush of a keyspace whose writes are all logged.
        logged = log.stored_below().before().get();
    }
    device.set_capacity(None);
    let (log, ..) = open(logged).unwrap();
    assert_eq!(log.stored_below().get(), 101, "the Begin of the new segment covers them");
    assert_eq!(append(&log, 1, 1, b"two").unwrap().get(), 101);
    drop(log);
    let (_, _, replayed) = open(101).unwrap();
    assert_eq!(replayed, [(1, b"one".to_vec()), (101, b"two".to_vec())]);
}

/// As above, and the segment that there was no space for is made by the first append.
#[test]
fn the_first_append_after_a_full_device_covers_the_seqnos_of_tables() {
    let device = Arc::new(Faulty::new(1));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    device.set_capacity(Some(0));
    let options = Options { floor: Seqno::new(100), ..options() };
    let (log, ..) = open_with(&medium, options.clone(), &|_| Some(Seqno::ZERO)).unwrap();
    assert_eq!(log.stored_below().get(), 1);
    device.set_capacity(None);
    assert_eq!(append(&log, 1, 1, b"one").unwrap().get(), 101);
    assert_eq!((log.stored_below().get(), log.statistics().gaps), (102, 0));
    drop(log);
    let (_, recovery, replayed) = open_with(&medium, options, &|_| Some(Seqno::ZERO)).unwrap();
    assert_eq!((recovery.last.get(), replayed), (101, vec![(101, b"one".to_vec())]));
}
