//! Separators: the boundaries between adjacent blocks, and between adjacent partitions.
//!
//! A separator is after every entry on its left, and not after any entry on its right; it is the
//! shortest such key. If versions of one key lie on both sides, the separator is that key with the
//! largest trailer that can follow the left side. So a search for one version leads to the only block
//! that may contain it.
//!
//! Separators are searched in place, in their stored form, without decoding or allocation.

use std::cmp::Ordering;

use base::{Error, Result, Trailer, invariant};

use super::layout::head_of;

/// Length of a trailer, bytes.
const TRAILER_BYTES: usize = 8;

/// A key, with a trailer if the key alone does not separate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Separator {
    pub(crate) key: Vec<u8>,
    pub(crate) trailer: Option<Trailer>,
}

impl Separator {
    /// The shortest separator between the last entry of one block and the first of the next.
    pub(crate) fn between(last: (&[u8], Trailer), first: &[u8]) -> Self {
        let (last, trailer) = last;
        if last == first {
            // Trailers descend, so every later version has a smaller one.
            let next = Trailer::from_word(trailer.word().saturating_sub(1));
            return Self { key: first.to_vec(), trailer: Some(next) };
        }
        let common = common_prefix(last, first);
        let key = first.get(..=common).unwrap_or(first).to_vec();
        debug_assert!(
            *last < *key && *key <= *first,
            "a separator lies after the last key of a block, and not after the next key"
        );
        Self { key, trailer: None }
    }

    const fn stored_bytes(&self) -> usize {
        self.key.len() + if self.trailer.is_some() { TRAILER_BYTES } else { 0 }
    }
}

pub(crate) fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Width of stored lengths and offsets: 2 bytes within a page, 4 in the top level. The highest bit of an
/// offset says that the separator ends with a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Page = 2,
    Top = 4,
}

impl Width {
    const fn flag(self) -> usize {
        1 << (self as usize * 8 - 1)
    }

    fn put(self, out: &mut Vec<u8>, value: usize) {
        out.extend_from_slice(value.to_le_bytes().get(..self as usize).unwrap_or_default());
    }

    fn get(self, bytes: &[u8], index: usize) -> Option<usize> {
        let at = index.checked_mul(self as usize)?;
        match self {
            Self::Page => bytes.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b).into()),
            Self::Top => bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b) as usize),
        }
    }
}

/// Collects ascending separators.
#[derive(Debug)]
pub(crate) struct SeparatorsBuilder {
    width: Width,
    list: Vec<Separator>,
    /// Length of the prefix that all of them share.
    prefix: usize,
    /// The sum of [`Separator::stored_bytes`].
    bytes: usize,
}

impl SeparatorsBuilder {
    pub(crate) const fn new(width: Width) -> Self {
        Self { width, list: Vec::new(), prefix: 0, bytes: 0 }
    }

    pub(crate) fn push(&mut self, separator: Separator) {
        debug_assert!(
            self.list.last().is_none_or(|last| last.key <= separator.key),
            "separators ascend"
        );
        self.prefix = self.prefix_with(&separator);
        self.bytes += separator.stored_bytes();
        self.list.push(separator);
    }

    pub(crate) fn clear(&mut self) {
        (self.prefix, self.bytes) = (0, 0);
        self.list.clear();
    }

    pub(crate) const fn len(&self) -> usize {
        self.list.len()
    }

