//! The settings that flushes and merges follow, changed whole while a store is open.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use base::Codec;

/// How tables are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    /// How table pages are compressed.
    pub codec: Codec,
    /// The Zstandard level, if `codec` is Zstandard.
    pub zstd_level: i32,
    /// Bytes per second that all merges together may read and write; 0 means no limit.
    pub compaction_rate: u64,
}

/// The options in force. A flush or a merge loads them once; a change replaces all of them.
#[derive(Debug)]
pub struct LiveOptions(ArcSwap<TreeOptions>);

impl LiveOptions {
    /// Options that begin as `options`.
    #[must_use]
    pub fn new(options: TreeOptions) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(options)))
    }

    /// The options in force.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<TreeOptions>> {
        self.0.load()
    }

    /// Puts `options` in force.
    pub fn set(&self, options: TreeOptions) {
        self.0.store(Arc::new(options));
    }
}
