#[cfg(feature = "shuttle")]
use std::sync::Arc;

use super::*;
use crate::sync::yield_now;

/// The data of the batches: each applied batch stores its own seqnos, each in its cell.
struct Board(Vec<AtomicU64>);

impl Board {
    fn new(seqnos: u64) -> Self {
        Self((0..=seqnos).map(|_| AtomicU64::new(0)).collect())
    }

    fn apply(&self, first: u64, count: u64) {
        for seqno in first..first + count {
            self.0[seqno as usize].store(seqno, crate::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Checks that all seqnos up to `visible` are applied.
    fn check(&self, visible: Seqno) {
        for seqno in 1..=visible.get() {
            let stored = self.0[seqno as usize].load(crate::sync::atomic::Ordering::Relaxed);
            assert_eq!(stored, seqno, "visible {visible} but not applied");
        }
    }
}

/// Consecutive batches of 1 to `count_max` seqnos that cover at least `1..=total`.
fn batches(rng: &mut base::Rng, total: u64, count_max: u64) -> Vec<(u64, u64)> {
    let mut next = 1;
    let mut all = Vec::new();
    while next <= total {
        let count = 1 + rng.below(count_max);
        all.push((next, count));
        next += count;
    }
    all
}

#[cfg(not(feature = "shuttle"))]
mod on_threads {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use base::Rng;

    use super::*;

    #[test]
    fn batches_published_in_order_are_visible_at_once() {
        let ring = PublishRing::new(Seqno::new(10));
        ring.publish(Seqno::new(11), 0);
        assert_eq!(ring.visible(), Seqno::new(10));
        ring.publish(Seqno::new(11), 5);
        assert_eq!(ring.visible(), Seqno::new(15));
        let large = 3 * SLOTS as u64;
        ring.publish(Seqno::new(16), large);
        assert_eq!(ring.visible(), Seqno::new(15 + large));
    }

    /// A later batch sleeps until the batch before it is published; then both are visible.
    #[test]
    fn a_batch_waits_for_the_one_before_it() {
        let ring = PublishRing::new(Seqno::ZERO);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ring.publish(Seqno::new(3), 4);
                done.store(true, SeqCst);
            });
            while ring.wait_queue(3).waiting.load(SeqCst) == 0 {
                yield_now();
            }
            assert_eq!(ring.visible(), Seqno::ZERO);
            assert!(!done.load(SeqCst));
            ring.publish(Seqno::new(1), 2);
            assert_eq!(ring.visible(), Seqno::new(6));
        });
        assert!(done.into_inner());
    }

    /// A batch more than a ring length ahead waits until it fits, then is published.
    #[test]
    fn a_batch_beyond_the_ring_waits_until_it_fits() {
        let ring = PublishRing::new(Seqno::ZERO);
        let far = 1 + SLOTS as u64;
        std::thread::scope(|scope| {
            scope.spawn(|| ring.publish(Seqno::new(far), 1));
            while ring.advanced.waiting.load(SeqCst) == 0 {
                yield_now();
            }
            ring.publish(Seqno::new(1), far - 1);
        });
        assert_eq!(ring.visible(), Seqno::new(far));
    }

    /// More writers than cores take batches in order and publish them in any order. A reader checks that the
    /// visible seqno grows, is the last of a batch, and that all batches up to it are applied (I2).
    #[test] // I2
    fn readers_see_whole_batches_in_order() {
        let (mut rng, seed) = Rng::from_env();
        let (total, writers) = if cfg!(miri) { (60, 3) } else { (20_000, 8) };
        let batches = batches(&mut rng, total, 7);
        let end = batches.last().map_or(0, |(first, count)| first + count - 1);
        let ends: std::collections::HashSet<u64> =
            batches.iter().map(|(first, count)| first + count - 1).chain([0]).collect();
        let board = Board::new(end);
        let ring = PublishRing::new(Seqno::ZERO);
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..writers {
                scope.spawn(|| {
                    while let Some(&(first, count)) =
                        batches.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        board.apply(first, count);
                        ring.publish(Seqno::new(first), count);
                        assert!(ring.visible().get() >= first + count - 1, "seed {seed}");
                    }
                });
            }
            scope.spawn(|| {
                let mut seen = Seqno::ZERO;
                while seen.get() < end {
                    let visible = ring.visible();
                    assert!(visible >= seen, "seed {seed}");
                    assert!(ends.contains(&visible.get()), "seed {seed}: {visible}");
                    if visible > seen {
                        board.check(visible);
                    }
                    seen = visible;
                    yield_now();
                }
            });
        });
        assert_eq!(ring.visible().get(), end, "seed {seed}");
    }
}

/// Three writers publish batches of several sizes that wrap around the small ring, beside one reader. Every
/// writer returns, and the reader sees all that the batches up to the visible seqno stored (I2).
#[cfg(feature = "shuttle")]
#[test] // I1, I2
fn shuttle_publish_and_read() {
    let (mut rng, seed) = base::Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let batches = Arc::new(batches(&mut rng, 24, 4));
    let end = batches.last().map_or(0, |(first, count)| first + count - 1);
    crate::sync::explore(500, move || {
        let ring = Arc::new(PublishRing::new(Seqno::ZERO));
        let board = Arc::new(Board::new(end));
        let next = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let (ring, board) = (Arc::clone(&ring), Arc::clone(&board));
                let (batches, next) = (Arc::clone(&batches), Arc::clone(&next));
                shuttle::thread::spawn(move || {
                    while let Some(&(first, count)) =
                        batches.get(next.fetch_add(1, SeqCst) as usize)
                    {
                        board.apply(first, count);
                        ring.publish(Seqno::new(first), count);
                        board.check(ring.visible());
                    }
                })
            })
            .collect();
        let mut seen = Seqno::ZERO;
        for _ in 0..10 {
            let visible = ring.visible();
            assert!(visible >= seen);
            board.check(visible);
            seen = visible;
            yield_now();
        }
        ring.wait_until_visible(Seqno::new(end));
        board.check(ring.visible());
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(ring.visible().get(), end);
    });
}
