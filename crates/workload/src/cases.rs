//! The cases in which the engine stands beside others: what is loaded, what is measured, with how
//! much memory. `docs/benchmarks.md` shows them row by row.
//!
//! A case is data. The comparison harness runs each on every store in a process of its own; a test
//! runs each, tiny, on this engine alone, so that none rots while nobody compares.
//!
//! Where a load takes minutes it is *kept*: one process makes it, others open what it left and take
//! it for granted ([`Bench::assume`]); a case that changes it runs on a copy.

mod list;
mod step;

use std::time::Duration;

use base::{Error, Result};

use crate::Store;
use crate::bench::{Bench, Name, Options, Report};
pub use list::CASES;
pub use step::{Length, Step};

/// Entries in one write of a load.
const LOAD_BATCH: usize = 100;

/// Keys and operations of a case run tiny.
const TINY: u64 = 2000;

/// What stored blocks are compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// LZ4.
    Lz4,
    /// Zstandard at its first level, with a dictionary where the store has them.
    Zstd,
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// The rows of the comparison that it fills.
    pub rows: &'static [u8],
    /// What it shows, for people.
    pub summary: &'static str,
    /// Keys.
    pub keys: u64,
    /// The size of a value, bytes; the workload's own where none is given.
    pub value_bytes: Option<usize>,
    /// Memory of the whole process, bytes: caches and buffers are sized so that it suffices.
    pub memory_bytes: u64,
    /// Memory of this engine where it is to manage with less than the others, bytes.
    pub own_memory_bytes: Option<u64>,
    /// Whether the process, with its part of the page cache, is held to `memory_bytes` where the
    /// system lets it be: the data is larger than that.
    pub is_held: bool,
    /// The codec.
    pub compression: Compression,
    /// The fill in order that is kept between runs.
    pub load: Option<Name>,
    /// What runs, in this order, on one store.
    pub steps: &'static [Step],
}

/// Where a case is.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// The step begins.
    Begins(&'a Step),
    /// The step ended, and this came of it.
    Ended(&'a Step, &'a Report),
}

/// How large a case is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As it is.
    Full,
    /// A look: an eighth of large data and of its memory, a fifth of the time.
    Quick,
    /// A test: a few thousand keys and operations.
    Tiny,
}

impl Case {
    /// The case of this name.
    ///
    /// # Errors
    /// `Invalid` where there is none.
    pub fn named(name: &str) -> Result<&'static Self> {
        CASES.iter().find(|case| case.name == name).ok_or_else(|| {
            let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
            Error::invalid("case").expected(names.join(", ")).got(format_args!("`{name}`"))
        })
    }

    /// Whether a step writes, so that a kept load is no longer what it was.
    #[must_use]
    pub fn changes_load(&self) -> bool {
        self.steps.iter().any(|step| step.bench.writes() || step.bench.is_mixed())
    }

    /// Keys at `scale`.
    #[must_use]
    pub fn keys(&self, scale: Scale) -> u64 {
        match scale {
            Scale::Full => self.keys,
            Scale::Quick if self.is_large() => self.keys / 8,
            Scale::Quick => self.keys,
            Scale::Tiny => TINY,
        }
    }

    /// Memory of the whole process at `scale`, bytes; `is_own` for this engine.
    #[must_use]
    pub fn memory(&self, scale: Scale, is_own: bool) -> u64 {
        let bytes = self.own_memory_bytes.filter(|_| is_own).unwrap_or(self.memory_bytes);
        match scale {
            Scale::Quick if self.is_large() => (bytes / 8).max(96 << 20),
            _ => bytes,
        }
    }

    /// Whether a quick run takes less of it.
    const fn is_large(&self) -> bool {
        self.keys > 4_000_000
    }

    /// Keys and values at `scale`, bytes; those of varying size are counted at a kibibyte.
    #[must_use]
    pub fn data_bytes(&self, scale: Scale) -> u64 {
        let options = self.options(scale, 0);
        options.num * (options.key_bytes + self.value_bytes.unwrap_or(1 << 10)) as u64
    }

    fn options(&self, scale: Scale, seed: u64) -> Options {
        let first = self.load.or_else(|| self.steps.first().map(|step| step.bench));
        Options {
            num: self.keys(scale),
            key_bytes: first.map_or(Options::default().key_bytes, Name::key_bytes),
            value_bytes: self.value_bytes,
            seed,
            ..Options::default()
        }
    }

    /// Fills `store`, which is empty, with what the case keeps between runs, and settles it.
    ///
    /// # Errors
    /// As [`Bench::run`].
    pub fn load(&self, store: &dyn Store, scale: Scale, seed: u64) -> Result<Option<Report>> {
        let Some(load) = self.load else { return Ok(None) };
        let options = Options { batch: LOAD_BATCH, settle: true, ..self.options(scale, seed) };
        Bench::new(store, options)?.run(load, &mut |_| {}).map(Some)
    }

    /// Runs the steps on `store`, which is empty, or as [`Case::load`] left it; tells `hear` where
    /// each begins and ends.
    ///
    /// # Errors
    /// As [`Bench::run`].
    pub fn run(
        &self,
        store: &dyn Store,
        scale: Scale,
        seed: u64,
        hear: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        let options = Options { existing: store.may_drop(), ..self.options(scale, seed) };
        let mut bench = Bench::new(store, options)?;
        if let Some(load) = self.load.filter(|_| !options.existing) {
            bench.assume(load)?;
        }
        for step in self.steps {
            bench.set_options(step.options(options, scale))?;
            hear(Progress::Begins(step));
            let report = bench.run(step.bench, &mut |_| {})?;
            hear(Progress::Ended(step, &report));
        }
        Ok(())
    }
}

impl Scale {
    /// The scale of this name.
    ///
    /// # Errors
    /// `Invalid` where there is none.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "full" => Ok(Self::Full),
            "quick" => Ok(Self::Quick),
            "tiny" => Ok(Self::Tiny),
            _ => Err(Error::invalid("scale").expected("full, quick or tiny").got(name)),
        }
    }

    /// The name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Quick => "quick",
            Self::Tiny => "tiny",
        }
    }

    fn seconds(self, seconds: u64) -> Duration {
        match self {
            Self::Full => Duration::from_secs(seconds),
            Self::Quick | Self::Tiny => Duration::from_secs(seconds.div_ceil(5)),
        }
    }
}
