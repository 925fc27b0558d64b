//! Miss-ratio curves of the current workload: misses as a function of cache size, to tell what more or less
//! memory would change.
//!
//! A sample of all keys, chosen by hash, stands for all keys: a cache of 1/1000 of the size that sees 1/1000
//! of the keys has the miss ratio of the whole cache (Waldspurger et al., "Efficient MRC construction with
//! SHARDS", FAST 2015; as there, the number of sampled keys is bounded, and the sampling rate falls). The
//! sampled keys go through simulations of caches of many sizes at once ("Cache modeling and optimization
//! using miniature simulations", ATC 2017). The simulations run [`crate::rows::policy`], the code of the
//! caches themselves. Reuse distances would be cheaper, but are those of LRU: at 1/20 of a zipfian footprint
//! this policy misses a fifth less often than LRU, and on the trace P3 it hits four times as often
//! (docs/ledger.md).
//!
//! A sampled miss counts as 1/rate misses, and is divided by all accesses, not by the sampled ones. So it
//! does not matter whether the hottest key is in the sample: it never misses.
//!
//! The caches follow a [`Contest`] of rules. The curves of an open store simulate [`Open`] only, a curve of a
//! trace ([`Simulations::following`]) each of the rules, and counts the misses of those that a cache of the
//! size would follow.
//!
//! [`Open`]: crate::rows::policy::Rules::Open

mod contest;
mod meter;
mod miss_curve;
mod residents;
mod scores;
mod simulation;
mod simulations;
mod tiers;

pub use contest::Contest;
pub use meter::Meter;
pub use miss_curve::{MissCurve, Point};
pub use simulation::Subject;
pub(crate) use simulations::is_sampled;
pub use simulations::{Asked, Simulations, sizes_about};
pub use tiers::equivalent_sizes;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
