//! The workloads, named as in db_bench.

use std::fmt;
use std::str::FromStr;

use base::{Error, Result};
use serde::{Serialize, Serializer};

use super::Kind;
use crate::Distribution;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// Writes every key once, in order; each thread writes a contiguous part.
    FillSeq,
    /// Writes keys drawn uniformly with replacement, as db_bench does: after *n* writes, about 63 % of *n*
    /// keys exist.
    FillRandom,
    /// As `FillRandom`, with every write synced.
    FillSync,
    /// Overwrites keys drawn by the distribution.
    Overwrite,
    /// Deletes keys drawn by the distribution, whether they exist or not.
    DeleteRandom,
    /// Reads keys drawn by the distribution.
    ReadRandom,
    /// Looks up keys that were never written and sort between written ones.
    ReadMissing,
    /// Reads all entries in order, in each thread.
    ReadSeq,
    /// Reads all entries in reverse order, in each thread.
    ReadReverse,
    /// Seeks to keys drawn by the distribution and reads the entries from there.
    SeekRandom,
    /// Reads keys drawn by the distribution, with many lookups in flight per thread.
    MultiReadRandom,
    /// Reads keys drawn by the distribution, while one extra thread overwrites such keys.
    ReadWhileWriting,
    /// As `ReadSeq`, in one thread and without regard to the duration: verifies the whole store.
    Verify,
    /// Writes YCSB's records: fixed-size values under scattered keys.
    YcsbLoad,
    /// YCSB A: half reads, half updates.
    YcsbA,
    /// YCSB B: 95 % reads, 5 % updates.
    YcsbB,
    /// YCSB C: reads.
    YcsbC,
    /// YCSB D: 95 % reads of the latest records, 5 % inserts.
    YcsbD,
    /// YCSB E: 95 % short scans, 5 % inserts.
    YcsbE,
    /// YCSB F: half reads, half read-modify-writes.
    YcsbF,
    /// Fills the store for `Mixgraph`.
    MixgraphLoad,
    /// The published model of a `ZippyDB` store, with independent draws and hot key ranges.
    Mixgraph,
    /// Fills the store for `Chat`.
    ChatLoad,
    /// The state of a messenger.
    Chat,
    /// Fills the store for `BlobMeta`.
    BlobMetaLoad,
    /// The metadata of a blob store.
    BlobMeta,
    /// Fills the store for `HiveCache`.
    HiveCacheLoad,
    /// A cache before a data warehouse.
    HiveCache,
    /// Fills the store for `SiltMix`.
    SiltLoad,
    /// The mix of SILT's evaluation: 90 % reads, 10 % updates, uniform keys.
    SiltMix,
    /// Compacts the whole store into as few files as possible: one operation.
    Compact,
}

