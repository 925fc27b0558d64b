//! Reports state changes that no call could report: write delays, blocked calls, failing tasks, memory
//! pressure, a doubtful clock, a slow SCM tier.
//!
//! A task compares the state with the last reported one every 100 ms and tells listeners of the
//! differences. It runs only if there is a listener.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Progress, Task as Step};
use cache::ScmStatistics;
use manifest::Manifest;
use tree::compaction::Compactor;
use tree::events::{Event, Events, Task};
use tree::{Timekeeper, Trees, metadata_bytes};
use wal::Log;

use crate::buffers::Buffers;
use crate::pace::Pace;
use crate::watchdog::Watchdog;
use crate::{Resources, ScmStatus};

/// Interval between two comparisons.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Tells listeners of state changes.
pub(crate) struct EventWatchTask {
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
    pub reported: Reported,
}

/// The state that listeners were told of last.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// The reason why writers are delayed.
    delay: Option<&'static str>,
    failing_tasks: BTreeSet<&'static str>,
    is_metadata_high: bool,
    is_clock_doubted: bool,
    is_clock_behind: bool,
    is_scm_slow: bool,
    /// Since when calls are blocked, by the resources' clock.
    blocked_since: Option<Duration>,
}

impl Step for EventWatchTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        self.report_delay();
        self.report_blocked();
        let flush = self.buffers.failure().map(|error| error.to_string());
        self.report_failure(Task::Flush, "flush", flush);
        let merge = self.compactor.failing().map(|error| error.to_string());
        self.report_failure(Task::Compaction, "compaction", merge);
        let poisoned = self.log.poisoned().or_else(|| self.manifest.poisoned());
        self.report_failure(Task::Writing, "writing", poisoned.map(|error| error.to_string()));
        self.report_scm();
        self.report_metadata();
        self.report_clock();
        Progress::IdleFor(POLL_INTERVAL)
    }
}

impl EventWatchTask {
    fn report_delay(&mut self) {
        let delay = self.pace.cause();
        if delay == self.reported.delay {
            return;
        }
        self.reported.delay = delay;
        self.events.tell(|| match delay {
            Some(reason) => Event::DelayBegan { reason },
            None => Event::DelayEnded,
        });
    }

    fn report_blocked(&mut self) {
        let now = self.resources.clock().monotonic();
        match (self.watchdog.blocked(), self.reported.blocked_since) {
            (Some(blocked), None) => {
                self.reported.blocked_since = Some(now.saturating_sub(blocked.waited));
                self.events.tell(|| Event::BlockBegan { what: blocked.what });
            }
            (None, Some(since)) => {
                self.reported.blocked_since = None;
                self.events.tell(|| Event::BlockEnded { took: now.saturating_sub(since) });
            }
            _ => {}
        }
    }

    /// Reports that `task` began to fail, or that it recovered. `failure` is its present error.
    fn report_failure(&mut self, task: Task, name: &'static str, failure: Option<String>) {
        match failure {
            Some(error) if self.reported.failing_tasks.insert(name) => {
                self.events.tell(|| Event::TaskFailed { task, error });
            }
            None if self.reported.failing_tasks.remove(name) => {
                self.events.tell(|| Event::TaskRecovered { task });
            }
            _ => {}
        }
    }

    fn report_scm(&mut self) {
        let Some(ScmStatus { failure, slow, counts, .. }) = self.resources.scm() else { return };
        self.report_failure(Task::Scm, "SCM tier", failure);
        if slow != self.reported.is_scm_slow {
            self.reported.is_scm_slow = slow;
            let ScmStatistics { hit_nanos, flash_nanos, .. } = counts;
            self.events.tell(|| Event::ScmSlow { slow, hit_nanos, flash_nanos });
        }
    }

    fn report_metadata(&mut self) {
        let trees = self.trees.all();
        let metadata = trees.iter().map(|tree| metadata_bytes(tree)).sum();
        let memory = self.resources.memory();
        let high = metadata > memory / 2;
        if high != self.reported.is_metadata_high {
            self.reported.is_metadata_high = high;
            self.events.tell(|| Event::MemoryPressure { high, metadata, memory });
        }
    }

    fn report_clock(&mut self) {
        let clock = self.timekeeper.statistics();
        let (doubted, behind) = (clock.is_doubted(), clock.is_behind());
        if doubted != self.reported.is_clock_doubted {
            self.reported.is_clock_doubted = doubted;
            self.events.tell(|| Event::ClockDoubted { doubted, leapt: clock.leapt });
        }
        if behind != self.reported.is_clock_behind {
            self.reported.is_clock_behind = behind;
            self.events.tell(|| Event::ClockBehind { behind, by: clock.behind });
        }
    }
}
