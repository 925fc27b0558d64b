//! How long an access takes, given the profile and the earlier accesses.
//!
//! A pure state machine in nanoseconds: no clock, no thread, no lock. Each direction has a server that
//! moves bytes at the bandwidth for the number of recently active streams (threads, or logs), first come,
//! first served; on a medium that serves reads and writes together, both servers are busy with either.
//! Short writes gather in a [`Combining`](super::combining) buffer. Added to the server's time are the
//! latency of a single access, which is longer for reads while the device is busy writing, and the device's
//! rare slow accesses (its tail latency).
//!
//! Invariant: times do not decrease if the callers' times do not. Cost: at most a microsecond an access; the
//! state is a few kilobytes.

use super::combining::Combining;
use super::curve;
use super::profile::{AccessProfile, Kind, Profile};
use super::tail::TailState;

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// A read.
    Read,
    /// A write that bypasses the processor's caches.
    Store,
    /// A write through the caches, with its lines flushed.
    Flushed,
}

/// One access of one stream.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Its kind.
    pub kind: AccessKind,
    /// The offset of the first byte.
    pub at: u64,
    /// The length, bytes.
    pub len: u64,
    /// The stream waits until its writes have arrived.
    pub is_fenced: bool,
}

/// The times at which an access ends, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The stream may start its next access, if that does not depend on this one.
    pub next: f64,
    /// The read data is there, or the written data has arrived.
    pub done: f64,
}

/// A stream is active for this long after its last access, nanoseconds.
const RECENT_NS: f64 = 10_000.0;

/// The most active streams that are counted.
const THREADS_MAX: usize = 64;

/// Units of writes that the device accepts before a caller waits.
const BACKLOG_UNITS: f64 = 8.0;

/// Weight of one access in the mix of reads and writes.
const MIX_WEIGHT: f64 = 1.0 / 64.0;

/// A stream's last access in one direction.
#[derive(Clone, Copy, Debug)]
struct Last {
    stream: u32,
    done: f64,
    end: u64,
}

/// The state of one direction.
#[derive(Debug, Default)]
struct Server {
    /// Busy until this time.
    free: f64,
    last: Vec<Last>,
}

impl Server {
    /// Returns the number of active streams at `now`, including `stream`, and the end of `stream`'s last
    /// access.
    fn arrive(&mut self, now: f64, stream: u32) -> (f64, Option<u64>) {
        let end = self.last.iter().find(|last| last.stream == stream).map(|last| last.end);
        self.last.retain(|last| last.stream != stream && last.done >= now - RECENT_NS);
        if self.last.len() >= THREADS_MAX {
            self.last.remove(0);
        }
        (self.last.len() as f64 + 1.0, end)
    }
}

/// The state of a device.
#[derive(Debug)]
pub struct Model {
    profile: &'static Profile,
    reads: Server,
    writes: Server,
    combining: Combining,
    tails: Option<TailState>,
    units_written: u64,
    /// Recent share of writes among the bytes moved; NaN before the first access.
    write_share: f64,
    /// Share of the time that the device is busy writing, at the time `busy_at`.
    write_busy: f64,
    busy_at: f64,
}

impl Model {
    /// An idle device.
    #[must_use]
    pub fn new(profile: &'static Profile) -> Self {
        Self {
            profile,
            reads: Server::default(),
            writes: Server::default(),
            combining: Combining::new(profile.unit, profile.combining_units),
            tails: profile.tail.map(TailState::new),
            units_written: 0,
            write_share: f64::NAN,
            write_busy: 0.0,
            busy_at: 0.0,
        }
    }

