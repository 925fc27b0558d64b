//! A segment is removed only when every record in it is dead, and an idle keyspace pins its records
//! until it is flushed (I7).

use super::*;

const BUSY: u32 = 1;
const IDLE: u32 = 2;

fn names(medium: &Arc<dyn Medium>) -> Vec<String> {
    medium.list().unwrap().into_iter().map(|file| file.name).collect()
}

/// Appends about `segments` segments of records of the busy keyspace.
fn fill(log: &Log, segments: usize) {
    for _ in 0..segments * 24 {
        append(log, BUSY, 1, &[1; 1000]).unwrap();
    }
}

#[test]
fn an_idle_keyspace_pins_segments_until_it_is_flushed() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    append(&log, IDLE, 3, b"idle").unwrap();
    fill(&log, 4);
    let next = Seqno::new(log.last().get() + 1);
    log.flushed(KeyspaceId(BUSY), next);
    let before = log.bytes();
    assert_eq!(free(&log), 0, "the idle keyspace's record is alive");
    assert_eq!(log.pinning(), [(KeyspaceId(IDLE), Seqno::new(4))]);
    log.flushed(KeyspaceId(IDLE), Seqno::new(3));
    assert_eq!(free(&log), 0, "its last operation is not flushed");
    log.flushed(KeyspaceId(IDLE), Seqno::new(4));
    let freed = free(&log);
    assert!(freed >= 3, "{freed} segments");
    assert!(log.bytes() < before / 3);
    assert_eq!(log.pinning(), []);
    assert_eq!(names(&medium).len() as u64, log.statistics().segments_live);
    let last = log.last();
    drop(log);
    let (log, recovery, replayed) = open_with(&medium, options(), &|_| Some(next)).unwrap();
    assert_eq!((replayed.len(), log.last()), (0, last));
    assert!(recovery.skipped > 0);
}

#[test]
fn a_dropped_keyspace_pins_nothing_now_or_after_recovery() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    fill(&log, 2);
    append(&log, IDLE, 1, b"alive").unwrap();
    log.forget(KeyspaceId(BUSY));
    assert!(free(&log) >= 1);
    drop(log);
    let from = |keyspace| (keyspace == KeyspaceId(IDLE)).then_some(Seqno::ZERO);
    let (_, _, replayed) = open_with(&medium, options(), &from).unwrap();
    assert_eq!(replayed.len(), 1);
    assert_eq!(replayed[0].1, b"alive");
}

/// A record of two keyspaces lives until both are flushed.
#[test]
fn a_record_is_dead_when_all_its_keyspaces_are() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    let keyspaces = [KeyspaceId(BUSY), KeyspaceId(IDLE)];
    log.append(Batch { keyspaces: &keyspaces, ops: 2, body: b"both" }).unwrap();
    log.rotate().unwrap();
    log.flushed(KeyspaceId(BUSY), Seqno::new(3));
    assert_eq!(free(&log), 0);
    drop(log);
    let from = |keyspace| Some(Seqno::new(if keyspace == KeyspaceId(BUSY) { 3 } else { 0 }));
    let (log, _, replayed) = open_with(&medium, options(), &from).unwrap();
    assert_eq!(replayed, [(1, b"both".to_vec())]);
    log.flushed(KeyspaceId(IDLE), Seqno::new(3));
    assert_eq!(free(&log), 2, "and the blank one after it");
}

#[test]
fn the_segment_being_written_is_kept_until_rotated() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    append(&log, BUSY, 1, b"x").unwrap();
    log.flushed(KeyspaceId(BUSY), Seqno::new(2));
    assert_eq!(free(&log), 0);
    log.rotate().unwrap();
    let before = names(&medium);
    log.rotate().unwrap();
    assert_eq!(names(&medium), before, "a blank segment is not rotated");
    assert_eq!(free(&log), 1);
    assert_eq!(log.statistics().segments_freed, 1);
    assert_eq!(append(&log, BUSY, 1, b"y").unwrap().get(), 2);
}

