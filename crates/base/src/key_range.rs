//! A range of keys; either bound may be missing.

use std::fmt;

use bytes::Bytes;

/// The keys from `first`, inclusive, to `end`, exclusive. An empty `first` is before every key; without an
/// `end` the range is unbounded.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// The first key in the range.
    pub first: Bytes,
    /// The first key after the range.
    pub end: Option<Bytes>,
}

impl KeyRange {
    /// The range from `first` to `end`, both copied.
    #[must_use]
    pub fn new(first: &[u8], end: Option<&[u8]>) -> Self {
        Self { first: Bytes::copy_from_slice(first), end: end.map(Bytes::copy_from_slice) }
    }

    /// The range from `first` to `last`, both inclusive.
    #[must_use]
    pub fn through(first: &[u8], last: &[u8]) -> Self {
        let mut end = Vec::with_capacity(last.len() + 1);
        end.extend_from_slice(last);
        // The least key after `last`.
        end.push(0);
        Self { first: Bytes::copy_from_slice(first), end: Some(end.into()) }
    }

    /// The range of all keys.
    #[must_use]
    pub const fn all() -> Self {
        Self { first: Bytes::new(), end: None }
    }

    /// Whether the range contains no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.first)
    }

    /// Whether the range contains `key`.
    #[must_use]
    pub fn holds(&self, key: &[u8]) -> bool {
        *self.first <= *key && self.is_end_after(key)
    }

    /// Whether the range ends after `key`.
    #[must_use]
    pub fn is_end_after(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| &**end > key)
    }

    /// Whether the range ends before `other` begins.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        !self.is_end_after(&other.first)
    }

    /// Whether some key may lie in both ranges.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        !self.is_before(other) && !other.is_before(self)
    }

    /// Whether the range contains every key of `other`.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.first <= other.first && earlier(&self.end, &other.end) == &other.end
    }

    /// The keys in both ranges; empty if there is none.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let first = (&self.first).max(&other.first).clone();
        Self { first, end: earlier(&self.end, &other.end).clone() }
    }

    /// The smallest range that covers both, with the keys between them.
    #[must_use]
    pub fn hull(&self, other: &Self) -> Self {
        let end = if earlier(&self.end, &other.end) == &self.end { &other.end } else { &self.end };
        Self { first: (&self.first).min(&other.first).clone(), end: end.clone() }
    }

    /// The first key and the end, as shown to people; instead of the end the last key, if the range includes
    /// it.
    #[must_use]
    pub fn shown(&self) -> (Vec<u8>, Vec<u8>) {
        let end = self.end.as_deref().unwrap_or(b"\xff");
        (self.first.to_vec(), end.strip_suffix(&[0]).unwrap_or(end).to_vec())
    }

    /// The keys that are not in `cut`: no range, one or two.
    #[must_use]
    pub fn subtract(&self, cut: &Self) -> Vec<Self> {
        if !self.overlaps(cut) {
            return vec![self.clone()];
        }
        self.around(cut).into_iter().filter(|part| !part.is_empty()).collect()
    }

    /// The part before `other` and the part after it; each may be empty.
    fn around(&self, other: &Self) -> [Self; 2] {
        let nothing = || Self { first: Bytes::new(), end: Some(Bytes::new()) };
        let before = Self {
            first: self.first.clone(),
            end: earlier(&self.end, &Some(other.first.clone())).clone(),
        };
        let after = match &other.end {
            Some(end) => Self { first: (&self.first).max(end).clone(), end: self.end.clone() },
            None => nothing(),
        };
        [before, after]
    }

    /// The length of both bounds together, bytes.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.first.len() + self.end.as_ref().map_or(0, |end| end.len())
    }

    /// Whether the range ends at `key` or after it. `key` is not before the range.
    #[must_use]
    pub fn reaches(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| *key <= **end)
    }

    /// Moves the end to `end` if that is later.
    pub fn extend_to(&mut self, end: Option<Bytes>) {
        self.end = match (self.end.take(), end) {
            (Some(mine), Some(other)) => Some(mine.max(other)),
            _ => None,
        };
    }
}

/// The earlier of two ends.
fn earlier<'a>(one: &'a Option<Bytes>, other: &'a Option<Bytes>) -> &'a Option<Bytes> {
    match (one, other) {
        (Some(a), Some(b)) if b < a => other,
        (None, Some(_)) => other,
        _ => one,
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` to ", self.first.escape_ascii())?;
        match self.end.as_deref() {
            // The least key after `last`: the range includes `last`.
            Some([last @ .., 0]) => write!(f, "`{}`", last.escape_ascii()),
            Some(end) => write!(f, "before `{}`", end.escape_ascii()),
            None => f.write_str("the end"),
        }
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, end: &str) -> KeyRange {
        let end = (end != "-").then(|| Bytes::copy_from_slice(end.as_bytes()));
        KeyRange { first: Bytes::copy_from_slice(first.as_bytes()), end }
    }

    #[test]
    fn overlap_intersection_hull_and_cover_of_two_ranges() {
        let (am, gz, z) = (range("a", "m"), range("g", "z"), range("z", "-"));
        assert!(am.overlaps(&gz) && !gz.overlaps(&z) && gz.is_before(&z));
        assert_eq!(am.intersection(&gz), range("g", "m"));
        assert!(gz.intersection(&z).is_empty());
        assert_eq!(am.hull(&z), range("a", "-"));
        assert_eq!(am.hull(&range("c", "d")), am);
        assert!(am.holds(b"a") && !am.holds(b"m") && z.holds(b"zzz"));
        assert!(am.covers(&range("b", "m")) && !am.covers(&gz) && KeyRange::all().covers(&z));
        assert!(!am.covers(&z) && !range("z", "zz").covers(&z));
        assert_eq!(KeyRange::through(b"a", b"b"), range("a", "b\0"));
    }

    #[test]
    fn subtract_leaves_the_parts_before_and_after_the_cut() {
        let piece = range("b", "f");
        assert_eq!(piece.subtract(&range("c", "d")), [range("b", "c"), range("d", "f")]);
        assert_eq!(piece.subtract(&range("a", "d")), [range("d", "f")]);
        assert_eq!(piece.subtract(&range("d", "-")), [range("b", "d")]);
        for apart in [range("f", "k"), range("a", "b")] {
            assert_eq!(piece.subtract(&apart), std::slice::from_ref(&piece));
        }
        assert_eq!(piece.subtract(&KeyRange::all()), []);
        assert_eq!(range("k", "-").subtract(&range("m", "n")), [range("k", "m"), range("n", "-")]);
    }
}
