//! Dictionaries: content that the blocks of one keyspace share, stored once outside them.
//!
//! A dictionary is an object of the store with an id that is never reused; page headers name it. It is
//! trained on blocks sampled uniformly from a job's inputs, digested once, charged to memory, and shared
//! by every table that uses it, so that a merge can copy a compressed page unchanged.
//! docs/format/dictionary.md describes its file.
//!
//! Only the zstd codec uses dictionaries. A build without zstd refuses them.

use std::fmt;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{
    Account, Cursor, DictionaryId, Error, Result, StoreId, hash64, invariant, put_u32, put_u64,
    put_u128,
};
use media::{Access, Buf, Medium, Purpose};

use crate::codec::zstd;

/// The largest dictionary, bytes: a larger one takes long to train and gains nothing for blocks of a
/// page.
pub const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// `TERRDICT`, read as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"TERRDICT");
const FORMAT_VERSION: u32 = 1;
/// Length of magic, version, id, store, length, reserved bytes and checksum.
const HEADER_BYTES: usize = 48;
/// Offset of the checksum, which covers the bytes before it, and the content.
const CHECKSUM_AT: usize = 40;

/// A digested dictionary. Share it in an `Arc`.
pub struct Dictionary {
    id: DictionaryId,
    bytes: Arc<[u8]>,
    digested: zstd::Digested,
}

impl Dictionary {
    /// Digests `bytes`, the output of [`train`].
    ///
    /// # Errors
    /// `Invalid` if the id is 0 (no dictionary), the length is out of bounds, or this build has no zstd;
    /// `Retry` if memory is short.
    pub fn new(id: DictionaryId, bytes: &[u8], account: &Account) -> Result<Self> {
        if id.0 == 0 || bytes.is_empty() || bytes.len() > DICTIONARY_BYTES_MAX {
            return Err(Error::invalid("dictionary")
                .expected(format_args!("an id over 0 and 1..={DICTIONARY_BYTES_MAX} bytes"))
                .got(format_args!("id {id} and {} bytes", bytes.len())));
        }
        let bytes: Arc<[u8]> = bytes.into();
        let digested = zstd::Digested::new(Arc::clone(&bytes), account)?;
        Ok(Self { id, bytes, digested })
    }

    /// The id that page headers name.
    #[must_use]
    pub const fn id(&self) -> DictionaryId {
        self.id
    }

    /// The content, as trained.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The name of the file of dictionary `id`.
    #[must_use]
    pub fn file_name(id: DictionaryId) -> String {
        format!("{:010}.dictionary", id.0)
    }

    /// The id of the dictionary file named `name`.
    #[must_use]
    pub fn parse_file_name(name: &str) -> Option<DictionaryId> {
        let digits = name.strip_suffix(".dictionary")?;
        let all_digits = digits.len() == 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
        all_digits.then(|| digits.parse().ok().map(DictionaryId)).flatten()
    }

    /// Writes and syncs the dictionary's file; the caller makes its name durable.
    ///
    /// # Errors
    /// The medium's. A partial file stays: the caller removes it, or recovery does as with any orphan.
    pub fn write(&self, medium: &dyn Medium, store: StoreId, purpose: Purpose) -> Result<()> {
        let content = self.encode(store);
        let mut buf = Buf::pages(content.len().div_ceil(PAGE_BYTES));
        invariant!(content.len() <= buf.len(), "a dictionary fits the pages of its file");
        for (slot, byte) in buf.iter_mut().zip(&content) {
            *slot = *byte;
        }
        let file = medium.create(&Self::file_name(self.id), Access::Direct, buf.len() as u64)?;
        let (_, result) = file.write(0, buf, purpose);
        result?;
        file.sync(purpose)
    }

    /// Reads and digests the file of dictionary `id`.
    ///
    /// # Errors
    /// `Corrupt` if the file is damaged or another dictionary's; `Invalid` if there is no file, a newer
    /// version wrote it, or this build has no zstd.
    pub fn read(
        medium: &dyn Medium,
        store: StoreId,
        id: DictionaryId,
        account: &Account,
    ) -> Result<Self> {
        let name = Self::file_name(id);
        let file = medium.open(&name, Access::Direct)?;
        let size = file.size()?;
        let longest = (HEADER_BYTES + DICTIONARY_BYTES_MAX).next_multiple_of(PAGE_BYTES) as u64;
        if size == 0 || size > longest || !size.is_multiple_of(PAGE_BYTES as u64) {
            return Err(Error::corrupt("dictionary file length, bytes")
                .at(name)
                .expected(format_args!("whole pages, at most {longest}"))
                .got(size));
        }
        let _charge = account.charge(size)?;
        let pages = size as usize / PAGE_BYTES;
        let (buf, result) = file.read(0, Buf::pages(pages), Purpose::Meta);
        result?;
        let bytes = decode(&buf, store, id).map_err(|error| error.at(name))?;
        Self::new(id, bytes, account)
    }

