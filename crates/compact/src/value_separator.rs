//! Key-value separation during flushes and merges: moves long values to value files, and copies live values
//! out of value files that are mostly dead.
//!
//! Called for each surviving version, between [`Retention`](crate::Retention) and the table writer. A put of
//! a long value becomes a pointer into the new value file. A pointer into a collected file becomes a pointer
//! into the new file, and the stored value is copied without decompression. A value that is damaged is not
//! copied: its pointer stays, and a read of it fails.
//!
//! Memory: one [`ValuesWriter`], and little for each open value file.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Account, EntryKind, ErrorKind, Result, TableId, Trailer, expiry, invariant};
use bytes::Bytes;
use media::Medium;
use table::{PageSink, Pointer, Values, ValuesSpec, ValuesSummary, ValuesWriter};

/// Moves values to one new value file. Dropped before [`finish`](Self::finish), it removes that file.
pub struct ValueSeparator {
    medium: Arc<dyn Medium>,
    account: Account,
    /// The form of the new value file; `None`: no value moves.
    spec: Option<ValuesSpec>,
    /// Values of at least this many bytes move.
    bytes_min: u64,
    /// Value files with live values to copy, ascending.
    collect: Vec<TableId>,
    /// Value files opened so far; `None` for a file that cannot be read.
    open: BTreeMap<TableId, Option<Arc<Values>>>,
    writer: Option<ValuesWriter>,
    /// Is shown the pages of the new value file.
    sink: Option<Box<dyn PageSink>>,
}

impl ValueSeparator {
    /// Moves values of at least `bytes_min` bytes, and the live values of the files `collect` (ascending), to
    /// the file of `spec`.
    #[must_use]
    pub fn new(
        medium: &Arc<dyn Medium>,
        spec: Option<ValuesSpec>,
        bytes_min: u64,
        collect: Vec<TableId>,
        account: &Account,
    ) -> Self {
        invariant!(collect.is_sorted_by(|a, b| a < b), "files to collect ascend");
        invariant!(
            spec.as_ref().is_none_or(|spec| collect.binary_search(&spec.file).is_err()),
            "the value file being written is not collected"
        );
        let (medium, account) = (Arc::clone(medium), account.clone());
        let (open, writer, sink) = (BTreeMap::new(), None, None);
        Self { medium, account, spec, bytes_min, collect, open, writer, sink }
    }

    /// Shows the pages of the new value file to `sink`.
    #[must_use]
    pub fn showing_to(mut self, sink: Option<Box<dyn PageSink>>) -> Self {
        self.sink = sink;
        self
    }

    /// Whether an entry of `bytes` bytes, or one with a pointer into one of `files`, may be one to separate.
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

    /// The pointer entry to store instead of this version; `None` if the version is stored unchanged.
    ///
    /// # Errors
    /// `Corrupt` if a table cannot hold such a version, `Retry` if memory is short, otherwise the error of
    /// the medium.
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
        let pointer = writer.add(key, value, expiry)?;
        debug_assert!(!self.collects(pointer.file), "a value moves out of collected files");
        invariant!(
            pointer.bytes == value.len() as u64 && pointer.expiry == expiry,
            "a pointer states the length and the expiry of its value"
        );
        Ok(Some(pointer))
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
            Ok(copy) => {
                invariant!(
                    copy.expiry == pointer.expiry && copy.bytes == pointer.bytes,
                    "a copied value keeps its length and expiry"
                );
                Ok(Some(copy))
            }
            // Nothing was written for this value: its pointer and its file stay.
            Err(error) if error.kind() == ErrorKind::Corrupt && writer.file_bytes() == pages => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn writer(&mut self) -> Result<Option<&mut ValuesWriter>> {
        if self.writer.is_none() {
            let Some(spec) = &self.spec else { return Ok(None) };
            let mut writer = ValuesWriter::create(&self.medium, spec.clone(), &self.account)?;
            self.sink.take().into_iter().for_each(|sink| writer.show_to(sink));
            self.writer = Some(writer);
        }
        Ok(self.writer.as_mut())
    }

    /// Opens value file `id`, as far as it is readable. `None` if it is missing or of a newer format.
    fn file(&mut self, id: TableId) -> Result<Option<Arc<Values>>> {
        if let Some(file) = self.open.get(&id) {
            return Ok(file.clone());
        }
        let Some(spec) = &self.spec else { return Ok(None) };
        let (medium, store) = (&*self.medium, spec.store);
        let opened = Values::open(medium, store, id, None, &self.account);
        // Without a valid footer, values are still verified one by one.
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

    /// The value that pointer entry `stored` leads to, as the base of merge operands over it. `None` if it
    /// expires, is damaged, or memory is short: then the operands stay unmerged.
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

    /// Ends the value file, if any, and syncs its content. The caller syncs its name, and removes it if it is
    /// not installed.
    ///
    /// # Errors
    /// The error of the medium; the file is then removed.
    pub fn finish(&mut self) -> Result<Option<ValuesSummary>> {
        // The writer is empty if every value to copy was damaged: then there is no file.
        let writer = self.writer.take().filter(|writer| writer.file_bytes() > 0);
        let summary = writer.map(ValuesWriter::finish).transpose()?;
        invariant!(
            summary
                .is_none_or(|summary| self.spec.as_ref().is_some_and(|it| it.file == summary.file)),
            "values are written to the file of the job"
        );
        Ok(summary)
    }

    /// Drops the writer, which removes its file.
    pub(crate) fn abort(&mut self) {
        self.writer = None;
    }
}

impl std::fmt::Debug for ValueSeparator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValueSeparator({:?})", self.writer)
    }
}
