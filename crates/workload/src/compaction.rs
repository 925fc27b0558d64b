//! Where the merges of a run were done, in this process or at workers, and what they cost.

use serde::Serialize;

/// Merges of a run, by the place that did them. Field names are an interface that scripts parse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CompactionPlaces {
    /// Merges that this process ran.
    pub local_jobs: u64,
    /// Merges that workers ran.
    pub remote_jobs: u64,
    /// Attempts of workers that failed.
    pub fallbacks: u64,
    /// Bytes between this process and the workers, both ways.
    pub link_bytes: u64,
    /// Processor time of this process, merges and everything else.
    pub host_cpu_seconds: f64,
    /// Processor time of the workers' jobs.
    pub worker_cpu_seconds: f64,
}

impl CompactionPlaces {
    /// The difference to an `earlier` reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            local_jobs: self.local_jobs.saturating_sub(earlier.local_jobs),
            remote_jobs: self.remote_jobs.saturating_sub(earlier.remote_jobs),
            fallbacks: self.fallbacks.saturating_sub(earlier.fallbacks),
            link_bytes: self.link_bytes.saturating_sub(earlier.link_bytes),
            host_cpu_seconds: self.host_cpu_seconds - earlier.host_cpu_seconds,
            worker_cpu_seconds: self.worker_cpu_seconds - earlier.worker_cpu_seconds,
        }
    }
}
