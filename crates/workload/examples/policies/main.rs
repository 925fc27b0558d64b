//! Hit ratios of the cache's policy and of well-known ones, at equal memory:
//! `cargo run --release -p terrace-workload --example policies [-- TRACES]`.
//!
//! The policy is the code that the cache runs (`cache::rows::policy`), with its ghost list; the others are
//! reference implementations (`yardsticks.rs`). Entries have one size; the capacity is 1, 5, 10 and 25 % of
//! the footprint. The streams are zipfian ones, one of them with scans in between, and the traces in the
//! directory TRACES if it is given. A second table is of loads that nobody tuned for (`loops.rs`).
//! docs/decisions/006-dram-cache.md and docs/policies.md have the figures.

mod loops;
mod own;
mod streams;
mod yardsticks;

use std::fmt;

use base::Result;

use loops::Mix;
use own::Own;
use yardsticks::{Lru, S3Fifo, Sieve, WTinyLfu};

/// A cache policy over keys.
pub trait Policy {
    /// Looks up a key, and admits or refuses it if it misses. Returns whether it was a hit.
    fn ask(&mut self, key: u64) -> bool;
}

const PERCENTS: [usize; 4] = [1, 5, 10, 25];

/// A goal: at most this many hits in 100 reads fewer than the best of the others.
const GOAL_POINTS: f64 = 1.5;

fn main() -> Result<()> {
    let streams = streams::all()?;
    println!("| keys | size | LRU | SIEVE | S3-FIFO | W-TinyLFU | ours | to the best |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut all = Gaps::default();
    for stream in &streams {
        let footprint = stream.footprint();
        for percent in PERCENTS {
            let hits = Hits::of(&stream.keys, (footprint * percent / 100).max(16));
            println!("| {} | {percent} % | {hits} |", stream.name);
            all.add(&hits);
        }
    }
    println!("\n{all}\n");
    loops()
}

/// The table of cyclic scans mixed with other reads: a row is the mean of its seeds.
fn loops() -> Result<()> {
    println!(
        "| scan, mixed with | caches | LRU | SIEVE | S3-FIFO | W-TinyLFU | ours | to the best | held out |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let [mut seen, mut held_out] = [Gaps::default(); 2];
    for (name, mix) in Mix::ALL {
        for length in loops::LENGTHS {
            let mut rows = [Gaps::default(); 2];
            for seed in 1..=loops::SEEDS {
                let hits = Hits::of(&loops::load(mix, length, seed)?, loops::CAPACITY);
                let [row_seen, row_held_out] = &mut rows;
                let (row, all) = match seed <= loops::SEEDS_SEEN {
                    true => (row_seen, &mut seen),
                    false => (row_held_out, &mut held_out),
                };
                row.add(&hits);
                all.add(&hits);
            }
            let [row, row_held_out] = rows;
            println!(
                "| {name} | {length} | {} | {:+.1} |",
                row.mean(),
                row_held_out.mean().to_best()
            );
        }
    }
    println!("\nseen seeds: {seen}\nheld-out seeds: {held_out}");
    Ok(())
}

/// Hits in 100 reads: of LRU, SIEVE, S3-FIFO, W-TinyLFU, and ours.
#[derive(Clone, Copy, Default)]
struct Hits([f64; 5]);

impl Hits {
    fn of(keys: &[u64], capacity: usize) -> Self {
        let mut policies: [Box<dyn Policy>; 5] = [
            Box::new(Lru::new(capacity)),
            Box::new(Sieve::new(capacity)),
            Box::new(S3Fifo::new(capacity)),
            Box::new(WTinyLfu::new(capacity)),
            Box::new(Own::new(capacity)),
        ];
        Self(policies.each_mut().map(|policy| {
            let hits = keys.iter().filter(|key| policy.ask(**key)).count();
            100.0 * hits as f64 / keys.len() as f64
        }))
    }

    /// How many more hits ours has than the best of the others.
    fn to_best(self) -> f64 {
        let [others @ .., own] = self.0;
        own - others.into_iter().fold(0.0, f64::max)
    }
}

impl fmt::Display for Hits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|ratio| write!(f, "{ratio:.1} | "))?;
        write!(f, "{:+.1}", self.to_best())
    }
}

/// Hits of several runs.
#[derive(Clone, Copy, Default)]
struct Gaps {
    runs: u32,
    sums: [f64; 5],
    within_goal: u32,
    worst: f64,
}

impl Gaps {
    fn add(&mut self, hits: &Hits) {
        self.runs += 1;
        self.sums.iter_mut().zip(hits.0).for_each(|(sum, ratio)| *sum += ratio);
        self.within_goal += u32::from(hits.to_best() >= -GOAL_POINTS);
        self.worst = self.worst.min(hits.to_best());
    }

    fn mean(&self) -> Hits {
        Hits(self.sums.map(|sum| sum / f64::from(self.runs.max(1))))
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, within_goal, worst, .. } = self;
        write!(
            f,
            "within {GOAL_POINTS} points of the best in {within_goal} of {runs}, worst {worst:+.1}"
        )
    }
}
