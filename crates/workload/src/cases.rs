//! The cases of the comparison with other engines: for each, the load, the measured workloads and the memory.
//! `docs/benchmarks.md` has their results.
//!
//! A case is data. The comparison harness runs each case on every store in a process of its own. A test runs
//! each case at a tiny scale on this engine alone, so that no case rots between comparisons.
//!
//! A load that takes minutes is *kept*: one process makes it, and others open the directory and assume its
//! content ([`Bench::assume`]). A case that changes the load runs on a copy.
//!
//! A *cold* step begins with a store that was just opened, and an empty page cache: the rate of a user's
//! first seconds. A case named `..-unsettled` reads right after writes, with the merges that they left under
//! way.

mod first;
mod hash;
mod list;
mod scale;
mod step;

use std::time::Duration;

use base::{Error, Result};

use crate::bench::{Bench, Event, Interval, Name, Options, Report};
use crate::hashed::WAN_KEY_BYTES;
use crate::{Store, WanOptions, load_wan};
pub use list::CASES;
pub use scale::Scale;
use scale::TINY;
pub use step::{Length, Step};

/// Entries per write of a load.
const LOAD_BATCH: usize = 100;

/// The codec of stored blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// LZ4.
    Lz4,
    /// Zstandard at level 1, with a dictionary if the store supports one.
    Zstd,
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// Whether the comparison measures the device alone (`fio`) beside the stores.
    pub has_floor: bool,
    /// A description for people.
    pub summary: &'static str,
    /// The number of keys.
    pub keys: u64,
    /// The size of a value, bytes; the workload's own sizes if `None`.
    pub value_bytes: Option<usize>,
    /// The memory of the whole process, bytes. Caches and buffers are sized to stay within it.
    pub memory_bytes: u64,
    /// The memory of this engine, bytes, in a case that gives it less than the others.
    pub own_memory_bytes: Option<u64>,
    /// Whether a control group holds the process and its share of the page cache to `memory_bytes`, if the
    /// system supports that. Set if the data is larger than the memory.
    pub is_held: bool,
    /// Whether the stores lie in memory (`/dev/shm`) instead of the data directory, as if it were
    /// storage-class memory.
    pub is_in_memory: bool,
    /// The codec.
    pub compression: Compression,
    /// The fill in order that is kept between runs.
    pub load: Option<Name>,
    /// The steps, which run in this order on one store.
    pub steps: &'static [Step],
    /// The WAN optimizer, in a case that is this and has no steps.
    pub wan: Option<Wan>,
}

/// The WAN optimizer of a case (`run_wan_on`), with one thread.
#[derive(Clone, Copy, Debug)]
pub struct Wan {
    /// The label of its figures.
    pub label: &'static str,
    /// The share of chunks that are recent ones.
    pub hit_share: f64,
    /// Mean bytes of a chunk.
    pub chunk_bytes: u64,
    /// Length of the measurement, seconds.
    pub seconds: u64,
}

