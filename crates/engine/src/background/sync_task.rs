//! The sync task: makes interval writes durable within the sync interval.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Progress, Seqno, Task, invariant};
use wal::Log;

use super::counters::BackgroundCounters;
use crate::settings::LiveSettings;

/// Syncs the log once an interval if interval writes are not durable yet.
pub(crate) struct SyncTask {
    pub log: Arc<Log>,
    /// The highest seqno of an interval write; 0: there was none.
    pub target: Arc<AtomicU64>,
    pub settings: Arc<LiveSettings>,
    pub counters: Arc<BackgroundCounters>,
    pub stop: Arc<AtomicBool>,
}

impl Task for SyncTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        let target = Seqno::checked(self.target.load(Ordering::Acquire)).unwrap_or(Seqno::MAX);
        invariant!(target <= self.log.last(), "the log assigned the seqno of an interval write");
        if target > self.log.durable() && self.log.sync(target).is_err() {
            // The log is poisoned now, which every writer reports.
            self.counters.sync_failures.add(1);
        }
        Progress::IdleFor(self.settings.load().sync_interval)
    }
}
