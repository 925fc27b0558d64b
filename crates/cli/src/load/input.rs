//! The input of a load: a file or standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use terracedb::tools::DumpReader;
use terracedb::{Error, Result};

use crate::interrupt;

const BUFFER_BYTES: usize = 1 << 20;

/// See the module.
pub(super) struct Input {
    pub(super) reader: BufReader<Box<dyn Read>>,
    /// Its length in bytes; `None` for a pipe.
    pub(super) length: Option<u64>,
    /// Its name in errors.
    pub(super) name: String,
    /// Its path, if it can be opened again and reads the same.
    pub(super) path: Option<PathBuf>,
}

impl Input {
    /// Opens the input; `-` is standard input.
    ///
    /// # Errors
    /// `Invalid` if the file cannot be read.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let (input, length, name): (Box<dyn Read>, _, _) = if path == Path::new("-") {
            (Box::new(interrupt::Stdin::new()), None, "standard input".to_owned())
        } else {
            let refused = |error: io::Error| {
                Error::invalid("file to load")
                    .at(path.display())
                    .expected("a readable file")
                    .got(error)
            };
            let file = File::open(path).map_err(refused)?;
            let metadata = file.metadata().map_err(refused)?;
            let length = metadata.is_file().then_some(metadata.len());
            (Box::new(file), length, path.display().to_string())
        };
        let reader = BufReader::with_capacity(BUFFER_BYTES, input);
        Ok(Self { reader, length, name, path: length.map(|_| path.to_owned()) })
    }

    /// Whether the input begins as a dump does.
    ///
    /// # Errors
    /// That of the input.
    pub(super) fn is_dump(&mut self) -> Result<bool> {
        let begin = self.reader.fill_buf().map_err(|error| Error::io("read", &self.name, error))?;
        Ok(DumpReader::<&[u8]>::is_dump(begin))
    }
}
