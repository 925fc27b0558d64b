//! Logical threads on a model, in virtual time: each starts its next access when its last one permits.
//!
//! The result is the same on every machine, for any number of threads. Used for tables and calibrations.

use base::Rng;

use super::model::{Access, AccessKind, Model};
use super::profile::Profile;

/// The accesses of a run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Number of threads.
    pub threads: u32,
    /// The kind of their writes.
    pub write: AccessKind,
    /// Share of writes among the accesses, 0 to 1.
    pub write_share: f64,
    /// Bytes of each access.
    pub len: u64,
    /// Each thread accesses its own part in order; otherwise random multiples of the length.
    pub is_sequential: bool,
    /// A fence follows each write.
    pub is_fenced: bool,
    /// Each access waits for the previous one to complete (latency); otherwise a thread goes as fast as the
    /// device accepts accesses (bandwidth).
    pub is_dependent: bool,
    /// Number of accesses of each thread.
    pub accesses: u32,
    /// Bytes that the accesses are spread over.
    pub span: u64,
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Bytes accessed per nanosecond: GB/s.
    pub gb_per_second: f64,
    /// Latencies of the accesses, nanoseconds, sorted.
    pub latencies_ns: Vec<f64>,
}

impl Measured {
    /// The latency that the fraction `part` of the accesses does not exceed, nanoseconds; 0 without accesses.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> f64 {
        let last = self.latencies_ns.len().saturating_sub(1);
        let index = (self.latencies_ns.len() as f64 * part).ceil() as usize;
        self.latencies_ns.get(index.saturating_sub(1).min(last)).copied().unwrap_or(0.0)
    }
}

/// Runs `load` on an idle device of `profile`.
#[must_use]
pub fn measure(profile: &'static Profile, load: &Load) -> Measured {
    let mut model = Model::new(profile);
    let mut rng = Rng::new(3);
    // Parts begin at whole accesses.
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
        let kind = thread.next_kind(load);
        let places = (load.span / load.len.max(1)).max(1);
        let at = if load.is_sequential { thread.at } else { rng.below(places) * load.len };
        let access = Access { kind, at, len: load.len, is_fenced: load.is_fenced };
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
    /// Writes due according to the write share, less the writes made.
    owed: f64,
}

impl Thread {
    fn next_kind(&mut self, load: &Load) -> AccessKind {
        self.owed += load.write_share;
        if self.owed >= 1.0 {
            self.owed -= 1.0;
            return load.write;
        }
        AccessKind::Read
    }
}
