//! TerraceDB internals: workload.
//!
//! Key and value generators, distributions, trace readers, latency histograms, and the bench and
//! replay drivers over the [`Store`] trait. The `terrace` tool runs them on this engine, the
//! comparison harness on others.
//!
//! Level 6 (docs/ARCHITECTURE.md): depends on `base` alone.

mod store;

pub use store::{Counters, Direction, Hits, ScanVisitor, Store, Traffic};
