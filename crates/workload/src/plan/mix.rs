//! One mix of DRAM and SCM in one server, and what comes of it: a pure function.
//!
//! The model. A lookup takes the processor's work and waits for its pages, one after the other. A server
//! with so many lookups in flight does as many a second as their latency allows (Little's law), and no more
//! than its cores can work off, or the devices can give. Nothing waits in queues before one of these is
//! reached: the true throughput is somewhat lower near the corner, the true latency higher.

use super::demand::{Demand, Reads};
use super::prices::{Prices, Server, Tier};

const GIB: f64 = (1u64 << 30) as f64;

/// Of the wait for a page below, the part that a look for a row there waits: for the entries of a page of
/// rows, one read where the search of a page takes four, as the prices' sources have it. A row that is found
/// is one read more.
const ROW_LOOK: f64 = 0.25;

/// DRAM and SCM for caches, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mix {
    /// Rows, pages, and what finds them.
    pub dram: f64,
    /// Pages, and where they stay below, rows.
    pub scm: f64,
}

/// What bounds the throughput.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// Waiting, with so many lookups in flight.
    #[default]
    Latency,
    /// The cores.
    Processor,
    /// What the SCM gives.
    Scm,
    /// What flash gives.
    Flash,
}

impl Limit {
    /// Its name in reports.
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

/// What is to be expected of a mix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Where pages come from.
    pub reads: Reads,
    /// Of a lookup, mean, microseconds.
    pub latency: f64,
    /// Of it, the processor's.
    pub cpu: f64,
    /// Lookups a second.
    pub throughput: f64,
    /// What bounds it.
    pub limit: Limit,
    /// Dollars and watts of the memory of both tiers.
    pub cache_dollars: f64,
    /// See `cache_dollars`.
    pub cache_watts: f64,
    /// Those of the whole server.
    pub dollars: f64,
    /// See `dollars`.
    pub watts: f64,
}

impl Mix {
    /// What comes of it in `server`, with DRAM split between rows and pages as is fastest; none where the
    /// server does not take so much DRAM.
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
    // Whatever no row in DRAM answers looks for one below, where there are any.
    let looks = if reads.scm_row_bytes > 0.0 { 1.0 - row } else { 0.0 };
    // The price of a tier is that of its pages: a row costs the processor and the tier as much as one.
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
