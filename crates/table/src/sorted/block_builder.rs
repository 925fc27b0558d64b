//! Building a block: entries in order in, the bytes of [`Block`](super::block::Block) out.
//!
//! An entry is first staged, so that the packer can see what the block would come to, and then
//! kept or dropped.

use base::{EntryKind, Seqno, put_varint};

use super::block::{BLOCK_BYTES_MAX, BLOCK_ENTRIES_MAX, KIND_BITS, MORE, TRAILER_BYTES, zigzag};
use super::separator::common_prefix;

/// Entries from one restart to the next, as written. Stored in each block.
const RESTART_INTERVAL: usize = 16;

// The offset of a restart, and the count of entries, are stored in 16 bits.
const _: () = assert!(BLOCK_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(BLOCK_ENTRIES_MAX <= BLOCK_BYTES_MAX);
const _: () = assert!(TRAILER_BYTES >= crate::codec::lz4::TAIL_BYTES_MIN);

/// Writes a block.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u16>,
    count: usize,
    base: Seqno,
    last: Seqno,
    last_key: Vec<u8>,
    staged: Option<Staged>,
}

/// An entry that may still be dropped, and what the block was without it.
#[derive(Clone, Copy, Debug)]
struct Staged {
    bytes: usize,
    restarts: usize,
    seqno: Seqno,
}

impl BlockBuilder {
    /// Starts the next block.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        // One huge value does not keep its memory for the rest of the table.
        self.bytes.shrink_to(2 * BLOCK_BYTES_MAX);
        self.restarts.clear();
        self.last_key.clear();
        self.count = 0;
        self.staged = None;
    }

    /// The entries, a staged one included.
    pub(crate) fn count(&self) -> usize {
        self.count + usize::from(self.staged.is_some())
    }

    /// The entries as encoded, a staged one included.
    pub(crate) fn entries(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of the whole block.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.bytes.len() + self.tail_bytes()
    }

    /// The bytes that follow the entries.
    pub(crate) fn tail_bytes(&self) -> usize {
        self.restarts.len() * size_of::<u16>() + TRAILER_BYTES
    }

    /// The last entry's key, a staged one excluded.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Appends an entry, to be kept or dropped next.
    pub(crate) fn stage(&mut self, key: &[u8], seqno: Seqno, kind: EntryKind, value: &[u8]) {
        self.stage_head(key, seqno, kind, value.len());
        self.bytes.extend_from_slice(value);
    }

    /// Appends an entry but for its value, which the caller puts behind the entries.
    pub(crate) fn stage_head(
        &mut self,
        key: &[u8],
        seqno: Seqno,
        kind: EntryKind,
        value_bytes: usize,
    ) {
        debug_assert!(self.staged.is_none());
        self.staged =
            Some(Staged { bytes: self.bytes.len(), restarts: self.restarts.len(), seqno });
        if self.count == 0 {
            self.base = seqno;
        }
        let restart = self.count.is_multiple_of(RESTART_INTERVAL);
        if restart && self.count > 0 {
            // Only blocks of several entries come here, and those are short.
            self.restarts.push(self.bytes.len() as u16);
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
        // Sequence numbers have 56 bits, so neither the difference nor the shift overflows.
        let difference = seqno.get().cast_signed() - from.get().cast_signed();
        put_varint(out, zigzag(difference) << KIND_BITS | kind as u64);
        put_varint(out, value_bytes as u64);
        out.extend_from_slice(suffix);
    }

    /// Keeps the staged entry, whose key is `key`.
    pub(crate) fn keep(&mut self, key: &[u8]) {
        if let Some(staged) = self.staged.take() {
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
        }
    }

    /// Appends what follows the entries to `out`.
    pub(crate) fn put_tail(&self, out: &mut Vec<u8>) {
        for restart in &self.restarts {
            out.extend_from_slice(&restart.to_le_bytes());
        }
        let base = self.base.get() | (RESTART_INTERVAL as u64) << 56;
        out.extend_from_slice(&base.to_le_bytes());
        out.extend_from_slice(&(self.count as u16).to_le_bytes());
    }
}
