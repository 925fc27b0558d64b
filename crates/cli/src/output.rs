//! Standard output, whose reader may leave at any time: `terrace scan DIR | head` is no mistake.
//!
//! What is written after the reader left goes nowhere, without an error; a loop that only prints
//! asks [`Output::is_closed`] and ends.

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

use terracedb::{Error, Result};

/// Says something on standard error, whose reader may have left, too.
pub(crate) fn tell(what: impl fmt::Display) {
    drop(writeln!(io::stderr(), "terrace: {what}"));
}

pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    closed: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::new(io::stdout().lock()), closed: false }
    }

    /// True where nobody reads any more.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let written = if self.closed { Ok(()) } else { self.out.write_all(bytes) };
        self.outcome(written)
    }

    /// Writes one line.
    pub(crate) fn line(&mut self, line: impl fmt::Display) -> Result<()> {
        let written = if self.closed { Ok(()) } else { writeln!(self.out, "{line}") };
        self.outcome(written)
    }

    /// Hands what was written to the reader.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let flushed = if self.closed { Ok(()) } else { self.out.flush() };
        self.outcome(flushed)
    }

    fn outcome(&mut self, outcome: io::Result<()>) -> Result<()> {
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            outcome => outcome.map_err(|error| Error::io("write", "standard output", error)),
        }
    }
}
