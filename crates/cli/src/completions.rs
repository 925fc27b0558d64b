//! `terrace completions`: a shell script that completes commands and options.

use clap_complete::Shell;
use terracedb::Result;

use crate::outcome::Outcome;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script for `command`, which describes the whole program.
pub(crate) fn run(args: &Args, command: &mut clap::Command) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "terrace", &mut script);
    let mut out = Output::new();
    out.bytes(&script)?;
    out.flush()?;
    Ok(Outcome::Done)
}
