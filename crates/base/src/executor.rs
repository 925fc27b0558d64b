//! Executors: all background work runs as tasks, one bounded step at a time.
//!
//! [`Threads`] runs steps on a fixed number of threads. [`Stepper`] runs one step per call, of a task that a
//! seeded generator picks, so that a simulator decides every interleaving. Both use a [`Pool`]: the queue of
//! ready tasks, and the timers of sleeping tasks.
//!
//! Invariants: a task is in exactly one [`RunState`]. A `Queued` task is in the ready queue once, until a
//! thread takes it from there to run it; only that thread ends the state `Running`. A wake during a step is
//! recorded and queues the task again after the step. Lock order: a task's `run`, then the pool's `queues`.
//!
//! Any thread may spawn, wake and join. Cost: two short lock holds a step, and a scan of all timers.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::{Clock, Error, Result, Rng, broken_invariant, invariant};

/// When a task wants its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// As soon as possible.
    Again,
    /// Once woken.
    Idle,
    /// Once woken, or after this time.
    IdleFor(Duration),
    /// Never: the task is finished, and the executor drops it.
    Done,
}

/// Background work. The executor owns it from `spawn` until it is `Done`.
pub trait Task: Send {
    /// Does one bounded piece of the work.
    fn step(&mut self) -> Progress;
}

/// Runs background work.
pub trait Executor: Send + Sync + fmt::Debug {
    /// Takes ownership of `task`, which reports call `name`, and queues its first step.
    fn spawn(&self, name: &'static str, task: Box<dyn Task>) -> TaskHandle;

    /// Runs one step on the calling thread if this executor has no threads. Returns whether a step ran.
    /// Code that waits for background work calls this in its waiting loop.
    fn help(&self) -> bool;

    /// The clock of the timers.
    fn clock(&self) -> &Arc<dyn Clock>;
}

/// A handle of a spawned task. Dropping it does not stop the task.
#[derive(Clone)]
pub struct TaskHandle {
    pool: Arc<Pool>,
    task: Arc<TaskState>,
}

impl TaskHandle {
    /// Queues the task unless it is queued already.
    pub fn wake(&self) {
        self.pool.wake(&self.task);
    }

    /// Whether the task is finished.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.task.run.lock().state, RunState::Finished { .. })
    }

    /// Waits until the task is finished. Runs steps of `executor` meanwhile if that has no threads.
    ///
    /// # Errors
    /// `Poisoned` if the task panicked.
    pub fn join(&self, executor: &dyn Executor) -> Result<()> {
        loop {
            if executor.help() {
                continue;
            }
            let mut run = self.task.run.lock();
            match run.state {
                RunState::Finished { panicked: false } => return Ok(()),
                RunState::Finished { panicked: true } => {
                    let error = Error::new(crate::ErrorKind::Poisoned, "background task panicked");
                    return Err(error.at(self.task.name));
                }
                // A short wait: a manual clock may move meanwhile and make a timer of a `Stepper` due.
                _ => self.task.finished.wait_for(&mut run, Duration::from_millis(10)),
            };
        }
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskHandle({})", self.task.name)
    }
}

struct TaskState {
    name: &'static str,
    run: Mutex<Run>,
    finished: Condvar,
}

/// A task and its state. `work` is `None` while a thread runs the task, and after it is finished.
struct Run {
    state: RunState,
    work: Option<Box<dyn Task>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RunState {
    Queued,
    Asleep,
    Running { woken: bool },
    Finished { panicked: bool },
}

struct Pool {
    clock: Arc<dyn Clock>,
    queues: Mutex<Queues>,
    work: Condvar,
}

#[derive(Default)]
struct Queues {
    ready: Vec<Arc<TaskState>>,
    /// The wake-up times of sleeping tasks, at most one each.
    timers: Vec<(Duration, Arc<TaskState>)>,
    stopping: bool,
}

impl Pool {
    fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, queues: Mutex::default(), work: Condvar::new() })
    }

    fn spawn(self: &Arc<Self>, name: &'static str, task: Box<dyn Task>) -> TaskHandle {
        let run = Mutex::new(Run { state: RunState::Queued, work: Some(task) });
        let task = Arc::new(TaskState { name, run, finished: Condvar::new() });
        self.enqueue(Arc::clone(&task));
        TaskHandle { pool: Arc::clone(self), task }
    }

    fn enqueue(&self, task: Arc<TaskState>) {
        self.queues.lock().ready.push(task);
        self.work.notify_one();
    }

    fn wake(&self, task: &Arc<TaskState>) {
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
    fn fire_timers(&self) -> Option<Duration> {
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
    fn run(&self, task: &Arc<TaskState>) {
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
    fn serve(&self) {
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
                self.work.wait_for(&mut queues, sleep);
                continue;
            }
            let task = queues.ready.remove(0);
            drop(queues);
            self.run(&task);
        }
    }
}

