//! The sync task: interval writes become durable within the interval.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Progress, Seqno, Task};
use wal::Log;

use super::BackgroundCounters;
use crate::settings::LiveSettings;

/// Makes interval writes durable within the interval.
pub(crate) struct SyncTask {
    pub log: Arc<Log>,
    /// The highest sequence number owed durability.
    pub owed: Arc<AtomicU64>,
    pub settings: Arc<LiveSettings>,
    pub counters: Arc<BackgroundCounters>,
    pub stop: Arc<AtomicBool>,
}

impl Task for SyncTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        let owed = Seqno::checked(self.owed.load(Ordering::Relaxed)).unwrap_or(Seqno::ZERO);
        if owed > self.log.durable() && self.log.sync(owed).is_err() {
            // The log is poisoned now: writers hear of it.
            self.counters.sync_failures.add(1);
        }
        Progress::IdleFor(self.settings.load().sync_interval)
    }
}
