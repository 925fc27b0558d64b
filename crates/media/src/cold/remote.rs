//! The content of a cold file: most of it on the other medium, some pages kept on the local one.

use std::sync::{Arc, OnceLock};

use base::limits::PAGE_BYTES;
use base::{Error, ErrorKind, Result};

use super::counters::Counters;
use super::kept::Kept;
use super::name::ColdName;
use crate::{Access, Buf, File, Medium, Purpose};

/// Whether the bytes at an offset of a file are whole pages of it, undamaged.
pub(super) type Verify = Arc<dyn Fn(&str, u64, &[u8]) -> bool + Send + Sync>;

/// See the module.
pub(super) struct Remote {
    name: String,
    medium: Arc<dyn Medium>,
    cold: ColdName,
    access: Access,
    /// Opened when a page is read that is not kept: a store opens while the other medium does not answer.
    file: OnceLock<Arc<dyn File>>,
    kept: Option<Kept>,
    verify: Verify,
    counters: Arc<Counters>,
}

impl Remote {
    pub(super) fn new(
        name: &str,
        (medium, cold, access): (&Arc<dyn Medium>, &ColdName, Access),
        kept: Option<Kept>,
        verify: &Verify,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            medium: Arc::clone(medium),
            cold: cold.clone(),
            access,
            file: OnceLock::new(),
            kept,
            verify: Arc::clone(verify),
            counters: Arc::clone(counters),
        }
    }

    /// The file of the other medium.
    ///
    /// # Errors
    /// Those of the medium; `Corrupt` if there is none.
    pub(super) fn file(&self) -> Result<&Arc<dyn File>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let opened = self.medium.open(&self.cold.file, self.access);
        let file = opened.map_err(|error| match error.kind() {
            // The manifest names the file, so that a missing one is damage, and no file that never was.
            ErrorKind::Invalid => Error::corrupt("file of the object store")
                .at(&self.cold.file)
                .expected("one that exists")
                .caused_by(error),
            _ => error,
        })?;
        Ok(self.file.get_or_init(|| file))
    }

    pub(super) fn has_kept(&self) -> bool {
        self.kept.is_some()
    }

    pub(super) fn len(&self) -> u64 {
        self.cold.len
    }

    /// Whether the local medium keeps these bytes.
    pub(super) fn keeps(&self, at: u64, len: usize) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.find(at, len).is_some())
    }

    /// Reads pages from the local medium if it keeps them, undamaged, and else from the other one.
    pub(super) fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        let found = self.kept.as_ref().and_then(|kept| Some((kept, kept.find(at, buf.len())?)));
        let Some((kept, kept_at)) = found else { return self.fetch(1, at, buf, purpose) };
        let (buf, read) = kept.read(kept_at, buf, purpose);
        match read.is_ok() && (self.verify)(&self.name, at, &buf) {
            true => (buf, Ok(())),
            false => self.fetch(1, at, buf, purpose),
        }
    }

    /// Reads from the other medium, for `reads` of callers.
    pub(super) fn fetch(
        &self,
        reads: usize,
        at: u64,
        buf: Buf,
        purpose: Purpose,
    ) -> (Buf, Result<()>) {
        base::invariant!(at.is_multiple_of(PAGE_BYTES as u64), "cold files are read by pages");
        let (buf, result) = match self.file() {
            Ok(file) => file.read(at, buf, purpose),
            Err(error) => (buf, Err(error)),
        };
        self.counters.range(reads, buf.len(), result.is_ok());
        (buf, result.map_err(|error| error.at(&self.name)))
    }
}
