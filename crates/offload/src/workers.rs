//! The host's workers: which one gets a job, and the counters of its jobs.
//!
//! A worker that fails is left alone for a while, twice as long after each failure in a row. Locks are short;
//! no lock is held while a link is used.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Codec, Error, Result, TableId};
use compact::offload::{
    Decision, JobShape, Offload, Placement, RemoteRun, Verify, WorkerStatistics,
};
use compact::{Env, Job, Outcome};
use parking_lot::Mutex;
use table::BlockEngine;

use crate::attempt::{Attempt, Remote, SLOW};
use crate::credentials::Credentials;
use crate::dispatch::{Candidate, Rate, next_worker};
use crate::dispatcher::Dispatcher;
use crate::hello::WorkerHello;
use crate::remote_engine::RemoteEngine;
use crate::{Address, PlacementMode, Timing};

/// Pause after the first failure of a worker, and the longest one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Operators and codecs that a worker lacks: most, and for how long it is not asked again.
const LACKING_MAX: usize = 256;
const LACKING_FOR: Duration = Duration::from_secs(600);

/// Most workers of a host.
const WORKERS_MAX: usize = 64;

/// The workers that a host may offer jobs to.
pub struct Workers {
    workers: Vec<Arc<RemoteWorker>>,
    credentials: Arc<Credentials>,
    timing: Timing,
    clock: Arc<dyn Clock>,
    dispatcher: Dispatcher,
    falls_back: bool,
    verify: Verify,
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
    /// Processor time of this process for its attempts.
    pub(crate) host_cpu: Duration,
    pub(crate) link_bytes: u64,
    /// Whether it runs whole jobs, as it said last.
    compresses_only: bool,
    compressed_blocks: u64,
    compressed_bytes: u64,
    /// The rate of its jobs, by codec.
    rates: BTreeMap<u8, Rate>,
    /// Outputs of other workers that it found in order.
    verified: u64,
    /// Operators and codecs that it lacks, and until when it is not asked again.
    lacking: BTreeMap<String, Duration>,
    failures: BTreeMap<&'static str, u64>,
    last_failure: Option<String>,
}

impl WorkerState {
    fn is_ready(&self, now: Duration) -> bool {
        now >= self.paused_until && self.running < self.slots.unwrap_or(1)
    }

    fn is_full(&self, now: Duration) -> bool {
        now >= self.paused_until && !self.is_ready(now)
    }

    /// Records the hello of the worker.
    pub(crate) fn set_hello(&mut self, hello: &WorkerHello) {
        self.slots = Some(hello.slots.clamp(1, 1024) as usize);
        self.compresses_only = !hello.merges;
    }

    /// Counts blocks that it compresses.
    pub(crate) fn compressed(&mut self, blocks: usize, raw_bytes: usize) {
        self.compressed_blocks += blocks as u64;
        self.compressed_bytes += raw_bytes as u64;
        self.failures_in_row = 0;
    }

    /// Counts a job after its outcome was installed.
    pub(crate) fn succeeded(
        &mut self,
        codec: Codec,
        (bytes_read, bytes_written): (u64, u64),
        took: Duration,
    ) {
        self.failures_in_row = 0;
        self.rates.entry(codec as u8).or_default().learn(bytes_read, took.as_secs_f64());
        self.jobs += 1;
        self.bytes_read += bytes_read;
        self.bytes_written += bytes_written;
    }

    /// Learns from a job that was given up after `took`, when it had read `bytes_read` of its inputs.
    pub(crate) fn was_slow(&mut self, codec: Codec, bytes_read: u64, took: Duration) {
        let rate = self.rates.entry(codec as u8).or_default();
        rate.learn_slow(bytes_read, took.as_secs_f64());
    }

    /// Counts outputs of another worker that it verified.
    pub(crate) const fn verified(&mut self) {
        self.verified += 1;
        self.failures_in_row = 0;
    }

    /// Records that it lacks an operator or codec: jobs that need it go elsewhere for a while.
    pub(crate) fn lacks(&mut self, need: &str, now: Duration) {
        self.lacking.retain(|_, until| now < *until);
        if self.lacking.len() < LACKING_MAX {
            self.lacking.insert(need.to_owned(), now.saturating_add(LACKING_FOR));
        }
    }

    /// Whether it has what `job` needs, as far as is known.
    fn suits(&self, job: &Job, now: Duration) -> bool {
        let lacks = |need: &str| self.lacking.get(need).is_some_and(|until| now < *until);
        !job.operator.as_deref().is_some_and(lacks) && !lacks(&need_of(job.output.codec))
    }

    /// Counts a failure, and leaves the worker alone for a while.
    pub(crate) fn failed(&mut self, reason: &'static str, text: String, now: Duration) {
        *self.failures.entry(reason).or_default() += 1;
        self.last_failure = Some(text);
        if matches!(reason, "operator" | "codec" | SLOW) {
            // Other jobs are welcome.
            return;
        }
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures_in_row.min(6)).min(PAUSE_MAX);
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        self.paused_until = now.saturating_add(pause);
    }

    /// Counts an attempt, or a stream of blocks, that takes a slot.
    pub(crate) fn begun(&mut self) {
        self.running += 1;
    }

    /// Counts its end.
    pub(crate) fn ended(&mut self) {
        base::invariant!(self.running > 0, "an attempt or stream that ends was counted");
        self.running = self.running.saturating_sub(1);
    }
}

