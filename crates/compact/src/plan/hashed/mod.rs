//! Planners for hashed keyspaces: their keys begin with a uniform hash of eight bytes.
//!
//! A flush adds a run over the whole hash space. The planners differ in what becomes of the runs:
//!
//! - [`keep`]: nothing is lost. A *base* holds nearly all entries, in slices of the hash space; a slice is
//!   merged with its part of the runs when those hold enough of it. This is the schedule of SILT (Lim et al.,
//!   2011) without its stores: the base is tables of one level, the runs are flushed tables.
//! - [`window`]: the oldest run is dropped, or rewritten without most of its entries. This is the eviction of
//!   BufferHash (Anand et al., 2010).
//!
//! Both are pure functions of a [`Summary`](super::Summary), as [`plan`](fn@super::plan) is. Hashes spread
//! evenly, so the bytes of a table in a range of hashes are in proportion to the range.
//!
//! The compactor calls [`plan_keep`] and [`window::plan`].

mod combined;
mod filters;
pub mod keep;
mod slices;
pub mod window;

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod tests;

pub use combined::{debt_keep, plan_keep};
pub use filters::run_filter_bits;
