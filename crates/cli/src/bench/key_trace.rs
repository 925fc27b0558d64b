//! `--trace` of `bench` and `bench tiers`: the trace of the keys that a workload asks for.

use std::path::PathBuf;
use std::process::Command;

use terracedb::Result;
use workload::trace::{Format, KeyTrace};

use crate::parsers::one_of;

#[derive(Debug, clap::Args)]
pub(crate) struct KeyTraceArgs {
    /// Read keys in the order of this trace, repeated as needed, instead of drawing them. Key number N of
    /// the store stands for the N-th distinct key of the trace in key order. Uncompressed, .xz or .zst
    #[arg(long, value_name = "FILE", conflicts_with = "distribution")]
    trace: Option<PathBuf>,
    /// The trace's format [default: by the ending of the file's name]
    #[arg(long, value_name = "NAME", requires = "trace", value_parser = one_of(Format::ALL, Format::name))]
    format: Option<Format>,
}

impl KeyTraceArgs {
    /// Reads the keys of the trace; `None` if the user named no trace.
    ///
    /// # Errors
    /// `Invalid` if the format is unknown or the file cannot be opened; `Corrupt` if it is damaged.
    pub(super) fn read(&self) -> Result<Option<KeyTrace>> {
        let Some(path) = &self.trace else { return Ok(None) };
        let format = Format::asked_or_of_name(self.format, path)?;
        KeyTrace::read(&mut *format.open(path)?).map(Some)
    }

    /// Whether the user named a trace.
    pub(super) const fn is_given(&self) -> bool {
        self.trace.is_some()
    }

    /// Adds the same arguments to `command`, a run of `terrace bench`.
    pub(super) fn add_to(&self, command: &mut Command) {
        if let Some(path) = &self.trace {
            command.arg("--trace").arg(path);
        }
        if let Some(format) = self.format {
            command.args(["--format", format.name()]);
        }
    }
}
