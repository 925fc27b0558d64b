//! TerraceDB internals: workload.
//!
//! Generators of keys and values, distributions, trace readers, latency histograms, and the drivers of
//! benches and replays. The drivers run on anything that implements [`Store`]: the `terrace` tool runs them
//! on this engine, the comparison harness on other engines too.
//!
//! Level 6 of docs/ARCHITECTURE.md. Only [`Engine`] depends on the engine, and [`plan`] on the policy of the
//! caches; everything else depends on `base` alone.

pub mod bench;
pub mod cases;
mod compaction;
mod distribution;
mod engine;
mod figures;
mod hashed;
mod key;
mod key_ranges;
mod kind;
pub mod lanes;
mod latency;
mod pages;
mod permutation;
pub mod plan;
mod process;
pub mod replay;
mod scm;
mod sizes;
mod store;
#[cfg(test)]
mod test_store;
pub mod trace;
mod value;
mod zipf;

pub use compaction::CompactionPlaces;
pub use distribution::{Distribution, Sampler, ZIPFIAN_THETA};
pub use engine::Engine;
pub use figures::{Device, Figures, Operations};
pub use hashed::{
    DedupReport, HashedFigures, InsertsAlone, Phase, Predicted, Silt, SiltOptions, SiltReport,
    WanFigures, WanOptions, WanReport, load_wan, run_dedup, run_wan, run_wan_on,
};
pub use key::{KEY_BYTES_MIN, KEY_NUMBER_MAX, Keys};
pub use key_ranges::{KeyRanges, RangeHeat};
pub use latency::{Latencies, LatencySummary};
pub use pages::{ByKind, PageCounts};
pub use permutation::Permutation;
pub use scm::{Emulation, ScmCounts};
pub use sizes::Sizes;
pub use store::{Counters, Direction, Hits, ScanVisitor, Store, Traffic};
pub use value::Values;
pub use zipf::Zipf;
