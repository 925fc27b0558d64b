//! Model tests of the combiner, its slots, the seqnos and the syncer: the same files, compiled over shuttle's
//! scheduler, which explores interleavings.

#[expect(clippy::duplicate_mod, reason = "the same source over other primitives is the point")]
#[path = "combiner.rs"]
mod combiner;
#[expect(clippy::duplicate_mod, reason = "the same source over other primitives is the point")]
#[expect(dead_code, reason = "the model uses only the part that lanes share")]
#[path = "numbers.rs"]
mod numbers;
#[expect(clippy::duplicate_mod, reason = "the same source over other primitives is the point")]
#[path = "slot.rs"]
mod slot;
#[expect(clippy::duplicate_mod, reason = "the same source over other primitives is the point")]
#[path = "syncer.rs"]
mod syncer;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use base::{Error, KeyspaceId, Result, SegmentId, Seqno};
use shuttle::thread;

use crate::address::Written;
use crate::group::Group;
use crate::options::Batch;
use combiner::{Combiner, Writer};
use numbers::Numbers;
use sync::Arc;
use syncer::Syncer;

/// The counterpart of `crate::sync`.
mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use shuttle::sync::{Arc, Condvar, MutexGuard};

    /// Fewer slots than callers, so that some callers find none.
    pub(crate) const SLOTS: usize = 2;

    pub(crate) fn home() -> usize {
        0
    }

    /// Spins once, then sleeps.
    #[derive(Default)]
    pub(crate) struct Backoff(bool);

    impl Backoff {
        pub(crate) fn wait(&mut self) -> bool {
            shuttle::hint::spin_loop();
            !std::mem::replace(&mut self.0, true)
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(guard).unwrap()
    }
}

/// Writes to memory. Refuses a group that holds a batch of [`REFUSED`] operations.
struct Tape {
    next: u64,
    /// First seqno and operations of every record.
    records: Vec<(u64, u64)>,
    /// Bytes of all records.
    bytes: u64,
}

const REFUSED: u32 = 7;

impl Writer for Tape {
    fn write(&mut self, group: &mut Group, rest: &[u8]) -> Result<Written> {
        assert!(!group.is_empty(), "an empty group is never written");
        group.finish(0, 0, self.next)?;
        let mut bytes = group.image().to_vec();
        bytes.extend_from_slice(rest);
        let (mut at, mut next, mut records) = (0, self.next, Vec::new());
        while at < bytes.len() {
            let record = crate::parse_record(0, &bytes[at..]).unwrap();
            let crate::Content::Batch { ops, body, .. } = record.content else { panic!() };
            assert_eq!(body, [ops as u8; 3]);
            if ops == REFUSED {
                return Err(Error::no_space("tape"));
            }
            records.push((next, u64::from(ops)));
            next += u64::from(ops);
            at += crate::record_bytes(&bytes[at..]).unwrap();
        }
        assert_eq!(records.len(), group.len());
        let written =
            Written { first: Seqno::new(self.next), segment: SegmentId(1), offset: self.bytes };
        self.bytes += bytes.len() as u64;
        self.records.extend(records);
        self.next = next;
        Ok(written)
    }
}

fn append(combiner: &Combiner<Tape>, ops: u32) -> Result<Seqno> {
    let batch = Batch { keyspaces: &[KeyspaceId(1)], ops, body: &[ops as u8; 3] };
    combiner.append(&batch).map(|written| written.first)
}

/// Runs `test` under many interleavings: random ones, and ones with few, well-placed switches.
fn explore(runs: usize, test: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(test, runs);
    shuttle::check_pct(test, runs, 3);
}

