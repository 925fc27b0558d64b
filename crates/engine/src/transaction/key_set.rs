//! A set of keys as ranges that do not overlap.
//!
//! The read set and the range deletes of a transaction are such sets. Every member is a half-open range; a
//! single key is the range up to the least key after it. An operation costs one search of an ordered map.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::broken_invariant;

/// A set of keys, as half-open ranges that do not overlap.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    /// The excluded end of each range by its start. `None` if the range has no end.
    ranges: BTreeMap<Box<[u8]>, Option<Box<[u8]>>>,
}

/// A half-open range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpan<'a> {
    /// The first key of the range.
    pub start: &'a [u8],
    /// The first key after the range. `None` if the range has no end.
    pub end: Option<&'a [u8]>,
}

impl<'a> KeySpan<'a> {
    /// The key, if the range has only one.
    #[must_use]
    pub fn single(self) -> Option<&'a [u8]> {
        let is_next = |end: &[u8]| end.strip_prefix(self.start) == Some(&[0]);
        self.end.is_some_and(is_next).then_some(self.start)
    }

    /// True if the range has no key.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.end.is_some_and(|end| end <= self.start)
    }
}

/// The least key after `key`.
#[must_use]
pub fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

impl KeySet {
    /// Adds one key.
    pub(super) fn insert_key(&mut self, key: &[u8]) {
        if !self.contains(key) {
            self.insert(KeySpan { start: key, end: Some(&successor(key)) });
        }
    }

    /// Adds a range and merges it with the ranges that it overlaps.
    pub fn insert(&mut self, range: KeySpan<'_>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) =
            (Box::<[u8]>::from(range.start), range.end.map(Box::<[u8]>::from));
        while let Some(old) = self.overlapping(range).map(|old| Box::<[u8]>::from(old.start)) {
            let Some(old_end) = self.ranges.remove(&old) else {
                // Recorded, so that no commit with this set is logged.
                let _ = broken_invariant!("an overlapping range is in the set");
                break;
            };
            start = old.min(start);
            end = end.and_then(|end| old_end.map(|old_end| end.max(old_end)));
        }
        let until = (Bound::Unbounded, Bound::Included(&*start));
        let before = self.ranges.range::<[u8], _>(until).next_back();
        base::invariant!(
            before.is_none_or(|(_, end)| end.as_ref().is_some_and(|end| *end <= start)),
            "the ranges of a key set do not overlap"
        );
        self.ranges.insert(start, end);
    }

    /// The last member that shares a key with `range`.
    fn overlapping(&self, range: KeySpan<'_>) -> Option<KeySpan<'_>> {
        let below = range.end.map_or(Bound::Unbounded, Bound::Excluded);
        let (start, end) = self.ranges.range::<[u8], _>((Bound::Unbounded, below)).next_back()?;
        let reaches = end.as_deref().is_none_or(|end| end > range.start);
        reaches.then_some(KeySpan { start, end: end.as_deref() })
    }

    /// Whether a key of `range` is in the set.
    #[must_use]
    pub fn overlaps(&self, range: KeySpan<'_>) -> bool {
        !range.is_empty() && self.overlapping(range).is_some()
    }

    /// Whether `key` is in the set.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.span_of(key).is_some()
    }

    /// The member that holds `key`.
    #[must_use]
    pub fn span_of(&self, key: &[u8]) -> Option<KeySpan<'_>> {
        let until = (Bound::Unbounded, Bound::Included(key));
        let (start, end) = self.ranges.range::<[u8], _>(until).next_back()?;
        let span = KeySpan { start, end: end.as_deref() };
        span.end.is_none_or(|end| key < end).then_some(span)
    }

    /// The member that holds the keys just before `end`.
    #[must_use]
    pub fn last_before(&self, end: Option<&[u8]>) -> Option<KeySpan<'_>> {
        let below = end.map_or(Bound::Unbounded, Bound::Excluded);
        let (start, own_end) =
            self.ranges.range::<[u8], _>((Bound::Unbounded, below)).next_back()?;
        let span = KeySpan { start, end: own_end.as_deref() };
        let reaches = span.end.is_none_or(|own| end.is_some_and(|end| end <= own));
        reaches.then_some(span)
    }

    /// Removes one key.
    pub fn remove_key(&mut self, key: &[u8]) {
        let Some(span) = self.span_of(key) else { return };
        let (start, end) = (Box::<[u8]>::from(span.start), span.end.map(Box::<[u8]>::from));
        self.ranges.remove(&start);
        let parts = [
            KeySpan { start: &start, end: Some(key) },
            KeySpan { start: &successor(key), end: end.as_deref() },
        ];
        parts.into_iter().for_each(|part| self.insert(part));
        debug_assert!(!self.contains(key), "a key that was removed is in no range");
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = KeySpan<'_>> {
        self.ranges.iter().map(|(start, end)| KeySpan { start, end: end.as_deref() })
    }

    /// The number of ranges.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    #[test]
    fn a_range_of_one_key_is_recognized() {
        let mut set = KeySet::default();
        set.insert_key(b"b");
        set.insert(KeySpan { start: b"c", end: Some(b"d") });
        let singles: Vec<_> = set.iter().map(KeySpan::single).collect();
        assert_eq!(singles, [Some(&b"b"[..]), None]);
        assert!(set.contains(b"b") && !set.contains(b"b\0") && !set.contains(b"a"));
        set.insert(KeySpan { start: b"d", end: Some(b"d") });
        assert_eq!(set.count(), 2);
    }

    /// The model is a set of numbers; their keys have one or two bytes.
    #[test]
    fn key_sets_agree_with_a_model() {
        let (mut rng, seed) = Rng::from_env();
        let key = |number: u64| {
            if number.is_multiple_of(2) {
                vec![(number / 2) as u8]
            } else {
                vec![(number / 2) as u8, 0]
            }
        };
        for round in 0..300 {
            let (mut set, mut model) = (KeySet::default(), [false; 64]);
            // Of a range, strings between two numbers stay when the numbers are removed.
            let removes = rng.one_in(2);
            for _ in 0..rng.below(20) {
                let (from, to) = (rng.below(64), rng.below(66));
                let (start, end) = (key(from), key(to));
                match rng.below(4) {
                    0 => {
                        set.insert_key(&start);
                        model[from as usize] = true;
                    }
                    1 if removes => {
                        set.remove_key(&start);
                        model[from as usize] = false;
                    }
                    _ => {
                        let end = (to < 64).then_some(&*end);
                        set.insert(KeySpan { start: &start, end });
                        let to = to.min(64) as usize;
                        model.iter_mut().take(to).skip(from as usize).for_each(|it| *it = true);
                    }
                }
            }
            for (number, expected) in model.iter().enumerate() {
                assert_eq!(
                    set.contains(&key(number as u64)),
                    *expected,
                    "seed {seed}, round {round}"
                );
            }
            // The key just before an odd number's is that of the number before.
            for number in (1..64).step_by(2) {
                let found = set.last_before(Some(&key(number)));
                let expected = model[number as usize - 1];
                assert_eq!(found.is_some(), expected, "seed {seed}, round {round}: {number}");
                assert!(found.is_none_or(|span| span.start <= &*key(number - 1)));
            }
            for _ in 0..if removes { 0 } else { 50 } {
                let (from, to) = (rng.below(64), rng.below(65));
                let (start, end) = (key(from), key(to));
                let range = KeySpan { start: &start, end: Some(&end) };
                let expected = model.iter().take(to as usize).skip(from as usize).any(|it| *it);
                assert_eq!(set.overlaps(range), expected, "seed {seed}, round {round}: {range:?}");
            }
        }
    }
}
