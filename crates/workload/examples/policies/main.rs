//! Hit ratios of the cache's policy beside well-known ones, at the same bytes:
//! `cargo run --release -p terrace-workload --example policies [-- TRACES]`.
//!
//! The policy is the code that the cache runs (`cache::rows::policy`), with its memory of what
//! went; the others are reference implementations (`yardsticks.rs`). Entries are of one size; the
//! capacity is 1, 5, 10 and 25 % of the footprint. Zipfian streams, one with scans in between, and
//! the traces of the directory TRACES where it is there. Figures: docs/performance.md.

mod own;
mod yardsticks;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use base::{Result, Rng, key_hash};
use terrace_workload::Zipf;
use terrace_workload::trace::{Access, Format};

use own::Own;
use yardsticks::{Lru, S3Fifo, Sieve, WTinyLfu};

/// Something that decides what is kept.
pub trait Policy {
    /// Asks for a key and keeps it, or not; whether it was there.
    fn ask(&mut self, key: u64) -> bool;
}

/// A stream of keys.
struct Stream {
    name: String,
    keys: Vec<u64>,
}

const PERCENTS: [usize; 4] = [1, 5, 10, 25];

/// The public traces, where they are.
const TRACES: [(&str, Format); 5] = [
    ("OLTP.lis.zst", Format::Lis),
    ("P3.lis.zst", Format::Lis),
    ("scarab-recs.trace.xz", Format::U64Be),
    ("web07.trace.xz", Format::U32),
    ("cloudPhysicsIO.oracleGeneral.bin", Format::OracleGeneral),
];

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let mut streams = Vec::new();
    for skew in [0.8, 0.99, 1.1] {
        streams.push(Stream { name: format!("zipfian {skew}"), keys: zipfian(skew)? });
    }
    streams.push(Stream {
        name: "zipfian 0.99 and scans".to_owned(),
        keys: with_scans(zipfian(0.99)?),
    });
    for (name, format) in TRACES {
        match directory.as_ref().map(|directory| directory.join(name)) {
            Some(path) if path.exists() => {
                streams.push(Stream { name: name.to_owned(), keys: keys_of(&path, format)? });
            }
            _ => println!("skipped: {name}, for it is not in the directory given"),
        }
    }
    println!("| keys | size | LRU | SIEVE | S3-FIFO | W-TinyLFU | ours | to the best |");
    println!("|---|---|---|---|---|---|---|---|");
    for stream in &streams {
        let footprint = stream.keys.iter().collect::<HashSet<_>>().len();
        for percent in PERCENTS {
            row(stream, percent, (footprint * percent / 100).max(16));
        }
    }
    Ok(())
}

/// One line of the table.
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

/// Two million reads of 200,000 keys.
fn zipfian(skew: f64) -> Result<Vec<u64>> {
    let (zipf, mut rng) = (Zipf::new(200_000, skew)?, Rng::new(1));
    Ok((0..2_000_000).map(|_| key_hash(&zipf.draw(&mut rng).to_le_bytes())).collect())
}

/// As many keys that are read once, 20,000 at a time.
fn with_scans(keys: Vec<u64>) -> Vec<u64> {
    let mut scanned = 0u64;
    let mut scan = || {
        scanned += 1;
        key_hash(&(scanned << 32).to_le_bytes())
    };
    let chunks = keys.chunks(20_000);
    chunks
        .flat_map(|keys| {
            keys.iter().copied().chain(keys.iter().map(|_| scan())).collect::<Vec<_>>()
        })
        .collect()
}

fn keys_of(path: &Path, format: Format) -> Result<Vec<u64>> {
    let (mut trace, mut access) = (format.open(path)?, Access::default());
    let mut keys = Vec::new();
    while trace.next(&mut access)? {
        keys.push(key_hash(&access.key));
    }
    Ok(keys)
}
