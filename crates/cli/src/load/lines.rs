//! Lines of bounded length, with their numbers.

use std::io::BufRead;
use std::io::Read;

use terracedb::{Error, Result};

/// Reads lines from `R`.
pub(super) struct Lines<R> {
    input: R,
    bytes_max: usize,
    /// The current line, with its newline.
    text: Vec<u8>,
    /// Its number, from 1.
    number: u64,
    bytes: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) const fn new(input: R, bytes_max: usize) -> Self {
        Self { input, bytes_max, text: Vec::new(), number: 0, bytes: 0 }
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Bytes read so far.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Moves to the next line that is not empty. `None` at the end; an error in the result is that of this
    /// line alone, which is too long, and the next call moves behind it.
    ///
    /// # Errors
    /// That of the input.
    pub(super) fn next(&mut self) -> Result<Option<Result<()>>> {
        loop {
            self.text.clear();
            if self.read()? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.text.len() > self.bytes_max {
                let refused = Error::invalid("line").expected(format_args!(
                    "at most {} bytes, or more --sort-memory",
                    self.bytes_max
                ));
                self.skip_rest()?;
                return Ok(Some(Err(refused)));
            }
            if !matches!(&*self.text, b"\n" | b"\r\n") {
                return Ok(Some(Ok(())));
            }
        }
    }

    /// Reads up to a newline, and at most one byte more than a line may have.
    fn read(&mut self) -> Result<usize> {
        let mut input = (&mut self.input).take(self.bytes_max as u64 + 1);
        let read = input.read_until(b'\n', &mut self.text);
        let read = read.map_err(|error| Error::io("read", "input", error))?;
        self.bytes += read as u64;
        Ok(read)
    }

    /// Reads the rest of a line that is too long.
    fn skip_rest(&mut self) -> Result<()> {
        while self.text.last() != Some(&b'\n') {
            self.text.clear();
            if self.read()? == 0 {
                break;
            }
        }
        self.text.clear();
        Ok(())
    }
}
