//! The memory limit: the peak resident memory of a process exceeds it by at most a tenth, whatever its
//! stores do.
//!
//! A binary of its own, because the resident size of a process includes its code: each phase runs in a
//! child of this binary and is measured by the kernel (`VmHWM`). By default at 64 MiB, the minimum, with as
//! much data; with `TERRACE_LONG=1` also at 512 MiB with 2 GB.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::{ErrorKind, ManualClock, Rng, Stepper};
use terracedb::{Codec, Db, Keyspace, Resources, WriteBatch};

/// Environment variable of a child: the phase, the directory, the memory limit, the number of keys and the
/// codec.
const PHASE: &str = "TERRACE_MEMORY_TEST";
const VALUE_BYTES: usize = 400;

/// The least keys of an ingest: more than one table holds, however well they compress.
const INGESTED_MIN: u64 = 320_000;

/// Additional bytes of a long value in an ingest.
const LONG_BYTES: usize = 300 << 10;

/// A value whose second half compresses.
fn value(number: u64) -> Vec<u8> {
    let mut value = vec![b'v'; VALUE_BYTES];
    Rng::new(number).fill(&mut value[..VALUE_BYTES / 2]);
    value
}

fn key(number: u64) -> [u8; 16] {
    // Scattered over the key space, so that flushed tables overlap.
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&scattered.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Peak resident memory of this process, bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn in_threads(threads: u64, work: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
}

/// Child: runs one phase and reports its peak.
#[test]
fn one_phase() {
    let Ok(arguments) = std::env::var(PHASE) else { return };
    let arguments: Vec<&str> = arguments.split('|').collect();
    let (phase, directory) = (arguments[0], Path::new(arguments[1]));
    let (memory, keys): (u64, u64) = (arguments[2].parse().unwrap(), arguments[3].parse().unwrap());
    let codec = if arguments[4] == "zstd" { Codec::Zstd } else { Codec::Lz4 };
    let db = Db::builder(directory).memory(memory).codec(codec).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    match phase {
        "load" => load(&db, &keyspace, keys),
        "get" => get(&keyspace, keys),
        "queue" => queue(&db, &keyspace, keys),
        "cursors" => cursors(&db, &keyspace, keys),
        "long keys" => long_keys(&db, &keyspace),
        "many gets" => many_gets(&db, &keyspace, keys),
        "long values" => long_values(&db, &keyspace, memory),
        "overwrite and read" => overwrite_and_read(&keyspace, keys),
        "ingest" => ingest(&db, keys),
        "compact" => db.compact().unwrap(),
        "recover" => assert!(db.recovery().log_records > 0),
        other => panic!("{other}"),
    }
    println!("\n{}", db.statistics().memory);
    println!("peak {}", peak());
    // Exits like a crash: the next phase recovers the unflushed writes.
    std::process::exit(0);
}

fn load(db: &Db, keyspace: &Keyspace, keys: u64) {
    in_threads(4, |thread| {
        let mut batch = WriteBatch::new();
        for number in (thread..keys).step_by(4) {
            batch.put(keyspace, key(number), value(number)).unwrap();
            if batch.len() == 20 {
                db.write(&batch).unwrap();
                batch.clear();
            }
        }
        db.write(&batch).unwrap();
    });
    db.flush().unwrap();
    // These writes stay in the log.
    for number in 0..keys / 20 {
        keyspace.put(key(number), value(number)).unwrap();
    }
}

fn get(keyspace: &Keyspace, keys: u64) {
    in_threads(16, |thread| {
        let mut rng = Rng::new(thread);
        for _ in 0..keys / 40 {
            let number = rng.below(keys);
            assert_eq!(keyspace.get(key(number)).unwrap().as_deref(), Some(&value(number)[..]));
        }
    });
}

fn queue(db: &Db, keyspace: &Keyspace, keys: u64) {
    in_threads(8, |thread| {
        let mut rng = Rng::new(thread);
        let mut queue = match db.read_queue(256) {
            Ok(queue) => queue,
            Err(error) => return assert!(error.is_retryable(), "{error}"),
        };
        let mut out = Vec::new();
        for token in 0..keys / 40 {
            while queue.room() == 0 {
                queue.wait(1, &mut out).unwrap();
            }
            keyspace.submit(&mut queue, key(rng.below(keys)), token).unwrap();
            out.drain(..).for_each(|done| assert!(done.result.unwrap().is_some()));
        }
        queue.wait(usize::MAX, &mut out).unwrap();
        let many: Vec<_> = (0..500).map(|_| key(rng.below(keys))).collect();
        match keyspace.multi_get(&many) {
            Ok(found) => assert!(found.into_iter().all(|found| found.unwrap().is_some())),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    });
}

/// A thousand positioned cursors that have read a stretch, or as many as fit into memory.
fn cursors(db: &Db, keyspace: &Keyspace, keys: u64) {
    let open = AtomicU64::new(0);
    in_threads(8, |thread| {
        let mut rng = Rng::new(thread);
        let mut held = Vec::new();
        for _ in 0..125 {
            let mut cursor = match keyspace.cursor() {
                Ok(cursor) => cursor,
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    break;
                }
            };
            // A cursor on a long value takes more memory, so fewer fit.
            let mut moved = cursor.seek(key(rng.below(keys)));
            for _ in 0..100 {
                moved = moved.and_then(|_| cursor.next());
            }
            assert!(moved.as_ref().err().is_none_or(terracedb::Error::is_retryable), "{moved:?}");
            open.fetch_add(1, Relaxed);
            held.push(cursor);
        }
        let moved = held.iter_mut().map(|cursor| cursor.next());
        assert!(moved.filter_map(Result::err).all(|error| error.is_retryable()));
    });
    println!("{} cursors", open.load(Relaxed));
    // Merges took some of the memory meanwhile, and each table still to be merged costs a cursor more, so
    // the number varies. Without merges there are many cursors.
    db.wait_until_settled().unwrap();
    let mut held = Vec::new();
    while let (true, Ok(mut cursor)) = (held.len() < 100, keyspace.cursor()) {
        if cursor.seek(key(held.len() as u64)).is_err() {
            break;
        }
        held.push(cursor);
    }
    assert!(held.len() > 20, "{} cursors", held.len());
    drop(held);
    let mut iter = keyspace.iter().unwrap();
    assert_eq!(iter.by_ref().take(20_000).filter(Result::is_ok).count(), 20_000);
}

/// 3,000 keys of the longest length, which differ at their ends only, or as many as the store takes: the
/// metadata of tables has whole keys, and is bounded.
fn long_keys(db: &Db, keyspace: &Keyspace) {
    let key = |number: u64| [&[b'p'; (64 << 10) - 8][..], &number.to_be_bytes()].concat();
    let put = |number: &u64| {
        let put = keyspace.put(key(*number), number.to_be_bytes());
        assert!(put.as_ref().err().is_none_or(|it| it.kind() == ErrorKind::Invalid), "{put:?}");
        put.is_ok()
    };
    let keys = (0..3000).take_while(put).count() as u64;
    println!("{keys} long keys");
    db.flush().unwrap();
    for number in 0..keys {
        let number = number * 7919 % keys;
        let found = keyspace.get(key(number)).unwrap().unwrap();
        assert_eq!(found, number.to_be_bytes()[..]);
    }
    let mut seen = 0;
    for entry in keyspace.iter().unwrap().chain(keyspace.iter().unwrap()) {
        assert_eq!(entry.unwrap().0.len(), 64 << 10);
        seen += 1;
    }
    assert_eq!(seen, 2 * keys);
    db.compact().unwrap();
    keyspace.delete_range(..key(keys / 2)).unwrap();
    db.compact().unwrap();
    assert_eq!(keyspace.iter().unwrap().count() as u64, keys - keys / 2);
}

/// Keys of one call of `many_gets`.
const MANY: u64 = 100_000;

/// Memory of the results of one call of `many_gets`, which are the caller's: its list, and values with the
/// allocator's part.
const MANY_BYTES: u64 = MANY * (40 + VALUE_BYTES as u64 + 32);

/// Gets of 10^5 keys in one call: all results are kept, more than the budget holds, and every key is
/// answered. A value that a page holds with a few others keeps no page.
fn many_gets(db: &Db, keyspace: &Keyspace, keys: u64) {
    for part in 0..3 {
        let wanted: Vec<_> = (0..MANY).map(|number| (number * 7919 + part) % keys).collect();
        let names: Vec<_> = wanted.iter().map(|number| key(*number)).collect();
        let found = keyspace.multi_get(&names).unwrap();
        for (number, found) in wanted.iter().zip(&found) {
            let found = found.as_ref().unwrap_or_else(|error| panic!("{number}: {error}"));
            assert_eq!(found.as_deref(), Some(&value(*number)[..]));
        }
        // The results are not the store's: it takes writes while they are held.
        for number in 0..keys / 20 {
            keyspace.put(key(number), value(number)).unwrap();
        }
        let memory = db.statistics().memory;
        assert!(memory.used <= memory.budget, "{memory}");
    }
}

/// Values of the largest length, and many of some hundred KiB.
fn long_values(db: &Db, keyspace: &Keyspace, memory: u64) {
    for number in 0..6u64 {
        let long = vec![number as u8; memory as usize / 8];
        keyspace.put(format!("long {}", number % 2), &long).unwrap();
        assert_eq!(keyspace.get(format!("long {}", number % 2)).unwrap().unwrap(), long);
    }
    db.flush().unwrap();
    in_threads(4, |thread| {
        for number in 0..40u64 {
            let name = format!("some {thread} {number}");
            keyspace.put(&name, vec![number as u8; 300 << 10]).unwrap();
            let early = format!("some {thread} {}", number / 2);
            let found = loop {
                match keyspace.get(&early) {
                    Err(error) if error.is_retryable() => std::thread::yield_now(),
                    found => break found.unwrap().unwrap(),
                }
            };
            assert!(found.iter().all(|byte| *byte == (number / 2) as u8));
        }
    });
    assert_eq!(keyspace.get("long 1").unwrap().unwrap().len() as u64, memory / 8);
}

fn overwrite_and_read(keyspace: &Keyspace, keys: u64) {
    in_threads(6, |thread| {
        let mut rng = Rng::new(thread);
        for _ in 0..keys / 12 {
            let number = rng.below(keys);
            if thread < 2 {
                keyspace.put(key(number), value(number)).unwrap();
            } else {
                assert!(keyspace.get(key(number)).unwrap().is_some());
            }
        }
    });
}

/// Concurrent ingests, longer than one table, with long values that stay inline until merged.
fn ingest(db: &Db, keys: u64) {
    let keys = keys.max(INGESTED_MIN);
    in_threads(2, |thread| {
        let keyspace = db.open_or_create_keyspace(&format!("bulk {thread}")).unwrap();
        let mut ingest = keyspace.ingest().unwrap();
        for number in 0..keys {
            let mut value = value(number);
            if number % 4000 == 7 {
                value.resize(VALUE_BYTES + LONG_BYTES, number as u8);
            }
            ingest.put(number.to_be_bytes(), value).unwrap();
        }
        assert!(ingest.finish().unwrap().tables > 1);
        let mut rng = Rng::new(thread);
        for _ in 0..keys / 40 {
            let number = rng.below(keys);
            let found = keyspace.get(number.to_be_bytes()).unwrap().unwrap();
            assert!(found.starts_with(&value(number)));
        }
        // Overlapping writes, so that the next phase merges the ingested tables.
        for number in (0..keys).step_by(50) {
            keyspace.put(number.to_be_bytes(), value(number)).unwrap();
        }
    });
}

/// How many arenas the allocator of a child has. With many, it keeps the buffers of threads that have ended
/// their work beside those of others: how much depends on which threads work at once.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Arenas {
    Default,
    Two,
}

