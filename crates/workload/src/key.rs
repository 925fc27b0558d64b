//! Keys made from numbers.
//!
//! The key of number *n* is the eight big-endian bytes of 2*n*, then `0` characters up to the key size. So
//! keys of one size sort like their numbers, and each key maps back to its number. Between any two neighbours
//! lies one key that is never written: the bench of missing lookups asks for these, and no range check of a
//! table can exclude them.

use base::limits::KEY_BYTES_MAX;
use base::{Error, Result};

/// The shortest key made from a number, bytes.
pub const KEY_BYTES_MIN: usize = 8;

/// The bound on numbers: the double of any number fits the eight bytes.
pub const KEY_NUMBER_MAX: u64 = 1 << 48;

/// Makes keys of one size.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    bytes: usize,
}

impl Keys {
    /// Keys of `bytes` bytes.
    ///
    /// # Errors
    /// `Invalid` if `bytes` is below 8 or above the longest key.
    pub fn new(bytes: usize) -> Result<Self> {
        if (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&bytes) {
            return Ok(Self { bytes });
        }
        Err(Error::invalid("key size, bytes")
            .expected(format_args!("{KEY_BYTES_MIN}..={KEY_BYTES_MAX}"))
            .got(bytes))
    }

    /// The size of each key, bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// Replaces `out` with the key of `number`.
    pub fn write(self, number: u64, out: &mut Vec<u8>) {
        debug_assert!(number <= u64::MAX >> 1, "twice a key number fits 8 bytes");
        self.write_doubled(number << 1, out);
    }

    /// Replaces `out` with the key that follows that of `number` and belongs to no number.
    pub fn write_missing(self, number: u64, out: &mut Vec<u8>) {
        self.write_doubled(number << 1 | 1, out);
    }

    fn write_doubled(self, doubled: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&doubled.to_be_bytes());
        out.resize(self.bytes, b'0');
    }

    /// The number of `key`, or `None` if [`Keys::write`] does not make this key.
    #[must_use]
    pub fn number(self, key: &[u8]) -> Option<u64> {
        let (doubled, filler) = key.split_first_chunk()?;
        let doubled = u64::from_be_bytes(*doubled);
        let ours = key.len() == self.bytes && filler.iter().all(|byte| *byte == b'0');
        (ours && doubled & 1 == 0).then_some(doubled >> 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    #[test]
    fn keys_sort_like_their_numbers_and_map_back() {
        let (mut rng, seed) = Rng::from_env();
        for bytes in [8, 9, 16, 20, 333] {
            let keys = Keys::new(bytes).unwrap();
            let (mut one, mut two, mut gap) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..1000 {
                let (a, b) = (rng.below(KEY_NUMBER_MAX), rng.below(KEY_NUMBER_MAX));
                keys.write(a, &mut one);
                keys.write(b, &mut two);
                assert_eq!(one.len(), bytes);
                assert_eq!(one.cmp(&two), a.cmp(&b), "TERRACE_SEED={seed}");
                assert_eq!(keys.number(&one), Some(a), "TERRACE_SEED={seed}");
                keys.write_missing(a, &mut gap);
                keys.write(a + 1, &mut two);
                assert!(one < gap && gap < two, "TERRACE_SEED={seed}");
                assert_eq!(keys.number(&gap), None);
            }
            one.push(b'0');
            assert_eq!(keys.number(&one), None, "a key of another size");
        }
        assert!(Keys::new(7).is_err());
        assert!(Keys::new(KEY_BYTES_MAX + 1).is_err());
    }
}
