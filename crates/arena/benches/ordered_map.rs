//! Times the ordered map: `cargo bench -p terrace-arena --bench ordered_map [-- ENTRIES]`.
//!
//! One and two threads insert keys of 16 B and values of 100 B in random and in ascending order, then get
//! them in random order, then seek and step 100 times. Prints one line each. Results: docs/ledger.md.

use std::sync::Arc;
use std::time::Instant;

use base::{Account, EntryKind, Result, Rng, Seqno, Trailer};
use rustix::time::{ClockId, clock_gettime};
use terrace_arena::OrderedMap;

const VALUE: [u8; 100] = [7; 100];

fn main() -> Result<()> {
    let entries = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(2_000_000);
    for threads in [1, 2] {
        for order in [Order::Random, Order::Rising] {
            let map = OrderedMap::new(&Account::unlimited("map"))?;
            run("insert", order, threads, entries, |number| {
                let key = order.key(number);
                // The engine reserves once for each batch; here a batch is one entry.
                if map.reserve(1, key.len() + VALUE.len()).is_ok() {
                    map.insert(&key, Trailer::new(Seqno::new(number + 1), EntryKind::Put), &VALUE);
                }
                1
            });
            let at = Trailer::seek(Seqno::MAX);
            let scatter =
                |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % entries;
            run("get", order, threads, entries, |number| {
                map.get(&order.key(scatter(number)), at)
                    .map_or(0, |(_, value)| value.len() as u64 / 100)
            });
            run("seek + 100 next", order, threads, entries / 50, |number| {
                let mut cursor = Arc::clone(&map).cursor();
                cursor.seek(&order.key(scatter(number)), at);
                let mut read = 0;
                while cursor.valid() && read < 100 {
                    read += cursor.value().len() as u64 / 100;
                    cursor.next();
                }
                read
            });
            println!(
                "    {} entries, {} MiB of keys and values, {} MiB charged",
                map.len(),
                map.data_bytes() >> 20,
                map.bytes() >> 20
            );
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Random,
    Rising,
}

impl Order {
    fn key(self, number: u64) -> [u8; 16] {
        let mut key = [0; 16];
        match self {
            Self::Random => {
                let mut rng = Rng::new(number);
                rng.fill(&mut key);
            }
            Self::Rising => {
                let mut rest = number;
                for digit in key.iter_mut().rev() {
                    *digit = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
            }
        }
        key
    }
}

/// Runs `operation` for the numbers below `count`, divided among `threads`, and prints the processor time of
/// one. Processor time excludes other work on the machine, except for its effect on shared caches.
fn run(name: &str, order: Order, threads: u64, count: u64, operation: impl Fn(u64) -> u64 + Sync) {
    let start = Instant::now();
    let (seconds, done) = std::thread::scope(|scope| {
        let operation = &operation;
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let numbers = (thread..count).step_by(threads as usize);
                    let done = numbers.map(operation).sum::<u64>();
                    let time = clock_gettime(ClockId::ThreadCPUTime);
                    (time.tv_sec as f64 + time.tv_nsec as f64 / 1e9, done)
                })
            })
            .collect();
        let each = threads.into_iter().filter_map(|thread| thread.join().ok());
        each.fold((0.0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    });
    println!(
        "{order:?} {name:16} {threads} threads: {:6.0} ns each, {:6.2} M/s per thread; \
         {done} done in {:.2} s",
        seconds * 1e9 / count as f64,
        count as f64 / seconds / 1e6,
        start.elapsed().as_secs_f64(),
    );
}
