//! Resources for tests: the clock and background work advance only when a test asks for it.

use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Executor, ManualClock, Stepper};
use media::Medium;
use terracedb::{Builder, Db, Resources};

use super::MEMORY;

/// Background tasks take a step only when a test asks for it, or while a caller waits for them.
pub(crate) struct Stepped {
    clock: Arc<ManualClock>,
    executor: Arc<Stepper>,
    resources: Resources,
}

impl Stepped {
    /// The order of the steps is derived from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self::with_memory(seed, MEMORY)
    }

    /// As [`Stepped::new`], with a memory limit of `bytes`.
    pub(crate) fn with_memory(seed: u64, bytes: u64) -> Self {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let executor = Arc::new(Stepper::new(seed, Arc::clone(&clock) as _));
        let builder = Resources::builder().memory(bytes).executor(Arc::clone(&executor) as _);
        Self { clock, executor, resources: builder.build().unwrap() }
    }

    pub(crate) fn on(&self, medium: Arc<dyn Medium>) -> Builder {
        Db::on_medium(medium).resources(&self.resources)
    }

    /// Changes the memory limit.
    pub(crate) fn set_memory(&self, bytes: u64) {
        self.resources.set_memory(bytes).unwrap();
    }

    /// The wall clock, Unix milliseconds.
    pub(crate) fn now(&self) -> u64 {
        self.clock.unix_millis()
    }

    /// Sets the wall clock, backwards too.
    pub(crate) fn set_now(&self, unix_ms: u64) {
        self.clock.set_unix_millis(unix_ms);
    }

    /// Lets background tasks take up to `steps` steps.
    pub(crate) fn work(&self, steps: u64) {
        for _ in 0..steps {
            if !self.executor.help() {
                return;
            }
        }
    }

    /// Advances the clock by `time`, then lets the tasks that waited for it take up to 20 steps.
    pub(crate) fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.work(20);
    }
}