/// An executor with its own threads. Dropping it stops the threads after their current steps, then drops
/// the unfinished tasks.
pub struct Threads {
    pool: Arc<Pool>,
    workers: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts `count` threads, at least one.
    ///
    /// # Errors
    /// `Retry` if the operating system cannot start a thread.
    pub fn start(count: usize, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::start_with(count, clock, || {})
    }

    /// As [`Threads::start`], with threads of low priority: other threads get the processor first.
    ///
    /// # Errors
    /// As [`Threads::start`].
    pub fn start_low_priority(count: usize, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::start_with(count, clock, lower_priority)
    }

    fn start_with(count: usize, clock: Arc<dyn Clock>, begin: fn()) -> Result<Self> {
        let pool = Pool::new(clock);
        let mut threads = Self { pool, workers: Vec::new() };
        for number in 0..count.max(1) {
            let pool = Arc::clone(&threads.pool);
            let worker = std::thread::Builder::new()
                .name(format!("terrace-{number}"))
                .spawn(move || {
                    begin();
                    pool.serve();
                })
                .map_err(|e| Error::retry("background thread").caused_by(e))?;
            threads.workers.push(worker);
        }
        Ok(threads)
    }
}

/// The increase of `nice` for low-priority threads: with it, the scheduler gives a thread about a third of
/// the usual weight.
const NICE: i32 = 5;

/// Lowers the calling thread's priority. Keeps the priority if the operating system refuses.
fn lower_priority() {
    // Only Linux has a `nice` value for each thread; elsewhere this would change the whole process.
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        let _refused = getpriority_process(None).map(|it| setpriority_process(None, it + NICE));
    }
}

impl Executor for Threads {
    fn spawn(&self, name: &'static str, task: Box<dyn Task>) -> TaskHandle {
        self.pool.spawn(name, task)
    }

    fn help(&self) -> bool {
        false
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.pool.clock
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", self.workers.len())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.pool.queues.lock().stopping = true;
        self.pool.work.notify_all();
        let this = std::thread::current().id();
        for worker in self.workers.drain(..) {
            // A task's step may drop the last owner of this executor; a thread cannot join itself.
            if worker.thread().id() != this {
                // A worker catches the panics of its tasks, so its own result says nothing.
                drop(worker.join());
            }
        }
        let mut queues = self.pool.queues.lock();
        let unfinished = (std::mem::take(&mut queues.ready), std::mem::take(&mut queues.timers));
        // Dropping a task may use the pool: release the lock first.
        drop(queues);
        drop(unfinished);
    }
}

/// An executor without threads: each call of [`Executor::help`] runs one step of a ready task that a seeded
/// generator picks.
pub struct Stepper {
    pool: Arc<Pool>,
    rng: Mutex<Rng>,
}

impl Stepper {
    /// An executor with picks that `seed` determines.
    #[must_use]
    pub fn new(seed: u64, clock: Arc<dyn Clock>) -> Self {
        Self { pool: Pool::new(clock), rng: Mutex::new(Rng::new(seed)) }
    }
}

impl Executor for Stepper {
    fn spawn(&self, name: &'static str, task: Box<dyn Task>) -> TaskHandle {
        self.pool.spawn(name, task)
    }

