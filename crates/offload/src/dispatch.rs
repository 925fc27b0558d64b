//! The dispatcher: decides where a job runs, from measured rates.
//!
//! [`choose`] is a pure function of the job, the host and the workers. A rate is measured from jobs that
//! ended, in bytes of inputs per second from start to end, so it contains what else the processors and the
//! link do. Rules:
//! - Work moves away only if that is expected to be an eighth faster, and comes back once it is slower: noise
//!   flips nothing, and a placement is hardly ever worse than no workers at all.
//! - The rate of an unknown place is learned from a job of usual length, and measured again rarely.
//! - An urgent job, for which writers wait, goes only to a place that is known and did not fail lately.
//! - A busy worker is waited for only if it is faster by far.

use compact::offload::{Decision, JobShape, Placement};

/// The advantage that moves a job away, as a factor.
const ADVANTAGE: f64 = 1.12;

/// The disadvantage that brings a job back, as a factor.
const BACK: f64 = 1.02;

/// Jobs that run here before other places are tried.
const LOCAL_FIRST: u32 = 2;

/// Most share of all time that looking again at a slower place may cost.
const EXPLORE_SHARE: f64 = 0.01;

/// What is left of the weight of earlier jobs after another.
const KEPT: f64 = 0.9;

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

    /// The time of a job of `bytes`, seconds; `None` before the first sample.
    pub(crate) fn expected(self, bytes: u64) -> Option<f64> {
        (self.samples > 0).then(|| bytes as f64 * self.seconds / self.bytes)
    }
}

/// The host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Host {
    /// Its rate alone, and with a worker that compresses.
    pub(crate) local: Rate,
    pub(crate) compress: Rate,
    /// Usual bytes of a job.
    pub(crate) usual_bytes: f64,
    /// Seconds of all jobs so far, and of those lost by looking again.
    pub(crate) seconds: f64,
    pub(crate) explored: f64,
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

/// A choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) place: Placement,
    pub(crate) worker: Option<usize>,
    pub(crate) why: &'static str,
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

/// Where `job` runs; the last job of its codec ran at `previous`.
pub(crate) fn choose(
    job: &JobShape,
    host: &Host,
    workers: &[Candidate],
    compresses: bool,
    previous: Placement,
) -> Choice {
    let ready = workers.iter().enumerate().filter(|(_, worker)| worker.is_ready && worker.merges);
    // The fastest known, then the least busy.
    let expected = |worker: &Candidate| worker.remote.expected(job.bytes);
    let best = ready.min_by(|(_, a), (_, b)| {
        let order = (expected(a).unwrap_or(0.0)).total_cmp(&expected(b).unwrap_or(0.0));
        order.then(a.running.cmp(&b.running))
    });
    let local = host.local.expected(job.bytes);
    let remote = best.and_then(|(_, worker)| expected(worker));
    let compress = host.compress.expected(job.bytes).filter(|_| compresses);
    let choice = |place, worker, why| Choice { place, worker, why, local, compress, remote };
    let at = |why| choice(Placement::Remote, best.map(|(number, _)| number), why);
    let here = |why| choice(Placement::Local, None, why);
    let ready_any = workers.iter().any(|worker| worker.is_ready);
    let Some(local) = local.filter(|_| host.local.samples >= LOCAL_FIRST) else {
        return here("its rate here is measured first");
    };
    if !ready_any {
        // A worker that is full ends one of its jobs in about the time of this one.
        let full = workers.iter().filter(|worker| worker.is_full && worker.merges);
        let soon = full.filter_map(expected).fold(f64::INFINITY, f64::min);
        if !job.is_urgent && 2.0 * soon * ADVANTAGE < local {
            return choice(
                Placement::Wait,
                None,
                "waiting for a worker is faster than running here",
            );
        }
        return here("no worker is free");
    }
    let is_shaky = best.is_none_or(|(_, worker)| worker.failures_in_row > 0);
    if job.is_urgent && is_shaky {
        return here("writers wait, and the worker failed lately");
    }
    // Unknown places are tried with jobs that are not long; known ones rarely.
    let is_usual = job.bytes >= BYTES_MIN && job.bytes as f64 <= host.usual_bytes * 1.5;
    let may_look = |expected: f64| {
        let loss = (expected - local).max(0.0);
        host.explored + loss <= EXPLORE_SHARE * host.seconds
    };
    if !job.is_urgent && is_usual {
        if best.is_some() && remote.is_none() {
            return at("its rate at the worker is measured");
        }
        if compresses && compress.is_none() {
            return choice(
                Placement::Compress,
                None,
                "its rate with a worker that compresses is measured",
            );
        }
    }
    let least = [remote, compress].into_iter().flatten().fold(f64::INFINITY, f64::min);
    let is_away = matches!(previous, Placement::Remote | Placement::Compress);
    let goes = if is_away { least < local * BACK } else { least * ADVANTAGE < local };
    let to_best = |why| match remote {
        // The worker keeps the whole job unless splitting is better by as much.
        Some(remote) if compress.is_none_or(|split| remote <= split * ADVANTAGE) => {
            Choice { remote: Some(remote), ..at(why) }
        }
        _ => choice(Placement::Compress, None, why),
    };
    if goes {
        return to_best("it is faster there");
    }
    if !job.is_urgent && is_usual && least.is_finite() && may_look(least) {
        return to_best("its rate there is measured again");
    }
    here("it is faster here")
}

#[cfg(test)]
mod tests;
