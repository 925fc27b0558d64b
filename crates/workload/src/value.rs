//! Values that are a function of their key, so that every read can be verified.
//!
//! ```text
//! value = unit unit .. unit            1024 bytes each, the last one shorter
//! unit  = piece piece .. piece         one piece, repeated until the unit is full
//! piece = random bytes                 compression ratio x the unit's length, at least 8
//! first 8 bytes of a value = epoch u8, compression ratio u8 (percent), 6 bytes of hash(key)
//! ```
//!
//! The random bytes are a function of key, epoch, ratio and length. The epoch says which run wrote a value,
//! which tells a stale version from the current one. A value carries everything that is needed to check each
//! of its bytes, so a reader need not know the settings it was written with. Repetition is local: a codec
//! that compresses one page at a time reaches the ratio. Nothing repeats between values, so a dictionary
//! gains nothing.
//!
//! Cost: about 1 ns for 8 random bytes, a `memcpy` (or `memcmp`) for the rest.

use base::{Error, Result, hash64};

/// The length within which a value repeats itself, bytes.
const UNIT_BYTES: usize = 1024;

/// The smallest piece, bytes: one random word.
const PIECE_BYTES_MIN: usize = 8;

/// Makes values of one compression ratio.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    percent: u8,
}

impl Values {
    /// Values that a codec compresses to about `ratio` of their size: 0.5 halves them, 1.0 cannot be
    /// compressed. `ratio` is rounded to a hundredth.
    ///
    /// # Errors
    /// `Invalid` if `ratio` is not in `0.0..=1.0`.
    pub fn new(ratio: f64) -> Result<Self> {
        if (0.0..=1.0).contains(&ratio) {
            return Ok(Self { percent: (ratio * 100.0).round() as u8 });
        }
        Err(Error::invalid("compression ratio").expected("0.0..=1.0").got(ratio))
    }

    /// Replaces `out` with the value of `key` in `epoch`, `len` bytes.
    pub fn write(self, key: &[u8], epoch: u8, len: usize, out: &mut Vec<u8>) {
        out.clear();
        out.reserve(len);
        let mut words = Words::new(key, epoch, self.percent, len);
        while out.len() < len {
            let unit = UNIT_BYTES.min(len - out.len());
            let (start, end) = (out.len(), out.len() + unit);
            let piece_end = start + piece_bytes(self.percent, unit);
            while out.len() < piece_end {
                let left = piece_end - out.len();
                out.extend(words.next().to_le_bytes().iter().take(left));
            }
            while out.len() < end {
                let more = (end - out.len()).min(piece_end - start);
                out.extend_from_within(start..start + more);
            }
        }
        debug_assert_eq!(out.len(), len, "a value has the length asked for");
    }

    /// Whether `value` is, byte for byte, one that [`Values::write`] makes for `key`, in any epoch, ratio and
    /// length. A value shorter than 8 bytes proves less: it carries only the first bytes of the stamp.
    #[must_use]
    pub fn verify(key: &[u8], value: &[u8]) -> bool {
        let (epoch, percent) = match value {
            [epoch, percent, ..] => (*epoch, *percent),
            [epoch] => (*epoch, 0),
            [] => return true,
        };
        if percent > 100 {
            return false;
        }
        let mut words = Words::new(key, epoch, percent, value.len());
        value.chunks(UNIT_BYTES).all(|unit| {
            let period = piece_bytes(percent, unit.len());
            let Some((piece, rest)) = unit.split_at_checked(period) else { return false };
            let (whole, tail) = piece.as_chunks::<8>();
            whole.iter().all(|word| u64::from_le_bytes(*word) == words.next())
                && (tail.is_empty() || words.next().to_le_bytes().starts_with(tail))
                // Each byte equals the byte one period before it.
                && unit.starts_with(rest.get(..period.min(rest.len())).unwrap_or_default())
                && rest.get(period..).is_none_or(|later| rest.starts_with(later))
        })
    }

    /// The epoch of a value; `None` for an empty one.
    #[must_use]
    pub fn epoch(value: &[u8]) -> Option<u8> {
        value.first().copied()
    }
}

fn piece_bytes(percent: u8, unit: usize) -> usize {
    (unit * usize::from(percent)).div_ceil(100).max(PIECE_BYTES_MIN).min(unit)
}

/// The random words of one value: the stamp, then `SplitMix64`.
struct Words {
    stamp: Option<u64>,
    state: u64,
}

impl Words {
    fn new(key: &[u8], epoch: u8, percent: u8, len: usize) -> Self {
        let marks = u64::from(epoch) | u64::from(percent) << 8;
        let state = hash64(marks | (len as u64) << 16, key);
        Self { stamp: Some(state << 16 | marks), state }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        if let Some(stamp) = self.stamp.take() {
            return stamp;
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
