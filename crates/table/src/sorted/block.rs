//! Blocks: sorted entries with shared key prefixes, in their uncompressed form.
//!
//! An entry stores the suffix of its key that differs from the previous key, and the difference of its
//! seqno from the previous one. Every sixteenth entry is a restart: it stores its whole key, and the
//! difference of its seqno from the block's base. A search finds the restart by binary search, and scans
//! the entries after it. docs/format/table.md has the byte table.
//!
//! A point search neither copies keys nor allocates. It tracks how many bytes of the target the scan has
//! matched; with that, the shared length alone decides most entries.
//!
//! Cost: 5 to 7 bytes per entry besides suffix and value. A search takes 0.1 to 0.3 us, nearly a
//! microsecond less than the decompression of the block (docs/ledger.md).
//!
//! A table of a hashed keyspace has *compact* blocks instead ([`compact`]).

mod compact;
mod part;
mod position;

use std::cmp::Ordering;

use base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use base::{Cursor, EntryKind, Error, HashKey, Result, Seqno, Trailer};

pub(super) use compact::{COMPACT_INTERVAL, put_compact_head};
pub(crate) use position::BlockPosition;

use super::layout::{HASH_BYTES, head_of};
use super::separator::common_prefix;

/// The longest block of several entries, bytes. It bounds the bytes that a point read decompresses.
pub(crate) const BLOCK_BYTES_MAX: usize = 32 << 10;

/// Most entries of one block. It bounds the part of a metadata page that one block takes.
pub(crate) const BLOCK_ENTRIES_MAX: usize = 2048;

/// Length of the base with the interval, and of the entry count, bytes.
pub(super) const TRAILER_BYTES: usize = 10;

/// Most bytes that a block of one entry takes besides key and value.
const OVERHEAD_BYTES_MAX: usize = 64;

/// The longest possible block, bytes: one entry of the longest key and value.
pub(crate) const RAW_BYTES_MAX: usize = KEY_BYTES_MAX + VALUE_BYTES_MAX + OVERHEAD_BYTES_MAX;

/// The value of a length nibble that says that the rest of the length follows.
pub(super) const MORE: usize = 15;

/// Distance that an iterator prefetches ahead, bytes: a few entries of a hundred bytes, and less than
/// most blocks.
const AHEAD_BYTES: usize = 512;

/// Most groups whose first entries are prefetched at once.
const GROUPS_ASKED_MAX: usize = 8;

/// The bit of the entry count that marks a compact block.
pub(super) const IS_COMPACT: u16 = 1 << 15;

/// Bits of the kind, below the seqno difference.
pub(super) const KIND_BITS: u32 = 3;

/// The kinds that a table's entries can have, one bit each; see [`known_kind`].
const KNOWN_KINDS: u64 = 1 << EntryKind::Delete as u8
    | 1 << EntryKind::Put as u8
    | 1 << EntryKind::PutPointer as u8
    | 1 << EntryKind::Merge as u8
    | 1 << EntryKind::PutExpiring as u8;

/// Most bytes that an entry takes besides key and value.
pub(crate) const ENTRY_OVERHEAD_MAX: usize = 1 + 3 + 3 + 10 + 5;

pub(super) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

/// The varint at the start of `bytes`, and its length. `None` if it does not end within them or is not
/// in its shortest form.
#[inline]
const fn short_varint(bytes: &[u8; 8]) -> Option<(u64, usize)> {
    let all = u64::from_le_bytes(*bytes);
    let ends = !all & 0x8080_8080_8080_8080;
    if ends == 0 {
        return None;
    }
    let last = ends.trailing_zeros() as usize / 8;
    let kept = all & (u64::MAX >> (56 - 8 * last)) & 0x7f7f_7f7f_7f7f_7f7f;
    if last > 0 && kept >> (8 * last) == 0 {
        return None;
    }
    // Groups of 7 bits are joined by pairs, by fours, and by eights.
    let kept = kept & 0x007f_007f_007f_007f | (kept & 0x7f00_7f00_7f00_7f00) >> 1;
    let kept = kept & 0x0000_3fff_0000_3fff | (kept & 0x3fff_0000_3fff_0000) >> 2;
    Some((kept & 0x0fff_ffff | (kept & 0x0fff_ffff_0000_0000) >> 4, last + 1))
}

