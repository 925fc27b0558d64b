//! A sorted run of rows in a temporary file without a name, which ends with the process.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use base::put_varint;
use terracedb::{Error, Result};

/// Longest varint, bytes.
const VARINT_BYTES_MAX: u32 = 10;

/// Writes a run, row by row.
pub(super) struct RunWriter {
    out: BufWriter<File>,
    /// The lengths and the line of one row.
    head: Vec<u8>,
}

impl RunWriter {
    /// A run in a new file in `dir`.
    ///
    /// # Errors
    /// `NoSpace` if the device is full; that of the system, as in every method here.
    pub(super) fn new(dir: &Path, buffer_bytes: usize) -> Result<Self> {
        let file = tempfile::tempfile_in(dir).map_err(|error| failed("create", error))?;
        Ok(Self { out: BufWriter::with_capacity(buffer_bytes, file), head: Vec::new() })
    }

    pub(super) fn row(&mut self, line: u64, key: &[u8], value: &[u8]) -> Result<()> {
        self.head.clear();
        for number in [key.len() as u64, value.len() as u64, line] {
            put_varint(&mut self.head, number);
        }
        let parts = [&*self.head, key, value];
        parts.iter().try_for_each(|part| self.out.write_all(part)).map_err(|e| failed("write", e))
    }

    pub(super) fn finish(self) -> Result<Run> {
        let file = self.out.into_inner().map_err(|error| failed("write", error.into_error()))?;
        Ok(Run { file })
    }
}

/// A run that was written.
pub(super) struct Run {
    file: File,
}

impl Run {
    /// Reads the run from its begin, up to its first row.
    pub(super) fn read(mut self, buffer_bytes: usize) -> Result<RunReader> {
        self.file.rewind().map_err(|error| failed("read", error))?;
        Ok(RunReader {
            input: BufReader::with_capacity(buffer_bytes, self.file),
            key: Vec::new(),
            value_len: 0,
            line: 0,
        })
    }
}

/// Reads a run. It holds the key of one row, and leaves the value in the file until it is asked for.
pub(super) struct RunReader {
    input: BufReader<File>,
    key: Vec<u8>,
    value_len: usize,
    line: u64,
}

impl RunReader {
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) const fn line(&self) -> u64 {
        self.line
    }

    /// Moves to the next row, whose value is not read yet. Returns whether there is one. The value of the row
    /// before it was read or skipped.
    pub(super) fn next(&mut self) -> Result<bool> {
        if self.input.fill_buf().map_err(|error| failed("read", error))?.is_empty() {
            return Ok(false);
        }
        let key_len = self.length(KEY_BYTES_MAX)?;
        self.value_len = self.length(VALUE_BYTES_MAX)?;
        self.line = self.varint()?;
        self.key.resize(key_len, 0);
        self.input.read_exact(&mut self.key).map_err(|error| failed("read", error))?;
        Ok(true)
    }

    /// Reads the value of the row into `value`.
    pub(super) fn value(&mut self, value: &mut Vec<u8>) -> Result<()> {
        value.clear();
        value.resize(std::mem::take(&mut self.value_len), 0);
        self.input.read_exact(value).map_err(|error| failed("read", error))
    }

    /// Skips the value of the row.
    pub(super) fn skip_value(&mut self) -> Result<()> {
        let len = i64::try_from(std::mem::take(&mut self.value_len)).unwrap_or(i64::MAX);
        self.input.seek_relative(len).map_err(|error| failed("read", error))
    }

    fn length(&mut self, max: usize) -> Result<usize> {
        let len = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        if len > max {
            return Err(Error::corrupt("temporary file of the sort")
                .expected(format_args!("a length of at most {max}"))
                .got(len));
        }
        Ok(len)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut number = 0;
        for place in 0..VARINT_BYTES_MAX {
            let mut byte = [0];
            self.input.read_exact(&mut byte).map_err(|error| failed("read", error))?;
            let [byte] = byte;
            number |= u64::from(byte & 0x7f).checked_shl(7 * place).unwrap_or(0);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Error::corrupt("temporary file of the sort").expected("a number of at most 10 bytes"))
    }
}

fn failed(action: &'static str, error: std::io::Error) -> Error {
    Error::io(action, "temporary file of the sort", error)
}