/// Runs a phase in a child; returns its peak.
fn measure(
    phase: &str,
    directory: &Path,
    memory: u64,
    (keys, codec, arenas): (u64, &str, Arenas),
) -> u64 {
    let arguments = format!("{phase}|{}|{memory}|{keys}|{codec}", directory.display());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "one_phase", "--nocapture"]).env(PHASE, arguments);
    if arenas == Arenas::Two {
        child.env("MALLOC_ARENA_MAX", "2");
    }
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{phase}:\n{text}\n{errors}");
    let peak = text.lines().find_map(|line| line.strip_prefix("peak ")).unwrap();
    let peak: u64 = peak.parse().unwrap();
    let part = peak as f64 / memory as f64;
    println!("{phase}, {codec}, {arenas:?} arenas: {part:.3} of {} MiB{text}", memory >> 20);
    peak
}

/// Checks that no phase needs more than `tenths` of the memory limit.
fn stays_within(memory: u64, tenths: u64, (keys, codec, arenas): (u64, &str, Arenas)) {
    let directory = tempfile::tempdir().unwrap();
    let mut over = Vec::new();
    let phases = [
        "load",
        "recover",
        "get",
        "queue",
        "cursors",
        "overwrite and read",
        "recover",
        "ingest",
        "compact",
        "cursors",
        "long values",
        "compact",
    ];
    for phase in phases {
        let peak = measure(phase, directory.path(), memory, (keys, codec, arenas));
        if peak > memory / 10 * tenths {
            over.push(format!("{phase}: {} of {} MiB", peak >> 20, memory >> 20));
        }
    }
    assert!(over.is_empty(), "{over:?}");
}

