//! An executor that a simulator steps.

use std::fmt;
use std::sync::Arc;

use crate::sync::Mutex;

use super::pool::Pool;
use super::{Executor, Task, TaskHandle};
use crate::{Clock, Rng};

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
