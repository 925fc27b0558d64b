use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;

use parking_lot::Mutex;

use super::threads::NICE;
use super::*;
use crate::{ManualClock, SystemClock};

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