impl Workers {
    /// The workers at `addresses`, reached with `credentials` when there is a job.
    ///
    /// # Errors
    /// `Invalid` if there are none or too many, or an address is beyond loopback, without TLS.
    pub fn new(
        addresses: Vec<Address>,
        credentials: Credentials,
        timing: Timing,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        if addresses.is_empty() || addresses.len() > WORKERS_MAX {
            return Err(Error::invalid("number of workers")
                .expected(format_args!("1 to {WORKERS_MAX}"))
                .got(addresses.len()));
        }
        for address in &addresses {
            credentials.admit(address)?;
        }
        let worker = |address| Arc::new(RemoteWorker { address, state: Mutex::default() });
        let workers = addresses.into_iter().map(worker).collect();
        let dispatcher = Dispatcher::new(PlacementMode::Remote);
        let (falls_back, verify) = (true, Verify::Full);
        let credentials = Arc::new(credentials);
        Ok(Self { workers, credentials, timing, clock, dispatcher, falls_back, verify })
    }

    /// Chooses how jobs are placed: at workers, if any is ready, by default.
    #[must_use]
    pub fn placing(mut self, mode: PlacementMode) -> Self {
        self.dispatcher = Dispatcher::new(mode);
        self
    }

    /// Chooses whether a job that workers failed runs in this process: by default it does. Otherwise it waits
    /// for a worker, and writers with it.
    #[must_use]
    pub const fn falling_back(mut self, falls_back: bool) -> Self {
        self.falls_back = falls_back;
        self
    }

    /// Chooses how outputs of workers are verified: [`Verify::Full`] by default.
    #[must_use]
    pub const fn verifying(mut self, verify: Verify) -> Self {
        self.verify = verify;
        self
    }

    /// The worker that would compress blocks now: a ready one, rather one that does nothing else.
    fn compressing(&self) -> Option<&Arc<RemoteWorker>> {
        let now = self.clock.monotonic();
        let ready = self.workers.iter().filter(|worker| worker.state.lock().is_ready(now));
        ready.min_by_key(|worker| {
            let state = worker.state.lock();
            (!state.compresses_only, state.running)
        })
    }
}

impl Workers {
    /// The workers that a job with `codec` may be placed at, with their rates and load.
    fn candidates(&self, codec: Codec) -> Vec<Candidate> {
        let now = self.clock.monotonic();
        let candidate = |worker: &Arc<RemoteWorker>| {
            let state = worker.state.lock();
            Candidate {
                is_ready: state.is_ready(now),
                is_full: state.is_full(now),
                merges: !state.compresses_only,
                running: state.running,
                failures_in_row: state.failures_in_row,
                remote: state.rates.get(&(codec as u8)).copied().unwrap_or_default(),
            }
        };
        self.workers.iter().map(candidate).collect()
    }

    /// The worker that takes a job at a worker: the one that the dispatcher chose.
    fn taker(&self, job: &JobShape, suits: &dyn Fn(&WorkerState) -> bool) -> Option<usize> {
        let mut candidates = self.candidates(job.codec);
        for (candidate, worker) in candidates.iter_mut().zip(&self.workers) {
            candidate.is_ready &= suits(&worker.state.lock());
        }
        match self.dispatcher.mode() {
            PlacementMode::Auto => next_worker(&candidates, job.is_urgent),
            // Jobs are shared out: the worker with the fewest takes it.
            PlacementMode::Remote | PlacementMode::Compress => {
                candidates.iter_mut().for_each(|it| it.remote = Rate::default());
                next_worker(&candidates, false)
            }
        }
    }
}

impl Offload for Workers {
    fn place(&self, job: &JobShape) -> Placement {
        let candidates = self.candidates(job.codec);
        let compresses = self.compressing().is_some();
        let name = |number: usize| self.workers.get(number).map(|it| it.address.to_string());
        self.dispatcher.place(job, &candidates, (compresses, self.falls_back), &name)
    }

    fn ended(&self, job: &JobShape, place: Placement, took: Duration, stayed: bool) {
        match stayed {
            true => self.dispatcher.ended(job, place, took),
            false => self.dispatcher.came_home(job, took),
        }
    }

    fn engine(&self) -> Option<Arc<dyn BlockEngine>> {
        let worker = Arc::clone(self.compressing()?);
        let credentials = Arc::clone(&self.credentials);
        let (timing, clock) = (self.timing, Arc::clone(&self.clock));
        Some(Arc::new(RemoteEngine { worker, credentials, timing, clock }))
    }

    fn falls_back(&self) -> bool {
        self.falls_back
    }

    fn verifies(&self) -> Verify {
        self.verify
    }

    fn decisions(&self) -> Vec<Decision> {
        self.dispatcher.decisions()
    }

