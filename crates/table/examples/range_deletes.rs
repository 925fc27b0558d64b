//! Measures range deletes: `cargo run --release -p terrace-table --example range_deletes`.
//!
//! Deletes random ranges among ten million 16-digit keys. Reports the time to cut them into fragments,
//! the memory of the fragments, and the time to find the newest range delete of a random key. Times are
//! processor time of this thread.

use std::hint::black_box;

use base::{Rng, Seqno};
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use terrace_table::{RangeDelete, RangeDeletes};

const KEYS: u64 = 10_000_000;
const LOOKUPS: u32 = 1_000_000;

/// Processor time of this thread, nanoseconds.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn key(number: u64) -> Bytes {
    format!("{number:016}").into()
}

fn main() {
    println!("| deletes | longest | fragments | build ms | bytes/fragment | search ns |");
    println!("|---|---|---|---|---|---|");
    let mut rng = Rng::new(7);
    for (count, longest) in [(1_000, 100), (100_000, 50), (100_000, 5_000), (1_000_000, 50)] {
        let deletes: Vec<RangeDelete> = (0..count)
            .map(|seqno| {
                let start = rng.below(KEYS);
                let end = start + 1 + rng.below(longest);
                RangeDelete { start: key(start), end: key(end), seqno: Seqno::new(seqno) }
            })
            .collect();
        let start = now();
        let fragments = RangeDeletes::build_newest(deletes);
        let built = now() - start;
        let keys: Vec<Bytes> = (0..4096).map(|_| key(rng.below(KEYS))).collect();
        let start = now();
        for key in keys.iter().cycle().take(LOOKUPS as usize) {
            black_box(fragments.newest_covering(black_box(key), Seqno::MAX));
        }
        println!(
            "| {count} | {longest} keys | {} | {:.1} | {} | {:.0} |",
            fragments.len(),
            built / 1e6,
            fragments.bytes() / fragments.len().max(1),
            (now() - start) / f64::from(LOOKUPS),
        );
    }
}
