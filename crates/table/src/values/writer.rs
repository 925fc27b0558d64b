//! The writer of a value file: takes keys and values, and returns pointers.
//!
//! Values are written as they come, each as a run of its own, compressed if that saves a page. Memory is
//! bounded and charged (I10): buffers of 256 KiB, and three times the length of a value while it is
//! compressed. Values over 1 MiB are not compressed, nor values for which memory is short: they are
//! written from the caller's memory.

use std::sync::Arc;

use base::limits::{KEY_BYTES_MAX, PAGE_BYTES, VALUE_BYTES_MAX};
use base::{
    Account, Charge, Codec, DictionaryId, Error, KeyspaceId, PageSeed, Result, StoreId, TableId,
    invariant,
};
use media::{Medium, Purpose};

use super::footer::ValuesFooter;
use super::head;
use super::read::Values;
use crate::Pointer;
use crate::codec::{Compressor, lz4};
use crate::name::values_file_name;
use crate::page::{PageKind, run_pages};
use crate::sorted::Leave;
use crate::sorted::output::{Output, PageSink, Section, Writes, memory};
use crate::sorted::pieces::Pieces;

/// Pages of one buffer: a flush has little memory besides that of a table's writer.
const BUFFER_PAGES: usize = 32;

/// A longer value is not compressed, bytes.
const COMPRESSED_BYTES_MAX: usize = 1 << 20;

/// Memory that must stay free besides that of the codec, for values that are copied or compressed, bytes.
const LEFT_BYTES: u64 = 128 << 10;

/// Specification of a value file.
#[derive(Clone, Debug)]
pub struct ValuesSpec {
    /// The store the file belongs to.
    pub store: StoreId,
    /// The file's id: from the id space of tables, never used before.
    pub file: TableId,
    /// The keyspace of its values.
    pub keyspace: KeyspaceId,
    /// The codec for values.
    pub codec: Codec,
    /// The level of zstd (-100 to 22) or DEFLATE (1 to 9); ignored for other codecs.
    pub level: i32,
    /// The purpose of the writes.
    pub purpose: Purpose,
    /// Free space that the writes leave on the device.
    pub leave: Leave,
}

/// Summary of a finished value file, for the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValuesSummary {
    /// The file.
    pub file: TableId,
    /// Length of the file, bytes.
    pub file_bytes: u64,
    /// Number of values in the file.
    pub values: u64,
    /// Length of all values together, before compression, bytes: the sum over all pointers into the
    /// file.
    pub value_bytes: u64,
    /// The hash of the checksums of all pages before the footer.
    pub digest: u64,
}

/// Writes one value file. If dropped before it is finished, it removes the file, as far as it can.
pub struct ValuesWriter {
    medium: Arc<dyn Medium>,
    spec: ValuesSpec,
    name: String,
    output: Output,
    compressor: Option<Compressor>,
    raw: Vec<u8>,
    payload: Vec<u8>,
    values: u64,
    value_bytes: u64,
    failed: Option<Error>,
    finished: bool,
    account: Account,
    _charge: Charge,
}

impl ValuesWriter {
    /// Creates the file of `spec.file`. Uses LZ4 if memory for another codec is short.
    ///
    /// # Errors
    /// `Retry` if memory is short, `Invalid` if the file exists or this build lacks the codec; otherwise
    /// the medium's.
    pub fn create(medium: &Arc<dyn Medium>, spec: ValuesSpec, account: &Account) -> Result<Self> {
        let charge = account.charge(memory(BUFFER_PAGES))?;
        let (codec, compressor) = match spec.codec {
            Codec::Zstd | Codec::Deflate => {
                match Compressor::new(spec.codec, spec.level, None, account) {
                    Ok(made) if account.has_room(LEFT_BYTES) => (spec.codec, Some(made)),
                    Ok(_) => (Codec::Lz4, None),
                    Err(error) if error.is_retryable() => (Codec::Lz4, None),
                    Err(error) => return Err(error),
                }
            }
            codec => (codec, None),
        };
        let spec = ValuesSpec { codec, ..spec };
        let name = values_file_name(spec.file);
        let seed = PageSeed::new(spec.store, spec.file);
        let writes = Writes { purpose: spec.purpose, leave: spec.leave };
        let output = Output::create(medium, &name, seed, writes, BUFFER_PAGES)?;
        Ok(Self {
            medium: Arc::clone(medium),
            spec,
            name,
            output,
            compressor,
            raw: Vec::new(),
            payload: Vec::new(),
            values: 0,
            value_bytes: 0,
            failed: None,
            finished: false,
            account: account.clone(),
            _charge: charge,
        })
    }

    /// Shows every page of the file to `sink`. Must be called before anything is added.
    pub fn show_to(&mut self, sink: Box<dyn PageSink>) {
        self.output.show_to(sink);
    }

