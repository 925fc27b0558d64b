//! Recorded and described workloads: one stream of [`Access`]es, whatever the file's format.
//!
//! A reader holds one record and its decompressor's window, however long the file is. Damaged
//! input is an error that names file and byte or line, and ends the stream.

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

pub use key_trace::KeyTrace;
pub use ycsb::YcsbSize;

use fixed::Fixed;
use input::Input;
use lis::Lis;
use twitter::Twitter;
use ycsb::Ycsb;

/// The most distinct keys of a trace where they are held: some 2 GiB of memory.
pub(crate) const KEYS_MAX: usize = 1 << 24;

/// What to do with a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Op {
    /// Read; where there is nothing, write: the life of a cache.
    #[default]
    GetOrPut,
    /// Read.
    Get,
    /// Write.
    Put,
    /// Read, then write: read-modify-write, append, increment.
    Update,
    /// Remove.
    Delete,
    /// Read this many entries from the key on.
    Scan(u32),
}

/// One access of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// What to do.
    pub op: Op,
    /// The key. Numeric keys are their eight big-endian bytes.
    pub key: Vec<u8>,
    /// The value's size, bytes, where the trace records it.
    pub value_bytes: Option<u64>,
}

impl Access {
    fn set(&mut self, op: Op, key: &[u8], value_bytes: Option<u64>) {
        self.op = op;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value_bytes = value_bytes;
    }
}

/// How far a stream is, in a unit of its own: file bytes read, or operations made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Behind.
    pub done: u64,
    /// In all; 0 where that is unknown.
    pub total: u64,
}

/// A stream of accesses.
pub trait Trace: Send {
    /// Replaces `access` by the next one that fills the store before anything is measured; says
    /// whether there was one. Traces proper have none.
    ///
    /// # Errors
    /// As [`Trace::next`].
    fn load(&mut self, access: &mut Access) -> Result<bool> {
        let _ = access;
        Ok(false)
    }

    /// Replaces `access` by the next one; says whether there was one.
    ///
    /// # Errors
    /// `Corrupt` where the input is damaged, with its place; the stream has then ended.
    fn next(&mut self, access: &mut Access) -> Result<bool>;

    /// How far the stream is.
    fn position(&self) -> Position;
}

/// Hands `each` the accesses of `trace` behind its load phase, at most `limit`.
pub(crate) fn for_each(
    trace: &mut dyn Trace,
    limit: Option<u64>,
    each: &mut dyn FnMut(&Access) -> Result<()>,
) -> Result<()> {
    let mut access = Access::default();
    while trace.load(&mut access)? {}
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 && trace.next(&mut access)? {
        each(&access)?;
        left -= 1;
    }
    Ok(())
}

/// The format of a trace file. Any but `ycsb` may be compressed, said by an ending of `.xz` or
/// `.zst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// libCacheSim's oracleGeneral: 24-byte records of u32 time, u64 object, u32 size, i64 next
    /// access, little-endian. Objects have the recorded sizes.
    OracleGeneral,
    /// The ARC papers' text: lines `start count ignored sequence`, each standing for accesses to
    /// `count` blocks from number `start` on.
    Lis,
    /// Eight-byte big-endian keys.
    U64Be,
    /// Four-byte big-endian keys.
    U32,
    /// Twitter's cache traces: lines `time,key,key size,value size,client,operation,ttl`. Sets,
    /// updates and deletes are replayed as such, with the recorded sizes.
    TwitterCsv,
    /// Not a trace: a YCSB workload property file, run natively.
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

    /// The format that the ending of `path` says, before one of a compression: `.lis`, `.u64be`, `.u32`,
    /// `.csv`, `.ycsb`, `.oracleGeneral` or `.oracleGeneral.bin`, as the public traces are named.
    ///
    /// # Errors
    /// `Invalid` where it says none.
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

    /// `asked`, or where nobody asks [`Format::of_name`] of `path`.
    ///
    /// # Errors
    /// As that.
    pub fn asked_or_of_name(asked: Option<Self>, path: &Path) -> Result<Self> {
        asked.map_or_else(|| Self::of_name(path), Ok)
    }

    /// Opens the trace at `path`.
    ///
    /// # Errors
    /// `Invalid` where the file cannot be opened, or is a workload this one cannot run;
    /// `Corrupt` where it is damaged.
    pub fn open(self, path: &Path) -> Result<Box<dyn Trace>> {
        self.over(Input::open(path)?)
    }

    /// Reads a trace from `source`, a pipe for example. `name` stands in errors, and its ending
    /// says how the bytes are compressed. The position's total is unknown, 0.
    ///
    /// # Errors
    /// As [`Format::open`].
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

/// Opens the YCSB property file at `path` with other sizes than it names: its own are examples.
/// `seed` chooses the run.
///
/// # Errors
/// As [`Format::open`].
pub fn open_ycsb(path: &Path, size: YcsbSize, seed: u64) -> Result<Box<dyn Trace>> {
    Ok(Box::new(Ycsb::new(Input::open(path)?, size, seed)?))
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