/// The kind numbered `kind`, if this version of the format defines it for tables.
fn known_kind(kind: u8) -> Result<EntryKind> {
    match EntryKind::decode(kind)? {
        reserved @ EntryKind::DeleteRange => Err(Error::invalid("entry kind: a newer format")
            .expected("one that a table's entries have")
            .got(format_args!("{reserved:?}"))),
        kind => Ok(kind),
    }
}

/// The trailer of an entry with the seqno difference and kind `word`; the difference is to `from`.
fn trailer_of(word: u64, from: Seqno) -> Result<Trailer> {
    let kind = known_kind((word & ((1 << KIND_BITS) - 1)) as u8)?;
    let seqno = from.get().cast_signed().checked_add(unzigzag(word >> KIND_BITS));
    let seqno = seqno.and_then(|seqno| Seqno::checked(seqno.cast_unsigned()));
    let seqno = seqno.ok_or_else(|| Error::corrupt("sequence number").expected("56 bits"))?;
    Ok(Trailer::new(seqno, kind))
}

/// The positions of the parts of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    entries_end: usize,
    count: usize,
    interval: usize,
    base: Seqno,
    /// The key of the hash that begins each key, in a compact block.
    hash_key: Option<HashKey>,
}

/// A view of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    raw: &'a [u8],
    layout: Layout,
}

/// A decoded entry without its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockEntry {
    pub(crate) shared: usize,
    /// The offset of the key's suffix, which ends at the value.
    suffix_at: usize,
    value_at: usize,
    /// The end of the value, and the start of the next entry.
    end: usize,
    pub(crate) trailer: Trailer,
}

impl BlockEntry {
    /// The range of the value in the block.
    pub(crate) const fn value(&self) -> std::ops::Range<usize> {
        self.value_at..self.end
    }
}

impl<'a> Block<'a> {
    /// Views a decompressed block. A compact one can be read only with the hash key of its keyspace.
    /// `Corrupt` if its parts do not fit in it.
    pub(crate) fn parse(raw: &'a [u8], hash_key: Option<HashKey>) -> Result<Self> {
        let damaged = || Error::corrupt("block").got(format_args!("{} bytes", raw.len()));
        let (rest, tail) = raw.split_last_chunk::<TRAILER_BYTES>().ok_or_else(damaged)?;
        let mut tail = Cursor::new("block", tail);
        let (base, stored) = (tail.u64()?, tail.u16()?);
        let (count, interval) = (usize::from(stored & !IS_COMPACT), (base >> 56) as usize);
        if count == 0 || interval == 0 {
            return Err(damaged().expected("entries, and a restart interval"));
        }
        let is_compact = stored & IS_COMPACT != 0;
        if is_compact && hash_key.is_none() {
            return Err(damaged().expected("the hash key of its keyspace").got("none"));
        }
        let tags = if is_compact { count } else { 0 };
        let restarts = (count - 1) / interval * size_of::<u16>();
        let entries_end = rest.len().checked_sub(tags + restarts).ok_or_else(damaged)?;
        let base = Seqno::try_from(base & Seqno::MAX.get())?;
        let hash_key = hash_key.filter(|_| is_compact);
        Ok(Self { raw, layout: Layout { entries_end, count, interval, base, hash_key } })
    }

    /// A block with a layout from an earlier parse.
    pub(crate) const fn with_layout(raw: &'a [u8], layout: Layout) -> Self {
        debug_assert!(layout.entries_end <= raw.len(), "a layout is of its own block");
        Self { raw, layout }
    }

