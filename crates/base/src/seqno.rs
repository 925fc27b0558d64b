//! Sequence numbers, and the trailer that orders the versions of one key.

use std::fmt;

use crate::{EntryKind, Error, Result};

/// A sequence number: the position of a write in the store's total order of writes. It has 56 bits; 0 is
/// before every write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seqno(u64);

impl Seqno {
    /// The sequence number before every write.
    pub const ZERO: Self = Self(0);
    /// The largest sequence number: reads at it see every write.
    pub const MAX: Self = Self((1 << 56) - 1);

    /// The sequence number `value`.
    ///
    /// # Panics
    /// If `value` exceeds 56 bits. At a million writes a second that takes 2,283 years.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        assert!(value <= Self::MAX.0, "sequence numbers are exhausted");
        Self(value)
    }

    /// The sequence number `value` of bytes from outside; `None` if it exceeds 56 bits.
    #[must_use]
    pub const fn checked(value: u64) -> Option<Self> {
        if value <= Self::MAX.0 { Some(Self(value)) } else { None }
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The previous sequence number; 0 for 0.
    #[must_use]
    pub const fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The sequence number `count` after this one.
    ///
    /// # Panics
    /// As [`Seqno::new`].
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self::new(self.0 + count)
    }
}

impl fmt::Debug for Seqno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seqno({})", self.0)
    }
}

impl fmt::Display for Seqno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A version's sequence number and kind in one word: `seqno << 8 | kind byte`.
///
/// Versions of one key are stored in order of *descending* trailer: newest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trailer(u64);

impl Trailer {
    /// The trailer of a version.
    #[must_use]
    pub const fn new(seqno: Seqno, kind: EntryKind) -> Self {
        Self(seqno.get() << 8 | kind as u64)
    }

    /// The trailer from which to search for the newest version visible at `seqno`. No version with that
    /// sequence number has a larger trailer.
    #[must_use]
    pub const fn seek(seqno: Seqno) -> Self {
        Self(seqno.get() << 8 | 0xff)
    }

    /// The trailer `word` of bytes from outside.
    ///
    /// # Errors
    /// `Corrupt` if the kind byte is not one of [`EntryKind`].
    pub fn decode(word: u64) -> Result<Self> {
        EntryKind::decode((word & 0xff) as u8)?;
        Ok(Self(word))
    }

    /// The word as stored.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The trailer of a word that [`Trailer::word`] returned. Use [`Trailer::decode`] for bytes from outside.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The version's sequence number.
    #[must_use]
    pub const fn seqno(self) -> Seqno {
        Seqno(self.0 >> 8)
    }

    /// The version's kind.
    ///
    /// # Errors
    /// `Corrupt` if the kind byte is not one of [`EntryKind`], as in a trailer made by [`Trailer::seek`].
    #[inline]
    pub fn kind(self) -> Result<EntryKind> {
        EntryKind::decode((self.0 & 0xff) as u8)
    }
}

impl fmt::Debug for Trailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Ok(kind) => write!(f, "{}/{kind:?}", self.seqno()),
            Err(_) => write!(f, "{}/0x{:02x}", self.seqno(), self.0 & 0xff),
        }
    }
}

impl From<Trailer> for u64 {
    fn from(trailer: Trailer) -> Self {
        trailer.0
    }
}

impl TryFrom<u64> for Seqno {
    type Error = Error;

    fn try_from(value: u64) -> Result<Self> {
        Self::checked(value)
            .ok_or_else(|| Error::corrupt("sequence number").expected("56 bits").got(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_version_has_a_larger_trailer_and_seek_excludes_newer_versions() {
        let old = Trailer::new(Seqno::new(7), EntryKind::Put);
        let new = Trailer::new(Seqno::new(8), EntryKind::Delete);
        assert!(new > old);
        assert!(Trailer::seek(Seqno::new(7)) >= old && Trailer::seek(Seqno::new(7)) < new);
        assert_eq!(new.seqno(), Seqno::new(8));
        assert_eq!(new.kind().unwrap(), EntryKind::Delete);
    }

    #[test]
    fn an_unknown_kind_and_a_57_bit_seqno_are_corrupt() {
        assert_eq!(Trailer::decode(0xff).unwrap_err().kind(), crate::ErrorKind::Corrupt);
        assert!(Seqno::try_from(1 << 56).is_err());
    }
}