/// Four threads append. A fifth reads the state under the barrier. A sixth appends only if its check
/// succeeds. Every batch is written once, with the seqno that its caller got. No batch comes between a
/// check and its batch, and no thread waits for ever. `group_bytes` bounds the records that are copied.
fn appends_and_barriers(group_bytes: usize) {
    let combiner =
        Arc::new(Combiner::new(Tape { next: 1, records: Vec::new(), bytes: 0 }, group_bytes));
    let writers = (1..=4u32).map(|ops| {
        let combiner = Arc::clone(&combiner);
        thread::spawn(move || {
            let append = |ops| (append(&combiner, ops).unwrap().get(), u64::from(ops));
            [append(ops), append(ops)]
        })
    });
    let writers: Vec<_> = writers.collect();
    let looker = Arc::clone(&combiner);
    let looker = thread::spawn(move || looker.with(|tape| (tape.next, tape.records.len())));
    let checker = Arc::clone(&combiner);
    let checker = thread::spawn(move || {
        let batch = Batch { keyspaces: &[KeyspaceId(1)], ops: 5, body: &[5; 3] };
        // A check that fails: the lane is held and given back without a batch.
        drop(checker.hold());
        let mut held = checker.hold();
        let seen = held.writer().unwrap().next;
        assert_eq!(held.append(&batch).unwrap().first.get(), seen);
        drop(held);
        (seen, 5)
    });
    let mut returned: Vec<_> =
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    returned.push(checker.join().unwrap());
    returned.sort_unstable();
    let (next, before) = looker.join().unwrap();
    combiner.with(|tape| {
        assert_eq!(tape.records, returned);
        assert_eq!(tape.next, 1 + 2 * (1 + 2 + 3 + 4) + 5);
        assert!(tape.records[..before].iter().all(|(first, ops)| first + ops <= next));
        assert!(tape.records[before..].iter().all(|(first, _)| *first >= next));
    });
}

#[test]
fn every_published_batch_is_written_once_with_the_seqno_returned() {
    explore(2000, || appends_and_barriers(1 << 20));
}

#[test]
fn callers_whose_batch_does_not_fit_a_slot_wait_for_the_lane() {
    // A record has 26 bytes: with 30 it fits a group but no slot, with 10 neither.
    explore(1000, || appends_and_barriers(30));
    explore(1000, || appends_and_barriers(10));
}

/// A refused group is refused as a whole and takes no seqnos. The other groups are unaffected.
#[test]
fn a_refused_group_takes_no_seqnos() {
    explore(1000, || {
        let combiner =
            Arc::new(Combiner::new(Tape { next: 1, records: Vec::new(), bytes: 0 }, 1 << 20));
        let callers: Vec<_> = [1, REFUSED, 2]
            .into_iter()
            .map(|ops| {
                let combiner = Arc::clone(&combiner);
                thread::spawn(move || (ops, append(&combiner, ops)))
            })
            .collect();
        let returned: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
        let mut written = Vec::new();
        for (ops, result) in returned {
            match result {
                Ok(first) => written.push((first.get(), u64::from(ops))),
                Err(error) => assert_eq!(error.kind(), base::ErrorKind::NoSpace),
            }
            assert!(ops != REFUSED || !written.iter().any(|(_, ops)| *ops == u64::from(REFUSED)));
        }
        written.sort_unstable();
        assert_eq!(combiner.waiting(), 0);
        combiner.with(|tape| assert_eq!(tape.records, written));
    });
}

