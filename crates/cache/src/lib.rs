//! TerraceDB internals: cache.
