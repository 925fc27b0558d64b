//! `terrace shell`: several commands in one opening of a store, from a terminal with history or from a pipe.

mod command;
mod value_type;
mod words;

use std::fs;
use std::io::{BufRead, BufReader, IsTerminal, Read, stdin};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use clap::Parser;
use clap::error::ErrorKind as UsageKind;
use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use terracedb::{Error, Result};

use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::{Output, report_to_stderr};
use crate::parsers::error_text;
use crate::shared_args::{OutputArgs, ReadOnlyArgs, StoreArgs};
use command::{Command, Line, Session};
use words::words;

/// The longest line from a pipe, bytes: the longest value as hexadecimal digits, and a key.
const LINE_BYTES_MAX: u64 = 2 * base::limits::VALUE_BYTES_MAX as u64 + (1 << 20);

/// Lines that the history keeps.
const HISTORY_MAX: usize = 10_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// The keyspace to begin with; `use` changes it
    #[arg(long, value_name = "NAME", default_value = "default")]
    keyspace: String,
    /// Keep no history of the lines that are typed
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    access: ReadOnlyArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The end of a line.
enum Ended {
    /// It succeeded.
    Good,
    /// It failed; the error was reported.
    Failed,
    /// It ends the shell.
    Exit,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let db = args.store.open_to_read(&args.access)?;
    let is_read_only = db.is_read_only();
    let mut session = Session::new(db, args.keyspace.clone(), args.output.json);
    let outcome = if stdin().is_terminal() {
        if is_read_only {
            report_to_stderr("the store is open for reading only; `refresh` shows later writes");
        }
        from_terminal(args, &mut session)?
    } else {
        from_pipe(&mut session)?
    };
    session.close()?;
    Ok(outcome)
}

/// Runs lines that a person types.
fn from_terminal(args: &Args, session: &mut Session) -> Result<Outcome> {
    let failed = |error: ReadlineError| {
        Error::invalid("terminal").expected("one that takes lines").caused_by(error)
    };
    let mut editor = rustyline::Editor::<(), FileHistory>::new().map_err(failed)?;
    editor.set_auto_add_history(true);
    editor.set_max_history_size(HISTORY_MAX).map_err(failed)?;
    let history = history_file().filter(|_| !args.no_history);
    if let Some(file) = &history {
        // There is none at first.
        let _ = editor.load_history(file);
    }
    loop {
        let line = match editor.readline(&format!("{}> ", session.keyspace.escape_debug())) {
            Ok(line) => line,
            // Ctrl-C drops the line that is being typed.
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        };
        if matches!(run_line(&line, None, session)?, Ended::Exit) {
            break;
        }
    }
    if let Some(file) = &history
        && let Err(error) = editor.save_history(file)
    {
        report_to_stderr(format_args!("the history is not kept in {}: {error}", file.display()));
    }
    Ok(Outcome::Done)
}

/// Runs the lines of standard input, also after one that fails.
fn from_pipe(session: &mut Session) -> Result<Outcome> {
    let mut input = BufReader::new(interrupt::Stdin::new());
    let (mut number, mut all_good) = (0u64, true);
    loop {
        interrupt::check("shell")?;
        number += 1;
        let mut line = Vec::new();
        let read = (&mut input).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
        if read.map_err(|error| Error::io("read", "standard input", error))? == 0 {
            break;
        }
        if line.len() as u64 > LINE_BYTES_MAX {
            return Err(Error::invalid("line")
                .at(format_args!("line {number}"))
                .expected(format_args!("at most {LINE_BYTES_MAX} bytes")));
        }
        let ended = match std::str::from_utf8(&line) {
            Ok(line) => run_line(line, Some(number), session)?,
            Err(_) => {
                report(Some(number), "a line is UTF-8; `\\xHH` stands for other bytes");
                Ended::Failed
            }
        };
        match ended {
            Ended::Good => {}
            Ended::Failed => all_good = false,
            Ended::Exit => break,
        }
    }
    Ok(Outcome::good_if(all_good))
}

/// Runs one line, and reports its error.
///
/// # Errors
/// `Cancelled` after a signal; a failure to print.
fn run_line(line: &str, number: Option<u64>, session: &mut Session) -> Result<Ended> {
    let words = match words(line) {
        Ok(words) if words.is_empty() => return Ok(Ended::Good),
        Ok(words) => words,
        Err(error) => {
            report(number, error_text(&error));
            return Ok(Ended::Failed);
        }
    };
    let mut out = Output::new();
    let command = match Line::try_parse_from(words) {
        Ok(Line { command: Command::Exit }) => return Ok(Ended::Exit),
        Ok(line) => line.command,
        Err(usage) if usage.kind() == UsageKind::DisplayHelp => {
            out.line(usage.render())?;
            out.flush()?;
            return Ok(Ended::Good);
        }
        Err(usage) => {
            let text = usage.render().to_string();
            report(number, text.strip_prefix("error: ").unwrap_or(&text).trim_end());
            return Ok(Ended::Failed);
        }
    };
    let ran = session.run(command, &mut out);
    out.flush()?;
    match ran {
        Ok(()) if out.is_closed() => Ok(Ended::Exit),
        Ok(()) => Ok(Ended::Good),
        Err(error) => {
            interrupt::check("shell")?;
            report(number, error_text(&error));
            Ok(Ended::Failed)
        }
    }
}

fn report(number: Option<u64>, text: impl std::fmt::Display) {
    match number {
        Some(number) => report_to_stderr(format_args!("line {number}: {text}")),
        None => report_to_stderr(text),
    }
}

/// The file with the history, whose directory is made for this user alone; `None` without a home directory.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.filter(|path| path.is_absolute());
    let state = state
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local").join("state")))?;
    let directory = state.join("terrace");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
    Some(directory.join("shell_history"))
}
