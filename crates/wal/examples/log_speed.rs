//! What the log costs on this machine: `cargo run --release -p terrace-wal --example log_speed DIR`.
//!
//! Appends of 150-byte bodies by one, two and four threads, beside bare stores of as many bytes;
//! synced appends by one, two and eight threads, of which alone with `DIR synced`; and replay from the page
//! cache.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use base::{Account, KeyspaceId, Result, Seqno, StoreId};
use media::{Access, FileMedium, FileOptions, Medium, Purpose};
use terrace_wal::{Batch, Log, Options};

const RECORDS: u32 = 2_000_000;
const BODY: [u8; 150] = [7; 150];

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "/tmp/terrace-wal-speed".to_owned());
    let dir = Path::new(&dir);
    let is_synced_alone = std::env::args().nth(2).is_some_and(|part| part == "synced");
    if !is_synced_alone {
        bare_stores(&dir.join("stores"))?;
        for threads in [1, 2, 4] {
            appends(&dir.join(format!("appends-{threads}")), threads)?;
        }
    }
    for threads in [1, 2, 8] {
        synced(&dir.join(format!("synced-{threads}")), threads)?;
    }
    if is_synced_alone {
        return Ok(());
    }
    replay(&dir.join("appends-1"))
}

fn medium(dir: &Path) -> Result<Arc<dyn Medium>> {
    Ok(Arc::new(FileMedium::open(dir, FileOptions::default())?))
}

fn open(dir: &Path) -> Result<Log> {
    let account = Account::unlimited("log");
    let opened =
        Log::open(medium(dir)?, Options::new(StoreId(1)), &account, &|_| None, &mut |_, _| Ok(()));
    Ok(opened?.0)
}

/// Runs `work` on each of `threads` threads; seconds.
fn timed(threads: u32, work: impl Fn() -> Result<()> + Sync) -> Result<f64> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        running.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(start.elapsed().as_secs_f64())
}

fn append(log: &Log) -> Result<Seqno> {
    log.append(Batch { keyspaces: &[KeyspaceId(1)], ops: 1, body: &BODY })
}

fn bare_stores(dir: &Path) -> Result<()> {
    let medium = medium(dir)?;
    let mut seconds = 0.0;
    let bytes = [7; BODY.len() + 23];
    let each = (64 << 20) / bytes.len() as u32;
    for file in 0..RECORDS / each {
        let file = medium.create(&format!("f{file}"), Access::Bytes, 64 << 20)?;
        seconds += timed(1, || {
            (0..each).try_for_each(|at| {
                file.store(u64::from(at) * bytes.len() as u64, &bytes, Purpose::Log)
            })
        })?;
    }
    let stores = f64::from(RECORDS / each * each);
    println!("bare stores               {:7.0} ns each", seconds / stores * 1e9);
    Ok(())
}

fn appends(dir: &Path, threads: u32) -> Result<()> {
    let log = open(dir)?;
    let done = std::sync::atomic::AtomicBool::new(false);
    let seconds = std::thread::scope(|scope| {
        let (log, done) = (&log, &done);
        // As the engine's background task does.
        scope.spawn(move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = log.prepare(1);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let each = RECORDS / threads;
        let seconds = timed(threads, || (0..each).try_for_each(|_| append(log).map(drop)));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        seconds
    })?;
    let statistics = log.statistics();
    println!(
        "appends, {threads} threads        {:7.0} ns each  {:.2} M/s  {:.2} records a group  {} of {} \
         segments made inline",
        seconds / f64::from(RECORDS) * 1e9,
        f64::from(RECORDS) / seconds / 1e6,
        statistics.records as f64 / statistics.groups as f64,
        statistics.segments_inline,
        statistics.segments_created,
    );
    log.sync(log.last())
}

fn synced(dir: &Path, threads: u32) -> Result<()> {
    const EACH: u32 = 5000;
    let log = open(dir)?;
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    log.on_growth(Box::new(move || _ = tell.try_send(true)));
    let (stop, done) =
        (std::sync::atomic::AtomicBool::new(false), std::sync::atomic::Ordering::SeqCst);
    let seconds = std::thread::scope(|scope| {
        // As the engine's background task does.
        let (log, stop) = (&log, &stop);
        scope.spawn(move || {
            while !stop.load(done) {
                if told.recv_timeout(std::time::Duration::from_millis(10)).is_ok() {
                    log.prepare_stores();
                }
            }
        });
        let seconds = timed(threads, || (0..EACH).try_for_each(|_| log.sync(append(log)?)));
        stop.store(true, done);
        seconds
    })?;
    let statistics = log.statistics();
    println!(
        "synced appends, {threads} threads {:7.0} us each  {:.0}/s  {:.2} appends a sync",
        seconds / f64::from(threads * EACH) * 1e6,
        f64::from(threads * EACH) / seconds,
        statistics.records as f64 / statistics.syncs as f64,
    );
    Ok(())
}

fn replay(dir: &Path) -> Result<()> {
    let (start, mut bodies) = (Instant::now(), 0);
    let account = Account::unlimited("log");
    let from = |_| Some(Seqno::ZERO);
    let (_, recovery) =
        Log::open(medium(dir)?, Options::new(StoreId(1)), &account, &from, &mut |_, body| {
            bodies += body.len();
            Ok(())
        })?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "replay                    {:7.0} MB/s  {:.0} ns a record  {} records",
        recovery.bytes as f64 / seconds / 1e6,
        seconds / recovery.records as f64 * 1e9,
        recovery.records,
    );
    Ok(())
}
