//! The settings that flushes and merges follow, changed whole while a store is open.

use std::fmt;

use base::Codec;

/// How tables are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    /// How table pages are compressed.
    pub codec: Codec,
    /// The level of `codec`, if it has levels.
    pub level: i32,
    /// Bytes per second that all merges together may read and write; 0 means no limit.
    pub compaction_rate: u64,
    /// Whether pages are cached as they are written, while the page cache is not full.
    pub write_through: bool,
}

/// Where flushes and merges find the options in force.
pub trait OptionSource: fmt::Debug + Send + Sync {
    /// The options in force. A flush or a merge asks once and keeps them to its end.
    fn tree_options(&self) -> TreeOptions;

    /// The level of `codec` in force, if it has levels.
    fn level_of(&self, codec: Codec) -> i32;
}
