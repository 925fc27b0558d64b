//! Which key each operation of a run is for: drawn by a law, or the next of a trace.
//!
//! Concurrency: the threads of a run share a trace. Each takes a few accesses at a time, so accesses keep
//! the trace's order but for the few that all threads hold. Cost: a draw; of a trace a look-up, and an
//! addition to a shared counter every [`CHUNK`] accesses.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::Rng;

use crate::Sampler;
use crate::trace::KeyTrace;

/// Accesses of a trace that a thread takes at a time.
const CHUNK: u64 = 16;

/// A trace, and how far its runs have come: each goes on where the one before it ended, so that short runs
/// see all of a long trace.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) keys: KeyTrace,
    next: AtomicU64,
}

impl Replayed {
    pub(super) const fn new(keys: KeyTrace) -> Self {
        Self { keys, next: AtomicU64::new(0) }
    }
}

/// Where the threads of a run have key numbers from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    Drawn(Sampler),
    Replayed(&'a Replayed),
}

/// One thread's key numbers.
#[derive(Debug)]
pub(super) struct Draws<'a> {
    source: &'a Source<'a>,
    /// Of a trace, the accesses taken and not used yet.
    taken: std::ops::Range<u64>,
}

impl<'a> Draws<'a> {
    pub(super) const fn new(source: &'a Source<'a>) -> Self {
        Self { source, taken: 0..0 }
    }

    /// The next key's number.
    #[inline]
    pub(super) fn draw(&mut self, rng: &mut Rng) -> u64 {
        match self.source {
            Source::Drawn(sampler) => sampler.draw(rng),
            Source::Replayed(Replayed { keys, next }) => {
                let turn = self.taken.next().unwrap_or_else(|| {
                    let first = next.fetch_add(CHUNK, Relaxed);
                    self.taken = first + 1..first + CHUNK;
                    first
                });
                keys.number(turn)
            }
        }
    }
}
