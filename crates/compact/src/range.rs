//! A range of keys, with either side open.

use bytes::Bytes;

/// The keys from `first` (an empty key is before every key) up to `end`, which is excluded; all
/// keys that follow where there is no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key in the range.
    pub first: Bytes,
    /// The first key past it.
    pub end: Option<Bytes>,
}

impl KeyRange {
    /// A range of copies.
    #[must_use]
    pub fn new(first: &[u8], end: Option<&[u8]>) -> Self {
        Self { first: Bytes::copy_from_slice(first), end: end.map(Bytes::copy_from_slice) }
    }

    /// Every key.
    #[must_use]
    pub const fn all() -> Self {
        Self { first: Bytes::new(), end: None }
    }

    /// Whether no key is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.first)
    }

    /// Whether `key` is in it.
    #[must_use]
    pub fn holds(&self, key: &[u8]) -> bool {
        *self.first <= *key && self.end.as_ref().is_none_or(|end| *key < **end)
    }

    /// Whether `key` is in it or right behind it.
    pub(crate) fn reaches(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| *key <= **end)
    }

    /// Moves the end to `end` where that is later.
    pub(crate) fn extend_to(&mut self, end: Option<Bytes>) {
        self.end = match (self.end.take(), end) {
            (Some(mine), Some(other)) => Some(mine.max(other)),
            _ => None,
        };
    }
}
