//! The settings of one store: plain data, and the settings in force of an open store.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use base::{Codec, Durability, Error, Result};
use parking_lot::Mutex;
use tree::{OptionSource, TreeOptions};

/// The settings of one store (`terracedb::Db::settings`). The defaults suit most stores.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// The durability of writes that do not choose their own: [`Durability::Interval`] by default, which
    /// `terracedb::Builder::durability` explains.
    pub durability: Durability,
    /// The longest time for which a power cut can undo an acknowledged `Interval` write.
    pub sync_interval: Duration,
    /// The compression of table pages.
    pub codec: Codec,
    /// The Zstandard level if `codec` is Zstandard: -7 to 22.
    pub zstd_level: i32,
    /// The DEFLATE level if `codec` is DEFLATE: 1 to 9.
    pub deflate_level: i32,
    /// The most that all merges together may read and write, bytes per second; 0: no limit. Writers are
    /// delayed (`terracedb::stats::Delays`) if merges cannot keep up at this rate.
    pub compaction_rate: u64,
    /// Whether flushes and merges put the pages that they write into the page cache while it is not full, and
    /// merges those that take the place of cached pages.
    pub write_through: bool,
    /// Whether the store keeps a list of the pages that are hot in the cache, and reads them ahead when it is
    /// opened.
    pub hot_pages: bool,
    /// The rate at which the scrub reads and verifies tables, bytes per second; 0: no scrub. A build
    /// without the feature `tools` has no scrub.
    pub scrub_rate: u64,
    /// The interval in which the scrub verifies every table once.
    pub scrub_interval: Duration,
    /// The memory limit, bytes, of all stores that share the store's resources.
    pub memory: u64,
    /// Open even if the log is damaged, and give up the records that cannot be read in order;
    /// `terracedb::recovery::Recovery` lists the loss. Cannot be changed while the store is open.
    pub recover_damaged_log: bool,
    /// The store is open for reading only: writes fail, and nothing is flushed or merged. Cannot be changed
    /// while the store is open.
    pub read_only: bool,
    /// The shape that merges give the tree. Cannot be changed while the store is open.
    #[cfg(feature = "testing")]
    pub compaction: compact::plan::Options,
    /// As above.
    #[cfg(not(feature = "testing"))]
    pub(crate) compaction: compact::plan::Options,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            durability: Durability::Interval,
            sync_interval: Duration::from_millis(100),
            codec: Codec::Lz4,
            zstd_level: 3,
            deflate_level: 6,
            compaction_rate: 0,
            write_through: true,
            hot_pages: true,
            scrub_rate: 4 << 20,
            scrub_interval: Duration::from_secs(7 * 24 * 3600),
            memory: 0,
            recover_damaged_log: false,
            read_only: false,
            compaction: compact::plan::Options::default(),
        }
    }
}

impl Settings {
    /// The level of the codec, if it has levels.
    pub(crate) const fn level(&self) -> i32 {
        self.level_of(self.codec)
    }

    /// The level of `codec`, if it has levels.
    pub(crate) const fn level_of(&self, codec: Codec) -> i32 {
        match codec {
            Codec::Deflate => self.deflate_level,
            Codec::None | Codec::Lz4 | Codec::Zstd => self.zstd_level,
        }
    }

    /// Checks the range of every setting.
    ///
    /// # Errors
    /// `Invalid`, naming the setting and its range.
    pub fn validate(&self) -> Result<()> {
        table::check_codec(self.codec).map_err(|error| error.at("setting codec"))?;
        check_level("setting zstd_level", Codec::Zstd, self.zstd_level)?;
        check_level("setting deflate_level", Codec::Deflate, self.deflate_level)?;
        if self.durability == Durability::Unlogged {
            return Err(Error::invalid("setting durability")
                .expected(
                    "none, interval or sync; a write to a window may be unlogged by its options",
                )
                .got("unlogged"));
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

/// The settings in force. An operation, flush or job loads all of them once; a change replaces all of
/// them at once.
#[derive(Debug)]
pub struct LiveSettings {
    current: ArcSwap<Settings>,
    /// Held during a change, so that concurrent changes do not overwrite each other.
    changing: Mutex<()>,
}

impl LiveSettings {
    /// Puts `settings` in force.
    #[must_use]
    pub fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self { current: ArcSwap::from_pointee(settings), changing: Mutex::default() })
    }

    /// The settings in force.
    pub fn load(&self) -> Guard<Arc<Settings>> {
        self.current.load()
    }

    /// Applies `change` to the settings in force, with `memory` as the present memory limit, and returns the
    /// new settings. If `change` changes the memory limit, `set_memory` is called before anything else is
    /// changed.
    ///
    /// # Errors
    /// `Invalid` if a setting is out of range or cannot be changed; the error of `set_memory`. Nothing is
    /// changed then.
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
                .expected("the value that the store was opened with")
                .got(new.recover_damaged_log));
        }
        if new.read_only != old.read_only {
            return Err(Error::invalid("setting read_only")
                .expected("the value that the store was opened with")
                .got(new.read_only));
        }
        if new.compaction != old.compaction {
            return Err(Error::invalid("setting compaction")
                .expected("the value that the store was opened with")
                .got("another"));
        }
        if new.memory != old.memory {
            set_memory(new.memory)?;
        }
        self.current.store(Arc::new(new.clone()));
        Ok(new)
    }
}

/// Refuses a level that `codec` does not have.
pub(crate) fn check_level(subject: &'static str, codec: Codec, level: i32) -> Result<()> {
    let levels = match codec {
        Codec::Zstd => -7..=22,
        Codec::Deflate => 1..=9,
        Codec::None | Codec::Lz4 => {
            return Err(Error::invalid(subject).expected("a codec with levels").got(level));
        }
    };
    if levels.contains(&level) {
        return Ok(());
    }
    let (first, last) = (levels.start(), levels.end());
    Err(Error::invalid(subject).expected(format_args!("{first}..={last}")).got(level))
}

impl OptionSource for LiveSettings {
    fn tree_options(&self) -> TreeOptions {
        let settings = self.load();
        let Settings { codec, compaction_rate, write_through, .. } = **settings;
        TreeOptions { codec, level: settings.level(), compaction_rate, write_through }
    }

    fn level_of(&self, codec: Codec) -> i32 {
        self.load().level_of(codec)
    }
}
