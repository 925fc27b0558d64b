//! The load of the experiment in real time, on this machine's memory as storage-class memory: a resident
//! keyspace beside an ordered one, and beside a hash map with a log. Nothing is emulated: a directory in
//! memory stands for the device, and a fence costs what it costs here.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use base::{Error, Result, Rng, invariant};
use serde::Serialize;
use terracedb::hashed::HashedPolicy;
use terracedb::{Db, Durability, Keyspace, KeyspaceOptions, WriteOptions};

use super::hash_log::HashLog;
use crate::Latencies;

const VALUE_BYTES: usize = 256;

/// Memory limit of each store.
const MEMORY: u64 = 512 << 20;

/// Threads of the runs.
const THREADS: [usize; 2] = [1, 4];

/// The load, and the directories of the two devices.
#[derive(Clone, Copy, Debug)]
pub struct RealOptions<'a> {
    /// Entries, of 8 B and 256 B.
    pub entries: u64,
    /// Length of each run.
    pub duration: Duration,
    /// A directory in memory, or on storage-class memory.
    pub memory: &'a Path,
    /// A directory on flash.
    pub flash: &'a Path,
}

/// A run in real time. It serializes to the object that scripts parse, and displays as a line.
#[derive(Clone, Debug, Serialize)]
pub struct RealLine {
    /// Always `real-time`.
    pub table: &'static str,
    /// The store: `resident`, `ordered` or `hash-map`.
    pub store: &'static str,
    /// The device of its log: `memory` (this machine's, as storage-class memory) or `flash`.
    pub log: &'static str,
    /// The number of devices: 1.
    pub devices: usize,
    /// Threads.
    pub threads: usize,
    /// `put`, `put-synced` (every write is durable on the device of the log when it returns) or `get`, of
    /// random keys.
    pub workload: &'static str,
    /// Million operations a second.
    pub mops: f64,
    /// Median latency, microseconds.
    pub p50_us: f64,
    /// The 99th percentile, microseconds.
    pub p99_us: f64,
    /// Bytes of DRAM for each entry: of a resident keyspace its index, of a hash map everything; null for an
    /// ordered keyspace, whose entries are in memtables and caches.
    pub dram_bytes_per_entry: Option<f64>,
}

impl fmt::Display for RealLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, log, threads, workload, mops, p50_us, p99_us, .. } = self;
        write!(
            f,
            "real time {store:<9} log on {log:<6} {threads:>3} threads {workload:<10} {mops:8.4} Mop/s \
             p50 {p50_us:7.2} p99 {p99_us:8.2} us"
        )?;
        match self.dram_bytes_per_entry {
            Some(bytes) => write!(f, " {bytes:.1} B of DRAM an entry"),
            None => Ok(()),
        }
    }
}

/// Figures of the runs in real time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RealFigures {
    /// Synced puts of a resident keyspace, over those of an ordered one with its log on flash: one thread.
    pub synced_puts_over_flash: f64,
    /// Bytes of DRAM for each entry of the resident keyspace.
    pub dram_bytes_per_entry: f64,
}

enum Target {
    Keyspace(Db, Keyspace),
    Hash(HashLog),
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Put,
    PutSynced,
    Get,
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::PutSynced => "put-synced",
            Self::Get => "get",
        }
    }
}

