//! `terrace completions`.

use clap::CommandFactory;
use clap_complete::Shell;
use terracedb::Result;

use crate::Outcome;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::args::Args::command(), "terrace", &mut script);
    let mut out = Output::new();
    out.bytes(&script)?;
    out.flush()?;
    Ok(Outcome::Done)
}
