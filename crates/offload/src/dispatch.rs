//! The dispatcher: decides where a job runs, from measured rates.
//!
//! [`choose`] is a pure function of the job, the host and the workers. A rate is measured from jobs that
//! ended, in bytes of inputs per second from start to end, so it contains the other
//! work of the processors and the link. Rules:
//! - Jobs have a usual place. It moves away only if that is expected to be an eighth faster, and comes back
//!   once it is slower: noise moves it rarely, and only between places that are about equally fast.
//! - A place that is unknown, or was not used for long, gets a single job of usual length to measure it. That
//!   does not move the usual place, and costs little time in all.
//! - A worker's job that takes longer than it would have taken here comes home: a place that is slower by far
//!   costs no more time than the job takes here.
//! - An urgent job, for which writers wait, goes only to a place that is known and did not fail lately.
//! - A busy worker is waited for only if it is faster by far.

use compact::offload::{Decision, JobShape, Placement};

/// The advantage that moves jobs to another place, as a factor.
const ADVANTAGE: f64 = 1.12;

/// The disadvantage that brings jobs back, as a factor.
const BACK: f64 = 1.02;

/// Jobs that run here before other places are tried.
const LOCAL_FIRST: u32 = 2;

/// Most share of all time that measuring slower places may cost.
const LOOK_SHARE: f64 = 0.01;

/// A place that was measured n times is measured again after two to the power of n jobs elsewhere, but at
/// most after two to this power.
const LOOK_POWER_MAX: u32 = 5;

/// Factor by which the weight of earlier jobs decays with each new one.
const KEPT: f64 = 0.9;

/// A job comes home from a known worker after this many times the time that it takes here.
const PATIENCE: f64 = 2.0;

/// A job stays at a worker for this many seconds at least: a connection takes some of them.
const PATIENCE_MIN: f64 = 0.25;

/// Shorter jobs say nothing about a rate, bytes.
const BYTES_MIN: u64 = 256 << 10;

/// A measured rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rate {
    /// Decaying sums: long jobs count for more.
    bytes: f64,
    seconds: f64,
    pub(crate) samples: u32,
}

impl Rate {
    pub(crate) fn learn(&mut self, bytes: u64, seconds: f64) {
        if bytes < BYTES_MIN {
            return;
        }
        self.bytes = KEPT * self.bytes + bytes as f64;
        self.seconds = KEPT * self.seconds + seconds.max(1e-6);
        self.samples = self.samples.saturating_add(1);
    }

    /// Learns from a job that was given up after `seconds`: of its inputs no more than `bytes` were read.
    pub(crate) fn learn_slow(&mut self, bytes: u64, seconds: f64) {
        self.learn(bytes.max(BYTES_MIN), seconds);
    }

    /// Seconds per byte; `None` before the first sample. Places are compared by it, because a job without
    /// bytes would take no time anywhere.
    fn cost(self) -> Option<f64> {
        (self.samples > 0).then(|| self.seconds / self.bytes)
    }
}

/// Measurements of this process's jobs with one codec.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    /// The rate of a job that runs here alone, and of one whose blocks a worker compresses.
    local: Rate,
    compress: Rate,
    /// Usual bytes of a job.
    usual_bytes: f64,
    /// Seconds of all jobs so far, and of those lost by measuring other places.
    seconds: f64,
    lost: f64,
    /// The usual place, and what a byte costs there.
    usual_place: Placement,
    usual_cost: Option<f64>,
    /// Jobs that ended, and that number when a job was last at each place.
    jobs: u64,
    last: [u64; 3],
}

impl Default for Host {
    fn default() -> Self {
        Self {
            local: Rate::default(),
            compress: Rate::default(),
            usual_bytes: 0.0,
            seconds: 0.0,
            lost: 0.0,
            usual_place: Placement::Local,
            usual_cost: None,
            jobs: 0,
            last: [0; 3],
        }
    }
}

/// The places that can be measured, in the order of [`Host::last`].
const PLACES: [Placement; 3] = [Placement::Local, Placement::Compress, Placement::Remote];

impl Host {
    fn last(&self, place: Placement) -> u64 {
        let found = PLACES.into_iter().zip(self.last).find(|(it, _)| *it == place);
        found.map_or(0, |(_, last)| last)
    }

    fn set_last(&mut self, place: Placement) {
        let jobs = self.jobs;
        let last = PLACES.into_iter().zip(&mut self.last).find(|(it, _)| *it == place);
        last.into_iter().for_each(|(_, last)| *last = jobs);
    }

