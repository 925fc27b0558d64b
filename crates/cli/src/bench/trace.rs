//! The trace whose keys a workload asks for.

use std::path::PathBuf;
use std::process::Command;

use terracedb::Result;
use workload::trace::{Format, KeyTrace};

use crate::args;

/// In `bench` and `bench tiers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Replayed {
    /// Ask for the keys of this trace, one access after the other, over and over, instead of drawing them.
    /// Key number N of the store stands for the trace's N-th distinct key in their order. Plain, .xz or .zst
    #[arg(long, value_name = "FILE", conflicts_with = "distribution")]
    trace: Option<PathBuf>,
    /// What the trace's bytes mean [default: by its name, which ends with that]
    #[arg(long, value_name = "NAME", requires = "trace",
          value_parser = args::one_of(Format::ALL, Format::name))]
    format: Option<Format>,
}

impl Replayed {
    /// Its keys, where one is asked for.
    pub(super) fn read(&self) -> Result<Option<KeyTrace>> {
        let Some(path) = &self.trace else { return Ok(None) };
        let format = Format::asked_or_of_name(self.format, path)?;
        KeyTrace::read(&mut *format.open(path)?).map(Some)
    }

    pub(crate) const fn is_asked_for(&self) -> bool {
        self.trace.is_some()
    }

    /// Asks `command`, a `bench`, for the same.
    pub(super) fn pass_on(&self, command: &mut Command) {
        if let Some(path) = &self.trace {
            command.arg("--trace").arg(path);
        }
        if let Some(format) = self.format {
            command.args(["--format", format.name()]);
        }
    }
}
