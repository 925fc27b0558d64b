//! Standard output that may be closed early, as by `terrace scan DIR | head`.
//!
//! After the reader has closed the pipe, writes do nothing and return no error. A loop that only prints
//! checks [`Output::is_closed`] to stop early.

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

use serde_json::Value;
use terracedb::{Error, Result};

/// Writes one line to standard error. A failure is ignored: there is nowhere left to report it.
pub(crate) fn report_to_stderr(message: impl fmt::Display) {
    drop(writeln!(io::stderr(), "terrace: {message}"));
}

/// Prints one result, as JSON if `is_json` and as text otherwise.
pub(crate) fn print_result(is_json: bool, json: &Value, text: impl fmt::Display) -> Result<()> {
    let mut out = Output::new();
    if is_json {
        out.line(json)?
    } else {
        out.line(text)?
    }
    out.flush()
}

pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    closed: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::new(io::stdout().lock()), closed: false }
    }

    /// True if the reader has closed the pipe.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes bytes unchanged.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let written = if self.closed { Ok(()) } else { self.out.write_all(bytes) };
        self.note_closed(written)
    }

    /// Writes one line.
    pub(crate) fn line(&mut self, line: impl fmt::Display) -> Result<()> {
        let written = if self.closed { Ok(()) } else { writeln!(self.out, "{line}") };
        self.note_closed(written)
    }

    /// Passes all buffered output to the reader.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let flushed = if self.closed { Ok(()) } else { self.out.flush() };
        self.note_closed(flushed)
    }

    /// Turns a broken pipe into the closed state; other errors are returned.
    fn note_closed(&mut self, outcome: io::Result<()>) -> Result<()> {
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            outcome => outcome.map_err(|error| Error::io("write", "standard output", error)),
        }
    }
}
