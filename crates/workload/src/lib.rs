//! TerraceDB internals: workload.