    pub(crate) const fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) const fn count(&self) -> usize {
        self.layout.count
    }

    const fn groups(&self) -> usize {
        (self.layout.count - 1) / self.layout.interval + 1
    }

    /// The offset of the entries of group `group`.
    fn group_at(&self, group: usize) -> Result<usize> {
        let Some(index) = group.checked_sub(1) else { return Ok(0) };
        let tags = self.layout.hash_key.map_or(0, |_| self.layout.count);
        let at = self.layout.entries_end + tags + index * size_of::<u16>();
        match self.raw.get(at..).and_then(<[u8]>::first_chunk) {
            Some(offset) => Ok(u16::from_le_bytes(*offset).into()),
            None => Err(Error::corrupt("restart of a block").got(group)),
        }
    }

    /// The entry at `at`. The previous entry has the seqno `from`.
    #[inline]
    fn entry(&self, at: usize, from: Seqno) -> Result<BlockEntry> {
        match self.short_entry(at, from) {
            Some(entry) => Ok(entry),
            None => self.any_entry(at, from),
        }
    }

    /// As [`Block::entry`], if all fields before the suffix lie within 16 bytes, which is nearly always
    /// so. `None` if they do not, or if a field is damaged. Always inlined: returning the entry through
    /// memory costs an iterator a third of its time.
    #[inline(always)]
    fn short_entry(&self, at: usize, from: Seqno) -> Option<BlockEntry> {
        let head: &[u8; 16] = self.raw.get(at..)?.first_chunk()?;
        let (lengths, rest) = head.split_first()?;
        let (shared, suffix) = (usize::from(lengths >> 4), usize::from(lengths & 0xf));
        let (suffix, rest) = match (suffix, rest) {
            (MORE, [more @ 0..0x80, rest @ ..]) => (MORE + usize::from(*more), rest),
            (MORE, _) => return None,
            short => short,
        };
        let (word, word_bytes) = short_varint(rest.first_chunk()?)?;
        let rest = rest.get(word_bytes..)?;
        let (value, rest) = match rest {
            [low @ 0..0x80, rest @ ..] => (usize::from(*low), rest),
            [low, high @ 1..0x80, rest @ ..] => {
                (usize::from(low & 0x7f) | usize::from(*high) << 7, rest)
            }
            _ => return None,
        };
        let suffix_at = at + head.len() - rest.len();
        let (value_at, end) = (suffix_at + suffix, suffix_at + suffix + value);
        let seqno = from.get().cast_signed().checked_add(unzigzag(word >> KIND_BITS))?;
        let kind = word & ((1 << KIND_BITS) - 1);
        if shared == MORE || end > self.layout.entries_end || KNOWN_KINDS >> kind & 1 == 0 {
            return None;
        }
        let seqno = Seqno::checked(seqno.cast_unsigned())?;
        let trailer = Trailer::from_word(seqno.get() << 8 | kind);
        Some(BlockEntry { shared, suffix_at, value_at, end, trailer })
    }

    /// As [`Block::entry`], for an entry of any size; or the error of a damaged one.
    #[cold]
    fn any_entry(&self, at: usize, from: Seqno) -> Result<BlockEntry> {
        let entries = self.raw.get(..self.layout.entries_end).unwrap_or_default();
        let mut cursor = Cursor::new("block entry", entries.get(at..).unwrap_or_default());
        let lengths = cursor.u8()?;
        let mut length = |nibble: u8| -> Result<usize> {
            let nibble = usize::from(nibble);
            Ok(if nibble < MORE { nibble } else { MORE + cursor.length(KEY_BYTES_MAX - MORE)? })
        };
        let (shared, suffix) = (length(lengths >> 4)?, length(lengths & 0xf)?);
        let word = cursor.varint()?;
        let value = cursor.length(VALUE_BYTES_MAX)?;
        let trailer = trailer_of(word, from)?;
        let suffix_at = at + cursor.position();
        let (value_at, end) = (suffix_at + suffix, suffix_at + suffix + value);
        if end > entries.len() || shared + suffix > KEY_BYTES_MAX {
            return Err(Error::corrupt("block entry")
                .at(format_args!("byte {at}"))
                .expected(format_args!("its end by byte {}", entries.len()))
                .got(end));
        }
        Ok(BlockEntry { shared, suffix_at, value_at, end, trailer })
    }

    /// The first eight bytes of the first entry's key, padded with zeros.
    pub(crate) fn first_head(&self) -> Result<[u8; HASH_BYTES]> {
        if let Some(hash_key) = &self.layout.hash_key {
            return self.compact_entry(0).and_then(|entry| self.hash_of(0, &entry, hash_key));
        }
        let first = self.entry(0, self.layout.base)?;
        Ok(head_of(self.suffix(&first)).to_be_bytes())
    }

    fn suffix(&self, entry: &BlockEntry) -> &'a [u8] {
        debug_assert!(entry.end <= self.layout.entries_end, "an entry is read from its own block");
        self.raw.get(entry.suffix_at..entry.value_at).unwrap_or_default()
    }

    /// The value of an entry of this block.
    pub(crate) fn value(&self, entry: &BlockEntry) -> &'a [u8] {
        debug_assert!(entry.end <= self.layout.entries_end, "an entry is read from its own block");
        self.raw.get(entry.value()).unwrap_or_default()
    }

    /// The last group whose first entry is at or before (`key`, `at`); the first group if there is none.
    fn group_of(&self, key: &[u8], at: Trailer) -> Result<usize> {
        if let Some(hash_key) = &self.layout.hash_key {
            return self.compact_group_of(key, at, hash_key);
        }
        let (mut low, mut high) = (0, self.groups());
        debug_assert!(high > 0, "a block has an entry");
        // Prefetches all entries that the search may read, so that their cache misses overlap.
        if high <= GROUPS_ASKED_MAX {
            for group in 1..high {
                arena::prefetch(self.raw, self.group_at(group)?);
            }
        }
        while high - low > 1 {
            let middle = low.midpoint(high);
            let first = self.entry(self.group_at(middle)?, self.layout.base)?;
            if first.shared != 0 {
                return Err(Error::corrupt("restart of a block")
                    .expected("a whole key")
                    .got(format_args!("{} shared bytes", first.shared)));
            }
            if self.suffix(&first).cmp(key).then_with(|| at.cmp(&first.trailer))
                == Ordering::Greater
            {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(low)
    }

    /// The bytes that an iterator from `at` on reads first.
    fn ahead_of(&self, at: usize) -> &'a [u8] {
        self.raw.get(at..self.raw.len().min(at + AHEAD_BYTES)).unwrap_or_default()
    }

    /// The newest version of `key` with a trailer of at most `at`.
    pub(crate) fn get(&self, key: &[u8], at: Trailer) -> Result<Option<BlockEntry>> {
        if let Some(hash_key) = &self.layout.hash_key {
            return self.compact_get(key, at, hash_key);
        }
        let group = self.group_of(key, at)?;
        let (mut offset, mut from) = (self.group_at(group)?, self.layout.base);
        // An uncompressed block is in no processor cache yet.
        arena::prefetch_all(self.ahead_of(offset));
        let mut matched = 0;
        // The entries of one group, and the first entry of the next.
        let last = (self.layout.count - group * self.layout.interval).min(self.layout.interval + 1);
        for index in 0..last {
            if index == self.layout.interval {
                from = self.layout.base;
            }
            arena::prefetch(self.raw, offset + AHEAD_BYTES);
            let entry = self.entry(offset, from)?;
            (offset, from) = (entry.end, entry.trailer.seqno());
            // An entry that shares more bytes than matched differs from the target at the same byte as
            // the previous one.
            if entry.shared > matched {
                continue;
            }
            let (suffix, rest) = (self.suffix(&entry), key.get(entry.shared..).unwrap_or_default());
            let common = common_prefix(suffix, rest);
            matched = entry.shared + common;
            debug_assert!(matched <= key.len(), "no more than the target is matched");
            let order = suffix.get(common..).cmp(&rest.get(common..));
            match order.then_with(|| at.cmp(&entry.trailer)) {
                Ordering::Less => {}
                _ if order == Ordering::Equal => return Ok(Some(entry)),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// Passes each entry of a decompressed block to `visit`, in order: key, trailer, value. For tools, and
/// for fuzzing the parser. A compact block needs the hash key of its keyspace.
///
/// # Errors
/// `Corrupt` if the block is damaged, `Invalid` if an entry has a kind of a newer format.
pub fn visit_block(
    raw: &[u8],
    hash_key: Option<HashKey>,
    mut visit: impl FnMut(&[u8], Trailer, &[u8]),
) -> Result<()> {
    let block = Block::parse(raw, hash_key)?;
    let mut position = BlockPosition::new();
    position.first(block)?;
    while let Some(entry) = position.entry() {
        visit(position.key(), entry.trailer, block.value(entry));
        position.next(block)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