    /// Records where a job was sent by [`choose`].
    pub(crate) fn placed(&mut self, choice: &Choice) {
        if let Some((place, cost)) = choice.usual {
            (self.usual_place, self.usual_cost) = (place, Some(cost));
        }
        // Also before it ends, so that jobs at the same time do not all measure the same place.
        self.set_last(choice.place);
    }

    /// Learns from a job that ended.
    pub(crate) fn ended(&mut self, bytes: u64, place: Placement, seconds: f64) {
        self.usual_bytes = match self.usual_bytes {
            0.0 => bytes as f64,
            before => before + (bytes as f64 - before) * 0.25,
        };
        self.seconds += seconds;
        self.jobs += 1;
        self.set_last(place);
        if let Some(cost) = self.usual_cost.filter(|_| place != self.usual_place) {
            self.lost += (seconds - cost * bytes as f64).max(0.0);
        }
        match place {
            Placement::Local => self.local.learn(bytes, seconds),
            Placement::Compress => self.compress.learn(bytes, seconds),
            // Each worker has its own.
            Placement::Remote | Placement::Wait => {}
        }
    }
}

impl Host {
    /// Learns that a job that was sent elsewhere ran here in the end, after `seconds` in all.
    pub(crate) fn came_home(&mut self, bytes: u64, seconds: f64) {
        self.seconds += seconds;
        self.jobs += 1;
        let here = self.local.cost().map_or(0.0, |cost| cost * bytes as f64);
        self.lost += (seconds - here).max(0.0);
    }

    /// Whether a job takes less time here than at a place of this rate, as far as is known.
    pub(crate) fn is_faster_than(&self, rate: Rate) -> bool {
        self.local.cost().zip(rate.cost()).is_some_and(|(here, there)| here < there)
    }

    /// Seconds after which a job of `bytes` comes home from a worker. `is_known`: the worker's rate was
    /// measured before this job. `None` while nothing is known here.
    pub(crate) fn patience(&self, bytes: u64, is_known: bool) -> Option<f64> {
        let here = self.local.cost().filter(|_| self.local.samples >= LOCAL_FIRST)? * bytes as f64;
        Some(if is_known { PATIENCE * here } else { here }.max(PATIENCE_MIN))
    }
}

/// A worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Candidate {
    /// Whether it can take a job now, and whether it is alive but full.
    pub(crate) is_ready: bool,
    pub(crate) is_full: bool,
    /// Whether it runs whole jobs.
    pub(crate) merges: bool,
    pub(crate) running: usize,
    pub(crate) failures_in_row: u32,
    pub(crate) remote: Rate,
}

/// The workers that may take a job now: an urgent one, only if they are known and did not fail lately.
fn takers(workers: &[Candidate], is_urgent: bool) -> impl Iterator<Item = (usize, &Candidate)> {
    let is_sound = |it: &Candidate| it.failures_in_row == 0 && it.remote.samples > 0;
    let takes = move |it: &Candidate| it.is_ready && it.merges && (!is_urgent || is_sound(it));
    workers.iter().enumerate().filter(move |(_, worker)| takes(worker))
}

/// The worker that gets the next job: one of unknown rate, so that it becomes known; otherwise the fastest,
/// then the least busy.
pub(crate) fn next_worker(workers: &[Candidate], is_urgent: bool) -> Option<usize> {
    let cost = |it: &Candidate| it.remote.cost().unwrap_or(0.0);
    let order =
        |a: &Candidate, b: &Candidate| cost(a).total_cmp(&cost(b)).then(a.running.cmp(&b.running));
    takers(workers, is_urgent).min_by(|(_, a), (_, b)| order(a, b)).map(|(number, _)| number)
}

/// A choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) place: Placement,
    pub(crate) worker: Option<usize>,
    pub(crate) why: &'static str,
    /// The usual place from now on, and what a byte costs there; `None` if the choice says nothing about it.
    pub(crate) usual: Option<(Placement, f64)>,
    pub(crate) local: Option<f64>,
    pub(crate) compress: Option<f64>,
    pub(crate) remote: Option<f64>,
}

impl Choice {
    pub(crate) fn decision(&self, job: JobShape, worker: Option<String>) -> Decision {
        let mut decision = Decision::new(job, self.place, self.why);
        decision.worker = worker;
        decision.local_seconds = self.local;
        decision.compress_seconds = self.compress;
        decision.remote_seconds = self.remote;
        decision
    }
}

