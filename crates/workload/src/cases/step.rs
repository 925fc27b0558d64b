//! One step of a case: a workload and its options.

use std::time::Duration;

use super::scale::{Scale, TINY};
use crate::Distribution;
use crate::bench::{Name, Options};

/// The time of one point of a timeline.
const TIMELINE_EVERY: Duration = Duration::from_secs(1);

/// The length of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// One operation per key of the case.
    EveryKey,
    /// This many seconds.
    Seconds(u64),
}

/// One workload of a case. Its label is unique in the case. A step without a label prepares the next one or
/// verifies the one before, and is reported only if it finds something wrong.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The name in results.
    pub label: &'static str,
    /// The workload.
    pub bench: Name,
    /// Its length; fills always write every key.
    pub length: Length,
    /// Threads.
    pub threads: usize,
    /// The distribution of keys; the workload's own if `None`.
    pub distribution: Option<Distribution>,
    /// Lookups in flight, or lookups per call for a store with batched lookups.
    pub depth: usize,
    /// Entries per seek.
    pub entries: usize,
    /// Entries per write.
    pub batch: usize,
    /// Whether the step includes waiting for background work.
    pub settle: bool,
    /// Whether every write is synced.
    pub is_synced: bool,
    /// Writes per second of the background writer of a mix; full speed if `None`.
    pub write_rate: Option<f64>,
    /// Whether the store is opened anew before the step, with empty caches and an empty page cache.
    pub is_cold: bool,
    /// Whether the rate of each second is reported.
    pub is_timeline: bool,
}

impl Step {
    pub(super) const fn new(label: &'static str, bench: Name) -> Self {
        Self {
            label,
            bench,
            length: Length::EveryKey,
            threads: 1,
            distribution: None,
            depth: 32,
            entries: 1,
            batch: 1,
            settle: false,
            is_synced: false,
            write_rate: None,
            is_cold: false,
            is_timeline: false,
        }
    }

    /// A step that prepares the next one or verifies the one before.
    pub(super) const fn prepare(bench: Name) -> Self {
        Self::new("", bench)
    }

    pub(super) const fn seconds(mut self, seconds: u64) -> Self {
        self.length = Length::Seconds(seconds);
        self
    }

    pub(super) const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    pub(super) const fn zipfian(mut self) -> Self {
        self.distribution = Some(Distribution::Zipfian { theta: crate::ZIPFIAN_THETA });
        self
    }

    pub(super) const fn entries(mut self, entries: usize) -> Self {
        self.entries = entries;
        self
    }

    pub(super) const fn batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    pub(super) const fn settled(mut self) -> Self {
        self.settle = true;
        self
    }

    pub(super) const fn synced(mut self) -> Self {
        self.is_synced = true;
        self
    }

    pub(super) const fn write_rate(mut self, rate: f64) -> Self {
        self.write_rate = Some(rate);
        self
    }

    pub(super) const fn cold(mut self) -> Self {
        self.is_cold = true;
        self
    }

    pub(super) const fn timeline(mut self) -> Self {
        self.is_timeline = true;
        self
    }

    /// Whether its figures are reported.
    #[must_use]
    pub const fn is_measured(&self) -> bool {
        !self.label.is_empty()
    }

    /// The options of the case, overridden by those of the step.
    pub(super) fn options(&self, case: Options, scale: Scale) -> Options {
        let duration = match (self.length, scale) {
            (Length::EveryKey, _) | (_, Scale::Tiny) => None,
            (Length::Seconds(seconds), _) => Some(scale.seconds(seconds)),
        };
        Options {
            ops: (scale == Scale::Tiny).then_some(TINY),
            threads: self.threads,
            depth: self.depth,
            entries: self.entries,
            batch: self.batch,
            duration,
            settle: self.settle,
            sync: self.is_synced,
            write_rate: self.write_rate,
            distribution: self.distribution,
            report_interval: self.is_timeline.then_some(TIMELINE_EVERY),
            ..case
        }
    }
}