    fn help(&self) -> bool {
        self.pool.fire_timers();
        let mut queues = self.pool.queues.lock();
        if queues.ready.is_empty() {
            return false;
        }
        let pick = self.rng.lock().below(queues.ready.len() as u64) as usize;
        let task = queues.ready.swap_remove(pick);
        drop(queues);
        self.pool.run(&task);
        true
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.pool.clock
    }
}

impl fmt::Debug for Stepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stepper")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ManualClock, SystemClock};
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc;

    struct Count {
        steps: Arc<AtomicU32>,
        then: fn(u32) -> Progress,
    }

    impl Task for Count {
        fn step(&mut self) -> Progress {
            (self.then)(self.steps.fetch_add(1, SeqCst) + 1)
        }
    }

    fn counted(executor: &dyn Executor, then: fn(u32) -> Progress) -> (TaskHandle, Arc<AtomicU32>) {
        let steps = Arc::new(AtomicU32::new(0));
        (executor.spawn("count", Box::new(Count { steps: Arc::clone(&steps), then })), steps)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_low_priority_threads_have_a_higher_nice_value() {
        use rustix::process::getpriority_process;
        struct Note(mpsc::Sender<i32>);
        impl Task for Note {
            fn step(&mut self) -> Progress {
                self.0.send(getpriority_process(None).unwrap()).unwrap();
                Progress::Done
            }
        }
        let own = getpriority_process(None).unwrap();
        for (threads, expected) in [
            (Threads::start(1, Arc::new(SystemClock::new())).unwrap(), own),
            (
                Threads::start_low_priority(1, Arc::new(SystemClock::new())).unwrap(),
                (own + NICE).min(19),
            ),
        ] {
            let (noted, note) = mpsc::channel();
            threads.spawn("note", Box::new(Note(noted)));
            assert_eq!(note.recv().unwrap(), expected);
        }
    }

    #[test]
    fn threads_step_a_task_until_it_is_done() {
        let threads = Threads::start(2, Arc::new(SystemClock::new())).unwrap();
        let (task, steps) =
            counted(&threads, |n| if n < 10 { Progress::Again } else { Progress::Done });
        task.join(&threads).unwrap();
        assert_eq!(steps.load(SeqCst), 10);
    }

    #[test]
    fn an_idle_task_steps_when_woken_or_when_its_timer_is_due() {
        let clock = Arc::new(ManualClock::default());
        let stepper = Stepper::new(1, Arc::clone(&clock) as Arc<dyn Clock>);
        let (task, steps) = counted(&stepper, |_| Progress::IdleFor(Duration::from_secs(1)));
        assert!(stepper.help() && !stepper.help());
        task.wake();
        task.wake();
        assert!(stepper.help() && !stepper.help());
        clock.advance(Duration::from_secs(1));
        assert!(stepper.help() && !stepper.help());
        assert_eq!(steps.load(SeqCst), 3);
    }

    #[test]
    fn joining_a_panicked_task_returns_an_error_with_its_name() {
        let threads = Threads::start(1, Arc::new(SystemClock::new())).unwrap();
        let (task, _) = counted(&threads, |_| panic!("on purpose"));
        let error = task.join(&threads).unwrap_err();
        assert!(error.to_string().contains("count"), "{error}");
        let (after, _) = counted(&threads, |_| Progress::Done);
        after.join(&threads).unwrap();
    }

    #[test]
    fn a_stepper_with_the_same_seed_steps_tasks_in_the_same_order() {
        let order = |seed| {
            struct Note(u32, u32, Arc<Mutex<Vec<u32>>>);
            impl Task for Note {
                fn step(&mut self) -> Progress {
                    self.2.lock().push(self.0);
                    self.1 -= 1;
                    if self.1 == 0 { Progress::Done } else { Progress::Again }
                }
            }
            let stepper = Stepper::new(seed, Arc::new(ManualClock::default()));
            let notes = Arc::new(Mutex::new(Vec::new()));
            for name in 0..4 {
                stepper.spawn("note", Box::new(Note(name, 8, Arc::clone(&notes))));
            }
            while stepper.help() {}
            Arc::try_unwrap(notes).unwrap().into_inner()
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
    }
}