/// Callers write, then sync, twice. Each returns only after its write is durable, whichever caller
/// syncs. Syncs are shared: never more syncs than calls, and in some interleaving fewer.
#[test]
fn concurrent_syncs_are_shared_and_cover_every_waiting_caller() {
    static SHARED: AtomicU64 = AtomicU64::new(0);
    explore(1000, || {
        let state = Arc::new((Syncer::default(), [const { AtomicU64::new(0) }; 3]));
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let state = Arc::clone(&state);
                thread::spawn(move || {
                    let (syncer, [written, durable, syncs]) = &*state;
                    for _ in 0..2 {
                        let mine = written.fetch_add(1, SeqCst) + 1;
                        thread::yield_now();
                        let settled = || (durable.load(SeqCst) >= mine).then_some(Ok(()));
                        let sync = || {
                            let upto = written.load(SeqCst);
                            thread::yield_now();
                            durable.fetch_max(upto, SeqCst);
                            syncs.fetch_add(1, SeqCst);
                            Ok(())
                        };
                        syncer.sync(settled, sync, Ok).unwrap();
                        assert!(durable.load(SeqCst) >= mine);
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        let syncs = state.1[2].load(SeqCst);
        assert!((1..=6).contains(&syncs));
        SHARED.fetch_add(u64::from(syncs < 6), SeqCst);
    });
    assert!(SHARED.load(SeqCst) > 0, "no sync was ever shared");
}

/// A device loses a record and reports the failure to one of two callers that sync the file. Whichever
/// caller gets the report, the writer of the record is not told that it is durable.
#[test] // I11
fn a_failure_reported_to_a_sync_ahead_reaches_the_callers() {
    static REPORTED_AHEAD: AtomicU64 = AtomicU64::new(0);
    explore(1000, || {
        let state = Arc::new((Syncer::default(), [const { AtomicU64::new(0) }; 2]));
        /// Whether the device reports its failure: to the first sync only.
        fn fails(syncs: &AtomicU64) -> bool {
            let first = syncs.fetch_add(1, SeqCst) == 0;
            thread::yield_now();
            first
        }
        let beside = Arc::clone(&state);
        let beside = thread::spawn(move || {
            let (syncer, [syncs, poisoned]) = &*beside;
            syncer.sync_ahead(|| {
                if fails(syncs) {
                    poisoned.store(1, SeqCst);
                    REPORTED_AHEAD.fetch_add(1, SeqCst);
                }
            });
        });
        let (syncer, [syncs, poisoned]) = &*state;
        let failed = |is: bool| if is { Err(Error::no_space("device")) } else { Ok(()) };
        let finish = |()| failed(poisoned.load(SeqCst) == 1);
        assert!(syncer.sync(|| None, || failed(fails(syncs)), finish).is_err());
        beside.join().unwrap();
    });
    assert!(REPORTED_AHEAD.load(SeqCst) > 0, "no failure was ever reported to a sync ahead");
}

/// Three lanes take seqnos and store their groups. A thread that was told that all records up to its own are
/// stored finds every lower seqno stored, and no thread waits for ever.
#[test]
fn a_seqno_is_acknowledged_only_after_all_lower_ones_are_stored() {
    explore(3000, || {
        let numbers = Arc::new(Numbers::new(3, 1, 1));
        let stored = Arc::new(AtomicU64::new(0));
        let lanes: Vec<_> = (0..3)
            .map(|lane| {
                let (numbers, stored) = (Arc::clone(&numbers), Arc::clone(&stored));
                thread::spawn(move || {
                    for ops in 1..=2 {
                        let first = numbers.take(lane, ops, |_, _| ()).unwrap().first;
                        thread::yield_now();
                        let own = (first..first + ops).fold(0, |bits, seqno| bits | 1 << seqno);
                        stored.fetch_or(own, SeqCst);
                        numbers.stored(lane);
                        let last = first + ops - 1;
                        assert!(numbers.wait_until_stored(last));
                        let lower = (1 << (last + 1)) - 2;
                        assert_eq!(stored.load(SeqCst) & lower, lower);
                    }
                })
            })
            .collect();
        lanes.into_iter().for_each(|lane| lane.join().unwrap());
        assert_eq!(numbers.stored_up_to(), 9);
    });
}

/// As above, and the second group of a lane fails, at any moment. Every record before the lost group is
/// acknowledged, and none behind it: a later one that were acknowledged alone would never become visible.
#[test]
fn a_lost_group_refuses_all_later_seqnos_and_no_earlier_one() {
    explore(3000, || {
        let numbers = Arc::new(Numbers::new(3, 1, 1));
        let lanes: Vec<_> = (0..3)
            .map(|lane| {
                let numbers = Arc::clone(&numbers);
                thread::spawn(move || {
                    let mut outcomes = Vec::new();
                    for group in 0..2 {
                        let taken = numbers.take(lane, 1, |_, _| ()).unwrap();
                        thread::yield_now();
                        if (lane, group) == (2, 1) {
                            numbers.lose(taken, 1);
                            assert!(!numbers.wait_until_stored(taken.first));
                            return (outcomes, Some(taken.first));
                        }
                        numbers.stored(lane);
                        outcomes.push((taken.first, numbers.wait_until_stored(taken.first)));
                    }
                    (outcomes, None)
                })
            })
            .collect();
        let ended: Vec<_> = lanes.into_iter().map(|lane| lane.join().unwrap()).collect();
        let lost = ended.iter().find_map(|(_, lost)| *lost).unwrap();
        for (seqno, is_stored) in ended.into_iter().flat_map(|(outcomes, _)| outcomes) {
            assert_eq!(is_stored, seqno < lost, "{seqno}, and {lost} is lost");
        }
    });
}
