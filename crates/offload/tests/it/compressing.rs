//! Blocks that a worker compresses for its host, and engines of workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Account, Codec, Rng};
use compact::offload::{JobShape, Offload, Placement};
use media::{Medium, MemoryMedium};
use table::{BlockEngine, BlockStream};
use terrace_offload::{BLUEFIELD_2, EmulatedEngine, PlacementMode, WorkerOptions};

use crate::support::{OUTPUTS, env};
use crate::workplace::{
    PATIENT, RunningWorker, attempt, content, local, shape_of, stopped_workers, worker_options,
    workers,
};

fn deflate(job: &mut compact::Job, attempt: u64) {
    (job.output.codec, job.output.level) = (Codec::Deflate, 6);
    let first = OUTPUTS + 100 * attempt;
    job.output.ids = base::TableId(first)..base::TableId(first + 100);
}

fn shape() -> JobShape {
    JobShape { bytes: 1, codec: Codec::Deflate, is_urgent: false }
}

#[test]
fn a_worker_compresses_the_blocks_of_a_merge_of_its_host() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, mut job) = content(&mut Rng::new(11), &medium, 3000);
    deflate(&mut job, 0);
    let expected = local(&job, &medium);
    // The worker refuses whole jobs, and says so. It has a slot for each table, however late it notices the
    // end of the previous one.
    let options = WorkerOptions { merges: false, slots: 64, ..worker_options() };
    let worker = RunningWorker::start(options);
    let workers = workers(&worker.address, b"", PATIENT).placing(PlacementMode::Compress);
    assert_eq!(workers.place(&shape()), Placement::Compress);
    let engine = workers.engine().unwrap();
    let with = compact::Env { engine: Some(engine), ..env(&medium) };
    let outcome = compact::run(job.clone(), &with).unwrap();
    assert_eq!(outcome.counts, expected.counts);
    compact::verify(&job, outcome, &with, &with.tables).unwrap();
    let statistics = workers.statistics().remove(0);
    assert!(statistics.compressed_blocks > 20, "{statistics:?}");
    assert!(statistics.link_bytes > statistics.compressed_bytes, "{statistics:?}");
    assert!(!statistics.cpu.is_zero() && statistics.failures.is_empty(), "{statistics:?}");
    deflate(&mut job, 1);
    let merging = crate::workplace::workers(&worker.address, b"", PATIENT);
    let error = attempt(&merging, &job, &env(&medium)).unwrap_err();
    assert!(error.to_string().contains("compresses"), "{error}");
    // Known now: it is not offered a whole job again.
    assert!(
        merging.offer(&job, &shape_of(&job), &env(&medium), base::TableId(OUTPUTS + 900)).is_none()
    );
}

#[test]
fn a_worker_that_dies_or_is_not_there_costs_a_merge_time_only() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, mut job) = content(&mut Rng::new(12), &medium, 3000);
    deflate(&mut job, 0);
    let worker = RunningWorker::start(worker_options());
    let workers = stopped_workers(&worker.address, b"").placing(PlacementMode::Compress);
    let engine = workers.engine().unwrap();
    drop(worker);
    let with = compact::Env { engine: Some(engine), ..env(&medium) };
    let outcome = compact::run(job.clone(), &with).unwrap();
    assert_eq!(outcome.counts, local(&job, &medium).counts);
    let statistics = workers.statistics().remove(0);
    assert_eq!(statistics.failures[0].0, "compression");
    // The host sends the worker nothing for a while.
    assert_eq!(workers.place(&shape()), Placement::Local);
    assert!(workers.engine().is_none());
}

/// Lies about each payload after the first few.
#[derive(Debug)]
struct Lying(AtomicUsize);

struct LyingStream<'a>(Box<dyn BlockStream>, &'a AtomicUsize);

impl BlockEngine for &'static Lying {
    fn stream(&self, codec: Codec, level: i32, account: &Account) -> Option<Box<dyn BlockStream>> {
        let pool = Box::leak(Box::new(table::SoftPool::new(1, account).unwrap()));
        Some(Box::new(LyingStream(pool.stream(codec, level, account)?, &self.0)))
    }

    fn decompress(&self, _: Codec, _: &[u8], _: usize) -> Option<Vec<u8>> {
        None
    }
}

impl BlockStream for LyingStream<'_> {
    fn submit(&mut self, raw: &Arc<Vec<u8>>) -> base::Result<()> {
        self.0.submit(raw)
    }

    fn take(&mut self) -> base::Result<Vec<u8>> {
        let mut payload = self.0.take()?;
        if self.1.fetch_add(1, Ordering::Relaxed) > 5 && !payload.is_empty() {
            let middle = payload.len() / 2;
            payload[middle] ^= 0x55;
        }
        Ok(payload)
    }
}

/// A block that a worker damaged is found before it is written: its writer decompresses payloads of
/// a link.
#[test]
fn lying_payloads_are_found_before_they_are_written() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, mut job) = content(&mut Rng::new(13), &medium, 3000);
    deflate(&mut job, 0);
    let lying: &'static Lying = Box::leak(Box::new(Lying(AtomicUsize::new(0))));
    let engine = Some(Arc::new(lying) as Arc<dyn BlockEngine>);
    let worker = RunningWorker::start(WorkerOptions { engine, ..worker_options() });
    let workers = workers(&worker.address, b"", PATIENT).placing(PlacementMode::Compress);
    let with = compact::Env { engine: workers.engine(), ..env(&medium) };
    let outcome = compact::run(job.clone(), &with).unwrap();
    for table in &outcome.tables {
        let table = crate::support::open(&medium, table.table);
        let report = table.check(&Account::unlimited("check"), &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
    let statistics = workers.statistics().remove(0);
    assert_eq!(statistics.failures[0].0, "compression", "{statistics:?}");
}

/// The memo serves a merge that is run again, and the outputs are DEFLATE that any reader decompresses.
#[test]
fn the_emulated_engine_of_a_worker_knows_repeated_merges() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, mut job) = content(&mut Rng::new(14), &medium, 3000);
    deflate(&mut job, 0);
    let expected = local(&job, &medium);
    let engine = Arc::new(EmulatedEngine::new(BLUEFIELD_2, 64 << 20));
    let options = WorkerOptions {
        engine: Some(Arc::clone(&engine) as _),
        engine_name: BLUEFIELD_2.name,
        cpu_share: Some(0.5),
        ..worker_options()
    };
    let worker = RunningWorker::start(options);
    let workers = workers(&worker.address, b"", PATIENT);
    let mut before = engine.statistics();
    for round in 0..2 {
        deflate(&mut job, round);
        let outcome = attempt(&workers, &job, &env(&medium)).unwrap();
        assert_eq!(outcome.counts, expected.counts);
        let after = engine.statistics();
        let (blocks, hits) = (after.blocks - before.blocks, after.hits - before.hits);
        assert!(blocks > 20);
        assert_eq!(hits, if round == 0 { 0 } else { blocks }, "round {round}");
        before = after;
    }
}
