//! The block builder: takes entries in order, and makes the bytes of a [`Block`](super::block::Block).
//!
//! An entry is staged first, so that the packer can see the size that the block would have, and then
//! kept or dropped.

use base::{EntryKind, Seqno, invariant, put_varint};

use super::block::{
    BLOCK_BYTES_MAX, BLOCK_ENTRIES_MAX, COMPACT_INTERVAL, IS_COMPACT, KIND_BITS, MORE,
    TRAILER_BYTES, put_compact_head, zigzag,
};
use super::layout::HASH_BYTES;
use super::separator::common_prefix;

/// Number of entries from one restart to the next. Stored in each block.
const RESTART_INTERVAL: usize = 16;

// Restart offsets and the entry count are stored in 16 bits.
const _: () = assert!(BLOCK_BYTES_MAX <= u16::MAX as usize);
const _: () =
    assert!(BLOCK_ENTRIES_MAX <= BLOCK_BYTES_MAX && BLOCK_ENTRIES_MAX < IS_COMPACT as usize);
const _: () = assert!(TRAILER_BYTES >= crate::codec::lz4::TAIL_BYTES_MIN);

/// Builds one block after another.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u16>,
    /// The tag of each entry, in compact blocks.
    tags: Vec<u8>,
    is_compact: bool,
    /// Whether seqnos are stored as differences to zero, because a reader of some of the entries does not see
    /// the base.
    is_based_on_zero: bool,
    count: usize,
    base: Seqno,
    last: Seqno,
    last_key: Vec<u8>,
    staged: Option<Staged>,
}

/// The staged entry's seqno, and the state of the block without the entry.
#[derive(Clone, Copy, Debug)]
struct Staged {
    bytes: usize,
    restarts: usize,
    seqno: Seqno,
}

impl BlockBuilder {
    /// Makes compact blocks, of keys that begin with their hash.
    pub(crate) fn be_compact(&mut self) {
        invariant!(self.count() == 0, "the form of blocks is chosen before the first entry");
        self.is_compact = true;
    }

    /// Makes blocks of which parts can be read: seqnos do not depend on a base.
    pub(crate) fn base_on_zero(&mut self) {
        invariant!(self.count() == 0, "the form of blocks is chosen before their first entry");
        self.is_based_on_zero = true;
    }

    /// Number of entries from one restart to the next.
    const fn interval(&self) -> usize {
        if self.is_compact { COMPACT_INTERVAL } else { RESTART_INTERVAL }
    }

    /// Length of the part of `key` that an entry after the last one does not store, bytes.
    pub(crate) fn unstored_bytes(&self, key: &[u8]) -> usize {
        match self.is_compact {
            true => HASH_BYTES.min(key.len()),
            false => common_prefix(&self.last_key, key),
        }
    }

