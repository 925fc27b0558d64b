//! Logical threads on a model, in virtual time: each starts its next access when its last lets it.
//!
//! The same on every machine, for any number of threads: what tables and calibrations are made with.

use base::Rng;

use super::model::{Access, Act, Model};
use super::profile::Profile;

/// What threads do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many threads.
    pub threads: u32,
    /// How they write.
    pub write: Act,
    /// The writes' share of accesses.
    pub write_share: f64,
    /// Bytes of each access.
    pub len: u64,
    /// Each thread goes through its own part in order; else anywhere, at multiples of the length.
    pub is_sequential: bool,
    /// Each write is followed by a fence.
    pub is_fenced: bool,
    /// Each access waits for the last one to be over: latency. Else as fast as the device takes them.
    pub is_dependent: bool,
    /// Accesses of each thread.
    pub accesses: u32,
    /// Bytes that are accessed at all.
    pub span: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Bytes asked for a nanosecond: GB/s.
    pub gb_per_second: f64,
    /// The accesses' times, nanoseconds, in order of size.
    pub latencies_ns: Vec<f64>,
}

impl Measured {
    /// The latency that this part of the accesses did not exceed, nanoseconds; 0 without accesses.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> f64 {
        let last = self.latencies_ns.len().saturating_sub(1);
        let index = (self.latencies_ns.len() as f64 * part).ceil() as usize;
        self.latencies_ns.get(index.saturating_sub(1).min(last)).copied().unwrap_or(0.0)
    }

    /// The mean latency, nanoseconds; 0 without accesses.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        let sum: f64 = self.latencies_ns.iter().sum();
        sum / (self.latencies_ns.len().max(1) as f64)
    }
}

/// Runs `load` on a device of `profile` that is at rest.
#[must_use]
pub fn measure(profile: &'static Profile, load: &Load) -> Measured {
    let mut model = Model::new(profile);
    let mut rng = Rng::new(3);
    // Parts begin at whole units, and accesses with them.
    let part = load.span / u64::from(load.threads.max(1)) / load.len.max(1) * load.len.max(1);
    let part = part.max(load.len);
    let mut threads: Vec<Thread> = (0..load.threads)
        .map(|number| Thread {
            now: 0.0,
            left: load.accesses,
            at: u64::from(number) * part,
            owed: 0.5,
        })
        .collect();
    let mut latencies_ns = Vec::new();
    let mut end = 0.0_f64;
    loop {
        let running = threads.iter_mut().enumerate().filter(|(_, thread)| thread.left > 0);
        let Some((number, thread)) = running.min_by(|(_, a), (_, b)| a.now.total_cmp(&b.now))
        else {
            break;
        };
        let act = thread.act(load);
        let places = (load.span / load.len.max(1)).max(1);
        let at = if load.is_sequential { thread.at } else { rng.below(places) * load.len };
        let access = Access { act, at, len: load.len, is_fenced: load.is_fenced };
        let number = u32::try_from(number).unwrap_or(0);
        let outcome = model.access(thread.now, number, access);
        latencies_ns.push(outcome.done - thread.now);
        let from = u64::from(number) * part;
        thread.at = from + (thread.at + load.len - from) % part.max(1);
        thread.now = if load.is_dependent { outcome.done } else { outcome.next };
        thread.left -= 1;
        end = end.max(thread.now);
    }
    latencies_ns.sort_by(f64::total_cmp);
    let bytes = latencies_ns.len() as f64 * load.len as f64;
    Measured { gb_per_second: if end > 0.0 { bytes / end } else { 0.0 }, latencies_ns }
}

/// A logical thread.
#[derive(Debug)]
struct Thread {
    now: f64,
    left: u32,
    at: u64,
    /// Writes owed to the share asked for.
    owed: f64,
}

impl Thread {
    fn act(&mut self, load: &Load) -> Act {
        self.owed += load.write_share;
        if self.owed >= 1.0 {
            self.owed -= 1.0;
            return load.write;
        }
        Act::Read
    }
}
