//! The flush task: writes sealed memtables to tables, oldest first, and keeps the log short.
//!
//! One runs per store, so flushes of a store go one after the other. It seals nothing by itself except
//! under memory pressure, if the log is over its limits, and if range deletes wait for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arena::PublishRing;
use base::{Error, ErrorKind, Progress, Task, invariant};
use tree::compaction::Compactor;
use tree::events::Event;
use tree::{FlushJob, TreeContext, Trees};
use wal::Log;

use super::collector::Collector;
use super::counters::BackgroundCounters;
use super::dead_segments::give_up_dead_segments;
use super::index_checkpoints::IndexCheckpoints;
use super::log_limits::LogLimits;
use super::waiting_deletes::WaitingDeletes;
use crate::buffers::Buffers;

/// Wait after a failed flush, in which the device may recover or get space.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Interval at which the task looks for work if nothing wakes it.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Wait for a batch that is logged and not visible yet.
const PUBLISH_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Flushes sealed memtables, oldest first, and keeps the log short.
pub(crate) struct FlushTask {
    pub context: Arc<TreeContext>,
    pub trees: Arc<Trees>,
    pub buffers: Arc<Buffers>,
    pub compactor: Arc<Compactor>,
    pub log: Arc<Log>,
    pub ring: Arc<PublishRing>,
    pub log_limits: LogLimits,
    pub counters: Arc<BackgroundCounters>,
    pub stop: Arc<AtomicBool>,
    pub job: Option<FlushJob>,
    pub waiting_deletes: WaitingDeletes,
    pub collector: Collector,
    pub index_checkpoints: IndexCheckpoints,
    /// When the job began, by the compactor's clock.
    pub began: Duration,
}

impl Task for FlushTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            // The writer of an unfinished table removes it when it is dropped. The log has the memtable.
            self.job = None;
            return Progress::Done;
        }
        let progress = match self.job.take() {
            Some(job) => self.continue_job(job),
            None => self.find_work(),
        };
        self.compactor.set_flushing(self.job.is_some());
        progress
    }
}

impl FlushTask {
    /// Runs the next step of `job`, and reports its end.
    fn continue_job(&mut self, mut job: FlushJob) -> Progress {
        if job.tree().is_dropped() {
            return Progress::Again;
        }
        match job.step(&self.context) {
            Ok(None) => {
                self.job = Some(job);
                Progress::Again
            }
            Ok(Some(flushed)) => {
                // I9: only writes that are visible, and so applied to the flushed memtable, leave the log.
                invariant!(
                    flushed.below <= self.ring.visible().plus(1),
                    "a flushed memtable holds visible writes only"
                );
                self.log.flushed(job.tree().id(), flushed.below);
                self.counters.flushes.add(1);
                let bytes = flushed.file_bytes + flushed.values_bytes;
                self.counters.flush_bytes.add(bytes);
                self.compactor.flushed(job.tree(), bytes);
                let tree = Arc::clone(job.tree());
                // Give the memtable's memory back before the writers that wait for it wake.
                drop(job);
                self.buffers.flush_ended(Ok(()));
                self.compactor.measure_debt(&tree);
                self.report_end(tree.name().to_owned(), flushed.file_bytes, None);
                Progress::Again
            }
            Err(_) if job.tree().is_dropped() => Progress::Again,
            Err(error) => {
                let name = job.tree().name().to_owned();
                drop(job);
                self.fail(name, error)
            }
        }
    }

    /// Tells listeners that the flush of `keyspace` ended.
    fn report_end(&self, keyspace: String, bytes: u64, error: Option<Error>) {
        let took = self.compactor.now().saturating_sub(self.began);
        self.context.events.tell(|| Event::FlushEnded { keyspace, bytes, took, error });
    }

    fn fail(&self, keyspace: String, error: Error) -> Progress {
        self.counters.flush_failures.add(1);
        self.buffers.flush_ended(Err(error.clone()));
        self.report_end(keyspace, 0, Some(error));
        Progress::IdleFor(RETRY_AFTER)
    }

    /// Shortens the log, and begins the flush of the oldest sealed memtable of all trees.
    fn find_work(&mut self) -> Progress {
        debug_assert!(self.job.is_none(), "no flush changes an index meanwhile");
        // The numbers of segments keep their meaning while places are copied.
        if !self.index_checkpoints.is_writing() {
            give_up_dead_segments(&self.context.segments, &self.trees, &self.log, &self.ring);
        }
        // Before every flush and not only when none is left: writers may keep flushes coming without end.
        // An error poisons the log, which every writer then reports.
        let _ = self.log.free(&|start| self.context.manifest.begin_log(start));
        if self.log_limits.is_over(&self.log) {
            self.seal_pinning();
        }
        let collecting = self.collector.step(&self.context, &self.trees, &self.buffers);
        let writing = self.index_checkpoints.step(&self.context, &self.trees);
        // An error means that there is no memory for the next memtable: the next shortage tries again.
        let _ = self.buffers.relieve_pressure();
        let trees = self.trees.all();
        for tree in self.waiting_deletes.due(&trees, self.compactor.now()) {
            // An error means that the next memtable got no address space: the next poll tries again.
            let _ = self.buffers.seal(&tree);
        }
        let sealed = trees.into_iter().filter_map(|tree| {
            let (memtable, below) = tree.oldest_sealed()?;
            Some((tree, memtable, below))
        });
        let Some((tree, memtable, below)) = sealed.min_by_key(|(_, _, below)| *below) else {
            self.buffers.release_idle_memory();
            return if collecting || writing {
                Progress::Again
            } else {
                Progress::IdleFor(POLL_INTERVAL)
            };
        };
        // A write is in its memtable once it is visible, so the memtable is complete once everything
        // below its end is.
        let is_held_up = self.ring.visible().plus(1) < below;
        self.buffers.set_flush_held_up(is_held_up);
        if is_held_up {
            if let Some(error) = self.log.lost(below.before()) {
                // A batch below the end will never be visible.
                return self.fail(tree.name().to_owned(), error);
            }
            return Progress::IdleFor(PUBLISH_POLL_INTERVAL);
        }
        invariant!(self.job.is_none(), "a flush begins after the one before has ended");
        debug_assert!(
            memtable.first() <= below,
            "a sealed memtable ends at or after its first sequence number"
        );
        self.buffers.flush_began(memtable.bytes());
        self.began = self.compactor.now();
        let (keyspace, bytes) = (tree.name().to_owned(), memtable.bytes());
        let name = keyspace.clone();
        self.context.events.tell(|| Event::FlushBegan { keyspace, bytes });
        let horizon = self.context.snapshots.horizon(&self.ring);
        let is_full = self.buffers.failure().is_some_and(|it| it.kind() == ErrorKind::NoSpace);
        match FlushJob::new(&self.context, tree, (memtable, below), horizon) {
            Ok(job) => {
                let job = if is_full { job.sparing() } else { job };
                self.job = Some(job);
                Progress::Again
            }
            Err(error) => self.fail(name, error),
        }
    }

    /// Seals the memtables with writes that keep the oldest log segment.
    fn seal_pinning(&self) {
        for (id, end) in self.log.pinning() {
            // An active memtable that begins after the segment pins nothing of it: a sealed one does, and
            // waits to be flushed.
            if let Some(tree) = self.trees.get(id)
                && tree.view().active.first() < end
            {
                // An error means that there is no memory for the next memtable: the next poll tries again.
                let _ = self.buffers.seal(&tree);
            }
        }
    }
}
