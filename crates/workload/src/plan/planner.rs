//! All mixes, which of them are worth their price, and the cheapest that does what is asked.

use super::demand::Demand;
use super::mix::{Mix, Outcome};
use super::prices::Prices;

/// What is to be kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// The part of lookups, at least, that flash has no part in.
    Hit(f64),
    /// The mean latency of a lookup, at most, microseconds.
    Latency(f64),
    /// Lookups a second, at least.
    Throughput(f64),
}

impl Target {
    /// Whether the outcome keeps it.
    #[must_use]
    pub fn is_kept(self, outcome: &Outcome) -> bool {
        match self {
            Self::Hit(least) => outcome.reads.hit_ratio() >= least,
            Self::Latency(most) => outcome.latency <= most,
            Self::Throughput(least) => outcome.throughput >= least,
        }
    }
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// Sizes of DRAM and of SCM to combine, bytes; from the footprint where there are none.
    pub dram: Vec<f64>,
    /// See `dram`.
    pub scm: Vec<f64>,
    /// What is to be kept.
    pub target: Option<Target>,
}

/// A mix in a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The server, by its place in the prices.
    pub server: usize,
    /// The mix.
    pub mix: Mix,
    /// What comes of it.
    pub outcome: Outcome,
    /// No other costs no more and does more.
    pub is_efficient: bool,
}

/// Every mix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// By price.
    pub mixes: Vec<Planned>,
    /// The cheapest that keeps the target; where there is none, the one that does most for a dollar. A
    /// place in `mixes`.
    pub chosen: Option<usize>,
}

/// Sizes of DRAM and of SCM that are combined where none are named, as parts of the footprint.
const SHARES: [f64; 9] =
    [1.0 / 128.0, 1.0 / 64.0, 1.0 / 32.0, 1.0 / 16.0, 0.125, 0.25, 0.5, 0.75, 1.0];

/// Weighs all mixes of `question` for `demand` at `prices`.
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
    // At one price, what does most comes first.
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
        Some(target) => mixes.iter().position(|it| target.is_kept(&it.outcome)),
        None => {
            let worth = |it: &Planned| it.outcome.throughput / it.outcome.dollars;
            let best = mixes.iter().enumerate().max_by(|a, b| worth(a.1).total_cmp(&worth(b.1)));
            best.map(|(place, _)| place)
        }
    };
    Plan { mixes, chosen }
}
