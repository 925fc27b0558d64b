//! The keys of the operations of a run: drawn from a distribution, or the next ones of a trace.
//!
//! Concurrency: the threads of a run share a trace. Each thread takes [`CHUNK`] accesses at a time, so the
//! trace's order holds except among the chunks in use. Cost: a draw; with a trace, an array access, and an
//! addition to a shared counter per chunk.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::Rng;

use crate::Sampler;
use crate::trace::KeyTrace;

/// Accesses of a trace that a thread takes at a time.
const CHUNK: u64 = 16;

/// A trace and the position of its runs. Each run goes on where the last one ended, so that short runs cover
/// a long trace.
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

/// The source of key numbers for the threads of a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    Drawn(Sampler),
    Replayed(&'a Replayed),
}

/// One thread's key numbers.
#[derive(Debug)]
pub(super) struct Draws<'a> {
    source: &'a Source<'a>,
    /// Accesses of the trace that this thread has taken and not used.
    taken: std::ops::Range<u64>,
}

impl<'a> Draws<'a> {
    pub(super) const fn new(source: &'a Source<'a>) -> Self {
        Self { source, taken: 0..0 }
    }

    /// The number of the next key.
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
