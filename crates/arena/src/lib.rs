//! TerraceDB internals: arena.
