//! Bounds: the key range to which a table, a cursor or a job is restricted.

use base::KeyRange;
use bytes::Bytes;

/// A range of keys. The default is unbounded and contains every key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// The first key inside; `None`: unbounded below.
    pub first: Option<Bytes>,
    /// The first key after the range; `None`: unbounded above.
    pub end: Option<Bytes>,
}

impl Bounds {
    /// Every key.
    pub const ALL: Self = Self { first: None, end: None };

    /// Whether the range contains every key.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.first.is_none() && self.end.is_none()
    }

    /// Whether the range contains no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!((&self.first, &self.end), (Some(first), Some(end)) if first >= end)
    }

    /// Whether `key` is inside.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.is_after(key) && !self.is_before(key)
    }

    /// Whether the whole range is after `key`.
    #[must_use]
    pub fn is_after(&self, key: &[u8]) -> bool {
        self.first.as_ref().is_some_and(|first| key < &**first)
    }

    /// Whether the whole range is before `key`.
    #[must_use]
    pub fn is_before(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| key >= &**end)
    }

    /// The keys that are inside both ranges.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let end = match (&self.end, &other.end) {
            (Some(one), Some(another)) => Some(one.min(another)),
            (one, another) => one.as_ref().or(another.as_ref()),
        };
        // `None` orders before every key.
        Self { first: self.first.clone().max(other.first.clone()), end: end.cloned() }
    }
}

impl From<&KeyRange> for Bounds {
    fn from(range: &KeyRange) -> Self {
        let first = (!range.first.is_empty()).then(|| range.first.clone());
        Self { first, end: range.end.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_contain_keys_from_first_to_before_end() {
        let bounds = |first: &'static str, end: &'static str| Bounds {
            first: (!first.is_empty()).then(|| first.into()),
            end: (!end.is_empty()).then(|| end.into()),
        };
        let of = |bounds: &Bounds| ["a", "b", "c", "d"].map(|key| bounds.contains(key.as_bytes()));
        assert_eq!(of(&Bounds::ALL), [true; 4]);
        assert_eq!(of(&bounds("b", "d")), [false, true, true, false]);
        assert_eq!(of(&bounds("b", "").intersect(&bounds("", "c"))), [false, true, false, false]);
        assert_eq!(of(&bounds("a", "c").intersect(&bounds("b", "d"))), [false, true, false, false]);
        assert!(bounds("c", "b").is_empty() && bounds("c", "c").is_empty());
        assert!(!bounds("b", "c").is_empty() && Bounds::ALL.is_all() && !bounds("b", "").is_all());
    }
}
