//! Offload: jobs that run in other processes. This is the seam between the tasks that plan merges and the
//! transport that reaches workers (crate `terrace-offload`).
//!
//! A task never blocks here: it offers a job, and polls the run until the outcome is there. The outcome is
//! bytes from outside, verified like that of a local run ([`crate::Verification`]).
//!
//! An attempt is fenced three times: [`Job::epoch`] names it, so a late outcome of another attempt or of an
//! earlier life of the store is refused; its outputs have ids that no other attempt has; and creating a file
//! refuses an existing name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Codec, Error, Result, TableId};
pub use table::{BlockEngine, BlockStream, SoftPool};

use crate::{Env, Job, Outcome};

/// How long a worker may be silent before its attempt is given up. A worker that hears nothing from its
/// host for as long stops too, so after two leases no file of the attempt is written any more.
pub const LEASE: Duration = Duration::from_secs(10);

/// Takes jobs to workers.
pub trait Offload: Send + Sync + fmt::Debug {
    /// Where `job` is to run. Does not block.
    fn place(&self, job: &JobShape) -> Placement;

    /// Records that `job` ran at `place` and took `took`: later placements go by it. `stayed`: it did not
    /// run in this process in the end, after it was sent elsewhere.
    fn ended(&self, job: &JobShape, place: Placement, took: Duration, stayed: bool);

    /// Compresses the blocks of a job that [`Placement::Compress`] places; `None` if no worker can now.
    fn engine(&self) -> Option<Arc<dyn BlockEngine>>;

    /// Whether a job that workers failed runs in this process. Otherwise it waits for a worker.
    fn falls_back(&self) -> bool;

    /// Whether the pages of a worker's outputs are all read before they are installed, or some of them.
    fn verifies(&self) -> Verify;

    /// The last placements, newest last.
    fn decisions(&self) -> Vec<Decision>;

    /// Offers `job`, of shape `shape`; `None` if no worker can take it now. `env` has the store's files.
    /// `proof` is the id of no file: a value file of that name may be made and removed, to prove that both
    /// sides see the same directory. Does not block.
    fn offer(
        &self,
        job: &Job,
        shape: &JobShape,
        env: &Env,
        proof: TableId,
    ) -> Option<Box<dyn RemoteRun>>;

    /// Has a worker other than `written_by`, which can open the store's directory, read and decode every page
    /// of the outputs that `outcome` describes; the run's outcome is then `outcome`. `None` if no such worker
    /// is ready. `proof` is as for [`Offload::offer`]. Does not block.
    fn verify(
        &self,
        job: &Job,
        outcome: &Outcome,
        env: &Env,
        proof: TableId,
        written_by: &str,
    ) -> Option<Box<dyn RemoteRun>>;

    /// The counters of each worker.
    fn statistics(&self) -> Vec<WorkerStatistics>;
}

/// What the placement of a job goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobShape {
    /// Bytes of its inputs.
    pub bytes: u64,
    /// The codec of its outputs.
    pub codec: Codec,
    /// Whether writers are delayed until it ends.
    pub is_urgent: bool,
}

/// Where a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In this process.
    Local,
    /// In this process; a worker compresses its blocks.
    Compress,
    /// At a worker.
    Remote,
    /// Nowhere yet: a worker that is busy will be faster.
    Wait,
}

impl Placement {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Compress => "compress",
            Self::Remote => "remote",
            Self::Wait => "wait",
        }
    }
}

/// How the outputs of a worker are verified. Counts, order, bounds, footers and the digests that they state
/// are checked in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Every page is read.
    #[default]
    Full,
    /// One read in 64 is done, chosen at random: the rest would cross the link to the storage a second time.
    Sampled,
    /// As `Sampled`, after another worker read and decoded every page near the storage. Every page is read
    /// here if no other worker can.
    Elsewhere,
}

/// A placement, and the reason for it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// The job.
    pub job: JobShape,
    /// Its place.
    pub place: Placement,
    /// The worker, if it has one.
    pub worker: Option<String>,
    /// The reason, in words.
    pub why: &'static str,
    /// The time that the job was expected to take in this process, with a worker that compresses, and at a
    /// worker, seconds; `None` if nothing is known yet.
    pub local_seconds: Option<f64>,
    /// As above.
    pub compress_seconds: Option<f64>,
    /// As above.
    pub remote_seconds: Option<f64>,
}

impl Decision {
    /// A decision without expectations.
    #[must_use]
    pub const fn new(job: JobShape, place: Placement, why: &'static str) -> Self {
        let (local_seconds, compress_seconds, remote_seconds) = (None, None, None);
        Self { job, place, worker: None, why, local_seconds, compress_seconds, remote_seconds }
    }
}

/// An attempt that a worker was offered. Dropping it cancels the attempt: it writes nothing through the
/// host's medium afterwards.
pub trait RemoteRun: Send + fmt::Debug {
    /// The outcome, once it is there. Does not block.
    ///
    /// # Errors
    /// Why the attempt failed. The caller gives it up.
    fn poll(&mut self) -> Result<Option<Outcome>>;

    /// The address of the worker.
    fn worker(&self) -> String;

    /// Records whether the outcome passed verification and was installed.
    fn judged(&mut self, verdict: Result<(), &Error>);
}

/// Counters of a worker since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStatistics {
    /// Its address.
    pub address: String,
    /// Jobs of this process that it runs now, and tables of which it compresses blocks.
    pub running: usize,
    /// Jobs with an installed outcome.
    pub jobs: u64,
    /// Bytes of inputs that these jobs read.
    pub bytes_read: u64,
    /// Bytes of tables that these jobs wrote.
    pub bytes_written: u64,
    /// Processor time of its attempts, as it reports.
    pub cpu: Duration,
    /// Processor time of this process for its attempts: its end of the link, and requests for files.
    pub host_cpu: Duration,
    /// Bytes of frames in both directions.
    pub link_bytes: u64,
    /// Blocks that it compressed for jobs of this process, and their raw bytes.
    pub compressed_blocks: u64,
    /// As above.
    pub compressed_bytes: u64,
    /// Outcomes of other workers that it verified.
    pub verified: u64,
    /// Attempts that failed, by reason.
    pub failures: Vec<(&'static str, u64)>,
    /// The last failure, in words.
    pub last_failure: Option<String>,
}