    /// Adds the value of `key`, which expires at `expiry` (Unix milliseconds; 0: never). Returns its
    /// pointer.
    ///
    /// # Errors
    /// `Invalid` if key or value are too long; then nothing is added. Otherwise the medium's, after
    /// which the writer is unusable.
    pub fn add(&mut self, key: &[u8], value: &[u8], expiry: u64) -> Result<Pointer> {
        self.check_usable()?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return Err(Error::invalid("key and value length, bytes")
                .expected(format_args!("1..={KEY_BYTES_MAX} and at most {VALUE_BYTES_MAX}"))
                .got(format_args!("{} and {}", key.len(), value.len())));
        }
        let head = head::encode(key);
        let raw_bytes = head.len() + value.len();
        let mut is_smaller = false;
        let is_short = self.spec.codec != Codec::None && raw_bytes <= COMPRESSED_BYTES_MAX;
        // If memory is short, the value is stored uncompressed.
        let charge = match is_short {
            true => self.account.try_charge(3 * raw_bytes as u64),
            false => None,
        };
        if charge.is_some() {
            self.raw.clear();
            self.raw.extend_from_slice(&head);
            self.raw.extend_from_slice(value);
            let is_compressed = match &mut self.compressor {
                Some(compressor) => compressor.compress(&self.raw, &mut self.payload)?,
                None => lz4::compress(&self.raw, &mut self.payload).map(|()| true)?,
            };
            is_smaller = is_compressed && run_pages(self.payload.len()) < run_pages(raw_bytes);
        }
        let (codec, payload) = match is_smaller {
            true => (self.spec.codec, Pieces::from(&*self.payload)),
            false => (Codec::None, Pieces::new(&head, value, &[])),
        };
        let put = put(&mut self.output, codec, raw_bytes, payload);
        // The charge covered their memory only for this value.
        (self.raw, self.payload) = (Vec::new(), Vec::new());
        drop(charge);
        self.added(put, value.len() as u64, expiry)
    }

    /// Adds the value of `key` at `pointer` in another file, copying its stored pages. Returns its new
    /// pointer.
    ///
    /// # Errors
    /// `Corrupt` if that value is damaged, `Retry` if memory is short; then nothing is added. Otherwise
    /// the medium's, after which the writer is unusable.
    pub fn copy(&mut self, from: &Values, key: &[u8], pointer: Pointer) -> Result<Pointer> {
        self.check_usable()?;
        let page = self.output.pages();
        let (output, purpose) = (&mut self.output, self.spec.purpose);
        let copied = from
            .pages(key, pointer, purpose, &mut |header, content| output.put_page(header, content));
        if let Err(error) = copied {
            if self.output.pages() > page {
                self.failed = Some(error.clone());
            }
            return Err(error);
        }
        invariant!(
            self.output.pages() == page + pointer.pages,
            "a copied value has all of its pages"
        );
        self.added(Ok((page, pointer.pages)), pointer.bytes, pointer.expiry)
    }

    fn added(&mut self, put: Result<(u32, u32)>, bytes: u64, expiry: u64) -> Result<Pointer> {
        let (page, pages) = put.inspect_err(|error| self.failed = Some(error.clone()))?;
        invariant!(self.output.pages() == page + pages, "a pointer covers the pages of its value");
        invariant!(pages > 0, "a value has a page");
        self.values += 1;
        self.value_bytes += bytes;
        Ok(Pointer { file: self.spec.file, page, pages, bytes, expiry })
    }

    fn check_usable(&self) -> Result<()> {
        match &self.failed {
            Some(first) => Err(Error::poisoned_by("writer of values", first)),
            None => Ok(()),
        }
    }

    /// Length of the file so far, bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        u64::from(self.output.pages()) * PAGE_BYTES as u64
    }

    /// The id of the file.
    #[must_use]
    pub const fn file(&self) -> TableId {
        self.spec.file
    }

    /// Ends the file and makes its content durable; the caller makes its name durable.
    ///
    /// # Errors
    /// `Invalid` if nothing was added; otherwise the medium's. The file is then removed.
    pub fn finish(mut self) -> Result<ValuesSummary> {
        self.check_usable()?;
        if self.values == 0 {
            return Err(Error::invalid("value file").expected("a value").got("none"));
        }
        let footer = ValuesFooter {
            pages: self.output.pages().saturating_add(1),
            store: self.spec.store,
            file: self.spec.file,
            keyspace: self.spec.keyspace,
            values: self.values,
            value_bytes: self.value_bytes,
            digest: self.output.digest(),
        };
        self.output.put(Section::plain(
            PageKind::Footer,
            &footer.encode(self.spec.codec == Codec::Deflate),
        ))?;
        self.output.finish()?;
        invariant!(
            footer.pages == self.output.pages(),
            "the footer of a value file states its length"
        );
        self.finished = true;
        Ok(ValuesSummary {
            file: footer.file,
            file_bytes: self.file_bytes(),
            values: footer.values,
            value_bytes: footer.value_bytes,
            digest: footer.digest,
        })
    }
}

/// Writes a run. Returns its first page, and its number of pages.
fn put(
    output: &mut Output,
    codec: Codec,
    raw_bytes: usize,
    payload: Pieces<'_>,
) -> Result<(u32, u32)> {
    let pages = run_pages(payload.len()) as u32;
    let (kind, dictionary) = (PageKind::Values, DictionaryId(0));
    let page = output.put(Section { kind, codec, dictionary, raw_bytes, payload, marks: None })?;
    Ok((page, pages))
}

impl Drop for ValuesWriter {
    fn drop(&mut self) {
        if !self.finished {
            // The file is an orphan; recovery removes it if this does not.
            let _ = self.medium.remove(&self.name);
        }
    }
}

impl std::fmt::Debug for ValuesWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValuesWriter({}, {} values)", self.name, self.values)
    }
}
