//! Miss ratio over cache size, of what is read now: what more or less memory would change.
//!
//! A part of all keys, chosen by their hashes, stands for all of them: a cache of a thousandth of the size
//! that sees a thousandth of the keys misses as often as the whole one (Waldspurger et al., "Efficient MRC
//! construction with SHARDS", FAST 2015; with a bounded number of keys and a rate that falls, as there).
//! The sampled keys go through simulations of caches of many sizes at once ("Cache modeling and
//! optimization using miniature simulations", ATC 2017), and these run [`crate::rows::policy`], the code
//! of the caches themselves. Reuse distances would be cheaper, but are LRU's: at a
//! twentieth of a zipfian footprint ours misses a fifth less often, and on the trace P3 it hits four times as
//! often (docs/performance.md).
//!
//! A miss counts as many times as one sampled key stands for keys, and is divided by all accesses, not by
//! those of sampled keys: whether the hottest key is in the sample does not matter, for it does not miss.

mod meter;
mod miss_curve;
mod residents;
mod simulation;
mod simulations;
mod tiers;

pub use meter::Meter;
pub use miss_curve::{MissCurve, Point};
pub use simulation::Subject;
pub use simulations::{Asked, Simulations, sizes_about};
pub use tiers::equivalent_sizes;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
