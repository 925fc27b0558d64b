//! Concurrent writers, readers, flushes and snapshots.
//!
//! I2: a batch becomes visible as a whole, and the visible state only advances. A snapshot does not change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Durability, ErrorKind, Rng};
use terracedb::{Db, Keyspace, WriteBatch, WriteOptions};

use crate::common::{assert_tidy_soon, memory, threaded};

const WRITERS: u64 = 3;
const PAIRS: u64 = 50;

fn pair(writer: u64, number: u64, side: char) -> String {
    format!("pair {writer} {number:03} {side}")
}

/// The number at the front of a value.
fn number_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

fn padded(number: u64, rng: &mut Rng) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + rng.below(400) as usize, 1);
    rng.fill(&mut value[8..]);
    value
}

struct Shared {
    db: Db,
    left: Keyspace,
    right: Keyspace,
    stop: AtomicBool,
    /// The last number that each writer had acknowledged.
    acknowledged: [AtomicU64; WRITERS as usize],
    /// Counts of checks by snapshots and by reads of the latest state.
    checked: [AtomicU64; 2],
}

impl Shared {
    fn running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Writes pairs of equal values with ascending numbers, one to each keyspace.
    fn write(&self, writer: u64, mut rng: Rng) {
        for number in 1.. {
            if !self.running() {
                return;
            }
            let value = padded(number, &mut rng);
            let mut batch = WriteBatch::new();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(PAIRS);
                batch.put(&self.left, pair(writer, at, 'l'), &value).unwrap();
                batch.put(&self.right, pair(writer, at, 'r'), &value).unwrap();
            }
            batch.put(&self.left, format!("last {writer}"), &value).unwrap();
            let durability = if rng.one_in(50) { Durability::Sync } else { Durability::None };
            self.db.write_opt(&batch, &WriteOptions::new().durability(durability)).unwrap();
            self.acknowledged[writer as usize].store(number, Ordering::Release);
        }
    }

    /// Snapshots see whole batches over both keyspaces, and always the same state.
    fn watch_snapshots(&self, mut rng: Rng) {
        while self.running() {
            let before = self.acknowledged.each_ref().map(|at| at.load(Ordering::Acquire));
            let snapshot = self.db.snapshot();
            for writer in 0..WRITERS {
                let last = snapshot.get(&self.left, format!("last {writer}")).unwrap();
                let last = last.map_or(0, |value| number_of(&value));
                assert!(last >= before[writer as usize], "acknowledged and not visible");
            }
            let read = || {
                let left: Vec<_> = snapshot.iter(&self.left).unwrap().map(Result::unwrap).collect();
                let right: Vec<_> =
                    snapshot.iter(&self.right).unwrap().rev().map(Result::unwrap).collect();
                (left, right)
            };
            let (left, mut right) = read();
            right.reverse();
            let pairs = left.iter().filter(|(key, _)| key.starts_with(b"pair"));
            for ((left_key, value), (right_key, other)) in pairs.clone().zip(&right) {
                assert_eq!(left_key[..left_key.len() - 1], right_key[..right_key.len() - 1]);
                assert!(value == other, "a batch in part at {left_key:?}");
            }
            assert_eq!(pairs.count(), right.len());
            if rng.one_in(3) {
                std::thread::sleep(Duration::from_millis(rng.below(20)));
            }
            let (again, mut right_again) = read();
            right_again.reverse();
            assert!(left == again && right == right_again, "a snapshot moved");
            self.checked[0].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gets, multi-gets and iterators never go back, and see every acknowledged write.
    fn watch_now(&self, mut rng: Rng) {
        let mut seen = [0; WRITERS as usize];
        while self.running() {
            for writer in 0..WRITERS {
                let least = self.acknowledged[writer as usize].load(Ordering::Acquire);
                let key = format!("last {writer}");
                let value = match rng.below(3) {
                    0 => self.left.get(&key).unwrap(),
                    1 => self.left.multi_get(&[&key]).unwrap().remove(0).unwrap(),
                    _ => self.left.prefix(&key).unwrap().next().map(|entry| entry.unwrap().1),
                };
                let last = value.map_or(0, |value| number_of(&value));
                let floor = least.max(seen[writer as usize]);
                assert!(last >= floor, "{last} after {floor}");
                seen[writer as usize] = last;
            }
            // An iterator over one keyspace reads one state: no pair is newer than its writer's last batch.
            let entries: Vec<_> = self.left.iter().unwrap().map(Result::unwrap).collect();
            let mut last = [0; WRITERS as usize];
            for (key, value) in &entries {
                if let Some(writer) = key.strip_prefix(b"last ") {
                    last[usize::from(writer[0] - b'0')] = number_of(value);
                }
            }
            for (key, value) in entries.iter().filter(|(key, _)| key.starts_with(b"pair ")) {
                assert!(number_of(value) <= last[usize::from(key[5] - b'0')]);
            }
            self.checked[1].fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test] // I1, I2
fn many_threads_see_whole_batches_and_unchanging_snapshots() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let long = std::env::var_os("TERRACE_LONG").is_some();
    // No merge runs, and a cursor takes a block per table, which needs more than the smallest memory.
    let db = threaded(&memory()).memory(512 << 20).open().unwrap();
    let shared = Shared {
        left: db.open_or_create_keyspace("left").unwrap(),
        right: db.open_or_create_keyspace("right").unwrap(),
        stop: AtomicBool::new(false),
        acknowledged: Default::default(),
        checked: Default::default(),
        db,
    };
    let checked = || shared.checked.each_ref().map(|checked| checked.load(Ordering::Relaxed));
    std::thread::scope(|scope| {
        let shared = &shared;
        for writer in 0..WRITERS {
            let rng = Rng::new(rng.next_u64());
            scope.spawn(move || stopping(shared, || shared.write(writer, rng)));
        }
        let (one, two) = (Rng::new(rng.next_u64()), Rng::new(rng.next_u64()));
        scope.spawn(move || stopping(shared, || shared.watch_snapshots(one)));
        scope.spawn(move || stopping(shared, || shared.watch_now(two)));
        let end = Instant::now() + Duration::from_secs(if long { 120 } else { 5 });
        // On a busy machine it takes longer until enough checks were made.
        let is_enough = || {
            let looks = checked().iter().all(|checked| *checked > 2);
            looks && shared.db.statistics().flushes > 2 && Instant::now() >= end
        };
        while !is_enough() && shared.running() {
            match rng.below(3) {
                0 => shared.left.flush().unwrap(),
                1 => shared.right.flush().unwrap(),
                _ => shared.db.flush().unwrap(),
            }
            let round = rng.next_u64();
            let scratch = shared.db.open_or_create_keyspace("scratch").unwrap();
            scratch.put("k", round.to_le_bytes()).unwrap();
            assert!(shared.db.drop_keyspace("scratch").unwrap());
            std::thread::sleep(Duration::from_millis(rng.below(60)));
        }
        shared.stop.store(true, Ordering::Relaxed);
    });
    let (statistics, [snapshots, nows]) = (shared.db.statistics(), checked());
    println!("{snapshots} snapshots, {nows} readings, {} flushes", statistics.flushes);
    assert!(snapshots > 2 && nows > 2 && statistics.flushes > 2);
    assert_eq!(statistics.flush_failures, 0);
    assert_eq!(statistics.snapshots, 0);
}

/// Stops all threads if `work` panics, so that the test ends.
fn stopping<T>(shared: &Shared, work: impl FnOnce() -> T) -> T {
    struct Stop<'a>(&'a Shared);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.stop.store(true, Ordering::Relaxed);
            }
        }
    }
    let _stop = Stop(shared);
    work()
}

