//! The background task that runs compaction jobs: it gets a job from the compactor, runs it step by step, and
//! gets the next.
//!
//! Several tasks run at once, each with its own job. During a flush only the first continues, so that the
//! flush never waits for a thread behind merges. If a rate is configured, a task that is ahead of it waits
//! between two steps ([`super::rate_limiter`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Progress, Task, thread_cpu_time};

use super::counters::Merged;
use super::{Compactor, MergeJob};

/// How often an idle task plans if nothing wakes it: entries that expire create work without a write.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// How long a task leaves its thread to a flush.
const YIELD_FOR: Duration = Duration::from_millis(5);

/// How often a task asks for the outcome of a worker.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// Runs compaction jobs. See the module.
pub struct CompactTask {
    /// The store's compactor.
    pub compactor: Arc<Compactor>,
    /// Whether this is the first task, which continues during flushes.
    pub first: bool,
    /// Set when the store is closed.
    pub stop: Arc<AtomicBool>,
    /// The current job.
    pub job: Option<MergeJob>,
}

impl Task for CompactTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            // Dropping the job removes its unfinished outputs.
            if let Some(job) = self.job.take() {
                self.compactor.cancelled(job);
            }
            return Progress::Done;
        }
        if !self.first && self.compactor.is_flushing() {
            return Progress::IdleFor(YIELD_FOR);
        }
        if let Some(wait) = self.compactor.rate_wait() {
            return Progress::IdleFor(wait);
        }
        match self.job.take() {
            Some(job) => self.step_job(job),
            None => {
                self.job = self.compactor.next_job();
                match &mut self.job {
                    Some(job) => {
                        let event = job.begin(self.compactor.now());
                        self.compactor.env().events.tell(|| event);
                        Progress::Again
                    }
                    None => Progress::IdleFor(self.compactor.sleep_time(POLL_EVERY)),
                }
            }
        }
    }
}

impl CompactTask {
    fn tell(&self, job: &MergeJob, ended: base::Result<&Merged, &base::Error>) {
        let event = || job.ended(self.compactor.now(), ended);
        self.compactor.env().events.tell(event);
    }

    fn step_job(&mut self, mut job: MergeJob) -> Progress {
        if job.tree().is_dropped() {
            self.compactor.cancelled(job);
            return Progress::Again;
        }
        let before = thread_cpu_time();
        let stepped = job.step(self.compactor.env());
        self.compactor.counters.stepped(thread_cpu_time().saturating_sub(before));
        match stepped {
            Ok(None) => {
                let is_waiting = job.is_waiting();
                self.job = Some(job);
                if is_waiting {
                    return Progress::IdleFor(ASK_EVERY);
                }
            }
            Ok(Some(merged)) => {
                self.tell(&job, Ok(&merged));
                self.compactor.merged(job, &merged);
            }
            Err(error) => {
                self.tell(&job, Err(&error));
                self.compactor.failed(job, error);
            }
        }
        Progress::Again
    }
}
