//! The flush task: sealed memtables become tables, oldest first, and the log stays short.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arena::PublishRing;
use base::{Error, Progress, Task};
use wal::Log;

use super::BackgroundCounters;
use crate::buffers::Buffers;
use tree::Trees;
use tree::compaction::Compactor;
use tree::events::Event;
use tree::{FlushJob, TreeContext};

/// After a failed flush; space may come back.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How often the log is looked at where nothing wakes the flusher.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// How long the log may become before the keyspaces that pin its oldest segment are flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLimits {
    /// The length of a segment.
    pub segment_bytes: u64,
    /// Written bytes of all segments.
    pub bytes_max: u64,
}

impl LogLimits {
    /// Short segments are left by stores that are opened often and written little.
    const SEGMENTS_MAX: u64 = 8;

    /// How many segments are to be ready behind the present one: none until it is half full. Of a log
    /// that grows two: making one takes two syncs, which wait for what merges write, and writers fill
    /// one in a quarter of a second.
    fn ahead(self, log: &Log) -> usize {
        let bytes = log.bytes();
        usize::from(bytes > self.segment_bytes / 2) + usize::from(bytes > 2 * self.segment_bytes)
    }

    /// Makes the next segment where one is missing. A failure is the log's, which every writer then
    /// reports. Whether one was made.
    pub(super) fn prepare(self, log: &Log) -> bool {
        let ahead = self.ahead(log);
        ahead > 0 && log.prepare(ahead).unwrap_or(false)
    }

    /// Removes segments that are ready and not needed since the log was freed. One that cannot be
    /// removed is only space.
    pub(super) fn give_back(self, log: &Log) {
        let _ = log.give_back(self.ahead(log));
    }

    pub(crate) fn is_over(self, log: &Log) -> bool {
        let full = self.bytes_max / self.segment_bytes;
        log.bytes() > self.bytes_max || log.statistics().segments_live > full + Self::SEGMENTS_MAX
    }

    /// Whether opening a store should flush what it replayed, so that the log starts anew.
    pub(crate) fn is_worth_emptying(log: &Log) -> bool {
        log.statistics().segments_live > Self::SEGMENTS_MAX / 2
    }
}

/// Flushes sealed memtables, oldest first, and keeps the log short.
pub(crate) struct FlushTask {
    pub env: Arc<TreeContext>,
    pub trees: Arc<Trees>,
    pub buffers: Arc<Buffers>,
    pub compactor: Arc<Compactor>,
    pub log: Arc<Log>,
    pub ring: Arc<PublishRing>,
    pub log_limits: LogLimits,
    pub counters: Arc<BackgroundCounters>,
    pub stop: Arc<AtomicBool>,
    pub job: Option<FlushJob>,
    /// When the job began.
    pub began: Duration,
}

impl Task for FlushTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            // An unfinished table goes with its writer; its memtable is in the log.
            self.job = None;
            return Progress::Done;
        }
        let progress = match self.job.take() {
            Some(job) => self.go_on(job),
            None => self.find_work(),
        };
        self.compactor.set_flushing(self.job.is_some());
        progress
    }
}

impl FlushTask {
    fn go_on(&mut self, mut job: FlushJob) -> Progress {
        if job.tree().is_dropped() {
            return Progress::Again;
        }
        match job.step(&self.env) {
            Ok(None) => {
                self.job = Some(job);
                Progress::Again
            }
            Ok(Some(flushed)) => {
                self.log.flushed(job.tree().id(), flushed.below);
                self.counters.flushes.add(1);
                let bytes = flushed.file_bytes + flushed.values_bytes;
                self.counters.flush_bytes.add(bytes);
                self.compactor.flushed(job.tree(), bytes);
                let tree = Arc::clone(job.tree());
                // The memtable's memory is given back before the writers that wait for it wake.
                drop(job);
                self.buffers.flush_ended(Ok(()));
                self.compactor.measure_debt(&tree);
                self.tell_ended(tree.name().to_owned(), flushed.file_bytes, None);
                Progress::Again
            }
            Err(_) if job.tree().is_dropped() => Progress::Again,
            Err(error) => {
                let name = job.tree().name().to_owned();
                drop(job);
                self.failed(name, error)
            }
        }
    }

    fn tell_ended(&self, keyspace: String, bytes: u64, error: Option<Error>) {
        let took = self.compactor.now().saturating_sub(self.began);
        self.env.events.tell(|| Event::FlushEnded { keyspace, bytes, took, error });
    }

    fn failed(&self, keyspace: String, error: Error) -> Progress {
        self.counters.flush_failures.add(1);
        self.buffers.flush_ended(Err(error.clone()));
        self.tell_ended(keyspace, 0, Some(error));
        Progress::IdleFor(RETRY_AFTER)
    }

    fn find_work(&mut self) -> Progress {
        // Before every flush, not only when there is none left to do: writers may keep one waiting
        // for as long as they like. A failure here is one of the log's, which every writer then
        // reports; the task itself has nobody to tell.
        let _ = self.log.free(&|start| self.env.manifest.begin_log(start));
        if self.log_limits.is_over(&self.log) {
            self.seal_pinning();
        }
        // Short even of the memory for the next memtable: tried when it is short again.
        let _ = self.buffers.relieve();
        let sealed = self.trees.all().into_iter().filter_map(|tree| {
            let (memtable, below) = tree.oldest_sealed()?;
            Some((tree, memtable, below))
        });
        let Some((tree, memtable, below)) = sealed.min_by_key(|(_, _, below)| *below) else {
            self.buffers.rest();
            return Progress::IdleFor(LOOK_AROUND);
        };
        // Every write below has been applied once it is visible; none comes after.
        let is_held_up = self.ring.visible().plus(1) < below;
        self.buffers.hold_flush_up(is_held_up);
        if is_held_up {
            return Progress::IdleFor(Duration::from_millis(1));
        }
        self.buffers.flush_began(memtable.filled_bytes());
        self.began = self.compactor.now();
        let (keyspace, bytes) = (tree.name().to_owned(), memtable.filled_bytes());
        let name = keyspace.clone();
        self.env.events.tell(|| Event::FlushBegan { keyspace, bytes });
        let horizon = self.env.snapshots.horizon(&self.ring);
        match FlushJob::new(&self.env, tree, (memtable, below), horizon) {
            Ok(job) => {
                self.job = Some(job);
                Progress::Again
            }
            Err(error) => self.failed(name, error),
        }
    }

    /// Seals the memtables that keep the oldest segment alive.
    fn seal_pinning(&self) {
        for (id, end) in self.log.pinning() {
            // One that begins later holds nothing of the segment: its elders wait to be flushed.
            if let Some(tree) = self.trees.get(id)
                && tree.view().active.first() < end
            {
                // Short of memory for the next memtable: tried again at the next look.
                let _ = self.buffers.seal(&tree);
            }
        }
    }
}