/// A keyspace is dropped while it is written and flushed: writers get `Closed`, callers of a flush get no
/// other error, and no file is left.
#[test]
fn keyspaces_are_dropped_while_they_are_flushed() {
    let medium = memory();
    let db = threaded(&medium).open().unwrap();
    db.open_or_create_keyspace("kept").unwrap().put("k", "v").unwrap();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 3000 } else { 150 };
    for round in 0..rounds {
        let scratch = db.open_or_create_keyspace("scratch").unwrap();
        for number in 0..100u32 {
            scratch.put(number.to_be_bytes(), vec![1; 200]).unwrap();
        }
        std::thread::scope(|scope| {
            let flushing = scope.spawn(|| db.flush());
            let writing = scope.spawn(|| {
                let mut done = 0;
                while scratch.put(b"more", b"v").is_ok() {
                    done += 1;
                }
                (done, scratch.put(b"more", b"v").unwrap_err().kind())
            });
            // Sleeps of different length: the drop comes at any time from before to after the flush.
            std::thread::sleep(Duration::from_micros(round * 37 % 3000));
            assert!(db.drop_keyspace("scratch").unwrap());
            flushing.join().unwrap().unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(writing.join().unwrap().1, ErrorKind::Closed);
        });
    }
    assert_eq!(
        db.open_or_create_keyspace("kept").unwrap().get("k").unwrap().as_deref(),
        Some(&b"v"[..])
    );
    assert_eq!(db.statistics().flush_failures, 0);
    // A flush during the last drop removes its file later.
    assert_tidy_soon(&db, &*medium, "after the drops");
}
