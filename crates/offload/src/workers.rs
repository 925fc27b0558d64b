//! The host's workers: which one gets a job, and the counters of its jobs.
//!
//! A worker that fails is left alone for a while, twice as long after each failure in a row. Locks are short;
//! no lock is held while a link is used.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Error, Result, TableId};
use compact::offload::{Offload, RemoteRun, WorkerStatistics};
use compact::{Env, Job};
use parking_lot::Mutex;

use crate::attempt::{Attempt, Remote};
use crate::{Address, Timing};

/// Pause after the first failure of a worker, and the longest one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Most workers of a host.
const WORKERS_MAX: usize = 64;

/// The workers that a host may offer jobs to.
pub struct Workers {
    workers: Vec<Arc<RemoteWorker>>,
    token: Vec<u8>,
    timing: Timing,
    clock: Arc<dyn Clock>,
}

/// A worker, as its host knows it.
pub(crate) struct RemoteWorker {
    pub(crate) address: Address,
    pub(crate) state: Mutex<WorkerState>,
}

/// The state of a worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerState {
    running: usize,
    /// Jobs that it runs at once, as it said last.
    slots: Option<usize>,
    failures_in_row: u32,
    /// Monotonic time before which it gets no job.
    paused_until: Duration,
    jobs: u64,
    bytes_read: u64,
    bytes_written: u64,
    pub(crate) cpu: Duration,
    pub(crate) link_bytes: u64,
    failures: BTreeMap<&'static str, u64>,
    last_failure: Option<String>,
}

impl WorkerState {
    fn is_ready(&self, now: Duration) -> bool {
        now >= self.paused_until && self.running < self.slots.unwrap_or(1)
    }

    pub(crate) fn set_slots(&mut self, slots: u32) {
        self.slots = Some(slots.clamp(1, 1024) as usize);
    }

    /// Counts a job after its outcome was installed.
    pub(crate) fn succeeded(&mut self, bytes_read: u64, bytes_written: u64) {
        self.failures_in_row = 0;
        self.jobs += 1;
        self.bytes_read += bytes_read;
        self.bytes_written += bytes_written;
    }

    /// Counts a failure, and leaves the worker alone for a while.
    pub(crate) fn failed(&mut self, reason: &'static str, text: String, now: Duration) {
        *self.failures.entry(reason).or_default() += 1;
        self.last_failure = Some(text);
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures_in_row.min(6)).min(PAUSE_MAX);
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        self.paused_until = now.saturating_add(pause);
    }

    /// Counts the end of an attempt.
    pub(crate) fn ended(&mut self) {
        base::invariant!(self.running > 0, "an attempt that ends was counted");
        self.running = self.running.saturating_sub(1);
    }
}

impl Workers {
    /// The workers at `addresses`, which know `token`. They are reached when there is a job.
    ///
    /// # Errors
    /// `Invalid` if there are none or too many, or an address is beyond loopback.
    pub fn new(
        addresses: Vec<Address>,
        token: Vec<u8>,
        timing: Timing,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        if addresses.is_empty() || addresses.len() > WORKERS_MAX {
            return Err(Error::invalid("number of workers")
                .expected(format_args!("1 to {WORKERS_MAX}"))
                .got(addresses.len()));
        }
        for address in &addresses {
            if let Address::Tcp(text) = address {
                Address::loopback(text)?;
            }
        }
        let worker = |address| Arc::new(RemoteWorker { address, state: Mutex::default() });
        Ok(Self { workers: addresses.into_iter().map(worker).collect(), token, timing, clock })
    }
}

impl Offload for Workers {
    fn is_ready(&self) -> bool {
        let now = self.clock.monotonic();
        self.workers.iter().any(|worker| worker.state.lock().is_ready(now))
    }

    fn offer(&self, job: &Job, env: &Env, proof: TableId) -> Option<Box<dyn RemoteRun>> {
        let now = self.clock.monotonic();
        // The worker with the fewest jobs.
        let ready = self.workers.iter().filter_map(|worker| {
            let state = worker.state.lock();
            state.is_ready(now).then_some((state.running, worker))
        });
        let (_, worker) = ready.min_by_key(|(running, _)| *running)?;
        {
            let mut state = worker.state.lock();
            if !state.is_ready(now) {
                return None;
            }
            state.running += 1;
        }
        let attempt = Attempt {
            worker: Arc::clone(worker),
            job: job.clone(),
            env: env.clone(),
            proof,
            token: self.token.clone(),
            timing: self.timing,
            clock: Arc::clone(&self.clock),
        };
        match Remote::start(attempt) {
            Ok(remote) => Some(Box::new(remote)),
            Err(error) => {
                let mut state = worker.state.lock();
                state.failed("no thread", error.to_string(), now);
                state.ended();
                None
            }
        }
    }

    fn statistics(&self) -> Vec<WorkerStatistics> {
        let statistics = |worker: &Arc<RemoteWorker>| {
            let state = worker.state.lock();
            let mut statistics = WorkerStatistics::default();
            statistics.address = worker.address.to_string();
            statistics.running = state.running;
            statistics.jobs = state.jobs;
            statistics.bytes_read = state.bytes_read;
            statistics.bytes_written = state.bytes_written;
            statistics.cpu = state.cpu;
            statistics.link_bytes = state.link_bytes;
            statistics.failures =
                state.failures.iter().map(|(why, count)| (*why, *count)).collect();
            statistics.last_failure.clone_from(&state.last_failure);
            statistics
        };
        self.workers.iter().map(statistics).collect()
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token.
        f.debug_list()
            .entries(self.workers.iter().map(|worker| worker.address.to_string()))
            .finish()
    }
}
