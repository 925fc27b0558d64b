//! Fenced lanes: threads that append to several lanes at once, holes that a power cut leaves, and what a
//! fenced lane costs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use base::Rng;
use media::{
    Access, Fault, Faulty, File, Freeze, Listing, MemoryMedium, OpKind, Purpose, Queue, Rule,
};

use super::*;
use crate::log::tests::HOME;
use crate::{LogEntry, inspect};

fn open_fenced(medium: &Arc<dyn Medium>, lanes: u16) -> Result<(Log, Recovery, Replayed)> {
    open_with(medium, fenced(lanes), &|_| Some(Seqno::ZERO))
}

fn append_in(log: &Log, lane: usize, body: &[u8]) -> Result<Seqno> {
    HOME.set(Some(lane));
    append(log, 1, 1, body)
}

/// The number of batches in each segment.
fn batches(medium: &Arc<dyn Medium>) -> Vec<usize> {
    let count = |file: &Listing| {
        let mut batches = 0;
        inspect(&**medium, &file.name, &mut |entry| {
            batches += usize::from(matches!(entry, LogEntry::Batch { .. }));
            Ok(())
        })
        .unwrap();
        batches
    };
    medium.list().unwrap().iter().map(count).collect()
}

#[test]
fn lanes_share_the_seqnos_and_replay_merges_them() {
    let medium = memory();
    let mut expected = Replayed::new();
    for round in 0..4u8 {
        let (log, recovery, replayed) = open_fenced(&medium, 3).unwrap();
        assert_eq!(replayed, expected);
        assert_eq!((recovery.torn, recovery.last.get()), (None, expected.len() as u64));
        for at in 0..30u8 {
            let body = vec![round ^ at; 1 + usize::from(at) * 50];
            let first = append_in(&log, usize::from(at % 3), &body).unwrap();
            assert_eq!((first, log.durable()), (log.last(), log.last()), "durable on return");
            expected.push((first.get(), body));
        }
        let statistics = log.statistics();
        assert_eq!((statistics.syncs, statistics.fences, statistics.lanes), (0, 30, 3));
        log.sync(log.last()).unwrap();
        assert_eq!(log.statistics().fences, 30, "a sync has nothing to do");
    }
    assert!(batches(&medium).iter().filter(|batches| **batches > 0).count() >= 12);
}

/// Lanes that are appended to no more are replayed, and freed like any other.
#[test]
fn the_number_of_lanes_may_change_between_opens() {
    let medium = memory();
    let mut expected = Replayed::new();
    for lanes in [1, 4, 2, 8, 1] {
        let (log, _, replayed) = open_fenced(&medium, lanes).unwrap();
        assert_eq!(replayed, expected, "{lanes} lanes");
        for at in 0..20u8 {
            let first = append_in(&log, at.into(), &[at; 100]).unwrap();
            expected.push((first.get(), vec![at; 100]));
        }
    }
    let (log, ..) = open_with(&medium, options(), &|_| Some(Seqno::ZERO)).unwrap();
    log.flushed(KeyspaceId(1), log.last().plus(1));
    free(&log);
    let names: Vec<_> = medium.list().unwrap().into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["log-0-0000000001"], "from fenced lanes back to flash");
}

