//! The executor seam: all background work runs as tasks that take one bounded step at a time.
//!
//! [`Threads`] runs the steps on a fixed number of threads. [`Stepper`] runs one step when asked,
//! picked by a seeded generator, so that a simulator decides every interleaving. Both share one
//! [`Pool`]: a queue of runnable tasks and the timers of sleeping ones.
//!
//! A task is in exactly one place: queued, asleep, running, or finished. A wake during a step is
//! remembered and queues the task again after it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::{Clock, Error, Result, Rng};

/// What a task wants after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another step as soon as possible.
    Again,
    /// A step once woken.
    Idle,
    /// A step once woken, or after this long.
    IdleFor(Duration),
    /// No further step; the task is dropped.
    Done,
}

/// Background work. Owned by the executor from spawn to `Done`.
pub trait Task: Send {
    /// Does one bounded piece of the work.
    fn step(&mut self) -> Progress;
}

/// Where background work runs.
pub trait Executor: Send + Sync + fmt::Debug {
    /// Takes over `task`, called `name` in reports, and queues its first step.
    fn spawn(&self, name: &'static str, task: Box<dyn Task>) -> TaskHandle;

    /// Runs one step on the calling thread if this executor has no threads of its own; whether a
    /// step ran. Whoever waits for background work calls it in the waiting loop.
    fn help(&self) -> bool;

    /// The clock the timers follow.
    fn clock(&self) -> &Arc<dyn Clock>;
}

/// A spawned task, seen from outside. Dropping it leaves the task running.
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

    /// True once the task is done.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.task.place.lock().0, RunState::Finished { .. })
    }

    /// Waits until the task is done, stepping `executor` if it has no threads.
    ///
    /// # Errors
    /// `Poisoned` where the task panicked.
    pub fn join(&self, executor: &dyn Executor) -> Result<()> {
        loop {
            if executor.help() {
                continue;
            }
            let mut place = self.task.place.lock();
            if let RunState::Finished { panicked } = place.0 {
                return if panicked {
                    Err(Error::new(crate::ErrorKind::Poisoned, "background task panicked")
                        .at(self.task.name))
                } else {
                    Ok(())
                };
            }
            // Bounded so that a stepped executor whose timers moved meanwhile is helped again.
            self.task.finished.wait_for(&mut place, Duration::from_millis(10));
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
    place: Mutex<(RunState, Option<Box<dyn Task>>)>,
    finished: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RunState {
    Queued,
    Asleep,
    Running { woken: bool },
    Finished { panicked: bool },
}

/// Lock order: a task's `place`, then the pool's `queues`.
struct Pool {
    clock: Arc<dyn Clock>,
    queues: Mutex<Queues>,
    work: Condvar,
}

#[derive(Default)]
struct Queues {
    ready: Vec<Arc<TaskState>>,
    timers: Vec<(Duration, Arc<TaskState>)>,
    stopping: bool,
}

impl Pool {
    fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, queues: Mutex::default(), work: Condvar::new() })
    }

    fn spawn(self: &Arc<Self>, name: &'static str, task: Box<dyn Task>) -> TaskHandle {
        let place = Mutex::new((RunState::Queued, Some(task)));
        let task = Arc::new(TaskState { name, place, finished: Condvar::new() });
        self.enqueue(Arc::clone(&task));
        TaskHandle { pool: Arc::clone(self), task }
    }

    fn enqueue(&self, task: Arc<TaskState>) {
        self.queues.lock().ready.push(task);
        self.work.notify_one();
    }

    fn wake(&self, task: &Arc<TaskState>) {
        let mut place = task.place.lock();
        match place.0 {
            RunState::Asleep => {
                place.0 = RunState::Queued;
                self.enqueue(Arc::clone(task));
            }
            RunState::Running { .. } => place.0 = RunState::Running { woken: true },
            RunState::Queued | RunState::Finished { .. } => {}
        }
    }

    /// Queues the tasks whose timers are due; the time until the next one.
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

    fn run(&self, task: &Arc<TaskState>) {
        let work = {
            let mut place = task.place.lock();
            place.0 = RunState::Running { woken: false };
            place.1.take()
        };
        let Some(mut work) = work else { return };
        let progress = catch_unwind(AssertUnwindSafe(|| work.step()));
        if !matches!(progress, Ok(Progress::Again | Progress::Idle | Progress::IdleFor(_))) {
            // Whoever joins finds everything the task owned given back.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(work)));
            let panicked = progress.is_err() || dropped.is_err();
            task.place.lock().0 = RunState::Finished { panicked };
            task.finished.notify_all();
            return;
        }
        let mut place = task.place.lock();
        let woken = place.0 == RunState::Running { woken: true };
        match progress {
            Ok(Progress::Done) | Err(_) => {}
            Ok(Progress::Again) => {
                place.0 = RunState::Queued;
                self.enqueue(Arc::clone(task));
            }
            Ok(Progress::Idle | Progress::IdleFor(_)) if woken => {
                place.0 = RunState::Queued;
                self.enqueue(Arc::clone(task));
            }
            Ok(Progress::Idle) => place.0 = RunState::Asleep,
            Ok(Progress::IdleFor(time)) => {
                place.0 = RunState::Asleep;
                let at = self.clock.monotonic() + time;
                let mut queues = self.queues.lock();
                // One timer a task: an older one would wake it early for nothing.
                queues.timers.retain(|(_, other)| !Arc::ptr_eq(other, task));
                queues.timers.push((at, Arc::clone(task)));
                self.work.notify_one();
            }
        }
        place.1 = Some(work);
    }

    /// A worker's life: run what is ready, sleep until there is more.
    fn serve(&self) {
        loop {
            let next_timer = self.fire_timers();
            let mut queues = self.queues.lock();
            if queues.stopping {
                return;
            }
            if queues.ready.is_empty() {
                // A clock that is not the machine's may be ahead of it: look again now and then.
                let longest = Duration::from_millis(100);
                let nap = next_timer.map_or(longest, |next| next.min(longest));
                self.work.wait_for(&mut queues, nap);
                continue;
            }
            let task = queues.ready.remove(0);
            drop(queues);
            self.run(&task);
        }
    }
}