fn key(number: u64) -> [u8; 8] {
    // An odd factor makes a permutation: neighbours are not written one after the other.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

impl Target {
    fn open(directory: &Path, log: Option<&Path>, policy: Option<HashedPolicy>) -> Result<Self> {
        let builder = Db::builder(directory).memory(MEMORY);
        let builder = match log {
            Some(log) => builder.log_path([log.display().to_string()]),
            None => builder,
        };
        let db = builder.open()?;
        let options = KeyspaceOptions::new();
        let options = match policy {
            Some(policy) => options.hashed(policy),
            None => options,
        };
        let keyspace = db.create_keyspace_opt("bench", &options)?;
        Ok(Self::Keyspace(db, keyspace))
    }

    fn put(&self, number: u64, value: &mut [u8; VALUE_BYTES], is_synced: bool) -> Result<()> {
        let key = key(number);
        value[..8].copy_from_slice(&key);
        match self {
            Self::Keyspace(_, keyspace) => {
                let durability = if is_synced { Durability::Sync } else { Durability::None };
                keyspace.put_opt(key, &value[..], &WriteOptions::new().durability(durability))
            }
            Self::Hash(map) => map.put(&key, value, is_synced),
        }
    }

    /// Reads and verifies an entry.
    fn get(&self, number: u64) -> Result<()> {
        let key = key(number);
        let mut is_right = false;
        let mut see =
            |value: &[u8]| is_right = value.len() == VALUE_BYTES && value.starts_with(&key);
        match self {
            Self::Keyspace(_, keyspace) => {
                if let Some(value) = keyspace.get(key)? {
                    see(&value);
                }
            }
            Self::Hash(map) => {
                map.get(&key, see)?;
            }
        }
        if is_right {
            return Ok(());
        }
        Err(Error::corrupt("answer of a store").expected(format_args!("the value of {number}")))
    }

    fn dram_bytes_per_entry(&self) -> Result<Option<f64>> {
        match self {
            Self::Keyspace(db, _) => {
                db.flush()?;
                let statistics = db.statistics();
                let resident = statistics.keyspaces.iter().find(|it| it.index_entries > 0);
                Ok(resident.map(|it| it.index_bytes as f64 / it.index_entries as f64))
            }
            Self::Hash(map) => map.bytes_per_entry().map(Some),
        }
    }

    /// Runs one operation on `threads` threads until the time is over.
    fn run(&self, options: &RealOptions<'_>, threads: usize, operation: Operation) -> Result<Run> {
        let begun = Instant::now();
        let worker = |thread: usize| {
            let (mut rng, mut latencies) = (Rng::new(thread as u64), Latencies::new()?);
            let mut value = [b'v'; VALUE_BYTES];
            // One operation at least: a busy machine may begin a thread late.
            loop {
                let (number, from) = (rng.below(options.entries), Instant::now());
                match operation {
                    Operation::Put => self.put(number, &mut value, false)?,
                    Operation::PutSynced => self.put(number, &mut value, true)?,
                    Operation::Get => self.get(number)?,
                }
                latencies.record(from.elapsed());
                if begun.elapsed() >= options.duration {
                    return Ok(latencies);
                }
            }
        };
        let mut all = Latencies::new()?;
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..threads).map(|thread| scope.spawn(move || worker(thread))).collect();
            workers.into_iter().try_for_each(|worker| {
                let ended = worker.join();
                invariant!(ended.is_ok(), "a thread of a run does not panic");
                let panicked = |_| Error::retry("thread of a run").expected("its end");
                all.merge(&ended.map_err(panicked)??);
                Ok::<_, Error>(())
            })
        })?;
        let (seconds, summary) = (begun.elapsed().as_secs_f64(), all.summary());
        let mops = all.count() as f64 / seconds / 1e6;
        Ok(Run { mops, p50_us: summary.p50, p99_us: summary.p99 })
    }
}

struct Run {
    mops: f64,
    p50_us: f64,
    p99_us: f64,
}

/// A store, the device of its log, and what is run on it.
struct Case {
    store: &'static str,
    log: &'static str,
    target: Target,
    operations: &'static [Operation],
}

/// Prints the runs in real time.
///
/// # Errors
/// Those of the stores and of `print`; `Corrupt` for a wrong answer.
pub fn real(
    options: &RealOptions<'_>,
    print: &mut dyn FnMut(&RealLine) -> Result<()>,
) -> Result<RealFigures> {
    use Operation::{Get, Put, PutSynced};
    let (memory, flash) = (options.memory, options.flash);
    let all: &[Operation] = &[Put, PutSynced, Get];
    let mut figures = RealFigures::default();
    let (mut in_memory, mut on_flash) = (0.0, 0.0);
    for number in 0..5 {
        let log = memory.join(format!("log-of-{number}"));
        let case = |store, log, target, operations| Case { store, log, target, operations };
        let case = match number {
            0 => {
                let policy = Some(HashedPolicy::Resident);
                let target = Target::open(&flash.join("resident"), Some(&log), policy)?;
                case("resident", "memory", target, all)
            }
            1 => {
                let target = Target::open(&memory.join("ordered"), Some(&log), None)?;
                case("ordered", "memory", target, all)
            }
            2 => {
                let target = Target::open(&flash.join("ordered"), None, None)?;
                case("ordered", "flash", target, &[PutSynced])
            }
            3 => case("hash-map", "memory", Target::Hash(HashLog::create(&log)?), all),
            _ => {
                let target = Target::Hash(HashLog::create(&flash.join("log"))?);
                case("hash-map", "flash", target, &[PutSynced])
            }
        };
        let Case { store, log, target, operations } = case;
        let mut value = [b'v'; VALUE_BYTES];
        for number in 0..options.entries {
            target.put(number, &mut value, false)?;
        }
        let dram = target.dram_bytes_per_entry()?;
        if store == "resident" {
            figures.dram_bytes_per_entry = dram.unwrap_or_default();
        }
        for operation in operations {
            for threads in THREADS {
                let Run { mops, p50_us, p99_us } = target.run(options, threads, *operation)?;
                match (store, log) {
                    _ if *operation != PutSynced || threads > 1 => {}
                    ("resident", _) => in_memory = mops,
                    ("ordered", "flash") => on_flash = mops,
                    _ => {}
                }
                print(&RealLine {
                    table: "real-time",
                    store,
                    log,
                    devices: 1,
                    threads,
                    workload: operation.name(),
                    mops,
                    p50_us,
                    p99_us,
                    dram_bytes_per_entry: dram,
                })?;
            }
        }
    }
    figures.synced_puts_over_flash = in_memory / on_flash;
    Ok(figures)
}
