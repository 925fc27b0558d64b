//! TerraceDB.
