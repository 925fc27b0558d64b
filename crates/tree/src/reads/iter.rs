//! Iteration over a range of keys, from either end.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use base::Result;
use bytes::{Bytes, BytesMut};

use super::walk_bounds::WalkBounds;
use crate::dead_spans::successor;
use crate::reads::{Cursor, CursorSource};

/// A key and its value.
pub type Entry = (Bytes, Bytes);

/// A key, with its value or the error of that key alone.
pub type KeyEntry = (Bytes, Result<Bytes>);

/// The entries of a key range at one sequence number, in key order; from the back by `next_back` or `.rev()`.
///
/// An error ends the iteration, unless it is that of one key and [`Iter::continue_after_key_errors`] was
/// called. To read beyond a damaged page, iterate over a range behind it.
pub struct Iter {
    source: CursorSource,
    bounds: WalkBounds,
    front: Option<Cursor>,
    back: Option<Cursor>,
    /// The next step from this side begins at its bound, which has moved.
    front_seeks: bool,
    back_seeks: bool,
    keys: KeyCopies,
    continues: bool,
    /// One side found no further key, so the other one has none either. The flag says so, because the cursor
    /// of the first side then has no position, and only a position bounds the other side.
    exhausted: bool,
    ended: bool,
}

/// Iterates over the keys of `source` within `bounds`. Not a method: [`Iter`] is part of the public API, and
/// its source is not.
pub fn iterate<K: AsRef<[u8]>>(source: CursorSource, bounds: impl RangeBounds<K>) -> Iter {
    let (lower, upper) = (bounds.start_bound(), bounds.end_bound());
    Iter::over(source, WalkBounds::new(lower.map(K::as_ref), upper.map(K::as_ref)))
}

/// Iterates over the keys of `source` that begin with `prefix`.
pub fn iterate_prefix(source: CursorSource, prefix: &[u8]) -> Iter {
    let after = after_prefix(prefix);
    let upper = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    Iter::over(source, WalkBounds::new(Bound::Included(prefix), upper))
}

impl Iter {
    fn over(source: CursorSource, bounds: WalkBounds) -> Self {
        Self {
            source,
            bounds,
            front: None,
            back: None,
            front_seeks: false,
            back_seeks: false,
            keys: KeyCopies::default(),
            continues: false,
            exhausted: false,
            ended: false,
        }
    }

    /// Goes on with the next key after the error of one key: its merge operands cannot be merged, or its long
    /// value is damaged. The iterator returns that error, which names the key, and then the other entries.
    /// Any other error still ends the iteration.
    #[must_use]
    pub fn continue_after_key_errors(mut self) -> Self {
        self.continues = true;
        self
    }

    /// The next key from the front, with its value or the error of that key alone. `None` at the end.
    ///
    /// # Errors
    /// Those that are not of one key, as [`Cursor::next`].
    pub fn next_key(&mut self) -> Result<Option<KeyEntry>> {
        if self.exhausted {
            return Ok(None);
        }
        let seeks = std::mem::take(&mut self.front_seeks);
        let moved = match &mut self.front {
            Some(cursor) if !seeks => match cursor.failed_key().map(successor) {
                Some(next) => cursor.seek(next),
                None => cursor.next(),
            },
            place => {
                let cursor = match place {
                    Some(cursor) => cursor,
                    none => none.insert(self.source.cursor_within(&self.bounds)?),
                };
                match self.bounds.first() {
                    [] => cursor.seek_to_first(),
                    first => cursor.seek(first),
                }
            }
        };
        self.front_entry(moved)
    }

    /// The entry at which the front is after a move that ended with `moved`, unless it lies outside.
    fn front_entry(&mut self, moved: Result<bool>) -> Result<Option<KeyEntry>> {
        let met = self.back.as_ref().and_then(position);
        let entry = entry(self.front.as_ref(), moved, &mut self.keys)?;
        let entry = entry.filter(|(key, _)| {
            !self.bounds.is_passed(key, true) && met.is_none_or(|back| key.as_ref() < back)
        });
        self.exhausted = entry.is_none();
        Ok(entry)
    }

    /// Leaves out the keys before `key`, which must be at or after the key that the iterator would return
    /// next from the front. Costs a seek at the next step.
    pub fn skip_to(&mut self, key: &[u8]) {
        self.bounds.begin_at(key);
        self.front_seeks = true;
    }

    /// Leaves out `key` and the keys after it; as [`Iter::skip_to`], from the back.
    pub fn skip_back_to(&mut self, key: &[u8]) {
        self.bounds.end_before(key);
        self.back_seeks = true;
    }

    /// When the value that [`Iter::next_key`] returned last expires, Unix milliseconds; 0 if it does not
    /// expire, and before the first one.
    #[must_use]
    pub fn expiry_unix_ms(&self) -> u64 {
        self.front.as_ref().map_or(0, Cursor::expiry_unix_ms)
    }

