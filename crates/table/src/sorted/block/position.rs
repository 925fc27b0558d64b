//! A position in a block: the step from entry to entry, which iterators are made of.

use std::cmp::Ordering;

use base::{Error, Result, Seqno, Trailer};

use super::{AHEAD_BYTES, Block, BlockEntry};

/// Key suffixes up to this length are copied as this many bytes, whatever their length: two instructions
/// instead of a call.
pub(super) const SUFFIX_STEP: usize = 16;

/// A position in a block: on an entry, or past the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockPosition {
    /// The number of the entry; the block's entry count if past the last.
    pub(super) index: usize,
    /// The key, followed by spare bytes.
    pub(super) key: Vec<u8>,
    pub(super) key_bytes: usize,
    pub(super) entry: Option<BlockEntry>,
}

impl BlockPosition {
    /// A position in no block.
    pub(crate) const fn new() -> Self {
        Self { index: 0, key: Vec::new(), key_bytes: 0, entry: None }
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        debug_assert!(self.key_bytes <= self.key.len(), "the key is within its buffer");
        self.key.get(..self.key_bytes).unwrap_or_default()
    }

    /// The entry; `None` past the last.
    pub(crate) const fn entry(&self) -> Option<&BlockEntry> {
        self.entry.as_ref()
    }

    /// The number of the entry.
    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// Leaves the block.
    pub(crate) fn clear(&mut self) {
        self.entry = None;
    }

    /// Moves to the first entry.
    pub(crate) fn first(&mut self, block: Block<'_>) -> Result<()> {
        self.restart(block, 0)
    }

    /// Moves to the last entry.
    pub(crate) fn last(&mut self, block: Block<'_>) -> Result<()> {
        self.move_to(block, block.count() - 1)
    }

    /// Moves to the first entry at or after (`key`, `at`). False if there is none.
    pub(crate) fn seek(&mut self, block: Block<'_>, key: &[u8], at: Trailer) -> Result<bool> {
        self.restart(block, block.group_of(key, at)?)?;
        while let Some(entry) = &self.entry {
            let order = self.key().cmp(key).then_with(|| at.cmp(&entry.trailer));
            if order != Ordering::Less {
                return Ok(true);
            }
            self.next(block)?;
        }
        Ok(false)
    }

    /// Moves to the next entry. False if there is none; the position is then past the last one.
    #[inline]
    pub(crate) fn next(&mut self, block: Block<'_>) -> Result<bool> {
        let Some(entry) = &self.entry else { return Ok(false) };
        let (at, from) = (entry.end, entry.trailer.seqno());
        self.index += 1;
        if self.index == block.count() {
            self.entry = None;
            return Ok(false);
        }
        let restart = self.index.is_multiple_of(block.layout.interval);
        self.read(block, at, if restart { block.layout.base } else { from })?;
        Ok(true)
    }

    /// Moves to the previous entry, also from past the last one. False at the first entry, where it
    /// stays.
    pub(crate) fn prev(&mut self, block: Block<'_>) -> Result<bool> {
        let Some(index) = self.index.checked_sub(1) else { return Ok(false) };
        self.move_to(block, index)?;
        Ok(true)
    }

    fn move_to(&mut self, block: Block<'_>, index: usize) -> Result<()> {
        self.restart(block, index / block.layout.interval)?;
        while self.index < index && self.next(block)? {}
        debug_assert_eq!(self.index, index, "a block has as many entries as it states");
        Ok(())
    }

    fn restart(&mut self, block: Block<'_>, group: usize) -> Result<()> {
        self.index = group * block.layout.interval;
        self.key_bytes = 0;
        self.read(block, block.group_at(group)?, block.layout.base)
    }

    #[inline]
    fn read(&mut self, block: Block<'_>, at: usize, from: Seqno) -> Result<()> {
        arena::prefetch(block.raw, at + AHEAD_BYTES);
        if let Some(hash_key) = &block.layout.hash_key {
            return self.read_compact(block, at, hash_key);
        }
        match block.short_entry(at, from) {
            Some(entry) if entry.shared <= self.key_bytes => {
                self.stand(block, entry);
                Ok(())
            }
            _ => self.read_any(block, at, from),
        }
    }

    /// As [`BlockPosition::read`], for any entry.
    #[cold]
    fn read_any(&mut self, block: Block<'_>, at: usize, from: Seqno) -> Result<()> {
        self.entry = None;
        let entry = block.entry(at, from)?;
        if entry.shared > self.key_bytes {
            return Err(Error::corrupt("shared bytes of a key")
                .at(format_args!("entry {} of a block", self.index))
                .expected(format_args!("at most {}", self.key_bytes))
                .got(entry.shared));
        }
        self.stand(block, entry);
        Ok(())
    }

    /// Sets the position to `entry`, which shares at most `key_bytes` bytes.
    #[inline]
    fn stand(&mut self, block: Block<'_>, entry: BlockEntry) {
        let (shared, suffix) = (entry.shared, entry.value_at - entry.suffix_at);
        debug_assert!(shared <= self.key_bytes, "a key shares bytes that the previous one has");
        let from = block.raw.get(entry.suffix_at..).and_then(<[u8]>::first_chunk::<SUFFIX_STEP>);
        let to = self.key.get_mut(shared..).and_then(<[u8]>::first_chunk_mut::<SUFFIX_STEP>);
        if let (Some(from), Some(to), ..=SUFFIX_STEP) = (from, to, suffix) {
            *to = *from;
        } else {
            self.key.truncate(shared);
            self.key.extend_from_slice(block.suffix(&entry));
            self.key.resize(self.key.len() + SUFFIX_STEP, 0);
        }
        self.key_bytes = shared + suffix;
        self.entry = Some(entry);
    }
}
