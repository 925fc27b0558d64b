//! All six systems in one store: an ordered, a `keep`, a `window` and a `resident` keyspace, the log on
//! storage-class memory, a cache tier there, and a worker that runs merges.
//!
//! A child process writes batches over all four keyspaces. The parent kills it again and again, opens the
//! store each time, and verifies every key: a batch is in all keyspaces or in none, and no acknowledged one
//! is lost. At the end it prints the statistics of the store on one page.
//!
//! ```sh
//! cargo run --release --example six_systems          # 3 kills
//! cargo run --release --example six_systems -- 50
//! ```
//!
//! A directory in `/dev/shm` stands for storage-class memory here. On a machine with such memory it is a
//! directory on a DAX file system.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, thread};

use terracedb::compaction::{Address, Credentials, Timing, Worker, WorkerOptions, Workers};
use terracedb::env::SystemClock;
use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::scm::Scm;
use terracedb::stats::format_bytes;
use terracedb::{Db, Keyspace, KeyspaceOptions, WriteBatch};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Keys that are written again and again, in each keyspace.
const KEYS: u64 = 3000;

/// Every so many batches the memtables are flushed, so that all kinds have flushed entries.
const FLUSH_EVERY: u64 = 4000;

/// The most that the log may keep after many kills, bytes: the live entries take 0.7 MiB, and a process
/// leaves at most 9 MiB.
const LOG_BYTES_MAX: u64 = 32 << 20;

/// The key of the number of the last batch.
const LAST: &str = "last";

/// The store and its four keyspaces.
struct Store {
    db: Db,
    /// The names, for messages, with the keyspaces.
    keyspaces: Vec<(&'static str, Keyspace)>,
}

impl Store {
    fn open(directory: &Path) -> Result<Self> {
        let place = |name: &str| directory.join(name).display().to_string();
        let timing = Timing::default();
        let worker = vec![Address::Unix(directory.join("worker"))];
        let workers =
            Workers::new(worker, Credentials::default(), timing, Arc::new(SystemClock::new()))?;
        let db = Db::builder(directory.join("store"))
            .memory(64 << 20)
            .log_path([place("log")])
            .log_lanes(3)
            .scm(Scm::new(&place("tier"), 32 << 20)?)
            .workers(Arc::new(workers))
            .open()?;
        let window = HashedPolicy::Window { bytes: 64 << 20, discard: Discard::Fifo };
        let hashed = |policy| KeyspaceOptions::new().hashed(policy);
        let mut keyspaces = vec![("ordered", db.open_or_create_keyspace("ordered")?)];
        for (name, policy) in
            [("keep", HashedPolicy::Keep), ("window", window), ("resident", HashedPolicy::Resident)]
        {
            keyspaces.push((name, db.open_or_create_keyspace_opt(name, &hashed(policy))?));
        }
        Ok(Self { db, keyspaces })
    }

    /// Writes batch `number` to all keyspaces.
    fn write(&self, number: u64) -> Result<()> {
        let mut batch = WriteBatch::new();
        for (_, keyspace) in &self.keyspaces {
            match value(number) {
                Some(value) => batch.put(keyspace, key(number), value)?,
                None => batch.delete(keyspace, key(number))?,
            }
            batch.put(keyspace, LAST, number.to_be_bytes())?;
        }
        self.db.write(&batch)?;
        if number.is_multiple_of(FLUSH_EVERY) {
            self.db.flush()?;
        }
        Ok(())
    }

    /// The number of the last batch.
    fn last_batch(&self) -> Result<u64> {
        let (_, first) = self.keyspaces.first().ok_or("the store has keyspaces")?;
        Self::last(first)
    }

    /// The number of the last batch in `keyspace`.
    fn last(keyspace: &Keyspace) -> Result<u64> {
        let last = keyspace.get(LAST)?;
        Ok(last.map_or(Ok(0), |last| last[..].try_into().map(u64::from_be_bytes))?)
    }

    /// Verifies every key of every keyspace. Returns the number of the last batch.
    fn verify(&self, acknowledged: u64) -> Result<u64> {
        let last = self.last_batch()?;
        if last < acknowledged {
            return Err(format!("batch {acknowledged} was acknowledged, and {last} is last").into());
        }
        for (name, keyspace) in &self.keyspaces {
            if Self::last(keyspace)? != last {
                return Err(format!("batch {last} is not whole: {name} lacks it").into());
            }
            for slot in 0..KEYS.min(last) {
                // The last batch that wrote the key.
                let number = last - (last - slot) % KEYS;
                let expected = if number == 0 { None } else { value(number) };
                if keyspace.get(key(number))?.as_deref() != expected.as_deref() {
                    return Err(format!("{name}: key {slot} is not that of batch {number}").into());
                }
            }
        }
        Ok(last)
    }

    /// Fails if the log keeps much more than the live entries and a few segments: what died with a process is
    /// freed by a later one.
    fn must_have_freed_the_log(&self) -> Result<()> {
        let bytes = self.db.statistics().log_bytes;
        if bytes > LOG_BYTES_MAX {
            return Err(format!("the log has {}", format_bytes(bytes)).into());
        }
        Ok(())
    }

