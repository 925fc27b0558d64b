//! Iteration over a range of keys, from either end.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use base::Result;
use bytes::Bytes;

use crate::reads::{Cursor, CursorSource};

/// A key and its value.
pub type Entry = (Bytes, Bytes);

/// The entries of a key range at one sequence number, in key order; from the back by `next_back` or `.rev()`.
///
/// An error ends the iteration. To read beyond a damaged page, iterate over a range behind it.
pub struct Iter {
    source: CursorSource,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    front: Option<Cursor>,
    back: Option<Cursor>,
    ended: bool,
}

impl Iter {
    /// Iterates over the keys within `bounds`.
    pub fn new<K: AsRef<[u8]>>(source: CursorSource, bounds: impl RangeBounds<K>) -> Self {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let (lower, upper) = (owned(bounds.start_bound()), owned(bounds.end_bound()));
        Self { source, lower, upper, front: None, back: None, ended: false }
    }

    /// Iterates over the keys that begin with `prefix`.
    pub fn prefix(source: CursorSource, prefix: &[u8]) -> Self {
        let upper = match after_prefix(prefix) {
            Some(upper) => Bound::Excluded(upper),
            None => Bound::Unbounded,
        };
        let lower = Bound::Included(prefix.to_vec());
        Self { source, lower, upper, front: None, back: None, ended: false }
    }

    fn step_front(&mut self) -> Result<Option<Entry>> {
        let valid = match &mut self.front {
            Some(cursor) => cursor.next()?,
            none => {
                let cursor = none.insert(self.source.cursor()?);
                match &self.lower {
                    Bound::Unbounded => cursor.seek_to_first()?,
                    Bound::Included(key) => cursor.seek(key)?,
                    Bound::Excluded(key) => {
                        cursor.seek(key)? && (cursor.key() != Some(key) || cursor.next()?)
                    }
                }
            }
        };
        let Some(cursor) = self.front.as_ref().filter(|_| valid) else { return Ok(None) };
        let met = self.back.as_ref().and_then(Cursor::key);
        Ok(entry(cursor).filter(|(key, _)| {
            within_upper(key, &self.upper) && met.is_none_or(|back| key.as_ref() < back)
        }))
    }

    fn step_back(&mut self) -> Result<Option<Entry>> {
        let valid = match &mut self.back {
            Some(cursor) => cursor.prev()?,
            none => {
                let cursor = none.insert(self.source.cursor()?);
                match &self.upper {
                    Bound::Unbounded => cursor.seek_to_last()?,
                    Bound::Excluded(key) => cursor.seek_before(key)?,
                    Bound::Included(key) => {
                        let at = cursor.seek(key)?;
                        if at && cursor.key() == Some(key) {
                            true
                        } else {
                            cursor.seek_before(key)?
                        }
                    }
                }
            }
        };
        let Some(cursor) = self.back.as_ref().filter(|_| valid) else { return Ok(None) };
        let met = self.front.as_ref().and_then(Cursor::key);
        Ok(entry(cursor).filter(|(key, _)| {
            within_lower(key, &self.lower) && met.is_none_or(|front| key.as_ref() > front)
        }))
    }

    fn end_unless(&mut self, step: Result<Option<Entry>>) -> Option<Result<Entry>> {
        self.ended = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

fn entry(cursor: &Cursor) -> Option<Entry> {
    Some((Bytes::copy_from_slice(cursor.key()?), cursor.shared_value()?))
}

fn within_upper(key: &[u8], upper: &Bound<Vec<u8>>) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(upper) => key <= upper.as_slice(),
        Bound::Excluded(upper) => key < upper.as_slice(),
    }
}

fn within_lower(key: &[u8], lower: &Bound<Vec<u8>>) -> bool {
    match lower {
        Bound::Unbounded => true,
        Bound::Included(lower) => key >= lower.as_slice(),
        Bound::Excluded(lower) => key > lower.as_slice(),
    }
}

/// The least byte string after all strings that begin with `prefix`; `None` if there is none.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut after = prefix.to_vec();
    while let Some(last) = after.pop() {
        if last < 0xff {
            after.push(last + 1);
            return Some(after);
        }
    }
    None
}

impl Iterator for Iter {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if self.ended {
            return None;
        }
        let step = self.step_front();
        self.end_unless(step)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        if self.ended {
            return None;
        }
        let step = self.step_back();
        self.end_unless(step)
    }
}

impl std::iter::FusedIterator for Iter {}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Iter({:?}..{:?})", self.lower, self.upper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_prefix_is_the_least_string_after_all_with_the_prefix() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }
}
