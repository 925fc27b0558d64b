//! The key range that a walk stays in. The walk ends at the bound, not at the next key with a value behind
//! it, and opens no table that begins there.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use base::KeyRange;
use bytes::Bytes;

use crate::dead_spans::successor;

/// The keys that a walk may return: those of a range, or all. Clones share the range.
#[derive(Clone, Default)]
pub(super) struct WalkBounds {
    range: Option<Arc<KeyRange>>,
}

impl WalkBounds {
    pub(super) fn new(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Self {
        let first = match lower {
            Bound::Unbounded => Bytes::new(),
            Bound::Included(key) => Bytes::copy_from_slice(key),
            Bound::Excluded(key) => successor(key).into(),
        };
        let end = match upper {
            Bound::Unbounded => None,
            Bound::Excluded(key) => Some(Bytes::copy_from_slice(key)),
            Bound::Included(key) => Some(successor(key).into()),
        };
        let is_all = first.is_empty() && end.is_none();
        Self { range: (!is_all).then(|| Arc::new(KeyRange { first, end })) }
    }

    /// The first key; empty if there is no bound.
    pub(super) fn first(&self) -> &[u8] {
        self.range.as_ref().map_or(&[], |range| &range.first)
    }

    /// The first key behind the walk, if there is a bound.
    pub(super) fn end(&self) -> Option<&[u8]> {
        self.range.as_ref()?.end.as_deref()
    }

    /// Whether a walk in this direction has passed its bound at `key`.
    #[inline]
    pub(super) fn is_passed(&self, key: &[u8], forward: bool) -> bool {
        match &self.range {
            None => false,
            Some(range) if forward => !range.is_end_after(key),
            Some(range) => *key < *range.first,
        }
    }

    /// Whether a walk in this direction has passed its bound at every key of `other`.
    pub(super) fn is_passed_at_all(&self, other: &KeyRange, forward: bool) -> bool {
        match &self.range {
            None => false,
            Some(range) if forward => range.is_before(other),
            Some(range) => other.is_before(range),
        }
    }

    /// Leaves out the keys before `key`. Walks that were begun keep their bounds.
    pub(super) fn begin_at(&mut self, key: &[u8]) {
        self.range_mut().first = Bytes::copy_from_slice(key);
    }

    /// Leaves out `key` and the keys after it. Walks that were begun keep their bounds.
    pub(super) fn end_before(&mut self, key: &[u8]) {
        self.range_mut().end = Some(Bytes::copy_from_slice(key));
    }

    fn range_mut(&mut self) -> &mut KeyRange {
        Arc::make_mut(self.range.get_or_insert_with(|| Arc::new(KeyRange::all())))
    }
}

impl fmt::Debug for WalkBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.first().escape_ascii())?;
        self.end().map_or(Ok(()), |end| write!(f, "{}", end.escape_ascii()))
    }
}
