//! TerraceDB internals: table.