#[test] // I10
fn resident_memory_stays_within_the_memory_number() {
    stays_within(64 << 20, 11, (200_000, "lz4", Arenas::Default));
}

#[test]
fn resident_memory_stays_within_the_memory_number_with_zstd() {
    stays_within(64 << 20, 12, (100_000, "zstd", Arenas::Default));
    stays_within(64 << 20, 10, (100_000, "zstd", Arenas::Two));
}

#[test] // I10
fn resident_memory_stays_within_the_memory_number_with_long_keys_and_many_gets() {
    let directory = tempfile::tempdir().unwrap();
    let (memory, mut over) = (64 << 20, Vec::new());
    for (phase, keys) in [("long keys", 0), ("load", 200_000), ("many gets", 200_000)] {
        let directory = directory.path().join(keys.to_string());
        let peak = measure(phase, &directory, memory, (keys, "lz4", Arenas::Default));
        // The keys and the results of the call, and the test's own lists of them.
        let callers = if phase == "many gets" { MANY_BYTES + MANY * (8 + 16) } else { 0 };
        if peak > memory / 10 * 11 + callers {
            over.push(format!("{phase}: {} of {} MiB", peak >> 20, memory >> 20));
        }
    }
    assert!(over.is_empty(), "{over:?}");
}

#[test]
fn resident_memory_of_a_large_store_stays_within_the_memory_number() {
    if std::env::var_os("TERRACE_LONG").is_some() {
        stays_within(512 << 20, 11, (5_000_000, "lz4", Arenas::Default));
    }
}