/// Records appended while segments are freed are kept: two threads, many segments.
#[test]
fn freeing_while_appending_loses_no_live_record() {
    let medium = memory();
    let (log, ..) = open(&medium).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| fill(&log, 20));
        while !writer.is_finished() {
            let below = Seqno::new(log.last().get() / 2);
            log.flushed(KeyspaceId(BUSY), below);
            free(&log);
            log.prepare(1).unwrap();
        }
    });
    let (last, below) = (log.last().get(), log.last().get() / 2);
    drop(log);
    let (_, _, replayed) = open_with(&medium, options(), &|_| Some(Seqno::new(below))).unwrap();
    let seqnos: Vec<u64> = replayed.iter().map(|(seqno, _)| *seqno).collect();
    assert!(seqnos.iter().copied().eq(below..=last), "{below}..={last}");
}

/// The log always has a durable Begin: a segment is removed only after the Begin of the oldest remaining
/// segment is durable. So a power cut right after the removal is no damage.
#[test]
fn freeing_leaves_a_durable_begin() {
    let device = Arc::new(media::Faulty::new(1));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let (log, ..) = open(&medium).unwrap();
    while log.statistics().segments_live < 2 {
        let flushed = log.last();
        log.sync(flushed).unwrap();
        let below = Seqno::new(flushed.get() + 1);
        let start = log.start_once_flushed(KeyspaceId(BUSY), below);
        assert!(start.is_empty(), "no durable Begin to start from: {start:?}");
        log.flushed(KeyspaceId(BUSY), below);
        append(&log, BUSY, 1, &[1; 3000]).unwrap();
    }
    let (freed, start) = free_from(&log);
    assert_eq!(freed, 1);
    let last = append(&log, BUSY, 1, &[2; 3000]).unwrap().get();
    for seed in 0..200 {
        let image: Arc<dyn Medium> = Arc::new(device.crash_image(seed).unwrap());
        let (floor, start) = (Seqno::new(last - 2), start.clone());
        let options = Options { floor, start, ..options() };
        let (log, _, replayed) = open_with(&image, options, &|_| Some(Seqno::ZERO)).unwrap();
        assert!(log.last().get() >= last - 1, "seed {seed}: the free synced the records before it");
        assert!(replayed.iter().all(|(seqno, _)| *seqno >= last - 1), "seed {seed}");
    }
}

/// Frees every dead segment. Returns the number, and the recorded start.
fn free_from(log: &Log) -> (usize, Start) {
    let recorded = std::cell::RefCell::new(Start::new());
    let freed = log.free(&|start| {
        recorded.replace(start.clone());
        Ok(())
    });
    (freed.unwrap(), recorded.into_inner())
}

/// Any removed segment may come back, whatever was removed after it. It is not read, and is removed
/// again.
#[test] // I7, I11
fn a_removed_segment_that_came_back_is_not_read() {
    let mut nth = 0;
    loop {
        let medium = Arc::new(MemoryMedium::new());
        let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
        let (log, ..) = open(&device).unwrap();
        fill(&log, 5);
        let name = names(&device).swap_remove(nth);
        let content = medium.content(&name).unwrap();
        log.sync(log.last()).unwrap();
        let below = Seqno::new(log.last().get() + 1);
        let start = log.start_once_flushed(KeyspaceId(BUSY), below);
        log.flushed(KeyspaceId(BUSY), below);
        append(&log, BUSY, 1, b"alive").unwrap();
        let (freed, recorded) = free_from(&log);
        assert!(freed >= 3 && recorded == start, "{freed}: {recorded:?}, {start:?}");
        drop(log);
        if nth >= freed {
            break;
        }
        let left = names(&device);
        medium.insert(&name, content).unwrap();
        let from = |_| Some(below);
        let account = Account::unlimited("check");
        // Without the start, records are missing after it, unless it is the one removed last.
        let without_start =
            crate::check(&device, None, &Known::default(), Recover::Strict, &account);
        assert_eq!(without_start.is_err(), nth + 1 < freed, "{name}");
        let checked = crate::check(
            &device,
            None,
            &Known { start: start.clone(), ..Known::default() },
            Recover::Strict,
            &account,
        )
        .unwrap();
        let (log, recovery, replayed) =
            open_with(&device, Options { start, ..options() }, &from).unwrap();
        assert_eq!(replayed, [(below.get(), b"alive".to_vec())]);
        assert_eq!((recovery.skipped, recovery.torn), (checked.records - 1, None));
        assert_eq!(log.last(), below);
        let now = names(&device);
        assert!(!now.contains(&name) && left.iter().all(|name| now.contains(name)), "{now:?}");
        nth += 1;
    }
    assert!(nth >= 3);
}

