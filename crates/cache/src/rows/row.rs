//! A row as stored in memory: three or four words of header, the key, the value.
//!
//! Header words: seqno (56 bits) over flags (8 bits); the seqno as of which the row was the newest version of
//! its key; owner (32 bits), key length (16), value length (16); if the row expires, the expiry time, Unix
//! milliseconds. Key and value start at a word each; the rest of their last word is zero.
//!
//! A reader may see any bits here, while a row is overwritten: lengths are checked against the bounds, and
//! what was read counts only if the row's bucket did not change meanwhile.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arena::WORD_BYTES;
use base::{Seqno, invariant, key_hash};

use super::owner::{RowOwner, hash_of};

/// Most bytes of a row: a larger one is not cached, because a page costs little more.
pub const ROW_BYTES_MAX: usize = 2048;

/// Assumed least memory of a row on average, bytes: the index has entries for this many rows.
pub(super) const ROW_BYTES_LEAST: usize = 64;

/// Header words of a row that does not expire.
const HEADER_WORDS: usize = 3;

/// Flag: the row expires.
const EXPIRES: u64 = 1;
/// Flag: the value is compressed.
const PACKED: u64 = 2;
/// Flag: no tier had the page of the row when it was filled.
const FROM_DEVICE: u64 = 4;

/// A row to insert.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, or its compressed form.
    pub value: &'a [u8],
    /// Whether the value is compressed. Returned with a hit; the cache does not decompress.
    pub packed: bool,
    /// Seqno of the version, or of the newest version that it was merged from.
    pub seqno: Seqno,
    /// The row is the newest version of its key as of this seqno.
    pub as_of: Seqno,
    /// Expiry time, Unix milliseconds; 0: never.
    pub expiry: u64,
    /// The place of its pages.
    pub from: RowFrom,
}

/// The place of a row's pages when it was read; of several pages, the one that was slowest to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFrom {
    /// DRAM.
    Dram,
    /// The lower tier, as a page.
    Scm,
    /// The lower tier, as a row.
    ScmRow,
    /// The device.
    Device,
}

/// A row that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowHit {
    /// Seqno of the version.
    pub seqno: Seqno,
    /// The row is the newest version of its key as of this seqno, and as of later ones.
    pub as_of: Seqno,
    /// Expiry time, Unix milliseconds; 0: never.
    pub expiry: u64,
    /// Whether the value is compressed.
    pub packed: bool,
}

/// Memory of a row, bytes, given the lengths of its key and value.
#[must_use]
pub const fn row_bytes(key: usize, value: usize, expires: bool) -> usize {
    row_words(key, value, expires) * WORD_BYTES
}

const fn row_words(key: usize, value: usize, expires: bool) -> usize {
    HEADER_WORDS + expires as usize + key.div_ceil(WORD_BYTES) + value.div_ceil(WORD_BYTES)
}

impl Row<'_> {
    pub(crate) const fn words(&self) -> usize {
        row_words(self.key.len(), self.value.len(), self.expiry > 0)
    }

    /// Writes the row of owner `owner` to `words`, which are as many as it needs.
    pub(crate) fn write(&self, owner: u32, words: &[AtomicU64]) {
        invariant!(words.len() == self.words(), "a row is written to as many words as it needs");
        let from_device = matches!(self.from, RowFrom::Device | RowFrom::ScmRow);
        let flags = [(self.expiry > 0, EXPIRES), (self.packed, PACKED), (from_device, FROM_DEVICE)];
        let flags = flags.into_iter().filter(|flag| flag.0).fold(0, |flags, flag| flags | flag.1);
        let lengths = (self.key.len() as u64) << 32 | (self.value.len() as u64) << 48;
        let header = [self.seqno.get() << 8 | flags, self.as_of.get(), u64::from(owner) | lengths];
        let expiry = (self.expiry > 0).then_some(self.expiry);
        let content = chunks(self.key).chain(chunks(self.value));
        for (word, content) in words.iter().zip(header.into_iter().chain(expiry).chain(content)) {
            word.store(content, Relaxed);
        }
    }
}

/// Bytes as words, the last one filled up with zeros.
#[inline]
fn chunks(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = bytes.as_chunks::<WORD_BYTES>();
    let last = (!rest.is_empty()).then(|| {
        let mut word = [0; WORD_BYTES];
        word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        word
    });
    whole.iter().copied().chain(last).map(u64::from_le_bytes)
}

/// A row in memory, as read.
#[derive(Clone, Copy)]
pub(crate) struct RowRef<'a> {
    owner: u32,
    seqno: u64,
    as_of: u64,
    expiry: u64,
    flags: u8,
    key_len: usize,
    value_len: usize,
    key: &'a [AtomicU64],
    value: &'a [AtomicU64],
}

impl<'a> RowRef<'a> {
    /// The row at the start of `words`; `None` if there is none.
    #[inline]
    pub(crate) fn read(words: &'a [AtomicU64]) -> Option<Self> {
        let ([first, as_of, lengths], rest) = words.split_first_chunk()?;
        let (first, lengths) = (first.load(Relaxed), lengths.load(Relaxed));
        let (key_len, value_len) = ((lengths >> 32) as u16 as usize, (lengths >> 48) as usize);
        let (expiry, rest) = match first & EXPIRES {
            0 => (0, rest),
            _ => rest.split_first().map(|(expiry, rest)| (expiry.load(Relaxed), rest))?,
        };
        let (key, rest) = rest.split_at_checked(key_len.div_ceil(WORD_BYTES))?;
        let value = rest.get(..value_len.div_ceil(WORD_BYTES))?;
        let (owner, as_of) = (lengths as u32, as_of.load(Relaxed));
        let is_row = key_len > 0;
        is_row.then_some(Self {
            owner,
            seqno: first >> 8,
            as_of,
            expiry,
            flags: first as u8,
            key_len,
            value_len,
            key,
            value,
        })
    }