/// The memory limit changes while a store works: a higher one is used at once, a lower one frees memory.
/// Background work runs only while a caller waits, so nothing changes between two readings.
#[test]
fn the_memory_number_changes_while_a_store_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let executor = Arc::new(Stepper::new(1, Arc::new(ManualClock::at(1_700_000_000_000))));
    let resources = Resources::builder().memory(96 << 20).executor(executor).build().unwrap();
    let db = Db::builder(directory.path()).resources(&resources).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let keys = 200_000;
    load(&db, &keyspace, keys);
    get(&keyspace, keys);
    let used = || db.statistics().memory.used;
    assert!(used() > 50 << 20, "{}", db.statistics().memory);
    assert!(resources.set_memory(63 << 20).is_err());
    assert_eq!(resources.memory(), 96 << 20);
    // What a merge holds comes back at any moment.
    db.wait_until_settled().unwrap();
    // What iterators hold stays until they end.
    let cursors: Vec<_> = std::iter::from_fn(|| keyspace.cursor().ok()).collect();
    let left = resources.set_memory(64 << 20).unwrap();
    let memory = db.statistics().memory;
    assert_eq!((memory.limit, memory.used.saturating_sub(memory.budget)), (64 << 20, left));
    drop(cursors);
    assert_eq!(resources.set_memory(64 << 20).unwrap(), 0);
    assert!(used() <= 44 << 20);
    get(&keyspace, keys);
    assert!(used() <= 44 << 20);
    for number in 0..keys {
        keyspace.put(key(number), value(number)).unwrap();
    }
    assert_eq!(resources.set_memory(128 << 20).unwrap(), 0);
    (0..4).for_each(|_| get(&keyspace, keys));
    assert!(used() > 64 << 20, "{}", db.statistics().memory);
    // What finds pages grows with them, though all that there was is in use.
    assert_eq!(resources.set_memory(700 << 20).unwrap(), 0);
    let pages = db.statistics().cache.capacity_pages;
    assert!(pages * 4096 > 600 << 20, "{pages}");
}
