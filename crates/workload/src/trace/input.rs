//! The input of the trace readers: decompresses a file, counts its bytes, cuts it into records or lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::{Error, Result};

use super::access::Position;

/// The memory limit of an xz or zstd decoder, bytes. `xz -9` needs 64 MiB, `zstd --ultra` 128 MiB.
const DECODER_BYTES_MAX: u32 = 160 << 20;

/// The longest line, bytes: the longest key and room for the other fields.
const LINE_BYTES_MAX: usize = base::limits::KEY_BYTES_MAX + 4096;

const BUFFER_BYTES: usize = 128 << 10;

pub(super) struct Input {
    reader: BufReader<Box<dyn Read + Send>>,
    name: String,
    /// Decompressed bytes read so far.
    offset: u64,
    /// Lines read so far.
    line: u64,
    text: Vec<u8>,
    file_bytes_read: Arc<AtomicU64>,
    file_bytes: u64,
}

/// Counts the bytes read from the source, before decompression.
struct Counted {
    source: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buf)?;
        self.bytes.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}

impl Input {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let refused = |error| Error::io("trace", path.display(), error);
        let file = File::open(path).map_err(refused)?;
        let meta = file.metadata().map_err(refused)?;
        if meta.is_dir() {
            return Err(Error::invalid("trace")
                .at(path.display())
                .expected("a file")
                .got("a folder"));
        }
        let input = Self::new(path.display().to_string(), Box::new(file))?;
        Ok(Self { file_bytes: meta.len(), ..input })
    }

    pub(super) fn new(name: String, source: Box<dyn Read + Send>) -> Result<Self> {
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = Counted { source, bytes: Arc::clone(&bytes) };
        Ok(Self {
            reader: BufReader::with_capacity(BUFFER_BYTES, decompressed(&name, counted)?),
            name,
            offset: 0,
            line: 0,
            text: Vec::new(),
            file_bytes_read: bytes,
            file_bytes: 0,
        })
    }

    pub(super) fn position(&self) -> Position {
        Position { done: self.file_bytes_read.load(Relaxed), total: self.file_bytes }
    }

    /// The next `N` bytes; `None` at the end.
    pub(super) fn record<const N: usize>(&mut self) -> Result<Option<[u8; N]>> {
        let mut record = [0; N];
        let mut filled = 0;
        while let Some(rest) = record.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.reader.read(rest) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => {
                    return Err(Error::corrupt("trace record")
                        .at(format_args!("byte {} of {}", self.offset, self.name))
                        .expected(format_args!("{N} bytes"))
                        .got(filled));
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        self.offset += N as u64;
        Ok(Some(record))
    }

    /// Reads the next line, which [`Input::text`] returns; false at the end. Lines end with LF or CR LF; the
    /// last one may end with the file.
    pub(super) fn next_line(&mut self) -> Result<bool> {
        self.text.clear();
        // One byte over the limit is enough to detect that a line is too long.
        let mut limited = (&mut self.reader).take(LINE_BYTES_MAX as u64 + 1);
        let read = match limited.read_until(b'\n', &mut self.text) {
            Ok(read) => read,
            Err(error) => return Err(self.failed(error)),
        };
        if read == 0 {
            return Ok(false);
        }
        self.line += 1;
        if read > LINE_BYTES_MAX {
            return Err(self.bad_line(format_args!("at most {LINE_BYTES_MAX} bytes")));
        }
        self.offset += read as u64;
        for end in [b'\n', b'\r'] {
            if self.text.last() == Some(&end) {
                self.text.pop();
            }
        }
        Ok(true)
    }

    /// The bytes of the line, without its end.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The error for a line that is not as `expected`.
    #[cold]
    pub(super) fn bad_line(&self, expected: impl std::fmt::Display) -> Error {
        const SHOWN: usize = 80;
        let text = String::from_utf8_lossy(self.text.get(..SHOWN).unwrap_or(&self.text));
        let more = if self.text.len() > SHOWN { ".." } else { "" };
        Error::corrupt("trace line")
            .at(format_args!("line {} of {}", self.line, self.name))
            .expected(expected)
            .got(format_args!("`{}`{more}", text.escape_debug()))
    }

    #[cold]
    fn failed(&self, error: io::Error) -> Error {
        let place = format!("byte {} of {}", self.offset, self.name);
        if error.raw_os_error().is_some() {
            return Error::io("trace", place, error);
        }
        Error::corrupt("compressed trace").at(place).caused_by(error)
    }
}

fn decompressed(name: &str, source: Counted) -> Result<Box<dyn Read + Send>> {
    match name.rsplit_once('.') {
        // Without this error, compressed bytes would be read as keys.
        Some((_, other @ ("gz" | "bz2" | "lz4" | "lzma" | "zip" | "br" | "Z"))) => {
            let error = Error::invalid("trace").at(name).expected("a plain file, .xz or .zst");
            Err(error.got(format_args!(".{other}")))
        }
        Some((_, "xz")) => {
            let buffered = BufReader::with_capacity(BUFFER_BYTES, source);
            let limit = DECODER_BYTES_MAX >> 10;
            Ok(Box::new(lzma_rust2::XzReader::new_mem_limit(buffered, true, limit)))
        }
        Some((_, "zst")) => zstd_reader(name, source),
        _ => Ok(Box::new(source)),
    }
}

#[cfg(feature = "zstd")]
fn zstd_reader(name: &str, source: Counted) -> Result<Box<dyn Read + Send>> {
    let refused = |error| Error::io("trace", name, error);
    let mut reader = zstd::Decoder::new(source).map_err(refused)?;
    reader.window_log_max(DECODER_BYTES_MAX.ilog2()).map_err(refused)?;
    Ok(Box::new(reader))
}

#[cfg(not(feature = "zstd"))]
fn zstd_reader(name: &str, _: Counted) -> Result<Box<dyn Read + Send>> {
    Err(Error::invalid("trace").at(name).expected("a build with the feature `zstd`"))
}
