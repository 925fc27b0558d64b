//! Compact blocks: those of a hashed keyspace, whose keys begin with the hash of the rest.
//!
//! The hash is not stored: it is computed from the rest of the key. Instead a byte of it, the *tag*, stands
//! in an array, so that a search compares a tag for each entry, and whole keys of about one entry. Entries
//! are in the order of their hashes, and need no order for such a search. Every eighth entry is listed.
//! docs/format/bins.md has the byte table.
//!
//! A cursor computes the hash of every entry that it stands on, about 15 ns, and compares its tag: a block
//! that is read with another keyspace's hash key is damaged, not empty.
//!
//! Cost: about 5 bytes per entry besides key, value and the seqno's spread.

use std::cmp::Ordering;

use base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use base::{Cursor, EntryKind, Error, HashKey, Result, Seqno, Trailer, put_varint};

use super::position::SUFFIX_STEP;
use super::{Block, BlockEntry, BlockPosition, KIND_BITS, trailer_of, zigzag};
use crate::sorted::layout::HASH_BYTES;

/// Number of entries from one listed entry to the next. Stored in each block.
pub(crate) const COMPACT_INTERVAL: usize = 8;

/// Appends the part of an entry before its value, and returns its tag. `base` is the block's.
pub(crate) fn put_compact_head(
    out: &mut Vec<u8>,
    key: &[u8],
    (seqno, base): (Seqno, Seqno),
    kind: EntryKind,
    value_bytes: usize,
) -> u8 {
    let user = key.get(HASH_BYTES..).unwrap_or_default();
    put_varint(out, user.len() as u64);
    // Seqnos have 56 bits, so neither the difference nor the shift overflows.
    let difference = seqno.get().cast_signed() - base.get().cast_signed();
    put_varint(out, zigzag(difference) << KIND_BITS | kind as u64);
    put_varint(out, value_bytes as u64);
    out.extend_from_slice(user);
    tag_of(key)
}

/// The last byte of the hash that begins `key`: bins are its first bits, so that all tags of a block
/// differ evenly.
fn tag_of(key: &[u8]) -> u8 {
    key.get(HASH_BYTES - 1).copied().unwrap_or_default()
}

impl<'a> Block<'a> {
    /// The entry at `at` of a compact block. Its suffix is the key without its hash.
    pub(super) fn compact_entry(&self, at: usize) -> Result<BlockEntry> {
        let entry = self.compact_head(at)?;
        if entry.end > self.layout.entries_end {
            return Err(Error::corrupt("entry of a compact block")
                .at(format_args!("byte {at}"))
                .expected(format_args!("its end by byte {}", self.layout.entries_end))
                .got(entry.end));
        }
        Ok(entry)
    }

    /// As [`Block::compact_entry`], for an entry that may end after this block.
    pub(super) fn compact_head(&self, at: usize) -> Result<BlockEntry> {
        let entries = self.raw.get(..self.layout.entries_end).unwrap_or_default();
        let mut cursor =
            Cursor::new("entry of a compact block", entries.get(at..).unwrap_or_default());
        let suffix = cursor.length(KEY_BYTES_MAX - HASH_BYTES)?;
        let trailer = trailer_of(cursor.varint()?, self.layout.base)?;
        let value = cursor.length(VALUE_BYTES_MAX)?;
        let suffix_at = at + cursor.position();
        let (value_at, end) = (suffix_at + suffix, suffix_at + suffix + value);
        Ok(BlockEntry { shared: 0, suffix_at, value_at, end, trailer })
    }

    /// The tag of each entry.
    fn tags(&self) -> &'a [u8] {
        let from = self.layout.entries_end;
        self.raw.get(from..from + self.layout.count).unwrap_or_default()
    }

    /// The hash that begins the key of `entry`, number `index`.
    pub(super) fn hash_of(
        &self,
        index: usize,
        entry: &BlockEntry,
        hash_key: &HashKey,
    ) -> Result<[u8; HASH_BYTES]> {
        let hash = hash_key.hash(self.suffix(entry)).to_be_bytes();
        let (tag, stored) = (tag_of(&hash), self.tags().get(index).copied());
        if stored == Some(tag) {
            return Ok(hash);
        }
        Err(Error::corrupt("tag of a key")
            .at(format_args!("entry {index} of a block"))
            .expected(format_args!("{tag}, by the hash key of the keyspace"))
            .got(format_args!("{stored:?}")))
    }

    /// As [`Block::group_of`].
    pub(super) fn compact_group_of(
        &self,
        key: &[u8],
        at: Trailer,
        hash_key: &HashKey,
    ) -> Result<usize> {
        let (mut low, mut high) = (0, self.groups());
        while high - low > 1 {
            let middle = low.midpoint(high);
            let first = self.compact_entry(self.group_at(middle)?)?;
            let hash = self.hash_of(middle * self.layout.interval, &first, hash_key)?;
            let order = match key.split_first_chunk() {
                Some((head, rest)) => hash.cmp(head).then_with(|| self.suffix(&first).cmp(rest)),
                // A shorter key is before all keys that it begins.
                None => hash.as_slice().cmp(key),
            };
            match order.then_with(|| at.cmp(&first.trailer)) {
                Ordering::Greater => high = middle,
                _ => low = middle,
            }
        }
        Ok(low)
    }

    /// As [`Block::get`].
    pub(super) fn compact_get(
        &self,
        key: &[u8],
        at: Trailer,
        hash_key: &HashKey,
    ) -> Result<Option<BlockEntry>> {
        // A shorter key is in no hashed keyspace.
        let Some((hash, user)) = key.split_first_chunk() else { return Ok(None) };
        let (tag, interval) = (tag_of(key), self.layout.interval);
        // The entry that the walk has reached: its number, and its offset.
        let (mut reached, mut offset) = (0, 0);
        for (index, _) in self.tags().iter().enumerate().filter(|(_, other)| **other == tag) {
            let group = index / interval;
            if group * interval > reached {
                (reached, offset) = (group * interval, self.group_at(group)?);
            }
            while reached < index {
                (reached, offset) = (reached + 1, self.compact_entry(offset)?.end);
            }
            let entry = self.compact_entry(offset)?;
            // The versions of a key are adjacent, the newest first.
            let is_it = self.suffix(&entry) == user && entry.trailer <= at;
            if is_it && self.hash_of(index, &entry, hash_key)? == *hash {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

impl BlockPosition {
    /// As [`BlockPosition::read`].
    pub(super) fn read_compact(
        &mut self,
        block: Block<'_>,
        at: usize,
        hash_key: &HashKey,
    ) -> Result<()> {
        self.entry = None;
        let entry = block.compact_entry(at)?;
        let hash = block.hash_of(self.index, &entry, hash_key)?;
        self.key.clear();
        self.key.extend_from_slice(&hash);
        self.key.extend_from_slice(block.suffix(&entry));
        self.key_bytes = self.key.len();
        self.key.resize(self.key_bytes + SUFFIX_STEP, 0);
        self.entry = Some(entry);
        Ok(())
    }
}
