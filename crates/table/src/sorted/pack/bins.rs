//! Ends blocks between bins.
//!
//! The packer notices that a block is full only with the entry that does not fit. If that entry is of the
//! block's last bin, the whole bin moves to the next block, and the block is packed again without it:
//! with 64 bins a page, one block in five of entries of 256 bytes.

use base::{HashKey, Result, broken_invariant, invariant};

use super::super::block::{Block, BlockPosition};
use super::super::fit::capacity;
use super::super::layout::BinBits;
use super::{Emit, Fit, NewEntry, Packer};

/// The search for the last bin that fits ends when the remaining interval is at most this fraction (as a
/// divisor) of the entries that fit.
const PART: usize = 16;

/// The bins of the current block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bins {
    bits: BinBits,
    /// The bin of the last entry.
    last: u64,
    /// The number of entries before the last bin; 0 if the block has one bin.
    pub(super) begins_at: usize,
}

impl Bins {
    pub(super) const fn new(bits: BinBits) -> Self {
        Self { bits, last: 0, begins_at: 0 }
    }

    /// The bins of straddled blocks instead. The block is empty.
    pub(super) fn of_straddled(self) -> Self {
        Self::new(self.bits.of_straddled())
    }

    /// Whether `key` is in the bin of the last entry.
    pub(super) fn is_last_of(&self, key: &[u8]) -> bool {
        self.bits.bin_of(key) == self.last
    }

    /// The bin of the last entry.
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// Notes that `key` is the key of entry `count` of the block, counted from 1.
    pub(super) fn keep(&mut self, key: &[u8], count: usize) {
        let bin = self.bits.bin_of(key);
        if count <= 1 {
            self.begins_at = 0;
        } else if bin != self.last {
            self.begins_at = count - 1;
        }
        self.last = bin;
    }

    /// Whether the block, which is not empty, has one bin, and `key` is in it.
    pub(super) fn is_one_with(&self, key: &[u8]) -> bool {
        self.begins_at == 0 && self.bits.bin_of(key) == self.last
    }
}

impl Packer {
    /// Makes blocks end only between bins of `bits` bits. Must be called before anything is added.
    pub(crate) fn cut_between_bins(&mut self, bits: BinBits) {
        invariant!(self.block.count() == 0, "a packer learns its bins before its first entry");
        self.bins = Some(Bins::new(bits));
    }

    /// Makes compact blocks, of a keyspace with the hash key `hash_key`. Must be called before anything is
    /// added.
    pub(crate) fn compact(&mut self, hash_key: HashKey) {
        self.block.be_compact();
        self.hash_key = Some(hash_key);
    }

    /// The number of entries before the current block's last bin, if `key` is in that bin and it is not
    /// the only one: the block then ends before that bin.
    pub(super) fn bin_begins_at(&self, key: &[u8]) -> Option<usize> {
        let bins = self.bins.as_ref()?;
        (bins.begins_at > 0 && bins.bits.bin_of(key) == bins.last).then_some(bins.begins_at)
    }

    /// Appends an entry of the bin that is the whole block, which has room for it, whatever its size.
    pub(super) fn append_to_bin(&mut self, entry: NewEntry<'_>) -> bool {
        self.stage(entry);
        let raw = self.block.raw_bytes();
        self.size = match &mut self.fit {
            Fit::Stored => raw,
            Fit::Lz4(encoder) => {
                let entries = self.block.entries();
                encoder.advance(entries);
                encoder.size(entries.len(), self.block.tail_bytes()).min(raw)
            }
            Fit::Whole(predictor, _) => predictor.size(raw),
        };
        self.keep(entry);
        true
    }

    /// Emits the first `kept` entries of the current block, or fewer if they do not fit its page, and at
    /// least one bin. The rest start the next block.
    pub(super) fn close_before(&mut self, kept: usize, emit: Emit<'_>) -> Result<()> {
        invariant!(kept > 0 && kept < self.block.count(), "a bin begins within the block");
        if self.straddling.is_on {
            let whole = self.take_raw();
            self.append_from(&whole, 0..kept)?;
            self.emit(emit)?;
            return self.append_from(&whole, kept..usize::MAX);
        }
        if matches!(self.fit, Fit::Whole(..)) {
            let used = self.compress_block()?;
            return self.cut_between(used, kept, emit);
        }
        let whole = self.take_raw();
        self.append_exactly_from(&whole, 0..kept, emit)?;
        self.close(emit)?;
        self.append_exactly_from(&whole, kept..usize::MAX, emit)
    }

