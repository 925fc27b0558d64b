//! The figures of a run on a hashed keyspace, from the counters before and after it, and from samples taken
//! during it: memory and runs rise and fall with merges, so a single reading would show their phase.

use std::time::Duration;

use serde::Serialize;
use terracedb::stats::{KeyspaceStatistics, Statistics};

use super::predicted::{Predicted, Sizes};
use crate::Engine;
use crate::figures::ratio;

/// The time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// The figures of a run on a hashed keyspace. Field names are an interface that scripts parse.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HashedFigures {
    /// Live keys.
    pub entries: u64,
    /// Memory of index and filters, by the memory accounts, per live key; the mean of the run.
    pub dram_bytes_per_entry: f64,
    /// The most of it.
    pub dram_bytes_per_entry_max: f64,
    /// The part of it that is index and table state.
    pub index_bytes_per_entry: f64,
    /// The part of it that is filters.
    pub filter_bytes_per_entry: f64,
    /// Memory of memtables; the mean of the run.
    pub write_buffer_bytes: f64,
    /// Runs above a key; the mean of the run.
    pub runs: f64,
    /// Rewrites of the whole base.
    pub merge_cycles: f64,
    /// Device reads of lookups that found a value; lookups that a cached row answered are left out.
    pub device_reads_per_hit: Option<f64>,
    /// Device reads of lookups that found none.
    pub device_reads_per_miss: Option<f64>,
    /// Device reads of a hit in tables with filters that do not have the key.
    pub useless_reads_per_hit: Option<f64>,
    /// The same of a miss.
    pub useless_reads_per_miss: Option<f64>,
    /// Bytes that flushes and merges wrote per byte that the user wrote.
    pub table_write_amplification: Option<f64>,
    /// Bytes that the log wrote per byte that the user wrote.
    pub log_write_amplification: Option<f64>,
    /// Versions that merges dropped.
    pub dropped_entries: u64,
    /// Bytes of an entry in the base, page fill included.
    pub stored_bytes_per_entry: f64,
    /// Bytes of a flushed table.
    pub flush_bytes: f64,
}

/// One reading of the counters.
struct Reading {
    keyspace: KeyspaceStatistics,
    flushes: u64,
    log_bytes: u64,
}

impl Reading {
    fn of(statistics: Statistics, name: &str) -> Self {
        let log = &statistics.log;
        let (log_bytes, flushes) = (log.record_bytes + log.padding_bytes, statistics.flushes);
        let mut keyspaces = statistics.keyspaces.into_iter();
        let keyspace = keyspaces.find(|it| it.name == name).unwrap_or_default();
        Self { keyspace, flushes, log_bytes }
    }

    fn level_bytes(&self, is_base: bool) -> u64 {
        let levels = self.keyspace.levels.iter().filter(|level| (level.level > 0) == is_base);
        levels.map(|level| level.bytes).sum()
    }
}

/// Sums of samples.
#[derive(Default)]
struct Samples {
    count: f64,
    pinned: f64,
    pinned_max: f64,
    filters: f64,
    memtables: f64,
    run_bytes: f64,
}

/// Takes the figures of a run.
pub(super) struct HashedMeter<'a> {
    engine: &'a Engine,
    before: Reading,
    samples: Samples,
    sampled: Duration,
}

impl<'a> HashedMeter<'a> {
    pub(super) fn start(engine: &'a Engine) -> Self {
        let before = Reading::of(engine.db().statistics(), engine.keyspace_name());
        Self { engine, before, samples: Samples::default(), sampled: Duration::ZERO }
    }

    /// Takes a sample if one is due `elapsed` after the start.
    pub(super) fn tick(&mut self, elapsed: Duration) {
        if elapsed.saturating_sub(self.sampled) >= SAMPLE_EVERY {
            self.sampled = elapsed;
            self.sample();
        }
    }

    fn sample(&mut self) -> Reading {
        let now = Reading::of(self.engine.db().statistics(), self.engine.keyspace_name());
        let samples = &mut self.samples;
        let pinned = now.keyspace.pinned_bytes as f64;
        samples.count += 1.0;
        samples.pinned += pinned;
        samples.pinned_max = samples.pinned_max.max(pinned);
        samples.filters += now.keyspace.filter_bytes as f64;
        samples.memtables += now.keyspace.memtable_bytes as f64;
        samples.run_bytes += now.level_bytes(false) as f64;
        now
    }

    /// The figures of the run, in which the user wrote `written_bytes`, and what the formulas predict for
    /// them. `entries`: live keys, of `entry_bytes` bytes each.
    pub(super) fn finish(
        mut self,
        entries: u64,
        entry_bytes: f64,
        written_bytes: u64,
    ) -> (HashedFigures, Predicted) {
        let end = self.sample();
        let Self { before, samples, .. } = self;
        let (now, was) = (&end.keyspace, &before.keyspace);
        // A window has evicted some of them. Of other kinds, the memtable may hold the rest.
        let is_window = now.kind.starts_with("hashed window");
        let entries = if is_window { entries.min(now.entries()) } else { entries };
        let lookups = now.lookups.since(&was.lookups);
        let per_hit = |count: u64| ratio(count as f64, lookups.hits as f64);
        let per_miss = |count: u64| ratio(count as f64, lookups.misses as f64);
        let written = |bytes: u64| ratio(bytes as f64, written_bytes as f64);
        let tables =
            (now.flush_bytes + now.merge_bytes).saturating_sub(was.flush_bytes + was.merge_bytes);
        // Of the whole time since the store was opened: a run may end without a flush.
        let flush = ratio(now.flush_bytes as f64, end.flushes as f64).unwrap_or_default();
        let base = end.level_bytes(true) as f64;
        let of_base = now.levels.iter().filter(|level| level.level > 0);
        let base_entries: u64 = of_base.map(|level| level.entries).sum();
        let stored = ratio(base, base_entries as f64).unwrap_or_default();
        let mean = |sum: f64| sum / samples.count.max(1.0);
        let per_entry = |bytes: f64| ratio(bytes, entries as f64).unwrap_or_default();
        let figures = HashedFigures {
            entries,
            dram_bytes_per_entry: per_entry(mean(samples.pinned)),
            dram_bytes_per_entry_max: per_entry(samples.pinned_max),
            index_bytes_per_entry: per_entry(mean(samples.pinned - samples.filters)),
            filter_bytes_per_entry: per_entry(mean(samples.filters)),
            write_buffer_bytes: mean(samples.memtables),
            runs: ratio(mean(samples.run_bytes), flush).unwrap_or_default(),
            merge_cycles: now.base_cycles - was.base_cycles,
            device_reads_per_hit: per_hit(lookups.hit_reads),
            device_reads_per_miss: per_miss(lookups.miss_reads),
            useless_reads_per_hit: per_hit(lookups.hit_false_reads),
            useless_reads_per_miss: per_miss(lookups.miss_false_reads),
            table_write_amplification: written(tables),
            log_write_amplification: written(end.log_bytes.saturating_sub(before.log_bytes)),
            dropped_entries: now.dropped_entries.saturating_sub(was.dropped_entries),
            stored_bytes_per_entry: stored,
            flush_bytes: flush,
        };
        (figures, Predicted::of(Sizes { stored, user: entry_bytes, base, flush }))
    }
}
