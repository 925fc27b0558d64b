//! The replay driver: performs the accesses of a trace on any [`Store`], one after the other.
//!
//! A read of [`Op::GetOrPut`] that misses puts the recorded entry, as a cache's user does, with a value made
//! for the key. Every value read is verified. A workload with a load phase is loaded and settled before the
//! measurement.
//!
//! Concurrency: one thread, so that accesses keep the order of the trace. Cost: that of the bench driver.
mod report;

use std::ops::ControlFlow;
use std::time::Duration;

use base::limits::VALUE_BYTES_MAX;
use base::{Clock, Error, ErrorKind, Result, SystemClock, invariant};

pub use report::{HitRatio, Report};

use crate::bench::Tick;
use crate::figures::{Meter, Tally};
use crate::trace::{Access, Op, Trace};
use crate::{Direction, Store, Values};

/// Accesses between two reports of progress.
const TICK_ACCESSES: u64 = 4096;

/// The shortest time between two reports of progress.
const TICK: Duration = Duration::from_millis(100);

/// The options of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The size of every value, bytes; overrides the sizes in the trace.
    pub value_bytes: Option<usize>,
    /// The size of a value if neither the trace nor `value_bytes` gives one, bytes.
    pub default_value_bytes: usize,
    /// The size of a compressed value as a fraction of its size.
    pub compression_ratio: f64,
    /// Every write is synced.
    pub sync: bool,
    /// Ends the replay after this many accesses.
    pub limit: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            value_bytes: None,
            default_value_bytes: 100,
            compression_ratio: 0.5,
            sync: false,
            limit: None,
        }
    }
}

/// The number of operations of a replay, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    gets: u64,
    puts: u64,
    deletes: u64,
    scans: u64,
    refused: u64,
}

/// Replays `trace` on `store`, and calls `on_tick` with the progress in the trace's own unit.
///
/// Values longer than the store's limit are cut. A put that the store refuses as invalid, for example because
/// it exceeds the write buffers, is counted and skipped.
///
/// # Errors
/// The first error of the store or the trace; `Invalid` if the trace has no accesses.
pub fn run(
    store: &dyn Store,
    trace: &mut dyn Trace,
    options: &Options,
    on_tick: &mut dyn FnMut(Tick),
) -> Result<Report> {
    let clock = SystemClock::new();
    let mut replay = Replay {
        store,
        values: Values::new(options.compression_ratio)?,
        options,
        value: Vec::new(),
        tally: Tally::new()?,
        counts: Counts::default(),
    };
    let mut progress = Progress { began: clock.monotonic(), last: clock.monotonic(), on_tick };
    let mut access = Access::default();
    let mut loaded = 0u64;
    while trace.load(&mut access)? {
        replay.put(&access)?;
        loaded += 1;
        if loaded.is_multiple_of(TICK_ACCESSES) {
            progress.show(trace, clock.monotonic());
        }
    }
    if loaded > 0 {
        store.flush()?;
        store.settle()?;
        replay.tally = Tally::new()?;
        replay.counts = Counts::default();
    }
    let meter = Meter::start(store, &clock);
    let start = clock.monotonic();
    let mut last = start;
    let limit = options.limit.unwrap_or(u64::MAX);
    while replay.tally.ops < limit && trace.next(&mut access)? {
        replay.apply(&access)?;
        let now = clock.monotonic();
        replay.tally.latencies.record(now.saturating_sub(last));
        last = now;
        replay.tally.ops += 1;
        if replay.tally.ops.is_multiple_of(TICK_ACCESSES) {
            progress.show(trace, now);
        }
    }
    let Replay { tally, counts, .. } = replay;
    let is_complete = tally.found + tally.missing == tally.lookups;
    invariant!(is_complete, "each lookup counts as found or missing");
    if tally.ops == 0 && limit > 0 {
        return Err(Error::invalid("trace").expected("at least one access").got("none"));
    }
    let figures = meter.finish(&tally, last.saturating_sub(start), None, false)?;
    Ok(Report::new(counts, figures))
}

/// Reports progress, at most once per [`TICK`].
struct Progress<'a> {
    began: Duration,
    last: Duration,
    on_tick: &'a mut dyn FnMut(Tick),
}

impl Progress<'_> {
    fn show(&mut self, trace: &dyn Trace, now: Duration) {
        if now.saturating_sub(self.last) < TICK {
            return;
        }
        self.last = now;
        let position = trace.position();
        let elapsed = now.saturating_sub(self.began);
        let total = Some(position.total).filter(|total| *total > 0);
        (self.on_tick)(Tick { done: position.done, total, elapsed });
    }
}

struct Replay<'a> {
    store: &'a dyn Store,
    options: &'a Options,
    values: Values,
    value: Vec<u8>,
    tally: Tally,
    counts: Counts,
}

impl Replay<'_> {
    fn apply(&mut self, access: &Access) -> Result<()> {
        match access.op {
            Op::Get => {
                self.get(&access.key)?;
            }
            Op::GetOrPut => {
                if !self.get(&access.key)? {
                    self.put(access)?;
                }
            }
            Op::Update => {
                self.get(&access.key)?;
                self.put(access)?;
            }
            Op::Put => self.put(access)?,
            Op::Delete => {
                self.store.delete(&access.key, self.options.sync)?;
                self.counts.deletes += 1;
                self.tally.written_bytes += access.key.len() as u64;
            }
            Op::Scan(length) => self.scan(&access.key, length)?,
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8]) -> Result<bool> {
        let tally = &mut self.tally;
        let mut shown = false;
        let found = self.store.get(key, &mut |value| {
            shown = true;
            tally.wrong += u64::from(!Values::verify(key, value));
            tally.read_bytes += (key.len() + value.len()) as u64;
        })?;
        tally.wrong += u64::from(found != shown);
        tally.lookups += 1;
        tally.found += u64::from(found);
        tally.missing += u64::from(!found);
        self.counts.gets += 1;
        Ok(found)
    }

    fn put(&mut self, access: &Access) -> Result<()> {
        let options = self.options;
        let recorded = access.value_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let bytes = options.value_bytes.or(recorded).unwrap_or(options.default_value_bytes);
        // The epoch makes a new version differ from the one it replaces.
        let epoch = self.tally.ops as u8;
        self.values.write(&access.key, epoch, bytes.min(VALUE_BYTES_MAX), &mut self.value);
        match self.store.put(&access.key, &self.value, options.sync) {
            Ok(()) => {
                self.counts.puts += 1;
                self.tally.written_bytes += (access.key.len() + self.value.len()) as u64;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Invalid => {
                self.counts.refused += 1;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn scan(&mut self, from: &[u8], length: u32) -> Result<()> {
        let tally = &mut self.tally;
        let limit = usize::try_from(length).unwrap_or(usize::MAX);
        let mut last: Option<Vec<u8>> = None;
        let shown = self.store.scan(Some(from), Direction::Forward, limit, &mut |key, value| {
            let ordered = last.as_deref().map_or(key >= from, |last| key > last);
            tally.wrong += u64::from(!ordered || !Values::verify(key, value));
            tally.read_bytes += (key.len() + value.len()) as u64;
            last.get_or_insert_default().clear();
            last.get_or_insert_default().extend_from_slice(key);
            ControlFlow::Continue(())
        })?;
        tally.lookups += 1;
        tally.found += u64::from(shown > 0);
        tally.missing += u64::from(shown == 0);
        self.counts.scans += 1;
        Ok(())
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
