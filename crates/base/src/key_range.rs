//! A range of keys, with either side open.

use std::fmt;

use bytes::Bytes;

/// The keys from `first` (an empty key is before every key) up to `end`, which is excluded; all
/// keys that follow where there is no end.
#[derive(Clone, PartialEq, Eq, Hash)]
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

    /// From `first` to `last`, both included.
    #[must_use]
    pub fn through(first: &[u8], last: &[u8]) -> Self {
        let mut end = Vec::with_capacity(last.len() + 1);
        end.extend_from_slice(last);
        // The least key after `last`.
        end.push(0);
        Self { first: Bytes::copy_from_slice(first), end: Some(end.into()) }
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
        *self.first <= *key && self.is_end_after(key)
    }

    /// Whether the range ends after `key`.
    #[must_use]
    pub fn is_end_after(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| &**end > key)
    }

    /// Whether all of it lies before `other`.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        !self.is_end_after(&other.first)
    }

    /// Whether some key may lie in both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        !self.is_before(other) && !other.is_before(self)
    }

    /// Whether all of `other` lies in it.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.first <= other.first && earlier(&self.end, &other.end) == &other.end
    }

    /// What lies in both; empty where nothing does.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let first = (&self.first).max(&other.first).clone();
        Self { first, end: earlier(&self.end, &other.end).clone() }
    }

    /// From the first key of either to the end of either, what lies between them included.
    #[must_use]
    pub fn hull(&self, other: &Self) -> Self {
        let end = if earlier(&self.end, &other.end) == &self.end { &other.end } else { &self.end };
        Self { first: (&self.first).min(&other.first).clone(), end: end.clone() }
    }

    /// First key and end, for people: the last key where one ends the range.
    #[must_use]
    pub fn shown(&self) -> (Vec<u8>, Vec<u8>) {
        let end = self.end.as_deref().unwrap_or(b"\xff");
        (self.first.to_vec(), end.strip_suffix(&[0]).unwrap_or(end).to_vec())
    }

    /// What is left of it without the keys in `cut`: none, one or two ranges.
    #[must_use]
    pub fn subtract(&self, cut: &Self) -> Vec<Self> {
        if !self.overlaps(cut) {
            return vec![self.clone()];
        }
        self.around(cut).into_iter().filter(|part| !part.is_empty()).collect()
    }

    /// What of it lies before `other`, and what lies after; parts may be empty.
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

    /// The bytes of its keys.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.first.len() + self.end.as_ref().map_or(0, |end| end.len())
    }

    /// Whether `key` is in it or right behind it.
    #[must_use]
    pub fn reaches(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| *key <= **end)
    }

    /// Moves the end to `end` where that is later.
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
            // The least key after another: up to that one.
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
    fn what_two_ranges_share_and_do_not() {
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
    fn a_cut_leaves_what_lies_before_and_after() {
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