/// Where `job` runs.
pub(crate) fn choose(
    job: &JobShape,
    host: &Host,
    workers: &[Candidate],
    compresses: bool,
) -> Choice {
    let number = next_worker(workers, job.is_urgent);
    let next = number.and_then(|number| workers.get(number));
    let local = host.local.cost();
    let known = takers(workers, job.is_urgent).filter_map(|(_, worker)| worker.remote.cost());
    let remote = known.min_by(f64::total_cmp);
    let compress = host.compress.cost().filter(|_| compresses);
    let at = |place, why| {
        let seconds = |cost: Option<f64>| cost.map(|cost| cost * job.bytes as f64);
        let worker = number.filter(|_| place == Placement::Remote);
        let (local, compress, remote) = (seconds(local), seconds(compress), seconds(remote));
        Choice { place, worker, why, usual: None, local, compress, remote }
    };
    let Some(here) = local.filter(|_| host.local.samples >= LOCAL_FIRST) else {
        return at(Placement::Local, "its rate here is measured first");
    };
    if !workers.iter().any(|worker| worker.is_ready) {
        // A worker that is full ends one of its jobs in about the time of this one.
        let full = workers.iter().filter(|worker| worker.is_full && worker.merges);
        let soon = full.filter_map(|worker| worker.remote.cost()).fold(f64::INFINITY, f64::min);
        if !job.is_urgent && 2.0 * soon * ADVANTAGE < here {
            return at(Placement::Wait, "waiting for a worker is faster than running here");
        }
        return at(Placement::Local, "no worker is free");
    }
    let cost_at = |place| match place {
        Placement::Local => Some(here),
        Placement::Compress => compress,
        Placement::Remote => remote,
        Placement::Wait => None,
    };
    let away = [Placement::Remote, Placement::Compress];
    let away = away.into_iter().filter_map(|place| Some((place, cost_at(place)?)));
    let away = away.min_by(|(_, a), (_, b)| a.total_cmp(b));
    let usual = match (host.usual_place, away) {
        (Placement::Local, Some((place, cost))) if cost * ADVANTAGE < here => (place, cost),
        (Placement::Local, _) | (_, None) => (Placement::Local, here),
        (_, Some((_, cost))) if cost > here * BACK => (Placement::Local, here),
        (before, Some((place, cost))) => match cost_at(before) {
            Some(known) if cost * ADVANTAGE >= known => (before, known),
            _ => (place, cost),
        },
    };
    if job.is_urgent {
        return match usual.0 {
            Placement::Local => {
                at(Placement::Local, "writers wait, and no sound place is known to be faster")
            }
            place => at(place, "it is faster there"),
        };
    }
    let look = look(job, host, usual, |place| match place {
        Placement::Local => Some(host.local),
        Placement::Compress => compresses.then_some(host.compress),
        Placement::Remote => next.map(|worker| worker.remote),
        Placement::Wait => None,
    });
    let choice = match (look, usual.0) {
        (Some(place), _) => at(place, "its rate there is measured"),
        (None, Placement::Local) => at(Placement::Local, "it is faster here"),
        (None, place) => at(place, "it is faster there"),
    };
    Choice { usual: Some(usual), ..choice }
}

/// The place that `job` is to measure, if any: one that is not used, is due, and does not cost too much time.
fn look(
    job: &JobShape,
    host: &Host,
    (usual_place, usual_cost): (Placement, f64),
    rate_at: impl Fn(Placement) -> Option<Rate>,
) -> Option<Placement> {
    // Long jobs are not risked.
    let bytes = job.bytes as f64;
    if job.bytes < BYTES_MIN || bytes > host.usual_bytes * 1.5 {
        return None;
    }
    let is_due = |place: &Placement| {
        let Some(rate) = rate_at(*place).filter(|_| *place != usual_place) else { return false };
        let since = host.jobs.saturating_sub(host.last(*place));
        let loss = rate.cost().map_or(0.0, |cost| (cost - usual_cost).max(0.0) * bytes);
        since >= 1 << rate.samples.min(LOOK_POWER_MAX)
            && (rate.samples == 0 || host.lost + loss <= LOOK_SHARE * host.seconds)
    };
    let due = PLACES.into_iter().filter(is_due);
    due.min_by_key(|place| (rate_at(*place).map(|rate| rate.samples > 0), host.last(*place)))
}

#[cfg(test)]
mod tests;
