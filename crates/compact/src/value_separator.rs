//! Long values on their way out of the tree, and live ones out of value files that are mostly dead.
//!
//! Stands between whoever decides what survives and the writer of a table: a flush and a merge alike.
//! A value that is long enough goes to a value file, and its key's entry becomes a pointer; a pointer
//! into a file that is copy_live becomes one into the new file, the value copied as it is stored.
//! What cannot be copied because it is damaged stays where it is: its reader is told.
//!
//! Memory: that of [`ValuesWriter`], and next to nothing for each file read.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Account, EntryKind, ErrorKind, Result, TableId, Trailer, expiry};
use bytes::Bytes;
use media::Medium;
use table::{Pointer, Values, ValuesSpec, ValuesSummary, ValuesWriter};

/// Puts values apart. Dropped before it finished, it removes what it wrote.
pub struct ValueSeparator {
    medium: Arc<dyn Medium>,
    account: Account,
    /// What values are written by; none: they stay where they are.
    spec: Option<ValuesSpec>,
    /// Values of this many bytes or more leave the tree.
    bytes_min: u64,
    /// Files whose live values are copied, ascending.
    collect: Vec<TableId>,
    /// The files read so far; none where one cannot be.
    open: BTreeMap<TableId, Option<Arc<Values>>>,
    writer: Option<ValuesWriter>,
}

impl ValueSeparator {
    /// Values of `bytes_min` bytes or more go to the file of `spec`, and the live ones of the files
    /// `collect`, which ascend.
    #[must_use]
    pub fn new(
        medium: &Arc<dyn Medium>,
        spec: Option<ValuesSpec>,
        bytes_min: u64,
        collect: Vec<TableId>,
        account: &Account,
    ) -> Self {
        let (medium, account) = (Arc::clone(medium), account.clone());
        Self { medium, account, spec, bytes_min, collect, open: BTreeMap::new(), writer: None }
    }

    /// Whether an entry with so many bytes, or with a pointer into `file`, may be one to put apart.
    pub(crate) fn may_separate(
        &self,
        bytes: usize,
        mut files: impl Iterator<Item = TableId>,
    ) -> bool {
        self.spec.is_some()
            && (bytes as u64 >= self.bytes_min || files.any(|file| self.collects(file)))
    }

    fn collects(&self, file: TableId) -> bool {
        self.collect.binary_search(&file).is_ok()
    }

    /// What to store instead of this version, which is not kept as it is: its trailer, and where its
    /// value lies. `None`: it is.
    ///
    /// # Errors
    /// `Corrupt` where it is no version that tables hold; `Retry` where memory is short; otherwise as
    /// the medium's.
    #[inline]
    pub fn separate(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        stored: &[u8],
    ) -> Result<Option<(Trailer, Pointer)>> {
        let is_long = stored.len() as u64 >= self.bytes_min;
        let kind = trailer.kind()?;
        let pointer = match kind {
            EntryKind::Put if is_long => self.put(key, stored, 0)?,
            EntryKind::PutExpiring if is_long => {
                let (expiry, value) = expiry::split(stored)?;
                if (value.len() as u64) < self.bytes_min {
                    return Ok(None);
                }
                self.put(key, value, expiry)?
            }
            EntryKind::PutPointer if !self.collect.is_empty() => self.copy_live(key, stored)?,
            _ => None,
        };
        let of = |pointer| (Trailer::new(trailer.seqno(), EntryKind::PutPointer), pointer);
        Ok(pointer.map(of))
    }

    fn put(&mut self, key: &[u8], value: &[u8], expiry: u64) -> Result<Option<Pointer>> {
        let Some(writer) = self.writer()? else { return Ok(None) };
        writer.add(key, value, expiry).map(Some)
    }

    fn copy_live(&mut self, key: &[u8], stored: &[u8]) -> Result<Option<Pointer>> {
        let pointer = Pointer::decode(stored)?;
        if !self.collects(pointer.file) {
            return Ok(None);
        }
        let Some(from) = self.file(pointer.file)? else { return Ok(None) };
        let Some(writer) = self.writer()? else { return Ok(None) };
        let pages = writer.file_bytes();
        match writer.copy(&from, key, pointer) {
            Ok(pointer) => Ok(Some(pointer)),
            // Nothing of it was written: it stays where it is, and so does its file.
            Err(error) if error.kind() == ErrorKind::Corrupt && writer.file_bytes() == pages => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn writer(&mut self) -> Result<Option<&mut ValuesWriter>> {
        if self.writer.is_none() {
            let Some(spec) = &self.spec else { return Ok(None) };
            self.writer = Some(ValuesWriter::create(&self.medium, spec.clone(), &self.account)?);
        }
        Ok(self.writer.as_mut())
    }

    /// The value file `id`, what is left of it; none where it is not there or of a newer format.
    fn file(&mut self, id: TableId) -> Result<Option<Arc<Values>>> {
        if let Some(file) = self.open.get(&id) {
            return Ok(file.clone());
        }
        let Some(spec) = &self.spec else { return Ok(None) };
        let (medium, store) = (&*self.medium, spec.store);
        let opened = Values::open(medium, store, id, None, &self.account);
        // Without its footer, each value verifies by itself.
        let opened = opened.or_else(|error| match error.kind() {
            ErrorKind::Corrupt => Values::open_damaged(medium, store, id, &self.account),
            _ => Err(error),
        });
        let file = match opened {
            Ok(file) => Some(file),
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid) => None,
            Err(error) => return Err(error),
        };
        self.open.insert(id, file.clone());
        Ok(file)
    }

    /// The value of `key` that the entry `stored` points at, which never expires: what operands over
    /// it are merged with. None where it is damaged, or there is no memory for it: they wait.
    pub(crate) fn operand_base(&mut self, key: &[u8], stored: &[u8]) -> Result<Option<Bytes>> {
        let pointer = Pointer::decode(stored)?;
        if pointer.expiry > 0 {
            return Ok(None);
        }
        let Some(file) = self.file(pointer.file)? else { return Ok(None) };
        match file.value(key, pointer, media::Purpose::Compaction) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_retryable() || error.kind() == ErrorKind::Corrupt => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends the value file, if there is one, and makes its content durable; its name, and removing it
    /// should nobody want it, are the caller's.
    ///
    /// # Errors
    /// As the medium's; the file is then removed.
    pub fn finish(&mut self) -> Result<Option<ValuesSummary>> {
        // Where all that was to be copied is damaged, there is none.
        let writer = self.writer.take().filter(|writer| writer.file_bytes() > 0);
        writer.map(ValuesWriter::finish).transpose()
    }

    /// Gives up what was written.
    pub(crate) fn abort(&mut self) {
        self.writer = None;
    }
}

impl std::fmt::Debug for ValueSeparator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValueSeparator({:?})", self.writer)
    }
}