/// If the segment at the log's start is lost and later ones exist, that is damage, and the error names
/// the segment. Recovery past damage replays the later segments. Records appended afterwards are read by
/// every recovery once the log's new start is recorded.
#[test] // I7
fn a_missing_first_segment_is_damage() {
    let device = memory();
    let (log, ..) = open(&device).unwrap();
    fill(&log, 5);
    log.sync(log.last()).unwrap();
    let below = Seqno::new(log.last().get() / 2);
    log.flushed(KeyspaceId(BUSY), below);
    let (freed, start) = free_from(&log);
    assert!(freed >= 1);
    drop(log);
    let all = |_| Some(Seqno::ZERO);
    let with = |start: &Start| Options { start: start.clone(), ..options() };
    drop(open_with(&device, with(&start), &all).unwrap());
    let lost = crate::segment_name(LaneId(0), start.of(LaneId(0)));
    device.remove(&lost).unwrap();
    let account = Account::unlimited("check");
    for error in [
        open_with(&device, with(&start), &all).map(drop).unwrap_err(),
        crate::check(
            &device,
            None,
            &Known { start: start.clone(), ..Known::default() },
            Recover::Strict,
            &account,
        )
        .map(drop)
        .unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(&lost), "{error}");
    }
    let recovering = Options { recover: Recover::PastDamage, ..with(&start) };
    let (log, recovery, replayed) = open_with(&device, recovering, &all).unwrap();
    assert!(recovery.damage.is_some() && !replayed.is_empty());
    let lost = &recovery.losses[0];
    assert_eq!((lost.from.segment, lost.seqnos.0), (start.of(LaneId(0)), Seqno::ZERO));
    assert_eq!(lost.seqnos.1, Some(Seqno::new(replayed[0].0)));
    assert!(names(&device).len() > 2, "no segment is removed before the new start is recorded");
    log.flushed(KeyspaceId(BUSY), Seqno::new(log.last().get() + 1));
    let (_, start) = free_from(&log);
    assert!(names(&device).len() <= 2, "{:?}", names(&device));
    append(&log, BUSY, 1, b"anew").unwrap();
    drop(log);
    let (_, _, replayed) = open_with(&device, with(&start), &all).unwrap();
    assert_eq!(replayed.len(), 1);
}

/// If all of the log was lost, segment ids continue after the start: appended records are read again.
#[test] // I7
fn a_lost_log_continues_after_its_recorded_start() {
    let device = memory();
    let (log, ..) = open(&device).unwrap();
    fill(&log, 5);
    log.sync(log.last()).unwrap();
    let below = Seqno::new(log.last().get() + 1);
    log.flushed(KeyspaceId(BUSY), below);
    let (freed, start) = free_from(&log);
    assert!(freed >= 3);
    drop(log);
    names(&device).iter().for_each(|name| device.remove(name).unwrap());
    let options = || Options { start: start.clone(), floor: below, ..options() };
    let (log, ..) = open_with(&device, options(), &|_| Some(below)).unwrap();
    let next = append(&log, BUSY, 1, b"anew").unwrap().get();
    drop(log);
    let (_, _, replayed) = open_with(&device, options(), &|_| Some(below)).unwrap();
    assert_eq!(replayed, [(next, b"anew".to_vec())]);
}
