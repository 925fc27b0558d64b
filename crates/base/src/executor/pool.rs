//! The tasks of an executor: the queue of ready tasks, the timers of sleeping ones, and the steps of each.
//!
//! Invariants: a task is in exactly one [`RunState`]. A `Queued` task is in the ready queue once, until a
//! thread takes it from there to run it; only that thread ends the state `Running`. A wake during a step is
//! recorded and queues the task again after the step. Lock order: a task's `run`, then the pool's `queues`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

use super::{Progress, Task, TaskHandle};
use crate::{Clock, Owner, broken_invariant, invariant};

pub(super) struct TaskState {
    pub(super) name: &'static str,
    pub(super) run: Mutex<Run>,
    pub(super) finished: Condvar,
}

/// A task and its state. `work` is `None` while a thread runs the task, and after it is finished.
pub(super) struct Run {
    pub(super) state: RunState,
    work: Option<Box<dyn Task>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RunState {
    Queued,
    Asleep,
    Running { woken: bool },
    Finished { panicked: bool },
}

pub(super) struct Pool {
    /// In a process forked from this one there is no thread that could run a task, and any lock may be held
    /// for ever by a thread of the parent.
    pub(super) owner: Owner,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) queues: Mutex<Queues>,
    /// Notified when a task is queued, when a timer is set, and when the threads stop.
    pub(super) work: Condvar,
}

#[derive(Default)]
pub(super) struct Queues {
    pub(super) ready: Vec<Arc<TaskState>>,
    /// The wake-up times of sleeping tasks, at most one each.
    pub(super) timers: Vec<(Duration, Arc<TaskState>)>,
    pub(super) stopping: bool,
}

impl Pool {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let (owner, queues) = (Owner::this(), Mutex::default());
        Arc::new(Self { owner, clock, queues, work: Condvar::new() })
    }

    pub(super) fn spawn(self: &Arc<Self>, name: &'static str, task: Box<dyn Task>) -> TaskHandle {
        let run = Mutex::new(Run { state: RunState::Queued, work: Some(task) });
        let task = Arc::new(TaskState { name, run, finished: Condvar::new() });
        self.enqueue(Arc::clone(&task));
        TaskHandle { pool: Arc::clone(self), task }
    }

    fn enqueue(&self, task: Arc<TaskState>) {
        self.queues.lock().ready.push(task);
        self.work.notify_one();
    }

    pub(super) fn wake(&self, task: &Arc<TaskState>) {
        if !self.owner.is_here() {
            return;
        }
        let mut run = task.run.lock();
        match run.state {
            RunState::Asleep => {
                run.state = RunState::Queued;
                self.enqueue(Arc::clone(task));
            }
            RunState::Running { .. } => run.state = RunState::Running { woken: true },
            RunState::Queued | RunState::Finished { .. } => {}
        }
    }

    /// Wakes the tasks with due timers. Returns the time until the next timer.
    pub(super) fn fire_timers(&self) -> Option<Duration> {
        let now = self.clock.monotonic();
        let mut due = Vec::new();
        let mut next = None::<Duration>;
        self.queues.lock().timers.retain(|(at, task)| {
            if *at <= now {
                due.push(Arc::clone(task));
                return false;
            }
            next = Some(next.map_or(*at, |next| next.min(*at)));
            true
        });
        for task in due {
            self.wake(&task);
        }
        next.map(|at| at.saturating_sub(now))
    }

    /// Runs one step of `task`, which the caller took from the ready queue.
    pub(super) fn run(&self, task: &Arc<TaskState>) {
        let Some(mut work) = Self::begin_step(task) else { return };
        match catch_unwind(AssertUnwindSafe(|| work.step())) {
            Ok(Progress::Done) => Self::finish(task, work, false),
            Err(_) => Self::finish(task, work, true),
            Ok(progress) => self.end_step(task, work, progress),
        }
    }

    fn begin_step(task: &TaskState) -> Option<Box<dyn Task>> {
        let mut run = task.run.lock();
        invariant!(run.state == RunState::Queued, "only a queued task is run");
        run.state = RunState::Running { woken: false };
        let work = run.work.take();
        if work.is_none() {
            broken_invariant!("a queued task has its work");
        }
        work
    }

    /// Drops the work before the state changes: after a join, everything that the task owned is released.
    fn finish(task: &TaskState, work: Box<dyn Task>, step_panicked: bool) {
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(work)));
        let panicked = step_panicked || dropped.is_err();
        let mut run = task.run.lock();
        let is_running = matches!(run.state, RunState::Running { .. });
        invariant!(is_running, "only the thread that runs a task finishes it");
        run.state = RunState::Finished { panicked };
        drop(run);
        task.finished.notify_all();
    }

    /// Queues the task again or puts it to sleep.
    fn end_step(&self, task: &Arc<TaskState>, work: Box<dyn Task>, progress: Progress) {
        let mut run = task.run.lock();
        let RunState::Running { woken } = run.state else {
            broken_invariant!("only the thread that runs a task ends its step");
            return;
        };
        run.work = Some(work);
        if woken || progress == Progress::Again {
            run.state = RunState::Queued;
            return self.enqueue(Arc::clone(task));
        }
        run.state = RunState::Asleep;
        if let Progress::IdleFor(time) = progress {
            let at = self.clock.monotonic() + time;
            let mut queues = self.queues.lock();
            // The new timer replaces an older one, which would wake the task too early.
            queues.timers.retain(|(_, other)| !Arc::ptr_eq(other, task));
            queues.timers.push((at, Arc::clone(task)));
            self.work.notify_one();
        }
    }

    /// The loop of a worker thread: runs ready tasks, and sleeps while there are none.
    pub(super) fn serve(&self) {
        loop {
            let next_timer = self.fire_timers();
            let mut queues = self.queues.lock();
            if queues.stopping {
                return;
            }
            if queues.ready.is_empty() {
                // `Pool::clock` may run faster than the machine's clock: check the timers again soon.
                let longest = Duration::from_millis(100);
                let sleep = next_timer.map_or(longest, |next| next.min(longest));
                drop(self.work.wait_for(queues, sleep));
                continue;
            }
            let task = queues.ready.remove(0);
            drop(queues);
            self.run(&task);
        }
    }
}
