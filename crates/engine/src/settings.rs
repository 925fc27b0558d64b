//! What can be set for one store, as plain data, and how it changes while the store is open.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use base::{Codec, Durability, Error, Result};
use parking_lot::Mutex;
use tree::{LiveOptions, TreeOptions};

/// How one store behaves (`terracedb::Db::settings`). Everything has a default that is right for most.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// When writes are acknowledged unless a write says otherwise.
    pub durability: Durability,
    /// The longest time an acknowledged `Interval` write stays at the mercy of a power cut.
    pub sync_interval: Duration,
    /// How table pages are compressed.
    pub codec: Codec,
    /// The Zstandard level, where `codec` is Zstandard: -7 to 22.
    pub zstd_level: i32,
    /// How fast merges may read and write, all together, bytes a second; 0: no limit. Too low for what
    /// is written, it delays writers (`terracedb::Delays`).
    pub compaction_rate: u64,
    /// How fast tables are read again and verified, bytes a second; 0: never.
    pub scrub_rate: u64,
    /// How often all of them are.
    pub scrub_interval: Duration,
    /// The memory number, bytes; that of all stores that share it.
    pub memory: u64,
    /// Open even where the log is damaged, giving up what cannot be read in order. What was lost
    /// is in `terracedb::Recovery`. Cannot be changed while the store is open.
    pub recover_damaged_log: bool,
    /// What shape merges give the tree. Cannot be changed while the store is open.
    pub compaction: compact::plan::Options,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            durability: Durability::None,
            sync_interval: Duration::from_millis(100),
            codec: Codec::Lz4,
            zstd_level: 3,
            compaction_rate: 0,
            scrub_rate: 4 << 20,
            scrub_interval: Duration::from_secs(7 * 24 * 3600),
            memory: 0,
            recover_damaged_log: false,
            compaction: compact::plan::Options::default(),
        }
    }
}

impl Settings {
    const fn tree_options(&self) -> TreeOptions {
        let Self { codec, zstd_level, compaction_rate, .. } = *self;
        TreeOptions { codec, zstd_level, compaction_rate }
    }

    pub fn validate(&self) -> Result<()> {
        if !(-7..=22).contains(&self.zstd_level) {
            return Err(Error::invalid("setting zstd_level")
                .expected("-7..=22")
                .got(self.zstd_level));
        }
        for (name, interval) in
            [("sync_interval", self.sync_interval), ("scrub_interval", self.scrub_interval)]
        {
            if interval < Duration::from_millis(1) {
                return Err(Error::invalid("setting")
                    .at(name)
                    .expected("at least 1 ms")
                    .got(format_args!("{interval:?}")));
            }
        }
        Ok(())
    }
}

/// The settings in force. Whoever needs them takes them whole, once an operation, flush or job; a
/// change replaces them whole.
#[derive(Debug)]
pub struct LiveSettings {
    current: ArcSwap<Settings>,
    /// The part that flushes and merges follow.
    tree: Arc<LiveOptions>,
    /// Held while they are changed, so that changes do not overwrite each other.
    changing: Mutex<()>,
}

impl LiveSettings {
    pub fn new(settings: Settings) -> Arc<Self> {
        let tree = LiveOptions::new(settings.tree_options());
        let (current, changing) = (ArcSwap::from_pointee(settings), Mutex::default());
        Arc::new(Self { current, tree, changing })
    }

    /// The part that flushes and merges follow.
    pub fn tree_options(&self) -> Arc<LiveOptions> {
        Arc::clone(&self.tree)
    }

    pub fn load(&self) -> Guard<Arc<Settings>> {
        self.current.load()
    }

    /// Changes the settings, which may hold a memory number of before. `set_memory` changes that,
    /// before anything else is.
    ///
    /// # Errors
    /// `Invalid` where a setting is out of range or cannot be changed, and `set_memory`'s: nothing is
    /// changed.
    pub fn change(
        &self,
        memory: u64,
        change: impl FnOnce(&mut Settings),
        set_memory: impl FnOnce(u64) -> Result<()>,
    ) -> Result<Settings> {
        let _changing = self.changing.lock();
        let old = Settings { memory, ..Settings::clone(&self.current.load()) };
        let mut new = old.clone();
        change(&mut new);
        new.validate()?;
        if new.recover_damaged_log != old.recover_damaged_log {
            return Err(Error::invalid("setting recover_damaged_log")
                .expected("what the store was opened with")
                .got(new.recover_damaged_log));
        }
        if new.memory != old.memory {
            set_memory(new.memory)?;
        }
        self.tree.set(new.tree_options());
        self.current.store(Arc::new(new.clone()));
        Ok(new)
    }
}