    fn offer(
        &self,
        job: &Job,
        shape: &JobShape,
        env: &Env,
        proof: TableId,
    ) -> Option<Box<dyn RemoteRun>> {
        let now = self.clock.monotonic();
        let worker = self.workers.get(self.taker(shape, &|state| state.suits(job, now))?)?;
        let rate = worker.state.lock().rates.get(&(shape.codec as u8)).copied();
        let rate = rate.filter(|rate| rate.samples > 0);
        // The lower half of an epoch counts the attempts of a job.
        let is_first = job.epoch as u32 == 0;
        if !is_first && self.falls_back && self.dispatcher.is_slower(shape, rate) {
            return None;
        }
        let patience = self.dispatcher.patience(shape, rate.is_some());
        let patience = patience.filter(|_| self.falls_back);
        self.start(worker, job, None, patience, env, proof)
    }

    fn verify(
        &self,
        job: &Job,
        outcome: &Outcome,
        env: &Env,
        proof: TableId,
        written_by: &str,
    ) -> Option<Box<dyn RemoteRun>> {
        let now = self.clock.monotonic();
        let ready = |worker: &&Arc<RemoteWorker>| {
            let state = worker.state.lock();
            let is_fit = state.is_ready(now) && !state.compresses_only && state.suits(job, now);
            is_fit && worker.address.to_string() != written_by
        };
        let ready = self.workers.iter().filter(ready);
        let worker = ready.min_by_key(|worker| worker.state.lock().running)?;
        self.start(worker, job, Some(outcome.clone()), None, env, proof)
    }

    fn statistics(&self) -> Vec<WorkerStatistics> {
        self.workers.iter().map(|worker| worker.statistics()).collect()
    }
}

impl Workers {
    /// Starts an attempt of `job` at `worker`, which is given up after `patience`, or the verification of its
    /// outcome.
    fn start(
        &self,
        worker: &Arc<RemoteWorker>,
        job: &Job,
        verifies: Option<Outcome>,
        patience: Option<Duration>,
        env: &Env,
        proof: TableId,
    ) -> Option<Box<dyn RemoteRun>> {
        let now = self.clock.monotonic();
        {
            let mut state = worker.state.lock();
            if !state.is_ready(now) {
                return None;
            }
            state.begun();
        }
        let attempt = Attempt {
            worker: Arc::clone(worker),
            job: job.clone(),
            verifies,
            patience,
            env: env.clone(),
            proof,
            credentials: Arc::clone(&self.credentials),
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
}

impl RemoteWorker {
    fn statistics(&self) -> WorkerStatistics {
        let state = self.state.lock();
        let mut statistics = WorkerStatistics::default();
        statistics.address = self.address.to_string();
        statistics.running = state.running;
        statistics.jobs = state.jobs;
        statistics.bytes_read = state.bytes_read;
        statistics.bytes_written = state.bytes_written;
        statistics.cpu = state.cpu;
        statistics.link_bytes = state.link_bytes;
        statistics.host_cpu = state.host_cpu;
        statistics.compressed_blocks = state.compressed_blocks;
        statistics.compressed_bytes = state.compressed_bytes;
        statistics.verified = state.verified;
        statistics.failures = state.failures.iter().map(|(why, count)| (*why, *count)).collect();
        statistics.last_failure.clone_from(&state.last_failure);
        statistics
    }
}

/// The name under which a worker lacks `codec`; operators have others.
pub(crate) fn need_of(codec: Codec) -> String {
    format!("codec:{codec:?}")
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token.
        f.debug_list()
            .entries(self.workers.iter().map(|worker| worker.address.to_string()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use base::ManualClock;

    use super::*;

    /// A job goes to the worker that the dispatcher's decision names. Without a dispatcher, jobs are shared
    /// out.
    #[test]
    fn the_worker_that_the_dispatcher_chose_takes_the_job() {
        let job = JobShape { bytes: 1 << 20, codec: Codec::Lz4, is_urgent: false };
        let addresses = ["unix:a", "unix:b", "unix:c"].map(|it| it.parse().unwrap()).to_vec();
        for (mode, takers) in [(PlacementMode::Auto, [2, 1]), (PlacementMode::Remote, [0, 1])] {
            let clock = Arc::new(ManualClock::default());
            let workers =
                Workers::new(addresses.clone(), Credentials::default(), Timing::default(), clock);
            let workers = workers.unwrap().placing(mode);
            for _ in 0..2 {
                workers.ended(&job, Placement::Local, Duration::from_secs(60), true);
            }
            workers.ended(&job, Placement::Compress, Duration::from_secs(60), true);
            for (number, seconds) in [(0, 30), (1, 20), (2, 10)] {
                let mut state = workers.workers[number].state.lock();
                state.succeeded(Codec::Lz4, (1 << 20, 0), Duration::from_secs(seconds));
            }
            for taker in takers {
                assert_eq!(workers.place(&job), Placement::Remote);
                assert_eq!(workers.taker(&job, &|_| true), Some(taker), "{mode:?}");
                if mode == PlacementMode::Auto {
                    let chosen = workers.decisions().pop().unwrap().worker;
                    assert_eq!(chosen, Some(addresses[taker].to_string()));
                }
                workers.workers[taker].state.lock().running = 1;
            }
        }
    }
}