impl Name {
    /// Every workload.
    pub const ALL: [Self; 31] = [
        Self::FillSeq,
        Self::FillRandom,
        Self::FillSync,
        Self::Overwrite,
        Self::ReadRandom,
        Self::ReadMissing,
        Self::ReadSeq,
        Self::ReadReverse,
        Self::SeekRandom,
        Self::MultiReadRandom,
        Self::ReadWhileWriting,
        Self::DeleteRandom,
        Self::Compact,
        Self::Verify,
        Self::YcsbLoad,
        Self::YcsbA,
        Self::YcsbB,
        Self::YcsbC,
        Self::YcsbD,
        Self::YcsbE,
        Self::YcsbF,
        Self::MixgraphLoad,
        Self::Mixgraph,
        Self::ChatLoad,
        Self::Chat,
        Self::BlobMetaLoad,
        Self::BlobMeta,
        Self::HiveCacheLoad,
        Self::HiveCache,
        Self::SiltLoad,
        Self::SiltMix,
    ];

    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FillSeq => "fillseq",
            Self::FillRandom => "fillrandom",
            Self::FillSync => "fillsync",
            Self::Overwrite => "overwrite",
            Self::DeleteRandom => "deleterandom",
            Self::ReadRandom => "readrandom",
            Self::ReadMissing => "readmissing",
            Self::ReadSeq => "readseq",
            Self::ReadReverse => "readreverse",
            Self::SeekRandom => "seekrandom",
            Self::MultiReadRandom => "multireadrandom",
            Self::ReadWhileWriting => "readwhilewriting",
            Self::YcsbLoad => "ycsb-load",
            Self::YcsbA => "ycsb-a",
            Self::YcsbB => "ycsb-b",
            Self::YcsbC => "ycsb-c",
            Self::YcsbD => "ycsb-d",
            Self::YcsbE => "ycsb-e",
            Self::YcsbF => "ycsb-f",
            Self::MixgraphLoad => "mixgraph-load",
            Self::Mixgraph => "mixgraph",
            Self::ChatLoad => "chat-load",
            Self::Chat => "chat",
            Self::BlobMetaLoad => "blobmeta-load",
            Self::BlobMeta => "blobmeta",
            Self::HiveCacheLoad => "hivecache-load",
            Self::HiveCache => "hivecache",
            Self::SiltLoad => "silt-load",
            Self::SiltMix => "silt-mix",
            Self::Verify => "verify",
            Self::Compact => "compact",
        }
    }

    /// Whether each of its operations writes or deletes.
    #[must_use]
    pub const fn writes(self) -> bool {
        self.is_fill() || matches!(self, Self::Overwrite | Self::DeleteRandom)
    }

    /// Whether it both reads and writes.
    #[must_use]
    pub const fn is_mixed(self) -> bool {
        matches!(self, Self::ReadWhileWriting) || self.load().is_some()
    }

    /// Whether it writes `num` keys whatever the duration. Other workloads run for the duration, if there is
    /// one.
    pub(super) const fn is_fill(self) -> bool {
        self.is_fill_in_order() || matches!(self, Self::FillRandom | Self::FillSync)
    }

    pub(super) const fn is_fill_in_order(self) -> bool {
        matches!(
            self,
            Self::FillSeq
                | Self::YcsbLoad
                | Self::MixgraphLoad
                | Self::ChatLoad
                | Self::BlobMetaLoad
                | Self::HiveCacheLoad
                | Self::SiltLoad
        )
    }

    /// The number of leaders, the threads whose end is the end of the run, if `asked` threads were asked for.
    pub(super) const fn leaders(self, asked: usize) -> usize {
        if matches!(self, Self::Compact | Self::Verify) { 1 } else { asked }
    }

    /// The number of all threads of a run, if `asked` threads were asked for.
    pub(super) const fn threads(self, asked: usize) -> usize {
        self.leaders(asked) + if matches!(self, Self::ReadWhileWriting) { 1 } else { 0 }
    }

    /// Whether its operations can follow a schedule at a given rate.
    pub(super) const fn is_paced(self) -> bool {
        !matches!(
            self,
            Self::ReadSeq
                | Self::ReadReverse
                | Self::Verify
                | Self::MultiReadRandom
                | Self::Compact
        )
    }

    /// Whether it reads keys in their order, which a hashed keyspace does not have.
    #[must_use]
    pub fn needs_order(self) -> bool {
        self.is_scan()
            || matches!(self, Self::SeekRandom)
            || (self.is_mixed() && self.mix().is_some_and(|mix| mix.part(Kind::Scan) > 0.0))
    }

    pub(super) const fn is_scan(self) -> bool {
        matches!(self, Self::ReadSeq | Self::ReadReverse | Self::Verify)
    }

    /// Whether a trace can give its keys: it draws keys of a filled store, and inserts no new ones.
    pub(super) const fn takes_trace(self) -> bool {
        matches!(
            self,
            Self::Overwrite
                | Self::DeleteRandom
                | Self::ReadRandom
                | Self::ReadMissing
                | Self::SeekRandom
                | Self::MultiReadRandom
                | Self::ReadWhileWriting
        )
    }

    /// The distribution of its keys. Random fills are always uniform, because the distribution asked for is
    /// that of accesses to a filled store.
    pub(super) fn distribution(self, asked: Option<Distribution>) -> Distribution {
        match self {
            Self::FillRandom | Self::FillSync => Distribution::Uniform,
            _ => asked.unwrap_or_default(),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|name| name.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid("bench").expected(names).got(format_args!("`{text}`"))
        })
    }
}