    fn encode(&self, store: StoreId) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.bytes.len());
        put_u64(&mut out, MAGIC);
        put_u32(&mut out, FORMAT_VERSION);
        put_u32(&mut out, self.id.0);
        put_u128(&mut out, store.0);
        put_u32(&mut out, self.bytes.len() as u32);
        put_u32(&mut out, 0);
        let checksum = hash64(hash64(0, &out), &self.bytes);
        put_u64(&mut out, checksum);
        out.extend_from_slice(&self.bytes);
        out
    }

    pub(crate) const fn digested(&self) -> &zstd::Digested {
        &self.digested
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({}, {} bytes)", self.id, self.bytes.len())
    }
}

/// The content of dictionary `id`'s file.
///
/// # Errors
/// As [`Dictionary::read`].
fn decode(file: &[u8], store: StoreId, id: DictionaryId) -> Result<&[u8]> {
    let mut cursor = Cursor::new("dictionary file", file);
    let (magic, version) = (cursor.u64()?, cursor.u32()?);
    if magic != MAGIC {
        return Err(Error::corrupt("dictionary magic")
            .expected(format_args!("{MAGIC:016x}"))
            .got(format_args!("{magic:016x}")));
    }
    let (found, owner) = (DictionaryId(cursor.u32()?), StoreId(cursor.u128()?));
    let length = cursor.u32()? as usize;
    let reserved = cursor.u32()?;
    let header = hash64(0, file.get(..CHECKSUM_AT).unwrap_or_default());
    let stored = cursor.u64()?;
    let bytes = cursor.take(length)?;
    let computed = hash64(header, bytes);
    if stored != computed {
        return Err(Error::corrupt("dictionary checksum")
            .expected(format_args!("{computed:016x}"))
            .got(format_args!("{stored:016x}")));
    }
    if version != FORMAT_VERSION {
        return Err(Error::invalid("dictionary format version: a newer format")
            .expected(FORMAT_VERSION)
            .got(version));
    }
    if (found, owner, reserved) != (id, store, 0) {
        return Err(Error::corrupt("dictionary identity")
            .expected(format_args!("dictionary {id} of store {store}"))
            .got(format_args!("dictionary {found} of store {owner}")));
    }
    if cursor.rest().iter().any(|byte| *byte != 0) {
        return Err(Error::corrupt("dictionary file").expected("zeros after the content"));
    }
    Ok(bytes)
}

/// Finds the dictionaries that pages name.
pub trait Dictionaries: Send + Sync + fmt::Debug {
    /// The dictionary `id`.
    ///
    /// # Errors
    /// `Corrupt` if there is none; otherwise as [`Dictionary::read`].
    fn get(&self, id: DictionaryId) -> Result<Arc<Dictionary>>;
}

/// A store without dictionaries.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDictionaries;

impl Dictionaries for NoDictionaries {
    fn get(&self, id: DictionaryId) -> Result<Arc<Dictionary>> {
        Err(Error::corrupt("dictionary").expected("none in this store").got(id))
    }
}

/// Trains a dictionary of at most `bytes_max` bytes on `samples`: blocks drawn uniformly from the data
/// to compress, about a hundred times its size in total.
///
/// # Errors
/// `Invalid` if the samples are too few or too different, the size is out of bounds, or this build has
/// no zstd; `Retry` if memory is short.
pub fn train(samples: &[&[u8]], bytes_max: usize, account: &Account) -> Result<Vec<u8>> {
    if bytes_max == 0 || bytes_max > DICTIONARY_BYTES_MAX {
        return Err(Error::invalid("dictionary size, bytes")
            .expected(format_args!("1..={DICTIONARY_BYTES_MAX}"))
            .got(bytes_max));
    }
    let total: usize = samples.iter().map(|sample| sample.len()).sum();
    // The concatenated samples, and about nine times their size in the trainer's suffix arrays.
    let _charge = account.charge(10 * total as u64 + bytes_max as u64)?;
    zstd::train(samples, bytes_max)
}

/// The fraction of `samples`' compressed size that `dictionary` saves at `level`: 0.1 for a tenth,
/// negative if it makes them larger. Measure it on blocks that it was not trained on. A new dictionary
/// pays if its gain exceeds the current one's by more than 0.02.
///
/// # Errors
/// `Retry` if memory is short, `Invalid` if this build has no zstd.
pub fn gain(
    samples: &[&[u8]],
    dictionary: &Arc<Dictionary>,
    level: i32,
    account: &Account,
) -> Result<f64> {
    let total = |dictionary: Option<Arc<Dictionary>>| -> Result<usize> {
        let mut compressor = zstd::Compressor::new(level, dictionary, account)?;
        let (mut out, mut total) = (Vec::new(), 0);
        for sample in samples {
            total += match compressor.compress(sample, &mut out)? {
                true => out.len(),
                false => sample.len(),
            };
        }
        Ok(total)
    };
    let (without, with) = (total(None)?, total(Some(Arc::clone(dictionary)))?);
    Ok(if without == 0 { 0.0 } else { 1.0 - with as f64 / without as f64 })
}

#[cfg(test)]
mod tests;
