//! Random histories of transactions and plain writes, checked against the serial order that their
//! sequence numbers claim.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use base::{Durability, Rng};
use media::MemoryMedium;
use parking_lot::Mutex;

use crate::{Db, Keyspace, Result, WriteBatch};

const KEYS: u64 = 12;
const THREADS: u64 = 4;

/// A bound that no machine reaches.
const NEVER: Duration = Duration::from_secs(600);

/// One read or write of a transaction, in program order.
#[derive(Debug)]
enum Step {
    Got { keyspace: usize, key: u64, value: Option<u64> },
    Walked { keyspace: usize, from: u64, limit: usize, backward: bool, found: Vec<(u64, u64)> },
    Wrote { keyspace: usize, key: u64, value: Option<u64> },
}

/// A committed transaction, or a plain batch.
#[derive(Debug)]
struct Committed {
    /// Its first sequence number; that of the snapshot for a transaction without writes.
    at: u64,
    wrote: bool,
    steps: Vec<Step>,
}

struct World {
    db: Db,
    keyspaces: [Keyspace; 2],
    history: Mutex<Vec<Committed>>,
}

fn key(number: u64) -> String {
    format!("key {number:02}")
}

fn number(bytes: &[u8]) -> u64 {
    std::str::from_utf8(bytes).unwrap().trim_start_matches("key ").parse().unwrap()
}

impl World {
    fn new() -> Self {
        let medium = Arc::new(MemoryMedium::new());
        let db = Db::on_medium(medium).memory(64 << 20).open().unwrap();
        let keyspaces = ["a", "b"].map(|name| db.open_or_create_keyspace(name).unwrap());
        Self { db, keyspaces, history: Mutex::default() }
    }

    /// Runs a transaction of a few random steps; false if its commit conflicted.
    fn transact(&self, rng: &mut Rng, next_value: u64) -> bool {
        let mut transaction = self.db.transaction();
        let mut own = BTreeMap::new();
        let mut steps = Vec::new();
        let read_only = rng.one_in(6);
        for at in 0..1 + rng.below(6) {
            let keyspace = rng.below(2) as usize;
            let target = &self.keyspaces[keyspace];
            let key_number = rng.below(KEYS);
            match rng.below(if read_only { 4 } else { 8 }) {
                0..3 => {
                    let value = transaction.get(target, key(key_number)).unwrap();
                    let value = value.as_deref().map(number);
                    match own.get(&(keyspace, key_number)) {
                        Some(written) => assert_eq!(value, *written),
                        None => steps.push(Step::Got { keyspace, key: key_number, value }),
                    }
                }
                3 => {
                    let (limit, backward) = (rng.below(5) as usize, rng.one_in(2));
                    let range = transaction.range(target, key(key_number)..).unwrap();
                    let entries: Vec<_> = if backward {
                        range.rev().take(limit).map(Result::unwrap).collect()
                    } else {
                        range.take(limit).map(Result::unwrap).collect()
                    };
                    let found: Vec<_> =
                        entries.iter().map(|(k, v)| (number(k), number(v))).collect();
                    for (found, value) in &found {
                        if let Some(written) = own.get(&(keyspace, *found)) {
                            assert_eq!(Some(*value), *written);
                        }
                    }
                    let from = key_number;
                    steps.push(Step::Walked { keyspace, from, limit, backward, found });
                }
                kind => {
                    let value = (kind < 7).then_some(next_value * 10 + at);
                    let written = match value {
                        Some(value) => transaction.put(target, key(key_number), value.to_string()),
                        None => transaction.delete(target, key(key_number)),
                    };
                    written.unwrap();
                    own.insert((keyspace, key_number), value);
                    steps.push(Step::Wrote { keyspace, key: key_number, value });
                }
            }
            if rng.one_in(3) {
                std::thread::yield_now();
            }
        }
        let wrote = !transaction.is_empty();
        match transaction.commit_at(Durability::None) {
            Ok(at) => self.history.lock().push(Committed { at: at.get(), wrote, steps }),
            Err(error) => {
                assert!(error.is_conflict(), "{error}");
                return false;
            }
        }
        true
    }

