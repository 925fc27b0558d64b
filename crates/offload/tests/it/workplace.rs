//! A host and a worker in this process, and one job.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use base::{Error, ManualClock, Result, Rng, SystemClock, TableId};
use compact::offload::{JobShape, Offload, RemoteRun};
use compact::{Env, Job, Operators, Outcome};
use media::Medium;
use terrace_offload::{Address, Credentials, Root, Timing, Worker, WorkerOptions, Workers};

use crate::support::{Add, Content, ContentSpec, OUTPUTS, env, ids, input_sum};

/// The id of the proof of a shared directory.
pub(crate) const PROOF: TableId = TableId(OUTPUTS + 5000);

/// Times in which no live worker is given up, however slow the machine is.
pub(crate) const PATIENT: Timing = Timing {
    lease: Duration::from_secs(300),
    beat: Duration::from_millis(50),
    connect: Duration::from_secs(300),
    stall: Duration::from_secs(300),
};

/// Times that tests of failures need not wait for. A slow machine makes a live worker fail too.
pub(crate) const SHORT: Timing = Timing {
    lease: Duration::from_millis(400),
    beat: Duration::from_millis(50),
    connect: Duration::from_millis(400),
    stall: Duration::from_secs(5),
};

/// A worker on a thread, stopped when dropped.
pub(crate) struct RunningWorker {
    pub(crate) address: Address,
    worker: Arc<Worker>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

pub(crate) fn worker_options() -> WorkerOptions {
    let mut operators = Operators::builtin();
    operators.add(Arc::new(Add)).unwrap();
    WorkerOptions { operators: Arc::new(operators), timing: PATIENT, ..WorkerOptions::default() }
}

impl RunningWorker {
    pub(crate) fn start(options: WorkerOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Unix(directory.path().join("worker"));
        Self::listen(&address, options, directory)
    }

    /// A worker at a TCP address of this machine.
    pub(crate) fn start_on_tcp(address: &str, options: WorkerOptions) -> Self {
        Self::listen(&address.parse().unwrap(), options, tempfile::tempdir().unwrap())
    }

    fn listen(address: &Address, options: WorkerOptions, directory: tempfile::TempDir) -> Self {
        let worker = Arc::new(Worker::listen(address, options).unwrap());
        let address = worker.address().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (running, stopped) = (Arc::clone(&worker), Arc::clone(&stop));
        let thread = std::thread::spawn(move || running.run(&stopped, |_| {}).unwrap());
        Self { address, worker, stop, thread: Some(thread), _directory: directory }
    }

    /// Waits until all its connections ended in one way or the other.
    pub(crate) fn wait_for(&self, connections: u64) -> (u64, u64) {
        loop {
            let (done, failed) = self.worker.ended();
            if done + failed >= connections {
                return (done, failed);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap();
    }
}

pub(crate) fn root(directory: &std::path::Path) -> Root {
    Root { name: "store".into(), directory: PathBuf::from(directory) }
}

/// Workers of a host at `address`.
pub(crate) fn workers(address: &Address, token: &[u8], timing: Timing) -> Workers {
    let clock = Arc::new(SystemClock::new());
    Workers::new(vec![address.clone()], Credentials::new(token.to_vec()), timing, clock).unwrap()
}

/// Workers of a host at `addresses`.
pub(crate) fn workers_at(addresses: &[&Address], token: &[u8], timing: Timing) -> Workers {
    let clock = Arc::new(SystemClock::new());
    let addresses = addresses.iter().map(|it| (*it).clone()).collect();
    Workers::new(addresses, Credentials::new(token.to_vec()), timing, clock).unwrap()
}

/// Workers of a host whose clock stands still: a pause after a failure lasts, however slow the machine is.
pub(crate) fn stopped_workers(address: &Address, token: &[u8]) -> Workers {
    let clock = Arc::new(ManualClock::default());
    Workers::new(vec![address.clone()], Credentials::new(token.to_vec()), PATIENT, clock).unwrap()
}

/// Tables on `medium`, and a job that merges them.
pub(crate) fn content(rng: &mut Rng, medium: &Arc<dyn Medium>, entries: u64) -> (Content, Job) {
    let spec = ContentSpec {
        runs: 3,
        keys: 2 * entries,
        entries,
        tables: 2,
        value_bytes: 300,
        puts_only: false,
        disjoint: false,
    };
    let content = Content::random(rng, medium, &spec);
    let job = content.job(&[10]);
    (content, job)
}

/// The shape of a job for which nobody waits.
pub(crate) fn shape_of(job: &Job) -> JobShape {
    let bytes = job.pieces().map(|piece| piece.file_bytes).sum();
    JobShape { bytes, codec: job.output.codec, is_urgent: false }
}

/// Waits for the end of an attempt.
pub(crate) fn wait(remote: &mut dyn RemoteRun) -> Result<Outcome> {
    loop {
        if let Some(outcome) = remote.poll()? {
            return Ok(outcome);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One attempt of `job`; its verdict is given to the worker's counters as the engine does.
pub(crate) fn attempt(workers: &Workers, job: &Job, env: &Env) -> Result<Outcome> {
    let mut remote = workers
        .offer(job, &shape_of(job), env, PROOF)
        .ok_or_else(|| Error::retry("no worker is ready"))?;
    let ended = wait(&mut *remote);
    let verified = ended.and_then(|outcome| {
        // The engine knows the number of versions from the inputs' properties.
        let read = local(job, &env.medium).counts.read;
        outcome.expect_read(read..=read)?;
        outcome.expect_conserved(Some(input_sum(job, &env.medium)))?;
        let tables = compact::verify(job, outcome.clone(), env, &env.tables)?;
        drop(tables);
        Ok(outcome)
    });
    remote.judged(verified.as_ref().map(|_| ()));
    verified
}

/// The outcome of the same job in this process, on a copy of its inputs.
pub(crate) fn local(job: &Job, medium: &Arc<dyn Medium>) -> Outcome {
    let inputs: Vec<_> = job.pieces().map(|piece| table::file_name(piece.id)).collect();
    let copy = media::MemoryMedium::new();
    for name in inputs {
        let file = medium.open(&name, media::Access::Direct).unwrap();
        let pages = (file.size().unwrap() as usize).div_ceil(4096);
        let (buf, result) = file.read(0, media::Buf::pages(pages), media::Purpose::Meta);
        result.unwrap();
        copy.insert(&name, buf[..file.size().unwrap() as usize].to_vec()).unwrap();
    }
    let copy: Arc<dyn Medium> = Arc::new(copy);
    compact::run(job.clone(), &env(&copy)).unwrap()
}

/// The ids of files that are no inputs.
pub(crate) fn outputs(medium: &Arc<dyn Medium>) -> Vec<u64> {
    ids(medium).into_iter().filter(|id| *id >= OUTPUTS).collect()
}
