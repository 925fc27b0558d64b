//! Start of a store's background tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use base::{Executor, TaskHandle};
use parking_lot::Mutex;
use tree::compaction::{CompactTask, Compactor};
use tree::events::Events;
use tree::reads::Reader;
use tree::{ClockTask, PurgeTask, TreeContext, Trees};
use wal::Log;

use crate::Resources;
use crate::background::{
    Background, BackgroundCounters, Collector, FlushTask, HotPageList, HotPagesTask,
    IndexCheckpointStatus, IndexCheckpoints, LogLimits, LogTask, SegmentTask, SyncTask,
    WaitingDeletes,
};
use crate::buffers::Buffers;
use crate::cold::{ColdConfig, ColdStatus, ColdTask, Work};
use crate::event_watch::{EventWatchTask, Reported};
use crate::pace::Pace;
use crate::resources::Components as _;
use crate::settings::LiveSettings;
use crate::watchdog::Watchdog;

/// The least number of merges that may run at once. With more background threads, one merge per thread.
const MERGES_MIN: usize = 2;

/// The components that background tasks use.
pub(super) struct Tasks<'a> {
    pub object_store: Option<&'a (ColdConfig, ColdStatus)>,
    pub context: &'a Arc<TreeContext>,
    pub resources: &'a Resources,
    pub settings: &'a Arc<LiveSettings>,
    pub events: &'a Arc<Events>,
    pub trees: &'a Arc<Trees>,
    pub log: &'a Arc<Log>,
    /// The checkpoint of indexes that the open read, and the bytes of the log behind it.
    pub index_checkpoint: IndexCheckpointStatus,
    pub buffers: &'a Arc<Buffers>,
    pub pace: &'a Arc<Pace>,
    pub compactor: &'a Arc<Compactor>,
    pub reader: &'a Arc<Reader>,
    pub watchdog: &'a Arc<Watchdog>,
    /// The highest seqno that the interval sync must make durable.
    pub interval_target: &'a Arc<AtomicU64>,
    pub stop: Arc<AtomicBool>,
    pub counters: Arc<BackgroundCounters>,
}

