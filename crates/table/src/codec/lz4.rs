//! The LZ4 codec: block format without frames.
//!
//! Writers compress with [`Encoder`]. It takes a block entry by entry, and after each entry reports the
//! compressed size that the block would have if it ended there. So the packer ends a block exactly when
//! its page is full, after one pass of compression; a one-shot compressor would have to guess and
//! compress again. The output is standard LZ4.
//!
//! Cost: about 2 ns per incompressible byte, less for compressible ones. Memory: 8 KiB of hash table and
//! the output.

mod long;

use base::{Error, Result, invariant};

/// Most bytes that an [`Encoder`] takes: positions have 16 bits.
pub(crate) const SOURCE_BYTES_MAX: usize = u16::MAX as usize;

/// Fewest bytes after the last match: the format requires five literals at the end, and the last match
/// to start at least twelve bytes before the end.
pub(crate) const TAIL_BYTES_MIN: usize = 8;

const HASH_BITS: u32 = 12;
const MATCH_BYTES_MIN: usize = 4;
/// After this many misses in a row (as a power of two) the search skips one more byte per step.
const SKIP_SHIFT: usize = 5;

/// Decompresses `payload` into at most `raw_bytes` bytes.
pub(crate) fn decompress(payload: &[u8], raw_bytes: usize) -> Result<Vec<u8>> {
    if long::is_long(payload) {
        return long::decompress(payload, raw_bytes);
    }
    lz4_flex::block::decompress(payload, raw_bytes).map_err(|error| {
        Error::corrupt("lz4 payload")
            .expected(format_args!("{raw_bytes} bytes once decompressed"))
            .got(error)
    })
}

/// Replaces `out` with the compressed form of `raw`, of any length, in one pass.
pub(crate) fn compress(raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    out.resize(lz4_flex::block::get_maximum_output_size(raw.len()), 0);
    let length = lz4_flex::block::compress_into(raw, out)
        .map_err(|error| Error::retry("lz4 compression").got(error).never_heals())?;
    out.truncate(length);
    Ok(())
}

/// An incremental LZ4 compressor for blocks of less than 64 KiB.
///
/// The source grows between calls, and each call gets all of it. A match that reaches the end of the
/// source stays open, because later bytes may extend it.
pub(crate) struct Encoder {
    /// The latest position of each hash of four bytes. A rollback within the block may leave positions
    /// past the end; these are never candidates.
    table: Box<[u16; 1 << HASH_BITS]>,
    out: Vec<u8>,
    state: Mark,
}

/// A state to return to with [`Encoder::rollback`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    out_bytes: usize,
    /// The first source byte that is in no sequence of the output.
    anchor: usize,
    /// The position at which the search continues.
    at: usize,
    /// A match that is not in the output yet; length 0 if there is none.
    open: Match,
}

