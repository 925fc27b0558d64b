//! `terrace worker`: a process that runs merges for hosts.

use std::path::PathBuf;
use std::sync::Arc;

use terracedb::compaction::{Address, Operators, Root, Timing, Worker, WorkerOptions};
use terracedb::{Error, Result};

use crate::config::token;
use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::{Output, report_to_stderr};
use crate::parsers::{error_text, size};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The address to listen at: unix:PATH, or tcp://HOST:PORT with a host of this machine
    #[arg(long, value_name = "ADDR", value_parser = address)]
    listen: Address,
    /// Memory of all jobs together
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    memory: u64,
    /// Jobs that run at once
    #[arg(long, value_name = "N", default_value_t = 2)]
    slots: usize,
    /// The directory of a store that this process can open, and a name for it; may be given more than once.
    /// Files of other stores come over the link
    #[arg(long = "root", value_name = "NAME=DIR", value_parser = root)]
    roots: Vec<Root>,
    /// A file with the token that hosts must know; needed over TCP
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

fn address(text: &str) -> std::result::Result<Address, String> {
    text.parse().map_err(|error| error_text(&error))
}

fn root(text: &str) -> std::result::Result<Root, String> {
    let (name, directory) = text.split_once('=').ok_or("expected NAME=DIR")?;
    Ok(Root { name: name.to_owned(), directory: directory.into() })
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    if args.memory < 16 << 20 {
        return Err(Error::invalid("--memory").expected("at least 16MiB").got(args.memory));
    }
    for root in &args.roots {
        if !root.directory.is_dir() {
            return Err(Error::invalid("--root")
                .at(&root.name)
                .expected("a directory")
                .got(root.directory.display()));
        }
    }
    let options = WorkerOptions {
        memory: args.memory,
        slots: args.slots,
        roots: args.roots.clone(),
        token: args.token_file.as_deref().map(token).transpose()?,
        operators: Arc::new(Operators::builtin()),
        timing: Timing::default(),
    };
    // A signal is its end: a job that dies with it is run again by its host.
    let _section = interrupt::Section::begin();
    let worker = Worker::listen(&args.listen, options)?;
    let mut out = Output::new();
    out.line(format_args!("listening at {}", worker.address()?))?;
    out.flush()?;
    worker
        .run(&interrupt::cancel().flag(), |line| report_to_stderr(format_args!("job: {line}")))?;
    Ok(Outcome::Done)
}
