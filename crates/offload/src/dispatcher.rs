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

/// What is known of the jobs of one codec.
#[derive(Default)]
struct OfCodec {
    host: Host,
    previous: Option<Placement>,
}

#[derive(Default)]
struct State {
    codecs: BTreeMap<u8, OfCodec>,
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

    /// Where `job` runs. `name` names a worker.
    pub(crate) fn place(
        &self,
        job: &JobShape,
        workers: &[Candidate],
        compresses: bool,
        name: &dyn Fn(usize) -> Option<String>,
    ) -> Placement {
        let mut state = self.state.lock();
        let known = state.codecs.entry(job.codec as u8).or_default();
        let previous = known.previous.unwrap_or(Placement::Local);
        let free = choose(job, &known.host, workers, compresses, previous);
        let merging = workers.iter().any(|worker| worker.is_ready && worker.merges);
        let forced = |place, why| Choice { place, worker: None, why, ..free };
        let choice = match self.mode {
            PlacementMode::Auto => free,
            PlacementMode::Remote if merging => {
                forced(Placement::Remote, "merges go to workers, as configured")
            }
            PlacementMode::Compress if compresses => {
                forced(Placement::Compress, "workers compress, as configured")
            }
            PlacementMode::Remote | PlacementMode::Compress => {
                forced(Placement::Local, "no worker is free")
            }
        };
        if choice.place != Placement::Wait {
            known.previous = Some(choice.place);
        }
        // A wait is decided anew at every planning: only its end says something.
        if choice.place != Placement::Wait {
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
        let known = state.codecs.entry(job.codec as u8).or_default();
        known.learn(job.bytes, place, took.as_secs_f64());
    }

    pub(crate) fn decisions(&self) -> Vec<Decision> {
        self.state.lock().decisions.iter().cloned().collect()
    }
}

impl OfCodec {
    fn learn(&mut self, bytes: u64, place: Placement, seconds: f64) {
        let host = &mut self.host;
        let expected = host.local.expected(bytes);
        host.usual_bytes = match host.usual_bytes {
            0.0 => bytes as f64,
            before => before + (bytes as f64 - before) * 0.25,
        };
        host.seconds += seconds;
        let rate = match place {
            Placement::Local => &mut host.local,
            Placement::Compress => &mut host.compress,
            // Each worker has its own.
            Placement::Remote | Placement::Wait => &mut Rate::default(),
        };
        rate.learn(bytes, seconds);
        if place != Placement::Local
            && let Some(expected) = expected
        {
            host.explored += (seconds - expected).max(0.0);
        }
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
                assert_eq!(dispatcher.place(&job, &[ready], true, &name), place, "{mode:?}");
            }
            assert_eq!(dispatcher.place(&job, &[], false, &name), Placement::Local);
            let decisions = dispatcher.decisions();
            assert_eq!(decisions.len(), DECISIONS_MAX);
            assert!(decisions.iter().all(|it| it.job == job && !it.why.is_empty()));
        }
        assert_eq!("auto".parse::<PlacementMode>().unwrap(), PlacementMode::Auto);
        "far".parse::<PlacementMode>().unwrap_err();
    }
}
