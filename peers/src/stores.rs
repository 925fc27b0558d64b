//! The stores of the comparison: the list of them, the settings they are opened with, and shared helpers.
//!
//! An adapter uses the cheapest way that its store offers for each operation, as a careful user would, and
//! records every option that it sets, so that readers of the results can judge them.

mod below;
#[cfg(feature = "berkeleydb")]
mod berkeley;
mod fjall;
mod foyer;
mod hash_log;
mod hybrid;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocks;
#[cfg(feature = "rocksdb")]
mod rocks_options;
mod rocks_profile;
mod terrace;

use std::fmt::{Debug, Display};
use std::path::Path;

use base::{Error, Result};
use terracedb::hashed::HashedPolicy;
use workload::Store;
use workload::cases::Compression;

use below::Below;
use rocks_profile::Profile;

/// Filter bits of the base of [`Kind::TerraceKeepFiltered`]: those of an ordered keyspace.
const BASE_FILTER_BITS: u8 = 8;

/// A store of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This engine.
    Terrace,
    /// This engine with a second tier.
    TerraceOver(Below),
    /// A hashed keyspace of this engine that keeps every entry.
    TerraceKeep,
    /// The same with filters over its base, for lookups of missing keys.
    TerraceKeepFiltered,
    /// A hashed keyspace of this engine that is a window, with unlogged writes.
    TerraceWindow,
    /// A resident keyspace of this engine, its log on storage-class memory.
    TerraceResident,
    /// An ordered keyspace of this engine, its log on storage-class memory.
    TerraceScmLog,
    /// RocksDB, in one of its profiles.
    Rocks(Profile),
    /// fjall.
    Fjall,
    /// LMDB, through heed.
    Lmdb,
    /// redb.
    Redb,
    /// foyer: a cache, not a store.
    Foyer,
    /// A hash map with a log.
    HashLog,
    /// The hash of Berkeley DB.
    Berkeley,
    /// This engine's cache alone, in front of a file.
    TerraceCache,
    /// foyer in front of a file.
    FoyerCache,
}

/// The settings to open a store with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    /// Its directory.
    pub(crate) dir: &'a Path,
    /// The memory of the whole process, bytes.
    pub(crate) memory_bytes: u64,
    /// The most bytes of keys and values, which size a memory map or a cache on disk.
    pub(crate) data_bytes: u64,
    /// Bytes of a key and a value.
    #[cfg_attr(
        not(feature = "berkeleydb"),
        expect(dead_code, reason = "only Berkeley DB is told the size of an entry")
    )]
    pub(crate) entry_bytes: u64,
    /// The codec.
    pub(crate) compression: Compression,
}

/// An open store.
pub(crate) struct Opened {
    /// The store for the driver.
    pub(crate) store: Box<dyn Store>,
    /// Every option that was set, with its value.
    pub(crate) options: Vec<String>,
}

impl Kind {
    /// Every store. This engine comes first, because ratios are relative to it.
    pub(crate) const ALL: [Self; 21] = [
        Self::Terrace,
        Self::TerraceOver(Below::OptaneSsd),
        Self::TerraceOver(Below::CxlDram),
        Self::TerraceKeep,
        Self::TerraceKeepFiltered,
        Self::TerraceWindow,
        Self::TerraceResident,
        Self::TerraceScmLog,
        Self::Rocks(Profile::Default),
        Self::Rocks(Profile::Read),
        Self::Rocks(Profile::Row),
        Self::Rocks(Profile::Write),
        Self::Rocks(Profile::Point),
        Self::Fjall,
        Self::Lmdb,
        Self::Redb,
        Self::Foyer,
        Self::HashLog,
        Self::Berkeley,
        Self::TerraceCache,
        Self::FoyerCache,
    ];