    /// Approximate memory in use, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes + self.list.len() * size_of::<Separator>()
    }

    fn prefix_with(&self, next: &Separator) -> usize {
        match self.list.first() {
            // Separators ascend, so the common prefix of the first and the last is common to all.
            Some(first) => {
                common_prefix(first.key.get(..self.prefix).unwrap_or_default(), &next.key)
            }
            None => next.key.len(),
        }
    }

    /// Length of the stored form, bytes.
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.size(self.list.len(), self.bytes, self.prefix)
    }

    /// Length of the stored form with one more separator, bytes.
    pub(crate) fn encoded_bytes_with(&self, next: &Separator) -> usize {
        let bytes = self.bytes + next.stored_bytes();
        self.size(self.list.len() + 1, bytes, self.prefix_with(next))
    }

    const fn size(&self, count: usize, bytes: usize, prefix: usize) -> usize {
        if count == 0 {
            return 0;
        }
        (self.width as usize) * (1 + count) + prefix + bytes - prefix * count
    }

    /// Encodes the prefix's length, the end offset of each suffix, the prefix, and the suffixes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        if self.list.is_empty() {
            return Ok(());
        }
        let suffixes = self.bytes - self.prefix * self.list.len();
        if suffixes.max(self.prefix) >= self.width.flag() {
            return Err(Error::invalid("separators of one table, bytes")
                .expected(format_args!("less than {}", self.width.flag()))
                .got(suffixes));
        }
        let start = out.len();
        self.width.put(out, self.prefix);
        let mut end = 0;
        for separator in &self.list {
            end += separator.stored_bytes() - self.prefix;
            let flag = if separator.trailer.is_some() { self.width.flag() } else { 0 };
            self.width.put(out, end | flag);
        }
        let prefix = self.list.first().and_then(|first| first.key.get(..self.prefix));
        out.extend_from_slice(prefix.unwrap_or_default());
        for separator in &self.list {
            out.extend_from_slice(separator.key.get(self.prefix..).unwrap_or_default());
            if let Some(trailer) = separator.trailer {
                out.extend_from_slice(&trailer.word().to_le_bytes());
            }
        }
        invariant!(
            out.len() - start == self.encoded_bytes(),
            "separators take the space that was reserved for them"
        );
        Ok(())
    }
}

/// A view of stored separators.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Separators<'a> {
    width: Width,
    count: usize,
    offsets: &'a [u8],
    prefix: &'a [u8],
    suffixes: &'a [u8],
}

