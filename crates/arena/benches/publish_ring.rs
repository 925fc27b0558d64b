//! Times the publish ring: `cargo bench -p terrace-arena --bench publish_ring`.
//!
//! Threads take the next seqno and publish it at once, so that they always contend. Wall time shows the speed
//! of the ring, processor time the cost of waiting. Results: docs/ledger.md.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use base::Seqno;
use rustix::time::{ClockId, clock_gettime};
use terrace_arena::PublishRing;

const BATCHES: u64 = 30_000_000;

fn main() {
    for threads in [1, 2, 8] {
        let (ring, next, start) =
            (PublishRing::new(Seqno::ZERO), AtomicU64::new(1), Instant::now());
        let ready = Barrier::new(threads);
        let seconds: f64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| {
                        ready.wait();
                        loop {
                            let first = next.fetch_add(1, Relaxed);
                            if first > BATCHES {
                                break;
                            }
                            ring.publish(Seqno::new(first), 1);
                        }
                        let time = clock_gettime(ClockId::ThreadCPUTime);
                        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
        });
        println!(
            "{threads} threads: {:5.0} ns of processor time a batch, {:5.0} ns of wall time; visible {}",
            seconds * 1e9 / BATCHES as f64,
            start.elapsed().as_secs_f64() * 1e9 / BATCHES as f64,
            ring.visible()
        );
    }
}
