//! Hit ratios of the cache's policy and of well-known ones, at equal memory:
//! `cargo run --release -p terrace-workload --example policies [-- TRACES]`.
//!
//! The policy is the code that the cache runs (`cache::rows::policy`), with its ghost list; the others are
//! reference implementations (`yardsticks.rs`). Entries have one size; the capacity is 1, 5, 10 and 25 % of
//! the footprint. The streams are zipfian ones, one of them with scans in between, and the traces in the
//! directory TRACES if it is given. docs/decisions/006-dram-cache.md has the figures.

mod own;
mod streams;
mod yardsticks;

use base::Result;

use own::Own;
use streams::Stream;
use yardsticks::{Lru, S3Fifo, Sieve, WTinyLfu};

/// A cache policy over keys.
pub trait Policy {
    /// Looks up a key, and admits or refuses it if it misses. Returns whether it was a hit.
    fn ask(&mut self, key: u64) -> bool;
}

const PERCENTS: [usize; 4] = [1, 5, 10, 25];

fn main() -> Result<()> {
    let streams = streams::all()?;
    println!("| keys | size | LRU | SIEVE | S3-FIFO | W-TinyLFU | ours | to the best |");
    println!("|---|---|---|---|---|---|---|---|");
    for stream in &streams {
        let footprint = stream.footprint();
        for percent in PERCENTS {
            row(stream, percent, (footprint * percent / 100).max(16));
        }
    }
    Ok(())
}

/// One row of the table.
fn row(stream: &Stream, percent: usize, capacity: usize) {
    let mut policies: [Box<dyn Policy>; 5] = [
        Box::new(Lru::new(capacity)),
        Box::new(Sieve::new(capacity)),
        Box::new(S3Fifo::new(capacity)),
        Box::new(WTinyLfu::new(capacity)),
        Box::new(Own::new(capacity)),
    ];
    let ratios = policies.each_mut().map(|policy| {
        let hits = stream.keys.iter().filter(|key| policy.ask(**key)).count();
        100.0 * hits as f64 / stream.keys.len() as f64
    });
    let [lru, sieve, s3_fifo, w_tiny_lfu, own] = ratios;
    let best = lru.max(sieve).max(s3_fifo).max(w_tiny_lfu);
    println!(
        "| {} | {percent} % | {lru:.1} | {sieve:.1} | {s3_fifo:.1} | {w_tiny_lfu:.1} | {own:.1} | {:+.1} |",
        stream.name,
        own - best
    );
}
