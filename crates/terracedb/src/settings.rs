//! What can be set for one store, as plain data.

use std::time::Duration;

use base::{Codec, Durability, Error, Result};

/// How one store behaves. Everything has a default that is right for most.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// When writes are acknowledged unless a write says otherwise.
    pub(crate) durability: Durability,
    /// The longest time an acknowledged `Interval` write stays at the mercy of a power cut.
    pub(crate) sync_interval: Duration,
    /// How table pages are compressed.
    pub(crate) codec: Codec,
    /// The Zstandard level, where `codec` is Zstandard: -7 to 22.
    pub(crate) zstd_level: i32,
    /// Open even where the log is damaged, giving up what cannot be read in order. What was lost
    /// is in [`crate::Recovery`].
    pub(crate) recover_damaged_log: bool,
    /// What shape merges give the tree.
    pub(crate) compaction: compact::plan::Options,
    /// How fast tables are read again and verified, bytes a second; 0: never.
    pub(crate) scrub_rate: u64,
    /// How often all of them are.
    pub(crate) scrub_interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            durability: Durability::None,
            sync_interval: Duration::from_millis(100),
            codec: Codec::Lz4,
            zstd_level: 3,
            recover_damaged_log: false,
            compaction: compact::plan::Options::default(),
            scrub_rate: 4 << 20,
            scrub_interval: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

impl Settings {
    pub(crate) fn validate(&self) -> Result<()> {
        if !(-7..=22).contains(&self.zstd_level) {
            return Err(Error::invalid("setting zstd_level")
                .expected("-7..=22")
                .got(self.zstd_level));
        }
        if self.sync_interval < Duration::from_millis(1) {
            return Err(Error::invalid("setting sync_interval")
                .expected("at least 1 ms")
                .got(format_args!("{:?}", self.sync_interval)));
        }
        Ok(())
    }
}