/// A batch of threads appends to all lanes, and the power is cut at a random change: the group of one lane is
/// lost although another lane fenced later ones. Acknowledged records come back, each whole, without a hole;
/// nothing that a recovery cut off comes back later.
fn power_cuts_among_threads(lanes: u16, lives: u64) {
    let (mut rng, seed) = Rng::from_env();
    let why = format!("TERRACE_SEED={seed} (threads: not repeatable)");
    let mut device = Arc::new(Faulty::new(seed).with_lines());
    let mut records = std::collections::BTreeMap::<u64, Vec<u8>>::new();
    for life in 0..lives {
        let medium: Arc<dyn Medium> = Arc::new(Yielding::over(&device));
        device.freeze(Freeze::AtChange(rng.below(120)));
        let (log, recovery, replayed) = open_fenced(&medium, lanes).unwrap();
        let replayed: std::collections::BTreeMap<_, _> = replayed.into_iter().collect();
        assert!(replayed.keys().copied().eq(1..=recovery.last.get()), "{why}, life {life}");
        assert!(replayed.iter().all(|(first, body)| records.get(first) == Some(body)), "{why}");
        // Records past the end were cut off, and their seqnos are assigned again.
        records = replayed;
        let (acknowledged, written) = (AtomicU64::new(0), parking_lot::Mutex::new(Vec::new()));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..4u64 {
                let (log, device) = (&log, &device);
                let (acknowledged, written, is_over) = (&acknowledged, &written, &is_over);
                scope.spawn(move || {
                    for at in 0..12u64 {
                        let mut body = (life << 32 | thread << 16 | at).to_le_bytes().to_vec();
                        body.resize(8 + (at * 61 % 900) as usize, thread as u8 + 1);
                        let first = append_in(log, thread as usize, &body).unwrap().get();
                        if !device.is_frozen() {
                            acknowledged.fetch_max(first, Ordering::Relaxed);
                        }
                        written.lock().push((first, body));
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        is_over.fetch_or(device.is_frozen(), Ordering::Relaxed);
                    }
                });
            }
        });
        records.extend(written.into_inner());
        let acknowledged = acknowledged.into_inner();
        let image = device.crash_image(rng.next_u64()).unwrap();
        device = Arc::new(Faulty::over(&image, rng.next_u64()).unwrap().with_lines());
        let check: Arc<dyn Medium> = Arc::new(image);
        let (_, recovery, _) = open_fenced(&check, lanes).unwrap();
        assert!(recovery.last.get() >= acknowledged, "{why}: {acknowledged} was acknowledged");
    }
}

#[test]
fn power_cuts_among_threads_lose_no_acknowledged_record() {
    power_cuts_among_threads(1, 40);
    power_cuts_among_threads(4, 120);
}

#[test]
#[ignore = "many power cuts"]
fn many_power_cuts_among_threads_lose_no_acknowledged_record() {
    power_cuts_among_threads(4, 20_000);
}

/// A lane loses its last group, a later one is fenced in another lane: replay ends at the hole, for good,
/// also when the seqnos are assigned again and the machine crashes again.
#[test]
fn a_hole_ends_replay_for_good() {
    let medium = Arc::new(MemoryMedium::new());
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let (log, ..) = open_fenced(&device, 2).unwrap();
    for at in 0..6u8 {
        append_in(&log, usize::from(at % 2), &[at; 300]).unwrap();
    }
    drop(log);
    // The last group of the first lane, seqno 5, before the last of the second lane, seqno 6.
    let name = "log-1-0000000001";
    let mut content = medium.content(name).unwrap();
    let at = content.windows(300).position(|bytes| bytes == [4; 300]).unwrap();
    content[at..at + 64].fill(0);
    medium.insert(name, content).unwrap();
    for life in 0..3u8 {
        let (log, recovery, replayed) = open_fenced(&device, 2).unwrap();
        let kept = 4 + u64::from(life);
        assert_eq!((recovery.last.get(), replayed.len() as u64), (kept, kept), "life {life}");
        assert_eq!(append_in(&log, usize::from(life), &[10 + life]).unwrap().get(), kept + 1);
        assert!(log.poisoned().is_none());
    }
}