    /// The constants of the device.
    #[must_use]
    pub const fn profile(&self) -> &'static Profile {
        self.profile
    }

    /// Units that the medium has written.
    #[must_use]
    pub const fn units_written(&self) -> u64 {
        self.units_written
    }

    /// Time that an access at `now` would wait for earlier ones, nanoseconds.
    #[must_use]
    pub fn queued(&self, now: f64) -> f64 {
        (self.reads.free.max(self.writes.free) - now).max(0.0)
    }

    /// Starts `access` of `stream` at `now`. Returns when it ends.
    pub fn access(&mut self, now: f64, stream: u32, access: Access) -> Outcome {
        let profile = self.profile;
        let is_read = access.kind == AccessKind::Read;
        let path = match access.kind {
            AccessKind::Read => &profile.read,
            AccessKind::Store => &profile.store,
            AccessKind::Flushed => &profile.flushed,
        };
        let server = if is_read { &mut self.reads } else { &mut self.writes };
        let (threads, end) = server.arrive(now, stream);
        let is_sequential = end == Some(access.at);
        let units = match access.kind {
            AccessKind::Read => units_read(profile.unit, end, access),
            AccessKind::Store | AccessKind::Flushed => self.combining.write(access.at, access.len),
        };
        self.units_written += if is_read { 0 } else { units };
        // For memory the size curve was measured with random accesses.
        let is_curved = profile.kind == Kind::Block || !is_sequential;
        let sizes = if is_curved { path.sizes } else { &[] };
        let size = curve::at_len(sizes, access.len.max(1) as f64);
        let bandwidth =
            curve::at(path.threads, threads) * size * self.mixed(is_read, access.len, now);
        base::invariant!(bandwidth > 0.0, "a device has a bandwidth for every access");
        let service = (units * profile.unit) as f64 / bandwidth;
        let free = match profile.mixed {
            Some(_) => self.reads.free.max(self.writes.free),
            None if is_read => self.reads.free,
            None => self.writes.free,
        };
        let start = free.max(now);
        let latency = if is_sequential { path.sequential_ns } else { path.latency_ns };
        let outcome = if is_read {
            // The latency includes the transfer of the first unit.
            let first = profile.unit as f64 / curve::at(path.threads, 1.0) / size;
            let rest = match profile.kind {
                Kind::Memory => (access.len.saturating_sub(profile.unit)) as f64 / bandwidth,
                Kind::Block => (service - first).max(0.0),
            };
            let latency = latency * self.loaded(now);
            Outcome { next: start + service, done: start + latency + rest }
        } else {
            self.write_outcome(path, access, latency, now, start, service, bandwidth)
        };
        let is_ordered = outcome.done >= now && outcome.next >= now;
        base::invariant!(is_ordered, "an access ends after it begins");
        self.record(is_read, stream, access, start, service, outcome);
        outcome
    }

    #[expect(clippy::too_many_arguments, reason = "one formula in two halves")]
    fn write_outcome(
        &mut self,
        path: &AccessProfile,
        access: Access,
        latency: f64,
        now: f64,
        start: f64,
        service: f64,
        bandwidth: f64,
    ) -> Outcome {
        let len = access.len.max(1) as f64;
        let more = self.tails.as_mut().map_or(0.0, |tails| tails.write(access.at));
        let profile = self.profile;
        let backlog = BACKLOG_UNITS * profile.unit as f64 / bandwidth;
        if access.is_fenced && (profile.kind == Kind::Memory || !path.fenced.is_empty()) {
            // A stream that fences is no faster than if it had the device alone.
            let (alone, latency) = if path.fenced.is_empty() {
                // The fence waits for the stream's own bytes: those after the first unit at the bandwidth of
                // one stream.
                let one = curve::at(path.threads, 1.0);
                (len / one, latency + (len - profile.unit as f64).max(0.0) / one)
            } else {
                let known = path.fenced_ns.last().map_or(len, |(longest, _)| *longest);
                let more = (len - known).max(0.0) / bandwidth;
                (len / curve::at_len(path.fenced, len), curve::at_len(path.fenced_ns, len) + more)
            };
            let next = (now + alone).max(start + service - backlog) + more;
            return Outcome { next, done: start + latency + more };
        }
        let rest = match profile.kind {
            Kind::Memory => (start - now - backlog).max(0.0),
            Kind::Block => {
                let first = profile.unit as f64 / curve::at(path.threads, 1.0);
                let first = first / curve::at_len(path.sizes, profile.unit as f64);
                start - now + (service - first).max(0.0)
            }
        };
        Outcome { next: start + service + more, done: now + latency + rest + more }
    }

    /// The share of the bandwidth that is left while reads and writes are mixed. Counts this access.
    fn mixed(&mut self, is_read: bool, len: u64, now: f64) -> f64 {
        let Some(mixed) = &self.profile.mixed else { return 1.0 };
        let now_share = if is_read { 0.0 } else { 1.0 };
        // Weighted by bytes: a long access counts as several units.
        let weight =
            (MIX_WEIGHT * (len as f64 / self.profile.unit as f64).clamp(0.25, 16.0)).min(0.5);
        self.write_share = match self.write_share.is_nan() {
            true => now_share,
            false => self.write_share + (now_share - self.write_share) * weight,
        };
        let threads = self.threads(now);
        let one = curve::at(mixed.one, self.write_share);
        let many = curve::at(mixed.many, self.write_share);
        let part = ((threads - 1.0) / (mixed.many_threads - 1.0)).clamp(0.0, 1.0);
        one + (many - one) * part
    }

    /// Number of threads active in either direction.
    fn threads(&self, now: f64) -> f64 {
        let all = self.reads.last.iter().chain(&self.writes.last);
        let recent = all.filter(|last| last.done >= now - RECENT_NS);
        let threads = recent.fold(0_u64, |seen, last| seen | 1 << (last.stream % u64::BITS));
        f64::from(threads.count_ones().max(1))
    }

    /// The factor on a read's latency while writes keep the device busy.
    fn loaded(&mut self, now: f64) -> f64 {
        let Some(mixed) = &self.profile.mixed else { return 1.0 };
        curve::at(mixed.loaded, self.write_busy * decay(now - self.busy_at))
    }

    /// Records an access in the state of the device.
    fn record(
        &mut self,
        is_read: bool,
        stream: u32,
        access: Access,
        start: f64,
        service: f64,
        outcome: Outcome,
    ) {
        let free = start + service;
        let is_shared = self.profile.mixed.is_some();
        let server = if is_read { &mut self.reads } else { &mut self.writes };
        server.free = free;
        let end = access.at.saturating_add(access.len);
        server.last.push(Last { stream, done: outcome.done.max(outcome.next), end });
        if is_shared {
            (self.reads.free, self.writes.free) = (free, free);
        }
        if !is_read {
            self.write_busy = self.write_busy * decay(start - self.busy_at) + service / RECENT_NS;
            self.busy_at = start.max(self.busy_at);
        }
    }
}

/// The weight left of a running mean after `elapsed` nanoseconds.
fn decay(elapsed: f64) -> f64 {
    (-elapsed.max(0.0) / RECENT_NS).exp()
}

/// Units that the medium reads for a read: all that it touches, except the one in which the thread's last
/// read ended.
const fn units_read(unit: u64, last_end: Option<u64>, access: Access) -> u64 {
    let len = if access.len == 0 { 1 } else { access.len };
    let (first, last) = (access.at / unit, access.at.saturating_add(len - 1) / unit);
    let units = last - first + 1;
    match last_end {
        Some(end) if end > 0 && (end - 1) / unit == first => units - 1,
        _ => units,
    }
}

#[cfg(test)]
mod tests;
