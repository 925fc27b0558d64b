//! The requests of a workload whose data lives in an object store below the caches, in dollars a month.
//!
//! A page that neither DRAM nor SCM has is one request. What a GiB more of a tier saves is the difference to
//! the same mix with that GiB, so it falls as the tier grows.

use super::demand::Demand;
use super::mix::Mix;
use super::planner::Planned;
use super::prices::{ObjectStore, Prices, Server};

const GIB: f64 = (1u64 << 30) as f64;
/// Seconds of a month of 30 days.
const MONTH: f64 = 30.0 * 86_400.0;

/// Dollars a month of one mix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requests {
    /// Requests a second.
    pub per_second: f64,
    /// Their dollars a month.
    pub dollars: f64,
    /// What one GiB more of DRAM saves of these dollars.
    pub saved_by_dram: f64,
    /// What one GiB more of SCM saves of these dollars.
    pub saved_by_scm: f64,
}

impl ObjectStore {
    /// Dollars a month for storing `bytes`.
    #[must_use]
    pub fn storage(&self, bytes: f64) -> f64 {
        self.dollars_per_gib_month * bytes / GIB
    }

    /// The requests of `planned` at `rate` lookups a second.
    #[must_use]
    pub fn requests(
        &self,
        planned: &Planned,
        demand: &Demand,
        prices: &Prices,
        rate: f64,
    ) -> Requests {
        // Room for one GiB more than the server takes.
        let server = prices.servers.get(planned.server).cloned().unwrap_or_default();
        let server = Server { dram_max: f64::INFINITY, ..server };
        let dollars = |pages: f64| pages * rate * MONTH * self.dollars_per_million_gets / 1e6;
        let now = planned.outcome.reads.flash;
        let saved = |mix: Mix| {
            let larger = mix.outcome(demand, prices, &server);
            larger.map_or(0.0, |larger| dollars((now - larger.reads.flash).max(0.0)))
        };
        let Mix { dram, scm } = planned.mix;
        Requests {
            per_second: now * rate,
            dollars: dollars(now),
            saved_by_dram: saved(Mix { dram: dram + GIB, scm }),
            saved_by_scm: saved(Mix { dram, scm: scm + GIB }),
        }
    }
}
