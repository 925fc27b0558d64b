//! One mix of DRAM and SCM in one server, and its performance and price: a pure function.
//!
//! The model: a lookup takes processor time and waits for its pages, one after the other. A server with a
//! given number of lookups in flight completes them as fast as their latency allows (Little's law), but no
//! faster than its cores or its devices can. No queueing is modelled below these limits, so near them the
//! true throughput is somewhat lower and the true latency higher.

use super::demand::{Demand, Reads};
use super::prices::{Prices, Server, Tier};

const GIB: f64 = (1u64 << 30) as f64;

/// Latency of a probe of the row slots of SCM, as a fraction of the latency of a page there. A probe reads
/// the entries of one slot: one access; the search of a page takes four (by the sources of the prices). A row
/// that is found takes one more access.
const ROW_LOOK: f64 = 0.25;

/// DRAM and SCM for caches, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mix {
    /// For rows, pages and their indexes.
    pub dram: f64,
    /// For pages, and for rows if pages are not promoted.
    pub scm: f64,
}

/// The bound of the throughput.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// The latency of the lookups in flight.
    #[default]
    Latency,
    /// The processor cores.
    Processor,
    /// The pages per second of SCM.
    Scm,
    /// The pages per second of flash.
    Flash,
}

impl Limit {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Processor => "processor",
            Self::Scm => "scm",
            Self::Flash => "flash",
        }
    }
}

/// The expected performance and price of a mix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The tiers that answer the reads.
    pub reads: Reads,
    /// Mean latency of a lookup, microseconds.
    pub latency: f64,
    /// Processor time in it, microseconds.
    pub cpu: f64,
    /// Lookups per second.
    pub throughput: f64,
    /// The bound of the throughput.
    pub limit: Limit,
    /// Price of the memory of both tiers, dollars.
    pub cache_dollars: f64,
    /// Power of the memory of both tiers, watts.
    pub cache_watts: f64,
    /// Price of the whole server, dollars.
    pub dollars: f64,
    /// Power of the whole server, watts.
    pub watts: f64,
}

impl Mix {
    /// The outcome of the mix in `server`, with the fastest split of DRAM between rows and pages. `None` if
    /// the server does not hold that much DRAM.
    #[must_use]
    pub fn outcome(self, demand: &Demand, prices: &Prices, server: &Server) -> Option<Outcome> {
        if self.dram > server.dram_max * GIB {
            return None;
        }
        let faster = |one: &Outcome, other: &Outcome| {
            one.throughput.total_cmp(&other.throughput).then(other.latency.total_cmp(&one.latency))
        };
        let outcomes = demand.splits(self.dram, self.scm, prices.scm.stalls);
        let best = outcomes.map(|reads| speed(reads, prices, server)).max_by(faster)?;
        let of = |what: fn(&Tier) -> f64| {
            (self.dram * what(&prices.dram) + self.scm * what(&prices.scm)) / GIB
        };
        let (cache_dollars, cache_watts) = (of(|tier| tier.dollars), of(|tier| tier.watts));
        let (dollars, watts) = (server.dollars + cache_dollars, server.watts + cache_watts);
        Some(Outcome { cache_dollars, cache_watts, dollars, watts, ..best })
    }
}

fn speed(reads: Reads, prices: &Prices, server: &Server) -> Outcome {
    let Prices { dram, scm, flash, processor, .. } = prices;
    let [row, ..] = reads.ends;
    let answered = row + reads.scm_rows;
    let (mut cpu, mut waits) = (answered * processor.row + (1.0 - answered) * processor.page, 0.0);
    // A lookup that no row in DRAM answers looks for a row in SCM, if SCM holds any.
    let looks = if reads.scm_row_bytes > 0.0 { 1.0 - row } else { 0.0 };
    // A tier's costs are per page. A row is assumed to cost processor and tier as much as a page.
    let scm_accesses = reads.scm + reads.scm_rows;
    let scm_waits = reads.scm + ROW_LOOK * (looks + reads.scm_rows);
    let tiers = [
        (dram, reads.dram, reads.dram),
        (scm, scm_accesses, scm_waits),
        (flash, reads.flash, reads.flash),
    ];
    for (tier, accesses, pages) in tiers {
        cpu += accesses * tier.cpu;
        *(if tier.stalls { &mut cpu } else { &mut waits }) += pages * tier.latency;
    }
    let latency = cpu + waits;
    let per_second = |each: f64| if each > 0.0 { 1e6 / each } else { f64::INFINITY };
    let given = |pages: f64, reads: f64| if reads > 0.0 { pages / reads } else { f64::INFINITY };
    let limits = [
        (Limit::Latency, per_second(latency) * server.cores * processor.in_flight),
        (Limit::Processor, per_second(cpu) * server.cores),
        (Limit::Scm, given(scm.pages, scm_accesses)),
        (Limit::Flash, given(flash.pages, reads.flash)),
    ];
    let least = limits.into_iter().min_by(|one, other| one.1.total_cmp(&other.1));
    let (limit, throughput) = least.unwrap_or_default();
    Outcome { reads, latency, cpu, throughput, limit, ..Outcome::default() }
}