/// Runs tasks on threads of its own. Dropping it stops the threads after their current step;
/// tasks that are not done are dropped then.
pub struct Threads {
    pool: Arc<Pool>,
    workers: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts `count` threads (at least one).
    ///
    /// # Errors
    /// `Retry` where the operating system gives no thread.
    pub fn start(count: usize, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::start_with(count, clock, || {})
    }

    /// The same, of threads that make way for others where these want their processors.
    ///
    /// # Errors
    /// As [`Threads::start`].
    pub fn start_behind(count: usize, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::start_with(count, clock, make_way)
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

/// How much less than others a thread that makes way weighs, as `nice` counts: about a third.
const NICE: i32 = 5;

/// Lowers the calling thread's priority; what the system refuses stays as it is.
fn make_way() {
    // Elsewhere it is the whole process's.
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
            // The last owner may be a task's own step; a thread cannot wait for itself.
            if worker.thread().id() != this {
                // A worker catches its tasks' panics; there is nothing left to report here.
                drop(worker.join());
            }
        }
        let mut queues = self.pool.queues.lock();
        let left = (std::mem::take(&mut queues.ready), std::mem::take(&mut queues.timers));
        drop(queues);
        drop(left);
    }
}

/// Runs one step whenever asked, of a runnable task picked by a seeded generator.
pub struct Stepper {
    pool: Arc<Pool>,
    rng: Mutex<Rng>,
}

impl Stepper {
    /// An executor whose choices follow from `seed`.
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
    fn only_threads_that_make_way_weigh_less() {
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
            (Threads::start_behind(1, Arc::new(SystemClock::new())).unwrap(), (own + NICE).min(19)),
        ] {
            let (noted, note) = mpsc::channel();
            threads.spawn("note", Box::new(Note(noted)));
            assert_eq!(note.recv().unwrap(), expected);
        }
    }

    #[test]
    fn threads_run_a_task_until_it_is_done() {
        let threads = Threads::start(2, Arc::new(SystemClock::new())).unwrap();
        let (task, steps) =
            counted(&threads, |n| if n < 10 { Progress::Again } else { Progress::Done });
        task.join(&threads).unwrap();
        assert_eq!(steps.load(SeqCst), 10);
    }

    #[test]
    fn an_idle_task_steps_when_woken_or_when_its_time_comes() {
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
    fn a_panicking_task_is_finished_and_named() {
        let threads = Threads::start(1, Arc::new(SystemClock::new())).unwrap();
        let (task, _) = counted(&threads, |_| panic!("on purpose"));
        let error = task.join(&threads).unwrap_err();
        assert!(error.to_string().contains("count"), "{error}");
        let (after, _) = counted(&threads, |_| Progress::Done);
        after.join(&threads).unwrap();
    }

    #[test]
    fn the_same_seed_gives_the_same_order() {
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