/// The progress of a case.
#[derive(Clone, Copy)]
pub enum Progress<'a> {
    /// The step begins.
    Begins(&'a Step),
    /// The step goes on: the figures of its last second, if it is a timeline.
    Goes(&'a Step, &'a Interval),
    /// The step ended with this report, and left the store so.
    Ended(&'a Step, &'a Report, &'a dyn Store),
}

impl Case {
    /// The case with this name.
    ///
    /// # Errors
    /// `Invalid` if there is none.
    pub fn named(name: &str) -> Result<&'static Self> {
        CASES.iter().find(|case| case.name == name).ok_or_else(|| {
            let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
            Error::invalid("case").expected(names.join(", ")).got(format_args!("`{name}`"))
        })
    }

    /// Whether a step writes, which changes a kept load.
    #[must_use]
    pub fn changes_load(&self) -> bool {
        self.wan.is_some()
            || self.steps.iter().any(|step| step.bench.writes() || step.bench.is_mixed())
    }

    /// The number of keys at `scale`.
    #[must_use]
    pub fn keys(&self, scale: Scale) -> u64 {
        match scale {
            Scale::Full => self.keys,
            Scale::Quick if self.is_large() => self.keys / 8,
            Scale::Quick => self.keys,
            Scale::Tiny => TINY,
        }
    }

    /// The memory of the whole process at `scale`, bytes; that of this engine if `is_own`.
    #[must_use]
    pub fn memory(&self, scale: Scale, is_own: bool) -> u64 {
        let bytes = self.own_memory_bytes.filter(|_| is_own).unwrap_or(self.memory_bytes);
        match scale {
            Scale::Quick if self.is_large() => (bytes / 8).max(96 << 20),
            _ => bytes,
        }
    }

    /// Whether a quick run uses less data and memory.
    const fn is_large(&self) -> bool {
        self.keys > 4_000_000 && self.wan.is_none()
    }

    /// Bytes of keys and values at `scale`, with values of varying size counted as 1 KiB.
    #[must_use]
    pub fn data_bytes(&self, scale: Scale) -> u64 {
        let options = self.options(scale, 0);
        options.num * (options.key_bytes + self.value_bytes.unwrap_or(1 << 10)) as u64
    }

    /// Whether a load is kept between runs.
    #[must_use]
    pub fn has_load(&self) -> bool {
        self.load.is_some() || self.wan.is_some()
    }

    /// The labels of the figures, in order.
    pub fn labels(&self) -> impl Iterator<Item = &'static str> {
        let steps = self.steps.iter().filter(|step| step.is_measured()).map(|step| step.label);
        steps.chain(self.wan.map(|wan| wan.label))
    }

    /// The options of the WAN optimizer, if the case is this.
    #[must_use]
    pub fn wan_options(&self, scale: Scale, seed: u64) -> Option<WanOptions> {
        let Wan { hit_share, chunk_bytes, seconds, .. } = self.wan?;
        let num = self.keys(scale);
        let duration = match scale {
            Scale::Tiny => Duration::from_millis(20),
            scale => scale.seconds(seconds),
        };
        Some(WanOptions {
            hit_share,
            recent: num / 2,
            num,
            chunk_bytes,
            threads: 1,
            duration,
            seed,
        })
    }

    fn options(&self, scale: Scale, seed: u64) -> Options {
        let first = self.load.or_else(|| self.steps.first().map(|step| step.bench));
        Options {
            num: self.keys(scale),
            key_bytes: first.map_or(WAN_KEY_BYTES, Name::key_bytes),
            value_bytes: self.value_bytes,
            seed,
            ..Options::default()
        }
    }

    /// Fills `store`, which must be empty, with the case's kept load, and settles it. `None` if the case has
    /// no load, or none that is a workload.
    ///
    /// # Errors
    /// Those of [`Bench::run`].
    pub fn load(&self, store: &dyn Store, scale: Scale, seed: u64) -> Result<Option<Report>> {
        if let Some(wan) = self.wan_options(scale, seed) {
            return load_wan(store, &wan).map(|()| None);
        }
        let Some(load) = self.load else { return Ok(None) };
        let options = Options { batch: LOAD_BATCH, settle: true, ..self.options(scale, seed) };
        Bench::new(store, options)?.run(load, &mut |_| {}).map(Some)
    }

    /// Runs the steps on the store that `open` opens, which must be empty or as [`Case::load`] left it. Each
    /// cold step opens it again after it was closed; `open` empties the page cache then. Calls `on_progress`
    /// at the begin and end of each step.
    ///
    /// # Errors
    /// Those of `open` and of [`Bench::run`].
    pub fn run(
        &self,
        open: &mut dyn FnMut() -> Result<Box<dyn Store>>,
        scale: Scale,
        seed: u64,
        on_progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        for steps in self.parts() {
            let store = open()?;
            let options = Options { existing: store.may_drop(), ..self.options(scale, seed) };
            let mut bench = Bench::new(&*store, options)?;
            if let Some(load) = self.load.filter(|_| !options.existing) {
                bench.assume(load)?;
            }
            for step in steps {
                bench.set_options(step.options(options, scale))?;
                on_progress(Progress::Begins(step));
                let report = bench.run(step.bench, &mut |event| {
                    if let Event::Interval(interval) = event {
                        on_progress(Progress::Goes(step, &interval));
                    }
                })?;
                on_progress(Progress::Ended(step, &report, &*store));
            }
        }
        Ok(())
    }

    /// Whether the first step is a cold one.
    #[must_use]
    pub fn begins_cold(&self) -> bool {
        self.steps.first().is_some_and(|step| step.is_cold)
    }

    /// The steps, in groups that run on one open store: each cold step begins a group.
    fn parts(&self) -> impl Iterator<Item = &'static [Step]> {
        let mut left = self.steps;
        std::iter::from_fn(move || {
            let (_, after) = left.split_first()?;
            let count = 1 + after.iter().take_while(|step| !step.is_cold).count();
            let (part, rest) = left.split_at_checked(count)?;
            left = rest;
            Some(part)
        })
    }
}