    /// Starts the next block.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        // A huge value must not keep its memory for the rest of the table.
        self.bytes.shrink_to(2 * BLOCK_BYTES_MAX);
        self.restarts.clear();
        self.tags.clear();
        self.last_key.clear();
        self.count = 0;
        self.staged = None;
    }

    /// Number of entries, including a staged one.
    pub(crate) fn count(&self) -> usize {
        self.count + usize::from(self.staged.is_some())
    }

    /// Offset of the staged entry, or of the next one.
    pub(crate) fn staged_at(&self) -> usize {
        self.staged.map_or(self.bytes.len(), |staged| staged.bytes)
    }

    /// The encoded entries, including a staged one.
    pub(crate) fn entries(&self) -> &[u8] {
        &self.bytes
    }

    /// Length of the whole block, bytes.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.bytes.len() + self.tail_bytes()
    }

    /// Length of the part after the entries, bytes.
    pub(crate) fn tail_bytes(&self) -> usize {
        self.tags.len() + self.restarts.len() * size_of::<u16>() + TRAILER_BYTES
    }

    /// The key of the last kept entry.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Stages an entry; `keep` or `drop_staged` must follow.
    pub(crate) fn stage(&mut self, key: &[u8], seqno: Seqno, kind: EntryKind, value: &[u8]) {
        self.stage_head(key, seqno, kind, value.len());
        self.bytes.extend_from_slice(value);
    }

    /// Stages an entry without its value, which the caller writes after the entries.
    pub(crate) fn stage_head(
        &mut self,
        key: &[u8],
        seqno: Seqno,
        kind: EntryKind,
        value_bytes: usize,
    ) {
        invariant!(self.staged.is_none(), "a staged entry is kept or dropped before the next one");
        invariant!(
            self.bytes.len() <= usize::from(u16::MAX) || self.count == 0,
            "a block of several entries has restart offsets of 16 bits"
        );
        self.staged =
            Some(Staged { bytes: self.bytes.len(), restarts: self.restarts.len(), seqno });
        if self.count == 0 {
            self.base = if self.is_based_on_zero { Seqno::ZERO } else { seqno };
        }
        debug_assert!(self.count == 0 || *self.last_key <= *key, "entries are in key order");
        let restart = self.count.is_multiple_of(self.interval());
        if restart && self.count > 0 {
            // Only blocks of several entries have restarts, and those blocks are short.
            self.restarts.push(self.bytes.len() as u16);
        }
        if self.is_compact {
            let seqnos = (seqno, self.base);
            let tag = put_compact_head(&mut self.bytes, key, seqnos, kind, value_bytes);
            self.tags.push(tag);
            return;
        }
        let (shared, from) = match restart {
            true => (0, self.base),
            false => (common_prefix(&self.last_key, key), self.last),
        };
        let suffix = key.get(shared..).unwrap_or_default();
        let out = &mut self.bytes;
        out.push((shared.min(MORE) << 4 | suffix.len().min(MORE)) as u8);
        for length in [shared, suffix.len()] {
            if let Some(more) = length.checked_sub(MORE) {
                put_varint(out, more as u64);
            }
        }
        // Seqnos have 56 bits, so neither the difference nor the shift overflows.
        let difference = seqno.get().cast_signed() - from.get().cast_signed();
        put_varint(out, zigzag(difference) << KIND_BITS | kind as u64);
        put_varint(out, value_bytes as u64);
        out.extend_from_slice(suffix);
    }

    /// Keeps the staged entry, which has the key `key`.
    pub(crate) fn keep(&mut self, key: &[u8]) {
        let staged = self.staged.take();
        invariant!(staged.is_some(), "an entry is staged before it is kept");
        if let Some(staged) = staged {
            self.last = staged.seqno;
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            self.count += 1;
        }
    }

    /// Drops the staged entry.
    pub(crate) fn drop_staged(&mut self) {
        if let Some(staged) = self.staged.take() {
            self.bytes.truncate(staged.bytes);
            self.restarts.truncate(staged.restarts);
            self.tags.truncate(self.count);
        }
    }

    /// Appends the part after the entries to `out`.
    pub(crate) fn put_tail(&self, out: &mut Vec<u8>) {
        invariant!(self.staged.is_none(), "a block ends after its staged entry is kept or dropped");
        invariant!(
            self.restarts.len() == self.count.saturating_sub(1) / self.interval(),
            "every sixteenth entry is a restart, every eighth of a compact block"
        );
        invariant!(
            self.count > 0 && self.count <= BLOCK_ENTRIES_MAX,
            "a block has an entry, and its end can state how many"
        );
        invariant!(
            !self.is_compact || self.tags.len() == self.count,
            "a compact block has a tag for each entry"
        );
        out.extend_from_slice(&self.tags);
        for restart in &self.restarts {
            out.extend_from_slice(&restart.to_le_bytes());
        }
        let base = self.base.get() | (self.interval() as u64) << 56;
        out.extend_from_slice(&base.to_le_bytes());
        let mark = if self.is_compact { IS_COMPACT } else { 0 };
        out.extend_from_slice(&(self.count as u16 | mark).to_le_bytes());
    }
}