    /// The name on the command line and in results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Terrace => "terrace",
            Self::TerraceOver(Below::OptaneSsd) => "terrace-optane-ssd",
            Self::TerraceOver(Below::CxlDram) => "terrace-cxl-dram",
            Self::TerraceKeep => "terrace-keep",
            Self::TerraceKeepFiltered => "terrace-keep-filtered",
            Self::TerraceWindow => "terrace-window",
            Self::TerraceResident => "terrace-resident",
            Self::TerraceScmLog => "terrace-scm-log",
            Self::Rocks(Profile::Default) => "rocksdb",
            Self::Rocks(Profile::Read) => "rocksdb-read",
            Self::Rocks(Profile::Row) => "rocksdb-row",
            Self::Rocks(Profile::Write) => "rocksdb-write",
            Self::Rocks(Profile::Point) => "rocksdb-point",
            Self::Fjall => "fjall",
            Self::Lmdb => "lmdb",
            Self::Redb => "redb",
            Self::Foyer => "foyer",
            Self::HashLog => "hash-log",
            Self::Berkeley => "berkeleydb",
            Self::TerraceCache => "terrace-cache",
            Self::FoyerCache => "foyer-cache",
        }
    }

    /// Whether it is this engine, with or without a second tier, but not its cache alone.
    pub(crate) const fn is_own(self) -> bool {
        matches!(
            self,
            Self::Terrace
                | Self::TerraceOver(_)
                | Self::TerraceKeep
                | Self::TerraceKeepFiltered
                | Self::TerraceWindow
                | Self::TerraceResident
                | Self::TerraceScmLog
        )
    }

    /// The store that makes the kept load, for all stores that can open it.
    pub(crate) const fn loader(self) -> Self {
        match self {
            Self::TerraceOver(_) => Self::Terrace,
            kind => kind,
        }
    }

    /// The memory to make a kept load with, for a process with `memory` and `data` bytes of data. The pages
    /// of a hash on flash fill at random: without memory for all of them a load takes hours.
    pub(crate) const fn load_memory(self, memory: u64, data: u64) -> u64 {
        match self {
            Self::Berkeley => memory + 4 * data,
            _ => memory,
        }
    }

    /// Memory that emulates a device, bytes, in addition to the memory of the process, for `data_bytes` of
    /// data.
    pub(crate) fn emulated_bytes(self, data_bytes: u64) -> u64 {
        match self {
            Self::TerraceOver(_) => Below::bytes(data_bytes),
            _ => 0,
        }
    }

    /// The store with this name.
    pub(crate) fn named(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid("store").expected(names).got(format_args!("`{name}`"))
        })
    }

    /// The stores to run a case on. RocksDB's default profile runs every case, and each other profile those
    /// it is tuned for. Stores without background merges skip full compactions, and foyer runs only the
    /// zipfian case.
    pub(crate) fn of_case(case: &str) -> Vec<Self> {
        if case == "hybrid-cache" {
            return vec![Self::TerraceCache, Self::FoyerCache];
        }
        if case == "resident" {
            return vec![Self::TerraceResident, Self::TerraceScmLog, Self::Lmdb, Self::HashLog];
        }
        if case == "wan" {
            let berkeley = cfg!(feature = "berkeleydb").then_some(Self::Berkeley);
            return [Self::TerraceWindow].into_iter().chain(berkeley).collect();
        }
        let is_hashed = case == "hashed";
        let is_tiered = case == "tiered";
        let variant = case.strip_suffix("-cold").or_else(|| case.strip_suffix("-unsettled"));
        let profiles: &[Profile] = match variant.unwrap_or(case) {
            "memory-reads" | "cold" | "first-minutes" => &[Profile::Read],
            "zipfian" | "zipfian-sixth" | "mixgraph" | "tiered" => &[Profile::Read, Profile::Row],
            "ycsb" | "readwhilewriting" => &[Profile::Read, Profile::Row, Profile::Write],
            "hashed" => &[Profile::Point],
            _ => &[Profile::Write],
        };
        let is_compaction = case.starts_with("compaction");
        let kinds = Self::ALL
            .into_iter()
            .filter(|kind| cfg!(feature = "rocksdb") || !matches!(kind, Self::Rocks(_)))
            .filter(|kind| match kind {
                Self::Terrace => !is_tiered,
                Self::TerraceOver(_) => is_tiered,
                Self::Rocks(Profile::Default) => true,
                Self::Rocks(profile) => profiles.contains(profile),
                Self::Fjall => case != "compaction-zstd" && !is_tiered,
                Self::Lmdb | Self::Redb => !is_compaction && !is_tiered && !is_hashed,
                Self::Foyer => case == "zipfian",
                Self::TerraceKeep
                | Self::TerraceKeepFiltered
                | Self::TerraceWindow
                | Self::TerraceResident
                | Self::TerraceScmLog
                | Self::HashLog
                | Self::Berkeley
                | Self::TerraceCache
                | Self::FoyerCache => false,
            });
        // Ratios are those of the first store.
        let keep = [Self::TerraceKeep, Self::TerraceKeepFiltered];
        keep.into_iter().filter(|_| is_hashed).chain(kinds).collect()
    }

    /// Opens the store, or creates it.
    pub(crate) fn open(self, setup: &Setup<'_>) -> Result<Opened> {
        match self {
            Self::Terrace => terrace::open(setup, None),
            Self::TerraceOver(below) => terrace::open(setup, Some(below)),
            Self::TerraceKeep => terrace::open_keep(setup, 0),
            Self::TerraceKeepFiltered => terrace::open_keep(setup, BASE_FILTER_BITS),
            Self::TerraceWindow => terrace::open_window(setup),
            Self::TerraceResident => terrace::open_on_scm(setup, Some(HashedPolicy::Resident)),
            Self::TerraceScmLog => terrace::open_on_scm(setup, None),
            #[cfg(feature = "rocksdb")]
            Self::Rocks(profile) => rocks::open(profile, setup),
            #[cfg(not(feature = "rocksdb"))]
            Self::Rocks(_) => Err(Error::invalid("rocksdb").expected("a build with it")),
            Self::Fjall => fjall::open(setup),
            Self::Lmdb => lmdb::open(setup),
            Self::Redb => redb::open(setup),
            Self::Foyer => foyer::open(setup),
            Self::HashLog => hash_log::open(setup),
            #[cfg(feature = "berkeleydb")]
            Self::Berkeley => berkeley::open(setup),
            #[cfg(not(feature = "berkeleydb"))]
            Self::Berkeley => Err(Error::invalid("berkeleydb").expected("a build with it")),
            Self::TerraceCache => hybrid::terrace::open(setup),
            Self::FoyerCache => hybrid::foyer::open(setup),
        }
    }
}

/// Makes an error about `what` from the error of another engine.
fn failed(what: &'static str) -> impl Fn(Box<dyn std::error::Error + Send + Sync>) -> Error {
    move |error| Error::invalid(what).caused_by(ForeignError(error.to_string()))
}

/// The error of another engine, as text.
#[derive(Debug)]
struct ForeignError(String);

impl Display for ForeignError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ForeignError {}

/// Converts results of other engines.
trait Foreign<T> {
    /// The value, or an error about `what`.
    fn of(self, what: &'static str) -> Result<T>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> Foreign<T>
    for std::result::Result<T, E>
{
    fn of(self, what: &'static str) -> Result<T> {
        self.map_err(|error| failed(what)(error.into()))
    }
}

/// Records an option and its value.
fn option(options: &mut Vec<String>, name: &str, value: impl Debug) {
    options.push(format!("{name} = {value:?}"));
}

#[cfg(test)]
mod tests;
