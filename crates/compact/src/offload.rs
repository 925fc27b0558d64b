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
use std::time::Duration;

use base::{Error, Result, TableId};

use crate::{Env, Job, Outcome};

/// How long a worker may be silent before its attempt is given up. A worker that hears nothing from its
/// host for as long stops too, so after two leases no file of the attempt is written any more.
pub const LEASE: Duration = Duration::from_secs(10);

/// Takes jobs to workers.
pub trait Offload: Send + Sync + fmt::Debug {
    /// Whether a worker would be offered a job now.
    fn is_ready(&self) -> bool;

    /// Offers `job`; `None` if no worker can take it now. `env` has the store's files. `proof` is the id of
    /// no file: a value file of that name may be made and removed, to prove that both sides see the same
    /// directory. Does not block.
    fn offer(&self, job: &Job, env: &Env, proof: TableId) -> Option<Box<dyn RemoteRun>>;

    /// The counters of each worker.
    fn statistics(&self) -> Vec<WorkerStatistics>;
}

/// An attempt that a worker was offered. Dropping it cancels the attempt: it writes nothing through the
/// host's medium afterwards.
pub trait RemoteRun: Send + fmt::Debug {
    /// The outcome, once it is there. Does not block.
    ///
    /// # Errors
    /// Why the attempt failed. The caller gives it up.
    fn poll(&mut self) -> Result<Option<Outcome>>;

    /// Records whether the outcome passed verification and was installed.
    fn judged(&mut self, verdict: Result<(), &Error>);
}

/// Counters of a worker since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStatistics {
    /// Its address.
    pub address: String,
    /// Jobs that it runs now.
    pub running: usize,
    /// Jobs with an installed outcome.
    pub jobs: u64,
    /// Bytes of inputs that these jobs read.
    pub bytes_read: u64,
    /// Bytes of tables that these jobs wrote.
    pub bytes_written: u64,
    /// Processor time of its attempts, as it reports.
    pub cpu: Duration,
    /// Bytes of frames in both directions.
    pub link_bytes: u64,
    /// Attempts that failed, by reason.
    pub failures: Vec<(&'static str, u64)>,
    /// The last failure, in words.
    pub last_failure: Option<String>,
}
