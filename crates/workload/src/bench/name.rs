//! The workloads, by db_bench's names.

use std::fmt;
use std::str::FromStr;

use base::{Error, Result};
use serde::{Serialize, Serializer};

use crate::Distribution;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// Writes every key once, in order; each thread a contiguous part.
    FillSeq,
    /// Writes keys drawn uniformly with replacement, as db_bench does: of *n* keys, about 63 %
    /// exist after *n* writes.
    FillRandom,
    /// As `FillRandom`, every write synced.
    FillSync,
    /// Writes keys drawn by the distribution, over what is there.
    Overwrite,
    /// Reads keys drawn by the distribution.
    ReadRandom,
    /// Looks up keys that were never written and lie between those that were.
    ReadMissing,
    /// Reads all entries in order; each thread all of them.
    ReadSeq,
    /// Reads all entries in reverse order; each thread all of them.
    ReadReverse,
    /// Seeks to keys drawn by the distribution and reads the entry there.
    SeekRandom,
    /// Reads keys drawn by the distribution, many in flight from each thread.
    MultiReadRandom,
}

impl Name {
    /// Every workload.
    pub const ALL: [Self; 10] = [
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
    ];

    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FillSeq => "fillseq",
            Self::FillRandom => "fillrandom",
            Self::FillSync => "fillsync",
            Self::Overwrite => "overwrite",
            Self::ReadRandom => "readrandom",
            Self::ReadMissing => "readmissing",
            Self::ReadSeq => "readseq",
            Self::ReadReverse => "readreverse",
            Self::SeekRandom => "seekrandom",
            Self::MultiReadRandom => "multireadrandom",
        }
    }

    /// True where it writes `--num` keys; otherwise it only reads, and `--duration` bounds it.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom | Self::FillSync | Self::Overwrite)
    }

    pub(super) const fn is_fill_in_order(self) -> bool {
        matches!(self, Self::FillSeq)
    }

    pub(super) const fn is_scan(self) -> bool {
        matches!(self, Self::ReadSeq | Self::ReadReverse)
    }

    /// Random fills are uniform whatever the distribution asked for, which is that of accesses to
    /// a filled store.
    pub(super) const fn distribution(self, asked: Distribution) -> Distribution {
        match self {
            Self::FillRandom | Self::FillSync => Distribution::Uniform,
            _ => asked,
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
