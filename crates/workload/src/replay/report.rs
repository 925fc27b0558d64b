//! The result of a replay: lines of text for people, one JSON object for scripts.

use std::fmt;

use serde::Serialize;

use super::Counts;
use crate::figures::{Figures, ratio};

/// Hits by tier as a share of all lookups; null without lookups.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HitRatio {
    /// Lookups of keys that exist, in any tier.
    pub store: Option<f64>,
    /// From a cached row or a memtable.
    pub row: Option<f64>,
    /// From a page cached in DRAM.
    pub page: Option<f64>,
    /// From storage-class memory.
    pub scm: Option<f64>,
    /// From a page read from flash.
    pub flash: Option<f64>,
}

/// The result of a replay. It serializes to the object that scripts parse, and displays as three lines.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Always `replay`.
    pub bench: &'static str,
    /// Threads: always 1, so that accesses keep their order.
    pub threads: usize,
    /// Reads.
    pub gets: u64,
    /// Writes, including those after a miss.
    pub puts: u64,
    /// Deletes.
    pub deletes: u64,
    /// Range scans.
    pub scans: u64,
    /// Writes that the store refused as too large; the replay skipped them.
    pub refused: u64,
    /// Hits by tier.
    pub hit_ratio: HitRatio,
    /// The figures.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Report {
    pub(super) fn new(counts: Counts, figures: Figures) -> Self {
        let Counts { gets, puts, deletes, scans, refused } = counts;
        let lookups = (figures.found + figures.missing) as f64;
        let part = |hits: u64| ratio(hits as f64, lookups);
        let hit_ratio = HitRatio {
            store: part(figures.found),
            row: part(figures.hits.row),
            page: part(figures.hits.page),
            scm: part(figures.hits.scm),
            flash: part(figures.hits.flash),
        };
        Self {
            bench: "replay",
            threads: 1,
            gets,
            puts,
            deletes,
            scans,
            refused,
            hit_ratio,
            figures,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gets, puts, deletes, scans, refused, hit_ratio, figures, .. } = self;
        let Figures { ops, seconds, ops_per_sec, latency_us, wrong, .. } = figures;
        let percent = |part: Option<f64>| part.unwrap_or_default() * 100.0;
        writeln!(
            f,
            "replay          : {ops} accesses {seconds:.3} seconds {ops_per_sec:.0} ops/sec; \
             p50 {:.2} p99 {:.2} p99.9 {:.2} us",
            latency_us.p50, latency_us.p99, latency_us.p999
        )?;
        writeln!(
            f,
            "accesses        : {gets} gets, {puts} puts, {deletes} deletes, {scans} scans, \
             {refused} refused, {wrong} wrong"
        )?;
        write!(
            f,
            "hits            : {:.2} % (row {:.2} %, page {:.2} %, scm {:.2} %, flash {:.2} %)",
            percent(hit_ratio.store),
            percent(hit_ratio.row),
            percent(hit_ratio.page),
            percent(hit_ratio.scm),
            percent(hit_ratio.flash)
        )
    }
}