    /// Words that the row uses.
    pub(crate) fn words(&self) -> usize {
        row_words(self.key_len, self.value_len, self.expiry > 0)
    }

    /// The hit of a reader at seqno `at` of the row of `key` of `owner`, whose floor is `floor`. `None` if
    /// the row is of another key, too new for the reader, or older than the floor.
    #[inline]
    pub(crate) fn hit(
        &self,
        owner: &RowOwner,
        floor: u64,
        key: &[u8],
        at: Seqno,
    ) -> Option<RowHit> {
        if !self.is(owner.number, key) || self.seqno > at.get() || self.as_of < floor {
            return None;
        }
        let (seqno, as_of) = (Seqno::checked(self.seqno)?, Seqno::checked(self.as_of)?);
        let packed = self.flags & PACKED as u8 != 0;
        Some(RowHit { seqno, as_of, expiry: self.expiry, packed })
    }

    /// Whether the row's pages were on the device when it was filled.
    pub(super) fn is_from_device(&self) -> bool {
        self.flags & FROM_DEVICE as u8 != 0
    }

    /// Whether both rows have the same key and owner.
    pub(crate) fn has_key_of(&self, other: &RowRef<'_>) -> bool {
        let words = self.key.iter().zip(other.key);
        (self.owner, self.key_len) == (other.owner, other.key_len)
            && words.into_iter().all(|(one, other)| one.load(Relaxed) == other.load(Relaxed))
    }

    /// A hash of the header and the owner.
    pub(crate) fn header_hash(&self) -> u64 {
        let lengths = (self.key_len as u64) << 32 | self.value_len as u64;
        let parts = [self.seqno, self.as_of, self.expiry, u64::from(self.flags), lengths];
        parts.iter().fold(u64::from(self.owner), |all, part| {
            (all.rotate_left(23) ^ part).wrapping_mul(0xd6e8_feb8_6659_fd93)
        })
    }

    #[inline]
    fn is(&self, owner: u32, key: &[u8]) -> bool {
        self.owner == owner
            && self.key_len == key.len()
            && self.key.iter().zip(chunks(key)).all(|(word, key)| word.load(Relaxed) == key)
    }

    /// The number of the owner.
    pub(super) const fn owner(&self) -> u32 {
        self.owner
    }

    /// Replaces the content of `out` by the key.
    pub(super) fn copy_key(&self, out: &mut Vec<u8>) {
        copy(self.key, self.key_len, out);
    }

    /// Replaces the content of `out` by the value.
    #[inline]
    pub(crate) fn copy_value(&self, out: &mut Vec<u8>) {
        copy(self.value, self.value_len, out);
    }

    /// The row's hash; overwrites `scratch`.
    pub(crate) fn hash(&self, scratch: &mut Vec<u8>) -> u64 {
        copy(self.key, self.key_len, scratch);
        hash_of(self.owner, key_hash(scratch))
    }
}

#[inline]
fn copy(words: &[AtomicU64], len: usize, out: &mut Vec<u8>) {
    out.resize(len, 0);
    let (whole, rest) = out.as_chunks_mut::<WORD_BYTES>();
    for (to, word) in whole.iter_mut().zip(words) {
        *to = word.load(Relaxed).to_le_bytes();
    }
    if let Some(last) = words.get(len / WORD_BYTES) {
        rest.iter_mut().zip(last.load(Relaxed).to_le_bytes()).for_each(|(to, from)| *to = from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_lengths_are_read_back() {
        let words: Vec<AtomicU64> = (0..ROW_BYTES_MAX / 8).map(|_| AtomicU64::new(!0)).collect();
        let bytes: Vec<u8> = (0..=255).collect();
        for key in [1, 7, 8, 9, 16, 255] {
            for value in [0, 1, 8, 15, 100, 256] {
                for (expiry, packed) in [(0, false), (0, true), (1_700_000_000_000, true)] {
                    let (key, value) = (&bytes[..key], &bytes[..value]);
                    let (seqno, as_of) = (Seqno::MAX, Seqno::new(77));
                    let from = RowFrom::Device;
                    let row = Row { key, value, packed, seqno, as_of, expiry, from };
                    row.write(9, &words[..row.words()]);
                    let read = RowRef::read(&words).unwrap();
                    let mut out = vec![1, 2, 3];
                    read.copy_value(&mut out);
                    assert_eq!((&out[..], read.words()), (value, row.words()));
                    assert_eq!((read.seqno, read.as_of), (seqno.get(), 77));
                    let hit = read.hit(&RowOwner::new(9), 77, key, Seqno::MAX).unwrap();
                    assert_eq!((hit.seqno, hit.as_of), (seqno, row.as_of));
                    assert_eq!((hit.expiry, hit.packed), (expiry, packed));
                    assert!(read.is(9, key) && !read.is(8, key) && !read.is(9, &bytes[1..]));
                    assert_eq!(read.hash(&mut out), hash_of(9, key_hash(key)));
                }
            }
        }
    }

    #[test]
    fn any_words_are_read_within_bounds() {
        let words: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(!0)).collect();
        assert!(RowRef::read(&words).is_none());
        words[2].store(5 << 32, Relaxed);
        for length in 0..4 {
            assert!(RowRef::read(&words[..length]).is_none());
        }
        words.iter().for_each(|word| word.store(0, Relaxed));
        assert!(RowRef::read(&words).is_none(), "nothing was written here");
    }
}
