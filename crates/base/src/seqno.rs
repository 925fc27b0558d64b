//! Sequence numbers and the trailer that orders the versions of one key.

use std::fmt;

use crate::{EntryKind, Error, Result};

/// The position of a write in the store's single order of writes. 56 bits; 0 is before every write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seqno(u64);

impl Seqno {
    /// Before every write.
    pub const ZERO: Self = Self(0);
    /// The largest sequence number: reads at it see every write.
    pub const MAX: Self = Self((1 << 56) - 1);

    /// # Panics
    /// If `value` does not fit in 56 bits: at a million writes a second that takes 2,283 years.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        assert!(value <= Self::MAX.0, "sequence numbers are exhausted");
        Self(value)
    }

    /// A sequence number read from bytes from outside; `None` if it does not fit in 56 bits.
    #[must_use]
    pub const fn checked(value: u64) -> Option<Self> {
        if value <= Self::MAX.0 { Some(Self(value)) } else { None }
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number one place earlier; zero stays zero.
    #[must_use]
    pub const fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The number `count` places later.
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
/// Versions of one key are stored by *descending* trailer: newest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trailer(u64);

impl Trailer {
    /// The trailer of a version.
    #[must_use]
    pub const fn new(seqno: Seqno, kind: EntryKind) -> Self {
        Self(seqno.get() << 8 | kind as u64)
    }

    /// The trailer at which a search for the newest version visible at `seqno` starts: no trailer
    /// of that sequence number is larger.
    #[must_use]
    pub const fn seek(seqno: Seqno) -> Self {
        Self(seqno.get() << 8 | 0xff)
    }

    /// A trailer read from bytes from outside.
    ///
    /// # Errors
    /// `Corrupt` where the kind byte is not one of [`EntryKind`].
    pub fn decode(word: u64) -> Result<Self> {
        EntryKind::decode((word & 0xff) as u8)?;
        Ok(Self(word))
    }

    /// The word as stored.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The trailer a container of this crate family handed back; not for bytes from outside.
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
    /// `Corrupt` where the kind byte is not one of [`EntryKind`]: a search trailer, or foreign bytes.
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
    fn newer_versions_have_larger_trailers_and_seek_finds_the_newest_visible() {
        let old = Trailer::new(Seqno::new(7), EntryKind::Put);
        let new = Trailer::new(Seqno::new(8), EntryKind::Delete);
        assert!(new > old);
        assert!(Trailer::seek(Seqno::new(7)) >= old && Trailer::seek(Seqno::new(7)) < new);
        assert_eq!(new.seqno(), Seqno::new(8));
        assert_eq!(new.kind().unwrap(), EntryKind::Delete);
    }

    #[test]
    fn foreign_words_are_refused() {
        assert_eq!(Trailer::decode(0xff).unwrap_err().kind(), crate::ErrorKind::Corrupt);
        assert!(Seqno::try_from(1 << 56).is_err());
    }
}