#[derive(Clone, Copy, Debug, Default)]
struct Match {
    start: usize,
    offset: usize,
    length: usize,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        let table = Box::new([0; 1 << HASH_BITS]);
        Self { table, out: Vec::new(), state: Mark::default() }
    }

    /// Starts a new block.
    pub(crate) fn reset(&mut self) {
        self.table.fill(0);
        self.out.clear();
        self.state = Mark::default();
    }

    /// The current state.
    pub(crate) fn mark(&self) -> Mark {
        Mark { out_bytes: self.out.len(), ..self.state }
    }

    /// Returns to `mark`, which was taken of this block. The source must be cut to its length then.
    pub(crate) fn rollback(&mut self, mark: Mark) {
        invariant!(mark.out_bytes <= self.out.len(), "a mark is of the current block");
        self.out.truncate(mark.out_bytes);
        self.state = mark;
    }

    /// Compresses the bytes appended to `source` since the last call.
    pub(crate) fn advance(&mut self, source: &[u8]) {
        invariant!(source.len() <= SOURCE_BYTES_MAX, "positions of a block have 16 bits");
        loop {
            if self.state.open.length > 0 {
                let Match { start, offset, length } = self.state.open;
                let end = start + length;
                let more = common_bytes(source, end - offset, end);
                self.state.open.length += more;
                if end + more == source.len() {
                    return;
                }
                self.close(source);
            }
            if !self.find(source) {
                return;
            }
        }
    }

    /// The compressed size of the block, bytes, if it ended after `source_bytes` bytes, followed by an
    /// uncompressed tail of `tail_bytes`.
    pub(crate) fn size(&self, source_bytes: usize, tail_bytes: usize) -> usize {
        let Mark { anchor, open, .. } = self.state;
        let (sequence, literals_from) = match open.length {
            0 => (0, anchor),
            _ => (sequence_bytes(open.start - anchor, open.length), open.start + open.length),
        };
        debug_assert!(literals_from <= source_bytes, "the size asked for covers the output");
        let literals = source_bytes - literals_from + tail_bytes;
        self.out.len() + sequence + 1 + extension_bytes(literals) + literals
    }

    /// Ends the block with `tail`, which has at least [`TAIL_BYTES_MIN`] bytes, and swaps the compressed
    /// block into `out`.
    pub(crate) fn finish(&mut self, source: &[u8], tail: &[u8], out: &mut Vec<u8>) {
        invariant!(tail.len() >= TAIL_BYTES_MIN, "a block ends with five literals");
        self.advance(source);
        if self.state.open.length > 0 {
            self.close(source);
        }
        let predicted = self.size(source.len(), tail.len());
        let literals = source.get(self.state.anchor..).unwrap_or_default();
        invariant!(
            self.state.anchor + literals.len() == source.len(),
            "the output covers no more than its source"
        );
        put_token(&mut self.out, literals.len() + tail.len(), 0);
        self.out.extend_from_slice(literals);
        self.out.extend_from_slice(tail);
        invariant!(self.out.len() == predicted, "a block has the size that it was packed by");
        std::mem::swap(&mut self.out, out);
    }

    /// Finds the next match and leaves it open. False if there is none.
    fn find(&mut self, source: &[u8]) -> bool {
        let Some(last) = source.len().checked_sub(MATCH_BYTES_MIN) else { return false };
        let (mut at, mut tries) = (self.state.at, 1 << SKIP_SHIFT);
        while at <= last {
            let word = word_at(source, at);
            let hash = (word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize;
            let slot = self.table.get_mut(hash);
            let candidate = slot.map_or(0, |slot| std::mem::replace(slot, at as u16)) as usize;
            if candidate < at && word_at(source, candidate) == word {
                self.state.open = self.grow_back(source, candidate, at);
                return true;
            }
            at += tries >> SKIP_SHIFT;
            tries += 1;
        }
        // The search may have skipped bytes that later ones complete to a word. Bytes of an earlier
        // match are not searched again.
        self.state.at = at.min(last + 1).max(self.state.anchor);
        false
    }

    fn grow_back(&self, source: &[u8], candidate: usize, at: usize) -> Match {
        let literals = source.get(self.state.anchor..at).unwrap_or_default();
        let before = source.get(..candidate).unwrap_or_default();
        let pairs = literals.iter().rev().zip(before.iter().rev());
        let back = pairs.take_while(|(here, there)| here == there).count();
        Match { start: at - back, offset: at - candidate, length: MATCH_BYTES_MIN + back }
    }

    /// Writes the open match to the output, with the literals before it.
    fn close(&mut self, source: &[u8]) {
        let Match { start, offset, length } = std::mem::take(&mut self.state.open);
        let literals = source.get(self.state.anchor..start).unwrap_or_default();
        debug_assert!(length >= MATCH_BYTES_MIN && start >= self.state.anchor);
        debug_assert!(offset > 0 && offset <= start, "a match is a copy of earlier bytes");
        let extra = length - MATCH_BYTES_MIN;
        put_token(&mut self.out, literals.len(), extra);
        self.out.extend_from_slice(literals);
        self.out.extend_from_slice(&(offset as u16).to_le_bytes());
        put_extension(&mut self.out, extra);
        self.state.anchor = start + length;
        self.state.at = start + length;
    }
}

/// The number of equal bytes from `there` and from `here` on, two positions in `source`.
fn common_bytes(source: &[u8], there: usize, here: usize) -> usize {
    let (there, here) =
        (source.get(there..).unwrap_or_default(), source.get(here..).unwrap_or_default());
    let mut common = 0;
    for (one, other) in there.chunks_exact(8).zip(here.chunks_exact(8)) {
        let differ = long_at(one) ^ long_at(other);
        if differ != 0 {
            return common + differ.trailing_zeros() as usize / 8;
        }
        common += 8;
    }
    let (there, here) =
        (there.get(common..).unwrap_or_default(), here.get(common..).unwrap_or_default());
    common + there.iter().zip(here).take_while(|(one, other)| one == other).count()
}

fn word_at(source: &[u8], at: usize) -> u32 {
    let word = source.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

fn long_at(source: &[u8]) -> u64 {
    source.first_chunk().map_or(0, |long| u64::from_le_bytes(*long))
}

/// The number of extension bytes of a length: those that follow the four bits in the token.
const fn extension_bytes(length: usize) -> usize {
    if length < 15 { 0 } else { (length - 15) / 255 + 1 }
}

const fn sequence_bytes(literals: usize, match_bytes: usize) -> usize {
    let extra = match_bytes - MATCH_BYTES_MIN;
    1 + extension_bytes(literals) + literals + 2 + extension_bytes(extra)
}

/// Writes a token, and the extension of the literals' length.
fn put_token(out: &mut Vec<u8>, literals: usize, extra: usize) {
    out.push((literals.min(15) << 4 | extra.min(15)) as u8);
    put_extension(out, literals);
}

fn put_extension(out: &mut Vec<u8>, length: usize) {
    if let Some(mut rest) = length.checked_sub(15) {
        while rest >= 255 {
            out.push(255);
            rest -= 255;
        }
        out.push(rest as u8);
    }
}

#[cfg(test)]
mod tests;