impl Tasks<'_> {
    /// Starts all tasks of the store.
    pub(super) fn start(self) -> Background {
        let executor = self.resources.executor();
        let mut tasks = vec![self.start_flush(executor)];
        tasks.extend(self.start_log(executor));
        tasks.push(self.start_sync(executor));
        tasks.push(self.start_clock(executor));
        tasks.push(self.start_purge(executor));
        tasks.extend(self.start_merges(executor));
        tasks.extend(self.start_cold());
        tasks.extend(self.start_event_watch());
        tasks.extend(self.start_hot_pages(executor));
        Background { stop: self.stop, tasks: Mutex::new(tasks), counters: self.counters }
    }

    fn start_flush(&self, executor: &dyn Executor) -> TaskHandle {
        let log_limits = LogLimits::of(self.resources, self.log.statistics().lanes);
        let task = FlushTask {
            context: Arc::clone(self.context),
            trees: Arc::clone(self.trees),
            buffers: Arc::clone(self.buffers),
            compactor: Arc::clone(self.compactor),
            log: Arc::clone(self.log),
            ring: Arc::clone(&self.context.ring),
            log_limits,
            counters: Arc::clone(&self.counters),
            stop: Arc::clone(&self.stop),
            job: None,
            waiting_deletes: WaitingDeletes::default(),
            collector: Collector::new(self.log, log_limits.segment_bytes, &self.counters),
            index_checkpoints: IndexCheckpoints::new(
                self.log,
                log_limits.segment_bytes,
                self.index_checkpoint,
                &self.counters,
                self.trees,
            ),
            began: Duration::ZERO,
        };
        let flusher = executor.spawn("flush", Box::new(task));
        self.buffers.set_flusher(flusher.clone());
        flusher
    }

    /// Starts the log task and the segment task, which the growth of the log wakes.
    fn start_log(&self, executor: &dyn Executor) -> [TaskHandle; 2] {
        let stores = LogTask {
            log: Arc::clone(self.log),
            buffers: Arc::clone(self.buffers),
            stop: Arc::clone(&self.stop),
        };
        let segments = SegmentTask {
            log: Arc::clone(self.log),
            manifest: Arc::clone(&self.context.manifest),
            log_limits: LogLimits::of(self.resources, self.log.statistics().lanes),
            stop: Arc::clone(&self.stop),
            last_seen: self.log.last(),
        };
        let stores = self.resources.urgent().spawn("log", Box::new(stores));
        let segments = executor.spawn("segments", Box::new(segments));
        let tasks = [stores, segments];
        let wakers = tasks.clone();
        self.log.on_growth(Box::new(move || wakers.iter().for_each(TaskHandle::wake)));
        tasks
    }

    fn start_sync(&self, executor: &dyn Executor) -> TaskHandle {
        let task = SyncTask {
            log: Arc::clone(self.log),
            target: Arc::clone(self.interval_target),
            settings: Arc::clone(self.settings),
            counters: Arc::clone(&self.counters),
            stop: Arc::clone(&self.stop),
        };
        executor.spawn("interval sync", Box::new(task))
    }

    fn start_clock(&self, executor: &dyn Executor) -> TaskHandle {
        let task = ClockTask {
            timekeeper: Arc::clone(&self.context.timekeeper),
            manifest: Arc::clone(&self.context.manifest),
            stop: Arc::clone(&self.stop),
        };
        executor.spawn("clock", Box::new(task))
    }

    fn start_purge(&self, executor: &dyn Executor) -> TaskHandle {
        let obsolete = Arc::clone(&self.context.obsolete);
        let task = PurgeTask { obsolete: Arc::clone(&obsolete), stop: Arc::clone(&self.stop) };
        let purger = executor.spawn("purge", Box::new(task));
        obsolete.set_purger(purger.clone());
        purger
    }

    fn start_merges(&self, executor: &dyn Executor) -> Vec<TaskHandle> {
        let count = self.resources.background_threads().max(MERGES_MIN);
        let tasks: Vec<_> = (0..count)
            .map(|number| {
                let task = CompactTask {
                    compactor: Arc::clone(self.compactor),
                    first: number == 0,
                    stop: Arc::clone(&self.stop),
                    job: None,
                };
                executor.spawn("merge", Box::new(task))
            })
            .collect();
        self.compactor.set_tasks(tasks.clone());
        tasks
    }

    /// Starts the task that moves tables to the object store, if there is one.
    fn start_cold(&self) -> Option<TaskHandle> {
        let (config, status) = self.object_store?;
        let task = ColdTask {
            context: Arc::clone(self.context),
            trees: Arc::clone(self.trees),
            config: config.clone(),
            status: status.clone(),
            account: self.resources.account("cold tables"),
            clock: Arc::clone(self.resources.clock()),
            stop: Arc::clone(&self.stop),
            work: Work::default(),
        };
        Some(self.resources.network().spawn("cold tables", Box::new(task)))
    }

    /// Starts the task that reads hot pages ahead, unless that is turned off.
    fn start_hot_pages(&self, executor: &dyn Executor) -> Option<TaskHandle> {
        if !self.settings.load().hot_pages {
            return None;
        }
        let list = HotPageList {
            id: self.context.store,
            medium: Arc::clone(&self.context.medium),
            trees: Arc::clone(self.trees),
            manifest: Arc::clone(&self.context.manifest),
            reader: Arc::clone(self.reader),
            ring: Arc::clone(&self.context.ring),
            resources: self.resources.clone(),
        };
        let task = HotPagesTask::new(list, Arc::clone(&self.stop));
        Some(executor.spawn("hot pages", Box::new(task)))
    }

    /// Starts the task that reports changes to listeners, if there is a listener.
    fn start_event_watch(&self) -> Option<TaskHandle> {
        if !self.events.has_listeners() {
            return None;
        }
        let task = EventWatchTask {
            watchdog: Arc::clone(self.watchdog),
            events: Arc::clone(self.events),
            resources: self.resources.clone(),
            trees: Arc::clone(self.trees),
            pace: Arc::clone(self.pace),
            buffers: Arc::clone(self.buffers),
            compactor: Arc::clone(self.compactor),
            log: Arc::clone(self.log),
            manifest: Arc::clone(&self.context.manifest),
            timekeeper: Arc::clone(&self.context.timekeeper),
            stop: Arc::clone(&self.stop),
            reported: Reported::default(),
        };
        Some(self.resources.watch().spawn("watch", Box::new(task)))
    }
}