impl<'a> Separators<'a> {
    /// Views `bytes` as `count` separators. Only the outer bounds are checked here, which takes a few
    /// nanoseconds; the bounds of each separator are checked when it is used.
    pub(crate) fn parse(width: Width, count: usize, bytes: &'a [u8]) -> Result<Self> {
        if count == 0 && bytes.is_empty() {
            return Ok(Self { width, count, offsets: &[], prefix: &[], suffixes: &[] });
        }
        let short = || {
            Error::corrupt("separators, bytes")
                .expected(format_args!("enough for {count}"))
                .got(bytes.len())
        };
        let prefix = width.get(bytes, 0).ok_or_else(short)?;
        let rest = bytes.get(width as usize..).ok_or_else(short)?;
        let offsets = count.checked_mul(width as usize).filter(|offsets| *offsets <= rest.len());
        let (offsets, rest) = rest.split_at(offsets.ok_or_else(short)?);
        let (prefix, suffixes) = rest.split_at_checked(prefix).ok_or_else(short)?;
        Ok(Self { width, count, offsets, prefix, suffixes })
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// The suffix of separator `index`, and its trailer.
    fn suffix(&self, index: usize) -> Result<(&'a [u8], Option<Trailer>)> {
        let damaged = || Error::corrupt("separator").at(format_args!("number {index}"));
        let mask = self.width.flag() - 1;
        let start = match index.checked_sub(1) {
            Some(before) => self.width.get(self.offsets, before).ok_or_else(damaged)? & mask,
            None => 0,
        };
        let end = self.width.get(self.offsets, index).ok_or_else(damaged)?;
        let bytes = self.suffixes.get(start..end & mask).ok_or_else(damaged)?;
        if end & self.width.flag() == 0 {
            return Ok((bytes, None));
        }
        let (suffix, word) = bytes.split_last_chunk::<TRAILER_BYTES>().ok_or_else(damaged)?;
        Ok((suffix, Some(Trailer::from_word(u64::from_le_bytes(*word)))))
    }

    /// The head of the suffix of separator `index`, as in [`head_of`]. `None` near the end of the bytes,
    /// and for a damaged separator.
    #[inline]
    fn head(&self, index: usize) -> Option<u64> {
        let flag = self.width.flag();
        let start = match index.checked_sub(1) {
            Some(before) => self.width.get(self.offsets, before)? & (flag - 1),
            None => 0,
        };
        let end = self.width.get(self.offsets, index)?;
        let trailer = if end & flag == 0 { 0 } else { TRAILER_BYTES };
        let bytes = (end & (flag - 1)).checked_sub(start + trailer)?;
        // Reads eight bytes and masks those of the next suffix.
        let head = u64::from_be_bytes(*self.suffixes.get(start..)?.first_chunk()?);
        let cut = u64::MAX.checked_shr(8 * bytes.min(8) as u32).unwrap_or(0);
        Some(head & !cut)
    }

    /// Separator `index`.
    pub(crate) fn get(&self, index: usize) -> Result<Separator> {
        let (suffix, trailer) = self.suffix(index)?;
        Ok(Separator { key: [self.prefix, suffix].concat(), trailer })
    }

    /// The number of separators at or before (`key`, `at`), which is the number of the only block, or
    /// partition, that may contain that version.
    pub(crate) fn search(&self, key: &[u8], at: Trailer) -> Result<usize> {
        let rest = match key.get(..self.prefix.len()) {
            Some(head) if head == self.prefix => key.get(self.prefix.len()..).unwrap_or_default(),
            _ if self.prefix > key => return Ok(0),
            _ => return Ok(self.count),
        };
        let head = head_of(rest);
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if let Some(seen) = self.head(middle)
                && seen != head
            {
                (low, high) = if seen > head { (low, middle) } else { (middle + 1, high) };
                continue;
            }
            let (suffix, trailer) = self.suffix(middle)?;
            let order = suffix.cmp(rest).then_with(|| match trailer {
                Some(trailer) => at.cmp(&trailer),
                None => Ordering::Less,
            });
            if order == Ordering::Greater {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{EntryKind, Rng, Seqno};

    fn trailer(seqno: u64) -> Trailer {
        Trailer::new(Seqno::new(seqno), EntryKind::Put)
    }

    #[test]
    fn a_separator_is_the_shortest_key_or_a_key_with_a_trailer() {
        let between = |last: &[u8], first: &[u8]| Separator::between((last, trailer(9)), first).key;
        assert_eq!(between(b"abc", b"abxyz"), b"abx");
        assert_eq!(between(b"ab", b"abc"), b"abc");
        assert_eq!(between(b"a", b"b"), b"b");
        let same = Separator::between((b"k", trailer(9)), b"k");
        assert_eq!(same.trailer.unwrap().word(), trailer(9).word() - 1);
    }

    /// Searches agree with a scan of the entries, at both widths, for any keys.
    #[test]
    fn a_search_leads_to_the_block_that_holds_the_version() {
        let (mut rng, seed) = Rng::from_env();
        for round in 0..200 {
            let mut entries: Vec<(Vec<u8>, std::cmp::Reverse<u64>)> = (0..rng.below(80) + 2)
                .map(|_| {
                    // Shorter and longer than heads, and with the bytes that pad heads.
                    let length = 1 + rng.below(12) as usize;
                    let letters = if rng.one_in(2) { [b'a', b'b', b'c'] } else { [0, 1, 255] };
                    let letter = |_| letters[rng.below(3) as usize];
                    let mut key: Vec<u8> = (0..length).map(letter).collect();
                    key.splice(0..0, b"common/".iter().copied());
                    (key, std::cmp::Reverse(1 + rng.below(20)))
                })
                .collect();
            entries.sort();
            entries.dedup();
            let width = if rng.one_in(2) { Width::Page } else { Width::Top };
            let mut builder = SeparatorsBuilder::new(width);
            // Blocks of three entries.
            for at in (3..entries.len()).step_by(3) {
                let (last, first) = (&entries[at - 1], &entries[at]);
                builder.push(Separator::between((&last.0, trailer(last.1.0)), &first.0));
            }
            let mut bytes = Vec::new();
            builder.encode(&mut bytes).unwrap();
            assert_eq!(bytes.len(), builder.encoded_bytes());
            let count = builder.list.len();
            let separators = Separators::parse(width, count, &bytes).unwrap();
            for (index, expected) in builder.list.iter().enumerate() {
                assert_eq!(separators.get(index).unwrap(), *expected);
            }
            for (index, (key, seqno)) in entries.iter().enumerate() {
                // Any snapshot from this version up to just before the next newer one.
                for at in [trailer(seqno.0), Trailer::seek(Seqno::new(seqno.0))] {
                    let block = separators.search(key, at).unwrap();
                    assert_eq!(block, index / 3, "seed {seed} round {round} entry {index}");
                }
            }
            for at in 0..bytes.len() {
                bytes[at] ^= 1 << (at % 8);
                if let Ok(separators) = Separators::parse(width, count, &bytes) {
                    let _ = separators.search(b"common/abc", trailer(3));
                }
                bytes[at] ^= 1 << (at % 8);
            }
        }
    }
}
