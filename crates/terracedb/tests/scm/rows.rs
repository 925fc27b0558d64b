//! Rows in an SCM tier: they answer reads of rows evicted from DRAM, and never return an overwritten value.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use base::Rng;
use terracedb::scm::{Placement, Scm};
use terracedb::stats::RowSetStatistics;
use terracedb::{Db, EntryOptions, Keyspace};

use crate::common::{MEMORY, Machine};

const KEYS: u64 = 600_000;
/// Keys that are read in turn, again and again: more than the rows in DRAM, spread over every page.
const ASKED: u64 = 210_000;
/// A bound that no machine reaches.
const NEVER: Duration = Duration::from_secs(600);

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

/// Memory that ends with the process, like memory behind CXL.
const PLACE: &str = "emulated:cxl-dram";
const SIZE: u64 = 24 << 20;

/// A store with background threads.
fn open(folder: &tempfile::TempDir) -> (Db, Keyspace) {
    let scm = Scm::new(PLACE, SIZE).unwrap();
    let db = Db::builder(folder.path()).memory(MEMORY).scm(scm).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    (db, keyspace)
}

fn key(number: u64) -> [u8; 8] {
    // Scatters adjacent numbers over the key space, so that a page is seldom used twice.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn value(number: u64, version: u64) -> Vec<u8> {
    let mut value = vec![0; 120 + (number % 100) as usize];
    // Part of the value compresses.
    Rng::new(number << 32 | version).fill(&mut value[..110]);
    value
}

fn rows(db: &Db) -> RowSetStatistics {
    db.statistics().scm.unwrap().counts.rows
}

/// Some 100 MB, compacted: more than DRAM and SCM hold.
fn fill(db: &Db, keyspace: &Keyspace) {
    for number in 0..KEYS {
        keyspace.put(key(number), value(number, 0)).unwrap();
    }
    db.compact().unwrap();
}

#[test]
fn a_row_evicted_from_dram_is_answered_from_scm() {
    let machine = Machine::new();
    let (db, keyspace) = machine.open(PLACE, SIZE, Placement::Adaptive);
    fill(&db, &keyspace);
    let get_all = || {
        let mut numbers = 0..ASKED;
        machine.times(ASKED, || {
            let number = numbers.next().unwrap();
            let found = keyspace.get(key(number)).unwrap().unwrap();
            assert_eq!(found, value(number, 0));
        });
    };
    get_all();
    let (before, scm) = (rows(&db), db.statistics().hits.scm);
    get_all();
    let (counts, statistics) = (rows(&db), db.statistics());
    let hits = counts.hits - before.hits;
    assert!(hits > 5_000, "{counts:?}");
    // Row hits count as hits of the SCM tier, as page hits do.
    assert!(statistics.hits.scm - scm >= hits);
    assert!(counts.rows > 1_000 && counts.slots <= counts.slots_max + 64, "{counts:?}");
    assert_eq!(counts.damaged, 0, "{counts:?}");
    // Multi-gets.
    let numbers: Vec<u64> = (0..ASKED).step_by(7).collect();
    for some in numbers.chunks(500) {
        let keys: Vec<_> = some.iter().map(|number| key(*number)).collect();
        for (number, found) in some.iter().zip(keyspace.multi_get(&keys).unwrap()) {
            assert_eq!(found.unwrap().unwrap(), value(*number, 0));
        }
    }
}

/// Threads that each put, delete, expire and read their own keys during flushes, merges and range deletes:
/// each reads its latest write, and a snapshot its own state.
#[test] // I1
fn each_thread_reads_its_latest_write() {
    const WRITERS: u64 = 3;
    const TURN: u64 = ASKED / WRITERS;
    let folder = folder();
    let (db, keyspace) = open(&folder);
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    fill(&db, &keyspace);
    let done = AtomicBool::new(false);
    // The number of rows demoted during writes depends on time, so the writers go on until there were
    // enough hits.
    let is_tried = |counts: &RowSetStatistics| counts.hits > 3_000 && counts.demoted > 5_000;
    let start = Instant::now();
    thread::scope(|scope| {
        let (db, keyspace, done) = (&db, &keyspace, &done);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let mut rng = Rng::new(rng.next_u64());
                scope.spawn(move || {
                    let mut model: BTreeMap<u64, Option<u64>> = BTreeMap::new();
                    let far = SystemTime::now() + Duration::from_secs(3600);
                    for version in 1.. {
                        if version > 3 * TURN
                            && version % 1000 == 0
                            && (is_tried(&rows(db)) || start.elapsed() > NEVER)
                        {
                            break;
                        }
                        // Recently written keys are read again within a turn; rows that were read in two
                        // turns are demoted.
                        let number = version % TURN * WRITERS + writer;
                        let wanted = |model: &BTreeMap<u64, Option<u64>>, number: u64| {
                            let version = model.get(&number).copied().unwrap_or(Some(0))?;
                            Some(value(number, version))
                        };
                        match rng.below(40) {
                            0 => {
                                keyspace.put(key(number), value(number, version)).unwrap();
                                model.insert(number, Some(version));
                            }
                            1 => {
                                keyspace.delete(key(number)).unwrap();
                                model.insert(number, None);
                            }
                            2 => {
                                let value = value(number, version);
                                keyspace
                                    .put_opt(
                                        key(number),
                                        value,
                                        &EntryOptions::new().expires_at(far),
                                    )
                                    .unwrap();
                                model.insert(number, Some(version));
                            }
                            3 if version < 20_000 && rng.one_in(100) => {
                                // A range delete of one key invalidates the rows of all keys.
                                let (from, mut to) = (key(number), key(number).to_vec());
                                to.push(0);
                                keyspace.delete_range(&from[..]..&to[..]).unwrap();
                                model.insert(number, None);
                            }
                            4 if rng.one_in(20) => {
                                let snapshot = db.snapshot();
                                let before = wanted(&model, number);
                                keyspace.put(key(number), value(number, version)).unwrap();
                                model.insert(number, Some(version));
                                let found = snapshot.get(keyspace, key(number)).unwrap();
                                assert_eq!(found.map(Vec::from), before, "seed {seed}");
                            }
                            _ => {
                                let found = keyspace.get(key(number)).unwrap().map(Vec::from);
                                assert!(found == wanted(&model, number), "{number}, seed {seed}");
                            }
                        }
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            while !done.load(Relaxed) {
                db.flush().unwrap();
                thread::sleep(Duration::from_millis(30));
            }
        });
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    let counts = rows(&db);
    assert!(is_tried(&counts), "seed {seed}: {counts:?}");
    assert_eq!(counts.damaged, 0, "seed {seed}: {counts:?}");
}