    /// Takes the current block out of the packer, in its raw form.
    fn take_raw(&mut self) -> Vec<u8> {
        self.assemble();
        let whole = std::mem::take(&mut self.raw);
        self.clear();
        whole
    }

    /// Appends the entries in `range` of the block `raw`: its first bins, or its last bin. Other entries
    /// are restarts than in `raw`, so a last bin of long keys may become longer than a block.
    fn append_exactly_from(
        &mut self,
        raw: &[u8],
        range: std::ops::Range<usize>,
        emit: Emit<'_>,
    ) -> Result<()> {
        let block = Block::parse(raw, self.hash_key)?;
        let mut position = BlockPosition::default();
        position.first(block)?;
        for index in 0..block.count().min(range.end) {
            let Some(entry) = position.entry() else {
                return Err(broken_invariant!("a block has as many entries as it states"));
            };
            let (trailer, value) = (entry.trailer, block.value(entry));
            if index >= range.start {
                let key = position.key();
                let entry = NewEntry { key, trailer, kind: trailer.kind()?, value };
                while !self.try_append(entry)? {
                    invariant!(
                        range.start > 0,
                        "the first bins of a block fit where the block did"
                    );
                    self.close(emit)?;
                }
            }
            position.next(block)?;
        }
        Ok(())
    }

    /// Emits as many bins of the current block, which has `used` bytes compressed, as fit one page: of
    /// the bins that end within the first `limit` entries, and at least one. The rest start the next
    /// block.
    pub(super) fn cut_between(&mut self, used: usize, limit: usize, emit: Emit<'_>) -> Result<()> {
        let (whole, all) = (std::mem::take(&mut self.raw), self.block.count());
        let ends = self.bin_ends(&whole, limit)?;
        // The number of ends that are known to fit, and the number of those that may fit.
        let (mut fits, mut open) = (0, ends.iter().filter(|end| **end < all).count());
        let mut guess = all * capacity(1) / used.max(1);
        // Bounded: each step but the first halves the interval.
        while fits < open {
            let from_guess = ends.partition_point(|end| *end <= guess);
            let next = from_guess.clamp(fits + 1, open) - 1;
            let count = ends.get(next).copied().unwrap_or(all);
            match self.compress_part(&whole, count)? <= capacity(1) {
                true => fits = next + 1,
                false => open = next,
            }
            let end = |number: usize| number.checked_sub(1).and_then(|it| ends.get(it)).copied();
            let (least, most) = (end(fits).unwrap_or(0), end(open).unwrap_or(0));
            if fits > 0 && most.saturating_sub(least) <= 1 + least / PART {
                break;
            }
            guess = least.midpoint(most);
        }
        // A first bin that does not fit takes as many pages as it needs.
        let kept = ends.get(fits.saturating_sub(1)).copied().unwrap_or(all);
        if kept != self.block.count() || !self.compressed {
            self.compress_part(&whole, kept)?;
        }
        self.emit(emit)?;
        self.append_from(&whole, kept..usize::MAX)?;
        invariant!(kept + self.block.count() == all, "a cut keeps every entry");
        Ok(())
    }

    /// The numbers of entries at the end of each bin of the block `raw` that ends within its first
    /// `limit` entries, ascending.
    fn bin_ends(&self, raw: &[u8], limit: usize) -> Result<Vec<usize>> {
        let Some(Bins { bits, .. }) = self.bins else {
            return Err(broken_invariant!("only a table with bins is cut between them"));
        };
        let block = Block::parse(raw, self.hash_key)?;
        let mut position = BlockPosition::default();
        position.first(block)?;
        let (mut ends, mut last) = (Vec::new(), None);
        for index in 0..block.count() {
            let bin = bits.bin_of(position.key());
            if index > 0 && last != Some(bin) {
                ends.push(index);
            }
            last = Some(bin);
            position.next(block)?;
        }
        ends.push(block.count());
        ends.retain(|end| *end <= limit);
        Ok(ends)
    }
}
