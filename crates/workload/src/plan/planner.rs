//! Rates all mixes: which of them are efficient, and which is the cheapest that reaches the target.

use super::demand::Demand;
use super::mix::{Mix, Outcome};
use super::prices::Prices;

/// The target of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// The least share of lookups that read nothing from flash.
    Hit(f64),
    /// The greatest mean latency of a lookup, microseconds.
    Latency(f64),
    /// The least number of lookups per second.
    Throughput(f64),
}

impl Target {
    /// Whether `outcome` reaches the target.
    #[must_use]
    pub fn is_reached(self, outcome: &Outcome) -> bool {
        match self {
            Self::Hit(least) => outcome.reads.hit_ratio() >= least,
            Self::Latency(most) => outcome.latency <= most,
            Self::Throughput(least) => outcome.throughput >= least,
        }
    }
}

/// The input of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// Sizes of DRAM, bytes; fractions of the footprint if empty.
    pub dram: Vec<f64>,
    /// Sizes of SCM, bytes; none and fractions of the footprint if empty.
    pub scm: Vec<f64>,
    /// The target, if there is one.
    pub target: Option<Target>,
}

/// A mix in a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The index of the server in the prices.
    pub server: usize,
    /// The mix.
    pub mix: Mix,
    /// Its performance and price.
    pub outcome: Outcome,
    /// Whether no other mix has a higher throughput at the same price or less.
    pub is_efficient: bool,
}

/// All mixes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In order of price.
    pub mixes: Vec<Planned>,
    /// The index in `mixes` of the cheapest mix that reaches the target or, without a target, of the mix with
    /// the most throughput per dollar. `None` if no mix reaches the target.
    pub chosen: Option<usize>,
}

/// Sizes that are combined by default, as fractions of the footprint.
const SHARES: [f64; 9] =
    [1.0 / 128.0, 1.0 / 64.0, 1.0 / 32.0, 1.0 / 16.0, 0.125, 0.25, 0.5, 0.75, 1.0];

/// Rates all mixes of `question` for `demand` at `prices`.
#[must_use]
pub fn plan(demand: &Demand, prices: &Prices, question: &Question) -> Plan {
    let shares = || SHARES.iter().map(|share| share * demand.footprint);
    let or =
        |asked: &[f64], shares: Vec<f64>| if asked.is_empty() { shares } else { asked.to_vec() };
    let dram = or(&question.dram, shares().collect());
    let scm = or(&question.scm, [0.0].into_iter().chain(shares()).collect());
    let mut mixes = Vec::new();
    for (number, server) in prices.servers.iter().enumerate() {
        for dram in &dram {
            for scm in &scm {
                let mix = Mix { dram: *dram, scm: *scm };
                let outcome = mix.outcome(demand, prices, server);
                mixes.extend(outcome.map(|outcome| Planned {
                    server: number,
                    mix,
                    outcome,
                    is_efficient: false,
                }));
            }
        }
    }
    // At the same price, the higher throughput comes first.
    mixes.sort_by(|one, other| {
        let (one, other) = (&one.outcome, &other.outcome);
        one.dollars.total_cmp(&other.dollars).then(other.throughput.total_cmp(&one.throughput))
    });
    let mut most = 0.0;
    for planned in &mut mixes {
        planned.is_efficient = planned.outcome.throughput > most;
        most = planned.outcome.throughput.max(most);
    }
    let chosen = match question.target {
        Some(target) => mixes.iter().position(|it| target.is_reached(&it.outcome)),
        None => {
            let worth = |it: &Planned| it.outcome.throughput / it.outcome.dollars;
            let best = mixes.iter().enumerate().max_by(|a, b| worth(a.1).total_cmp(&worth(b.1)));
            best.map(|(place, _)| place)
        }
    };
    Plan { mixes, chosen }
}
