//! A task that merges: asks the compactor for a job, runs it step by step, asks for the next.
//!
//! Several may run at once, each with a job of its own. While a flush is under way only the first
//! goes on, so that the flush never waits for a thread behind merges. Where a rate is set, a task that
//! is ahead of it waits between two steps ([`super::rate`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Progress, Task};

use super::counters::Merged;
use super::{Compactor, MergeJob};

/// How often a task looks for work where nothing wakes it: for what time brings.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// How long a task makes way for a flush.
const YIELD_FOR: Duration = Duration::from_millis(5);

/// See the module.
pub struct CompactTask {
    pub compactor: Arc<Compactor>,
    /// The first of the tasks never makes way.
    pub first: bool,
    pub stop: Arc<AtomicBool>,
    pub job: Option<MergeJob>,
}

impl Task for CompactTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            // Unfinished outputs go with the run.
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
        match job.step(self.compactor.env()) {
            Ok(None) => self.job = Some(job),
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