/// Only the last group of a lane can be torn: the Mark of a later one vouches for those before it.
#[test]
fn damage_before_the_last_group_of_a_lane_is_no_torn_tail() {
    let medium = Arc::new(MemoryMedium::new());
    let device: Arc<dyn Medium> = Arc::clone(&medium) as _;
    let (log, ..) = open_fenced(&device, 2).unwrap();
    for at in 0..6u8 {
        append_in(&log, usize::from(at % 2), &[at; 300]).unwrap();
    }
    drop(log);
    let name = "log-1-0000000001";
    let sound = medium.content(name).unwrap();
    let mut content = sound.clone();
    let at = content.windows(300).position(|bytes| bytes == [2; 300]).unwrap();
    content[at] ^= 1;
    medium.insert(name, content).unwrap();
    let error = open_fenced(&device, 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let past = Options { recover: Recover::PastDamage, ..fenced(2) };
    let (_, recovery, replayed) = open_with(&device, past, &|_| Some(Seqno::ZERO)).unwrap();
    let seqnos: Vec<u64> = replayed.iter().map(|(seqno, _)| *seqno).collect();
    assert_eq!(seqnos, [1, 2, 4, 5, 6]);
    assert_eq!(recovery.losses.len(), 1, "{:?}", recovery.losses);
}

/// A lane that is missing as a whole, because its device was replaced, is damage; a salvage replays the
/// others.
#[test]
fn a_lost_lane_is_damage_and_the_other_lanes_are_salvaged() {
    let medium = memory();
    let (log, ..) = open_fenced(&medium, 3).unwrap();
    for at in 0..9u8 {
        append_in(&log, usize::from(at % 3), &[at; 10]).unwrap();
    }
    drop(log);
    medium.remove("log-2-0000000001").unwrap();
    let known = Options { has_keyspaces: true, ..fenced(3) };
    let open = |options: Options| open_with(&medium, options, &|_| Some(Seqno::ZERO));
    let error = open(known.clone()).unwrap_err();
    assert!(error.to_string().contains("3 lanes"), "{error}");
    let past = Options { recover: Recover::PastDamage, ..known };
    let (_, recovery, replayed) = open(past).unwrap();
    let seqnos: Vec<u64> = replayed.iter().map(|(seqno, _)| *seqno).collect();
    assert_eq!(seqnos, [1, 3, 4, 6, 7, 9]);
    assert!(recovery.losses.iter().any(|loss| loss.from.lane == LaneId(2)), "{recovery:?}");
}

/// A failed store poisons all lanes: threads that wait for the lost group get the error.
#[test]
fn a_failed_store_in_one_lane_ends_the_appends_of_all() {
    let device = Arc::new(Faulty::new(1).with_lines());
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let (log, ..) = open_fenced(&medium, 2).unwrap();
    append_in(&log, 0, b"one").unwrap();
    device.inject(Rule::new(OpKind::Sync, Fault::Io).name("log-2-")).unwrap();
    thread::scope(|scope| {
        let failing = scope.spawn(|| append_in(&log, 1, b"two"));
        let waiting = scope.spawn(|| {
            // Either it is before the failed group, or it waits for it and fails with it. The failing
            // thread may begin at any time.
            (0..u32::MAX).map(|_| append_in(&log, 0, b"three")).find_map(Result::err)
        });
        assert_eq!(failing.join().unwrap().unwrap_err().kind(), ErrorKind::Poisoned);
        let error = waiting.join().unwrap().expect("every lane is poisoned");
        assert_eq!(error.kind(), ErrorKind::Poisoned);
    });
    assert!(log.poisoned().is_some());
}

/// A lane whose device is full refuses its groups before they take seqnos: the other lane goes on.
#[test]
fn a_full_device_refuses_a_group_and_leaves_no_hole() {
    let device = Arc::new(Faulty::new(1).with_lines());
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let (log, ..) = open_fenced(&medium, 2).unwrap();
    device.set_capacity(Some(2 * SEGMENT_BYTES_MIN));
    let mut appended = 0;
    let full = loop {
        match append_in(&log, 0, &[1; 4000]) {
            Ok(seqno) => appended = seqno.get(),
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
    assert_eq!(append_in(&log, 1, b"small").unwrap().get(), appended + 1);
    device.set_capacity(None);
    assert_eq!(append_in(&log, 0, b"again").unwrap().get(), appended + 2);
    drop(log);
    let (_, recovery, replayed) = open_fenced(&medium, 2).unwrap();
    assert_eq!((recovery.last.get(), replayed.len() as u64), (appended + 2, appended + 2));
}

/// Unlogged batches among several lanes: one Gap, in the lane of the next batch.
#[test]
fn unlogged_batches_leave_no_hole_between_lanes() {
    let medium = memory();
    let (log, ..) = open_fenced(&medium, 2).unwrap();
    let unlogged = Batch { keyspaces: &[KeyspaceId(9)], ops: 3, body: b"unlogged" };
    append_in(&log, 0, b"one").unwrap();
    log.assign(unlogged).unwrap();
    append_in(&log, 1, b"two").unwrap();
    log.assign(unlogged).unwrap();
    log.assign(unlogged).unwrap();
    append_in(&log, 0, b"three").unwrap();
    drop(log);
    let (log, recovery, replayed) = open_fenced(&medium, 2).unwrap();
    let seqnos: Vec<u64> = replayed.iter().map(|(seqno, _)| *seqno).collect();
    assert_eq!((seqnos, recovery.last.get()), (vec![1, 5, 12], 12));
    assert_eq!(append_in(&log, 1, b"four").unwrap().get(), 13);
}

/// Segments are freed lane by lane; the gaps that this leaves between the lanes' oldest records are none.
#[test]
fn lanes_are_freed_apart() {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..30 {
        let why = format!("TERRACE_SEED={seed}, round {round}");
        let medium = memory();
        let mut start = Start::new();
        let (mut log, ..) = open_fenced(&medium, 3).unwrap();
        let mut below = 0;
        let mut written = Replayed::new();
        for _ in 0..150 {
            match rng.below(12) {
                0 => {
                    below = log.last().get() + 1;
                    log.flushed(KeyspaceId(1), Seqno::new(below));
                    let recorded = std::cell::RefCell::new(Start::new());
                    log.free(&|start| {
                        recorded.replace(start.clone());
                        Ok(())
                    })
                    .unwrap();
                    recorded.into_inner().iter().for_each(|(lane, at)| start.raise(lane, at));
                }
                1 => {
                    drop(log);
                    let options = Options { start: start.clone(), ..fenced(3) };
                    let from = |_| Some(Seqno::new(below));
                    let (next, recovery, replayed) = open_with(&medium, options, &from).unwrap();
                    let needed = written.iter().filter(|(seqno, _)| *seqno >= below);
                    assert!(replayed.iter().eq(needed), "{why}");
                    assert_eq!(recovery.last.get(), written.len() as u64, "{why}");
                    log = next;
                }
                _ => {
                    let body = vec![rng.below(256) as u8; rng.below(12_000) as usize];
                    let first = append_in(&log, rng.below(3) as usize, &body).unwrap();
                    written.push((first.get(), body));
                }
            }
        }
    }
}

/// A device whose threads run in another order each time.
#[derive(Debug)]
struct Yielding {
    inner: Arc<dyn Medium>,
}

impl Yielding {
    fn over(device: &Arc<Faulty>) -> Self {
        Self { inner: Arc::clone(device) as _ }
    }
}

impl Medium for Yielding {
    media::delegate!(inner: capabilities, remove, rename, link, list, space, sync_names, lock);
    media::delegate!(inner: undecorated);

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        self.inner.create(name, access, reserve).map(|inner| Arc::new(YieldingFile { inner }) as _)
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.inner.open(name, access)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.inner.queue(depth)
    }
}

#[derive(Debug)]
struct YieldingFile {
    inner: Arc<dyn File>,
}

impl File for YieldingFile {
    media::delegate!(inner: name, size, read, write, store, prepare_stores, write_ahead, set_len);
    media::delegate!(inner: undecorated);

    fn sync(&self, purpose: Purpose) -> Result<()> {
        // Between its store and its fence a group waits for other threads' groups.
        static TURN: AtomicU64 = AtomicU64::new(0);
        for _ in 0..TURN.fetch_add(1, Ordering::Relaxed) * 7 % 5 {
            thread::yield_now();
        }
        self.inner.sync(purpose)
    }
}