    /// As [`Iter::next_key`], from the back.
    ///
    /// # Errors
    /// As [`Iter::next_key`].
    pub fn next_key_back(&mut self) -> Result<Option<KeyEntry>> {
        if self.exhausted {
            return Ok(None);
        }
        let seeks = std::mem::take(&mut self.back_seeks);
        let moved = match &mut self.back {
            Some(cursor) if !seeks => match cursor.failed_key().map(<[u8]>::to_vec) {
                Some(failed) => cursor.seek_before(failed),
                None => cursor.prev(),
            },
            place => {
                let cursor = match place {
                    Some(cursor) => cursor,
                    none => none.insert(self.source.cursor_within(&self.bounds)?),
                };
                match self.bounds.end() {
                    None => cursor.seek_to_last(),
                    Some(end) => cursor.seek_before(end),
                }
            }
        };
        let met = self.front.as_ref().and_then(position);
        let entry = entry(self.back.as_ref(), moved, &mut self.keys)?;
        let entry = entry.filter(|(key, _)| {
            !self.bounds.is_passed(key, false) && met.is_none_or(|front| key.as_ref() > front)
        });
        self.exhausted = entry.is_none();
        Ok(entry)
    }

    /// Ends the iteration after its last entry, and after an error unless it goes on after errors of keys.
    fn end_unless(&mut self, step: Result<Option<KeyEntry>>) -> Option<Result<Entry>> {
        let step = step.transpose();
        self.ended = match &step {
            Some(Ok((_, Ok(_)))) => false,
            Some(Ok((_, Err(_)))) => !self.continues,
            Some(Err(_)) | None => true,
        };
        step.map(|entry| entry.and_then(|(key, value)| Ok((key, value?))))
    }
}

/// Short keys are copied one behind the other into pieces of memory of this length, bytes: two allocations
/// for them all instead of one for each. A key that the caller keeps keeps its piece.
const KEYS_BYTES: usize = 256;

/// Copies of keys that an iterator returns.
#[derive(Default)]
struct KeyCopies {
    piece: BytesMut,
}

impl KeyCopies {
    #[inline]
    fn copy(&mut self, key: &[u8]) -> Bytes {
        if key.len() > KEYS_BYTES / 4 {
            return Bytes::copy_from_slice(key);
        }
        if self.piece.capacity() < key.len() {
            self.piece = BytesMut::with_capacity(KEYS_BYTES);
        }
        self.piece.extend_from_slice(key);
        self.piece.split().freeze()
    }
}

/// The key at which the cursor's last move ended, also if the key has an error.
fn position(cursor: &Cursor) -> Option<&[u8]> {
    cursor.key().or_else(|| cursor.failed_key())
}

/// The entry at which `cursor` is after a move that ended with `moved`.
fn entry(
    cursor: Option<&Cursor>,
    moved: Result<bool>,
    keys: &mut KeyCopies,
) -> Result<Option<KeyEntry>> {
    let Some(cursor) = cursor else { return Ok(None) };
    match moved {
        Ok(false) => Ok(None),
        Ok(true) => {
            let current = cursor.shared_entry();
            Ok(current.map(|(key, value)| (keys.copy(key), Ok(value))))
        }
        Err(error) => match cursor.failed_key() {
            Some(key) => Ok(Some((keys.copy(key), Err(error)))),
            None => Err(error),
        },
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
        // Most steps: they move few bytes, and copy the key alone.
        if let Some(cursor) = &mut self.front
            && !self.front_seeks
            && !self.exhausted
            && self.back.is_none()
            && cursor.valid()
        {
            let moved = cursor.next();
            if matches!(moved, Ok(true))
                && let Some((key, value)) = cursor.shared_entry()
                && !self.bounds.is_passed(key, true)
            {
                return Some(Ok((self.keys.copy(key), value)));
            }
            let step = self.front_entry(moved);
            return self.end_unless(step);
        }
        let step = self.next_key();
        self.end_unless(step)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        if self.ended {
            return None;
        }
        let step = self.next_key_back();
        self.end_unless(step)
    }
}

impl std::iter::FusedIterator for Iter {}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Iter({:?})", self.bounds)
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn short_keys_share_their_memory_and_long_ones_do_not() {
        let mut keys = KeyCopies::default();
        let lengths = [16, 16, 64, 65, 0, 16, 16, 60, 60, 60, 1];
        let expected: Vec<_> = (1..).zip(lengths).map(|(byte, len)| vec![byte; len]).collect();
        let copies: Vec<_> = expected.iter().map(|key| keys.copy(key)).collect();
        assert!(copies.iter().zip(&expected).all(|(copy, key)| copy == key));
        let follows =
            |one: usize, next: usize| copies[one].as_ptr_range().end == copies[next].as_ptr();
        assert!(follows(0, 1) && follows(1, 2) && follows(2, 5) && follows(5, 6) && follows(7, 8));
        assert!(!follows(2, 3) && !follows(8, 9) && follows(9, 10), "a full piece, and a long key");
    }

    #[test]
    fn after_prefix_is_the_least_string_after_all_with_the_prefix() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }
}
