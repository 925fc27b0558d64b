//! Recorded and described workloads: one stream of [`Access`]es, whatever the format of the file.
//!
//! A reader holds one record and the window of its decompressor, however long the file is. Damaged input is
//! an error that names the file and the byte or line, and ends the stream.

mod access;
mod fixed;
mod input;
mod key_trace;
mod lis;
mod properties;
mod twitter;
mod ycsb;

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use base::{Error, Result};

pub use access::{Access, Op, Position, Trace};
pub use key_trace::KeyTrace;
pub use ycsb::YcsbSize;

pub(crate) use access::{KEYS_MAX, for_each};
use fixed::Fixed;
use input::Input;
use lis::Lis;
use twitter::Twitter;
use ycsb::Ycsb;

/// The format of a trace file. Files of any format but `ycsb` may be compressed; they end in `.xz` or `.zst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// libCacheSim's oracleGeneral: 24-byte records of u32 time, u64 object, u32 size, i64 next access,
    /// little-endian. Values have the recorded sizes of the objects.
    OracleGeneral,
    /// The text format of the ARC papers: lines `start count ignored sequence`, each for accesses to `count`
    /// blocks from number `start` on.
    Lis,
    /// Eight-byte big-endian keys.
    U64Be,
    /// Four-byte big-endian keys.
    U32,
    /// Twitter's cache traces: lines `time,key,key size,value size,client,operation,ttl`. Writes and deletes
    /// are replayed too, with the recorded sizes.
    TwitterCsv,
    /// Not a trace: a YCSB workload property file, from which accesses are generated.
    Ycsb,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 6] =
        [Self::OracleGeneral, Self::Lis, Self::U64Be, Self::U32, Self::TwitterCsv, Self::Ycsb];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OracleGeneral => "oracle-general",
            Self::Lis => "lis",
            Self::U64Be => "u64be",
            Self::U32 => "u32",
            Self::TwitterCsv => "twitter-csv",
            Self::Ycsb => "ycsb",
        }
    }

    /// The format by the extension of `path`, before that of a compression: `.lis`, `.u64be`, `.u32`, `.csv`,
    /// `.ycsb`, `.oracleGeneral` or `.oracleGeneral.bin`, as the public traces are named.
    ///
    /// # Errors
    /// `Invalid` if the extension names no format.
    pub fn of_name(path: &Path) -> Result<Self> {
        let name = path.to_string_lossy();
        let plain = [".xz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending));
        let plain = plain.unwrap_or(&name).trim_end_matches(".bin");
        match plain.rsplit_once('.').map(|(_, ending)| ending) {
            Some("oracleGeneral") => Ok(Self::OracleGeneral),
            Some("lis") => Ok(Self::Lis),
            Some("u64be") => Ok(Self::U64Be),
            Some("u32") => Ok(Self::U32),
            Some("csv") => Ok(Self::TwitterCsv),
            Some("ycsb") => Ok(Self::Ycsb),
            _ => Err(Error::invalid("trace")
                .at(path.display())
                .expected("a name that ends with its format, or --format")
                .got("neither")),
        }
    }

    /// `asked`, or [`Format::of_name`] of `path` if that is `None`.
    ///
    /// # Errors
    /// Those of [`Format::of_name`].
    pub fn asked_or_of_name(asked: Option<Self>, path: &Path) -> Result<Self> {
        asked.map_or_else(|| Self::of_name(path), Ok)
    }

    /// Opens the trace at `path`.
    ///
    /// # Errors `Invalid` if the file cannot be opened or is a workload that cannot be run; `Corrupt` if it
    /// is damaged.
    pub fn open(self, path: &Path) -> Result<Box<dyn Trace>> {
        self.over(Input::open(path)?)
    }

    /// Reads a trace from `source`, for example a pipe. `name` stands in errors, and its extension names the
    /// compression. The total of the position is unknown, 0.
    ///
    /// # Errors
    /// Those of [`Format::open`].
    pub fn read(self, name: &str, source: Box<dyn Read + Send>) -> Result<Box<dyn Trace>> {
        self.over(Input::new(name.to_owned(), source)?)
    }

    fn over(self, input: Input) -> Result<Box<dyn Trace>> {
        Ok(match self {
            Self::OracleGeneral => Box::new(Fixed::oracle_general(input)),
            Self::U64Be => Box::new(Fixed::u64be(input)),
            Self::U32 => Box::new(Fixed::u32be(input)),
            Self::Lis => Box::new(Lis::new(input)),
            Self::TwitterCsv => Box::new(Twitter::new(input)),
            Self::Ycsb => Box::new(Ycsb::new(input, YcsbSize::default(), 0)?),
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid("trace format").expected(names).got(format_args!("`{text}`"))
        })
    }
}

/// Opens the YCSB property file at `path` with other sizes than its own, which are examples. `seed` chooses
/// the operations.
///
/// # Errors
/// Those of [`Format::open`].
pub fn open_ycsb(path: &Path, size: YcsbSize, seed: u64) -> Result<Box<dyn Trace>> {
    Ok(Box::new(Ycsb::new(Input::open(path)?, size, seed)?))
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