    /// Writes one key outside of any transaction.
    fn write(&self, rng: &mut Rng, next_value: u64) {
        let (keyspace, key_number) = (rng.below(2) as usize, rng.below(KEYS));
        let target = &self.keyspaces[keyspace];
        let value = rng.one_in(4).then_some(next_value * 10);
        let mut batch = WriteBatch::new();
        match value {
            Some(value) => batch.put(target, key(key_number), value.to_string()).unwrap(),
            None => batch.delete(target, key(key_number)).unwrap(),
        }
        let committer = &self.db.store().committer;
        let append = |record: wal::Batch<'_>| self.db.store().log.append_at(record);
        let at = committer.commit(batch.encoded(), Durability::None, append).unwrap().get();
        let steps = vec![Step::Wrote { keyspace, key: key_number, value }];
        self.history.lock().push(Committed { at, wrote: true, steps });
    }

    /// Replays the history serially against a model: every recorded read must equal the model's.
    fn check(&self, seed: u64) {
        let mut history = std::mem::take(&mut *self.history.lock());
        // A transaction without writes comes after the last write that it saw.
        history.sort_by_key(|committed| (committed.at, !committed.wrote));
        let mut model = [Model::new(), Model::new()];
        for committed in &history {
            let mut own = model.clone();
            for step in &committed.steps {
                own_step(step, &mut own, seed, committed);
            }
            if committed.wrote {
                model = own;
            }
        }
        for (keyspace, model) in self.keyspaces.iter().zip(&model) {
            let entries = keyspace.iter().unwrap().map(Result::unwrap);
            let found: BTreeMap<_, _> = entries.map(|(k, v)| (number(&k), number(&v))).collect();
            assert_eq!(found, *model, "seed {seed}");
        }
    }
}

type Model = BTreeMap<u64, u64>;

fn own_step(step: &Step, own: &mut [Model; 2], seed: u64, committed: &Committed) {
    match step {
        Step::Got { keyspace, key, value } => {
            let expected = own[*keyspace].get(key).copied();
            assert_eq!(*value, expected, "seed {seed}: {step:?} of {committed:?}");
        }
        Step::Walked { keyspace, from, limit, backward, found } => {
            let range = own[*keyspace].range(*from..).map(|(k, v)| (*k, *v));
            let expected: Vec<_> = if *backward {
                range.rev().take(*limit).collect()
            } else {
                range.take(*limit).collect()
            };
            assert_eq!(*found, expected, "seed {seed}: {step:?} of {committed:?}");
        }
        Step::Wrote { keyspace, key, value: Some(value) } => {
            own[*keyspace].insert(*key, *value);
        }
        Step::Wrote { keyspace, key, value: None } => {
            own[*keyspace].remove(key);
        }
    }
}

#[test] // I2
fn committed_transactions_are_serializable_in_the_order_of_their_seqnos() {
    let (mut rng, seed) = Rng::from_env();
    let long = std::env::var_os("TERRACE_LONG").is_some();
    let each = if long { 30_000 } else { 1500 };
    let world = World::new();
    // The rate of conflicts depends on the machine: all threads go on until there was one.
    let any_conflict = AtomicBool::new(false);
    let start = Instant::now();
    let (committed, runs) = std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            let mut rng = Rng::new(rng.next_u64());
            let (world, any_conflict) = (&world, &any_conflict);
            scope.spawn(move || {
                let (mut committed, mut runs) = (0, 0);
                for at in 0.. {
                    let is_enough = any_conflict.load(Relaxed) || start.elapsed() > NEVER;
                    if at >= each && is_enough {
                        break;
                    }
                    let value = at * THREADS + thread;
                    if rng.one_in(8) {
                        world.write(&mut rng, value);
                    } else {
                        let is_committed = world.transact(&mut rng, value);
                        any_conflict.fetch_or(!is_committed, Relaxed);
                        committed += u64::from(is_committed);
                        runs += 1;
                    }
                    if thread == 0 && at % 300 == 0 {
                        world.db.flush().unwrap();
                    }
                }
                (committed, runs)
            })
        });
        let threads: Vec<_> = threads.collect();
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        counts.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    });
    // A commit or plain write (one per seven runs) makes at most one run of each of the three other threads
    // fail, so at least one run in seven commits.
    assert!(committed > runs / 10, "seed {seed}: {committed} of {runs} committed");
    assert!(committed < runs, "seed {seed}: no conflict occurred");
    world.check(seed);
}
