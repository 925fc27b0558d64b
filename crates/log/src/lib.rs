//! TerraceDB internals: log.
