//! The state of the dispatcher: measured rates, and the last decisions. Any thread may call; one short lock.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;
use std::time::Duration;

use base::{Error, Result};
use compact::offload::{Decision, JobShape, Placement};
use parking_lot::Mutex;

use crate::dispatch::{Candidate, Choice, Host, Rate, choose};

/// Decisions that are kept.
const DECISIONS_MAX: usize = 10;

/// How jobs are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacementMode {
    /// At workers, if one is ready.
    #[default]
    Remote,
    /// In this process; a worker compresses, if one is ready.
    Compress,
    /// Wherever the measured rates say that it is fastest.
    Auto,
}

impl PlacementMode {
    /// Each mode, with its name in settings.
    pub const NAMES: [(&'static str, Self); 3] =
        [("remote", Self::Remote), ("compress", Self::Compress), ("auto", Self::Auto)];
}

impl FromStr for PlacementMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        let wrong = || Error::invalid("placement of merges").got(format_args!("`{text}`"));
        Ok(found.ok_or_else(|| wrong().expected("remote, compress or auto"))?.1)
    }
}

#[derive(Default)]
struct State {
    codecs: BTreeMap<u8, Host>,
    decisions: VecDeque<Decision>,
}

/// See the module.
pub(crate) struct Dispatcher {
    mode: PlacementMode,
    state: Mutex<State>,
}

impl Dispatcher {
    pub(crate) fn new(mode: PlacementMode) -> Self {
        Self { mode, state: Mutex::default() }
    }

    pub(crate) const fn mode(&self) -> PlacementMode {
        self.mode
    }

    /// Where `job` runs. `compresses`: whether a worker can compress for it; `falls_back`: whether it may run
    /// here because no worker is free. `name` names a worker.
    pub(crate) fn place(
        &self,
        job: &JobShape,
        workers: &[Candidate],
        (compresses, falls_back): (bool, bool),
        name: &dyn Fn(usize) -> Option<String>,
    ) -> Placement {
        let mut state = self.state.lock();
        let host = state.codecs.entry(job.codec as u8).or_default();
        let free = choose(job, host, workers, compresses);
        let merging = workers.iter().any(|worker| worker.is_ready && worker.merges);
        let forced = |place, why| Choice { place, worker: None, why, ..free };
        let is_any_ready = workers.iter().any(|worker| worker.is_ready);
        let choice = match self.mode {
            PlacementMode::Auto if falls_back || is_any_ready => free,
            PlacementMode::Remote if merging => {
                forced(Placement::Remote, "merges go to workers, as configured")
            }
            PlacementMode::Compress if compresses => {
                forced(Placement::Compress, "workers compress, as configured")
            }
            _ if falls_back => forced(Placement::Local, "no worker is free"),
            _ => forced(Placement::Wait, "no worker is free, and merges do not fall back"),
        };
        // A wait is decided anew at every planning: only its end says something.
        if choice.place != Placement::Wait {
            host.placed(&choice);
            if state.decisions.len() == DECISIONS_MAX {
                state.decisions.pop_front();
            }
            let worker = choice.worker.and_then(name);
            state.decisions.push_back(choice.decision(*job, worker));
        }
        choice.place
    }

    /// Learns from a job that ended.
    pub(crate) fn ended(&self, job: &JobShape, place: Placement, took: Duration) {
        let mut state = self.state.lock();
        let host = state.codecs.entry(job.codec as u8).or_default();
        host.ended(job.bytes, place, took.as_secs_f64());
    }

    /// Learns that a job that was sent elsewhere ran here in the end, after `took` in all.
    pub(crate) fn came_home(&self, job: &JobShape, took: Duration) {
        let mut state = self.state.lock();
        let host = state.codecs.entry(job.codec as u8).or_default();
        host.came_home(job.bytes, took.as_secs_f64());
    }

    /// Whether the dispatcher knows that a worker of this rate is slower than this process.
    pub(crate) fn is_slower(&self, job: &JobShape, rate: Option<Rate>) -> bool {
        let state = self.state.lock();
        let host =
            state.codecs.get(&(job.codec as u8)).filter(|_| self.mode == PlacementMode::Auto);
        host.zip(rate).is_some_and(|(host, rate)| host.is_faster_than(rate))
    }

    /// The time after which a job comes home from a worker. `is_known`: the worker's rate was measured
    /// before.
    /// `None`: the job stays, because nothing is known here, or jobs go to workers as configured.
    pub(crate) fn patience(&self, job: &JobShape, is_known: bool) -> Option<Duration> {
        let state = self.state.lock();
        let host =
            state.codecs.get(&(job.codec as u8)).filter(|_| self.mode == PlacementMode::Auto);
        host?.patience(job.bytes, is_known).map(Duration::from_secs_f64)
    }

    pub(crate) fn decisions(&self) -> Vec<Decision> {
        self.state.lock().decisions.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use base::Codec;

    use super::*;

    #[test]
    fn decisions_are_kept_and_modes_are_followed() {
        let job = JobShape { bytes: 100, codec: Codec::Lz4, is_urgent: false };
        let name = |number| Some(format!("worker {number}"));
        let ready = Candidate { is_ready: true, merges: true, ..Candidate::default() };
        for (mode, place) in [
            (PlacementMode::Remote, Placement::Remote),
            (PlacementMode::Compress, Placement::Compress),
            (PlacementMode::Auto, Placement::Local),
        ] {
            let dispatcher = Dispatcher::new(mode);
            for _ in 0..DECISIONS_MAX + 5 {
                let placed = dispatcher.place(&job, &[ready], (true, true), &name);
                assert_eq!(placed, place, "{mode:?}");
            }
            let placed = dispatcher.place(&job, &[], (false, true), &name);
            assert_eq!(placed, Placement::Local);
            let decisions = dispatcher.decisions();
            assert_eq!(decisions.len(), DECISIONS_MAX);
            assert!(decisions.iter().all(|it| it.job == job && !it.why.is_empty()));
        }
        assert_eq!("auto".parse::<PlacementMode>().unwrap(), PlacementMode::Auto);
        "far".parse::<PlacementMode>().unwrap_err();
    }

    /// Without fallback a merge waits while no worker is free. But the dispatcher may choose this process: it
    /// knows no place before it measured this one.
    #[test]
    fn without_fallback_merges_wait_for_workers_and_this_process_is_still_measured() {
        let job = JobShape { bytes: 1 << 20, codec: Codec::Lz4, is_urgent: false };
        let name = |_| None;
        let ready = Candidate { is_ready: true, merges: true, ..Candidate::default() };
        for (_, mode) in PlacementMode::NAMES {
            let dispatcher = Dispatcher::new(mode);
            let place = |workers: &[Candidate]| {
                dispatcher.place(&job, workers, (!workers.is_empty(), false), &name)
            };
            assert_eq!(place(&[]), Placement::Wait, "{mode:?}");
            assert!(dispatcher.decisions().is_empty());
            assert_ne!(place(&[ready]), Placement::Wait, "{mode:?}");
        }
        let auto = Dispatcher::new(PlacementMode::Auto);
        for _ in 0..2 {
            assert_eq!(auto.place(&job, &[ready], (false, false), &name), Placement::Local);
            auto.ended(&job, Placement::Local, Duration::from_secs(1));
        }
        assert_eq!(auto.place(&job, &[ready], (false, false), &name), Placement::Remote);
    }
}
