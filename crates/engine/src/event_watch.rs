//! Tells what changes without anyone being there to tell it: delays, what blocks, failing tasks, memory
//! pressure, a clock that is wrong.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Progress, Task as Step};
use wal::Log;

use crate::buffers::Buffers;
use crate::pace::Pace;
use crate::watchdog::Watchdog;
use cache::ScmStatistics;
use tree::metadata_bytes;

use crate::{Resources, ScmStatus};
use manifest::Manifest;
use tree::Timekeeper;
use tree::Trees;
use tree::compaction::Compactor;
use tree::events::{Event, Events, Task};

/// How often it looks.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// Compares what is with what it told last. Runs only where someone listens.
pub(crate) struct WatchTask {
    pub events: Arc<Events>,
    pub resources: Resources,
    pub trees: Arc<Trees>,
    pub pace: Arc<Pace>,
    pub buffers: Arc<Buffers>,
    pub compactor: Arc<Compactor>,
    pub log: Arc<Log>,
    pub manifest: Arc<Manifest>,
    pub timekeeper: Arc<Timekeeper>,
    pub watchdog: Arc<Watchdog>,
    pub stop: Arc<AtomicBool>,
    pub told: Told,
}

/// What was told last.
#[derive(Debug, Default)]
pub(crate) struct Told {
    delay: Option<&'static str>,
    failing: BTreeSet<&'static str>,
    pressure: bool,
    doubted: bool,
    behind: bool,
    slow: bool,
    /// Since when something blocks.
    blocked: Option<Duration>,
}

impl Step for WatchTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        self.delay();
        self.blocked();
        self.failure(Task::Flush, "flush", self.buffers.failure().map(|error| error.to_string()));
        let merging = self.compactor.failing().map(|error| error.to_string());
        self.failure(Task::Compaction, "compaction", merging);
        let poisoned = self.log.poisoned().or_else(|| self.manifest.poisoned());
        self.failure(Task::Writing, "writing", poisoned.map(|error| error.to_string()));
        self.tier();
        self.pressure();
        self.clock();
        Progress::IdleFor(LOOK_AROUND)
    }
}

impl WatchTask {
    fn delay(&mut self) {
        let delay = self.pace.cause();
        if delay == self.told.delay {
            return;
        }
        self.told.delay = delay;
        self.events.tell(|| match delay {
            Some(reason) => Event::DelayBegan { reason },
            None => Event::DelayEnded,
        });
    }

    fn blocked(&mut self) {
        let now = self.resources.clock().monotonic();
        match (self.watchdog.blocked(), self.told.blocked) {
            (Some(blocked), None) => {
                self.told.blocked = Some(now.saturating_sub(blocked.waited));
                self.events.tell(|| Event::BlockBegan { what: blocked.what });
            }
            (None, Some(since)) => {
                self.told.blocked = None;
                self.events.tell(|| Event::BlockEnded { took: now.saturating_sub(since) });
            }
            _ => {}
        }
    }

    fn failure(&mut self, task: Task, name: &'static str, failure: Option<String>) {
        match failure {
            Some(error) if self.told.failing.insert(name) => {
                self.events.tell(|| Event::TaskFailed { task, error });
            }
            None if self.told.failing.remove(name) => {
                self.events.tell(|| Event::TaskRecovered { task });
            }
            _ => {}
        }
    }

    fn tier(&mut self) {
        let Some(ScmStatus { failure, slow, counts, .. }) = self.resources.scm() else { return };
        self.failure(Task::Scm, "SCM tier", failure);
        if slow != self.told.slow {
            self.told.slow = slow;
            let ScmStatistics { hit_nanos, flash_nanos, .. } = counts;
            self.events.tell(|| Event::ScmSlow { slow, hit_nanos, flash_nanos });
        }
    }

    fn pressure(&mut self) {
        let trees = self.trees.all();
        let metadata = trees.iter().map(|tree| metadata_bytes(tree)).sum();
        let memory = self.resources.memory();
        let high = metadata > memory / 2;
        if high != self.told.pressure {
            self.told.pressure = high;
            self.events.tell(|| Event::MemoryPressure { high, metadata, memory });
        }
    }

    fn clock(&mut self) {
        let clock = self.timekeeper.statistics();
        let (doubted, behind) = (clock.is_doubted(), clock.is_behind());
        if doubted != self.told.doubted {
            self.told.doubted = doubted;
            self.events.tell(|| Event::ClockDoubted { doubted, leapt: clock.leapt });
        }
        if behind != self.told.behind {
            self.told.behind = behind;
            self.events.tell(|| Event::ClockBehind { behind, by: clock.behind });
        }
    }
}