    /// Prints the statistics on one page.
    fn report(&self, kills: u64, last: u64) {
        let statistics = self.db.statistics();
        println!(
            "{last} batches over four keyspaces, the writer killed {kills} times, nothing lost\n"
        );
        println!(
            "{:<10} {:>9} {:>11} {:>6} {:>12}",
            "keyspace", "entries", "in tables", "runs", "index"
        );
        for keyspace in &statistics.keyspaces {
            let entries = keyspace.table_entries.max(keyspace.index_entries);
            println!(
                "{:<10} {entries:>9} {:>11} {:>6} {:>12}",
                keyspace.name,
                format_bytes(keyspace.table_bytes),
                keyspace.runs,
                format_bytes(keyspace.index_bytes + keyspace.pinned_bytes),
            );
        }
        let log = &statistics.log_collection;
        println!("\nlog on storage-class memory: {}", format_bytes(statistics.log_bytes));
        for lane in &log.lanes {
            let of = if lane.is_of_survivors { "survivors" } else { "writers" };
            println!(
                "  lane {} of {of}: {} in {} segments, {} batches, queue {}",
                lane.lane.0,
                format_bytes(lane.bytes),
                lane.segments,
                lane.records,
                lane.queue
            );
        }
        println!(
            "  resident entries: utilisation {:.2} of writers' segments, {:.2} of survivors'",
            log.writers.utilisation(),
            log.survivors.utilisation()
        );
        println!(
            "  collected {} segments, moved {} entries of {}, write amplification {:.2}",
            log.collected_segments,
            log.moved_entries,
            format_bytes(log.moved_bytes),
            log.collection_write_amplification()
        );
        if let Some(tier) = &statistics.scm {
            println!(
                "\ntier on {}: {} pages, {} hits, {} written",
                tier.place,
                tier.counts.resident,
                tier.counts.hits_data,
                format_bytes(tier.counts.bytes_written)
            );
        }
        for worker in &statistics.compaction.workers {
            println!(
                "\nworker {}: {} merges, {} written",
                worker.address,
                worker.jobs,
                format_bytes(worker.bytes_written)
            );
        }
        let memory = &statistics.memory;
        println!("\nmemory {} of {}", format_bytes(memory.used), format_bytes(memory.limit));
    }
}

fn key(number: u64) -> [u8; 8] {
    (number % KEYS).to_be_bytes()
}

/// The value that batch `number` writes; `None`: it deletes.
fn value(number: u64) -> Option<Vec<u8>> {
    let length = 8 + (number * 131 % 500) as usize;
    let mut value = number.to_be_bytes().to_vec();
    value.resize(length, number as u8);
    (!number.is_multiple_of(7)).then_some(value)
}

/// The child: writes until it is killed, and prints the number of each acknowledged batch.
fn write_until_killed(directory: &Path) -> Result<()> {
    let store = Store::open(directory)?;
    let mut output = std::io::stdout().lock();
    for number in store.last_batch()? + 1.. {
        store.write(number)?;
        writeln!(output, "{number}")?;
    }
    Ok(())
}

/// Ends the child, also if verification fails.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a child until it has acknowledged about `batches` batches, and kills it. Returns the last number.
fn one_life(directory: &Path, batches: u64) -> Result<u64> {
    let mut command = Command::new(env::current_exe()?);
    let child = command.arg("--write").arg(directory).stdout(Stdio::piped()).spawn()?;
    let mut writer = Writer(child);
    let output = writer.0.stdout.take().ok_or("the child has an output")?;
    let mut lines = BufReader::new(output).lines();
    let mut last = 0;
    for line in lines.by_ref().take(batches as usize) {
        last = line?.parse()?;
    }
    writer.0.kill()?;
    // Lines that were printed before the child's death count, if they are whole.
    for line in lines.map_while(std::result::Result::ok) {
        last = line.parse().map_or(last, |number: u64| number.max(last));
    }
    Ok(last)
}

/// A worker in a thread of this process; `terrace worker` is one of its own.
fn start_worker(directory: &Path, stop: &Arc<AtomicBool>) -> Result<thread::JoinHandle<()>> {
    let options = WorkerOptions { memory: 128 << 20, ..WorkerOptions::default() };
    let worker = Worker::listen(&Address::Unix(directory.join("worker")), options)?;
    let stop = Arc::clone(stop);
    Ok(thread::spawn(move || {
        if let Err(error) = worker.run(&stop, |_| {}) {
            eprintln!("worker: {error}");
        }
    }))
}

fn main() -> Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let [write, directory] = &arguments[..]
        && write == "--write"
    {
        return write_until_killed(Path::new(directory));
    }
    let kills = arguments.first().map_or(Ok(3), |kills| kills.parse::<u64>())?;
    if !Path::new("/dev/shm").is_dir() {
        println!("this machine has no /dev/shm, which stands for storage-class memory here");
        return Ok(());
    }
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let stop = Arc::new(AtomicBool::new(false));
    let worker = start_worker(directory.path(), &stop)?;
    let mut last = 0;
    for kill in 0..kills {
        // From an early death to one after some flushes.
        let batches = 1 + (kill + 1).wrapping_mul(2_654_435_761) % 9000;
        let acknowledged = one_life(directory.path(), batches)?;
        last = Store::open(directory.path())?.verify(acknowledged)?;
        println!("kill {}: batch {last} is the last one", kill + 1);
    }
    let store = Store::open(directory.path())?;
    store.db.compact()?;
    store.verify(last)?;
    store.report(kills, last);
    // After few kills the log of the last ones is most of it.
    if kills >= 20 {
        store.must_have_freed_the_log()?;
    }
    drop(store);
    stop.store(true, Ordering::Release);
    worker.join().map_err(|_| "the worker panicked")?;
    Ok(())
}
