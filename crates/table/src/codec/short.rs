//! A short value by itself, packed: LZ4, and behind it the value's length, two bytes little endian.
//!
//! For what is kept of single values in memory, never in a file.

use base::{Error, Result};

use super::lz4;

/// Of a packed value: its length.
const LENGTH_BYTES: usize = size_of::<u16>();

/// Shorter ones hardly repeat anything, bytes.
const VALUE_BYTES_MIN: usize = 64;

/// A value is packed where that saves at least one part in so many.
const SAVED_PART: usize = 8;

/// Exchanges `out` for the packed form of `value`; false, and `out` is anything, where that saves
/// less than an eighth, or the value is shorter than 64 bytes or longer than 65,535.
pub fn pack_value(value: &[u8], out: &mut Vec<u8>) -> bool {
    let Ok(length) = u16::try_from(value.len()) else { return false };
    if value.len() < VALUE_BYTES_MIN || lz4::compress(value, out).is_err() {
        return false;
    }
    out.extend(length.to_le_bytes());
    out.len() + value.len() / SAVED_PART <= value.len()
}

/// The value that [`pack_value`] made `packed` of.
///
/// # Errors
/// `Corrupt` where it is no packed value.
pub fn unpack_value(packed: &[u8]) -> Result<Vec<u8>> {
    let no_value = || Error::corrupt("packed value").got(format_args!("{} bytes", packed.len()));
    let (payload, length) = packed.split_last_chunk::<LENGTH_BYTES>().ok_or_else(no_value)?;
    let length = usize::from(u16::from_le_bytes(*length));
    let value = lz4::decompress(payload, length)?;
    if value.len() != length {
        return Err(no_value().expected(format_args!("a value of {length}")));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    #[test]
    fn what_repeats_itself_is_packed_and_comes_back() {
        let (mut rng, seed) = Rng::from_env();
        println!("TERRACE_SEED={seed}");
        let mut out = vec![1, 2, 3];
        for _ in 0..2000 {
            let mut value = vec![0; 32 + rng.below(2000) as usize];
            rng.fill(&mut value);
            let half = value.len() / 2;
            value.copy_within(..half, half);
            if pack_value(&value, &mut out) {
                assert!(out.len() <= value.len() - value.len() / SAVED_PART);
                assert_eq!(unpack_value(&out).unwrap(), value);
            } else {
                assert!(value.len() < 100, "{} bytes, half of them twice", value.len());
            }
        }
    }

    #[test]
    fn what_does_not_gain_is_left_and_what_is_no_packed_value_is_told() {
        let (mut rng, seed) = Rng::from_env();
        println!("TERRACE_SEED={seed}");
        let mut value = vec![0; 400];
        rng.fill(&mut value);
        let mut out = Vec::new();
        assert!(!pack_value(&value, &mut out));
        assert!(!pack_value(&[7; 63], &mut out) && !pack_value(&[7; 65_536], &mut out));
        assert!(pack_value(&[7; 64], &mut out) && pack_value(&[7; 65_535], &mut out));
        assert!(unpack_value(&[]).is_err() && unpack_value(&out[1..]).is_err());
        for _ in 0..20_000 {
            let len = rng.below(64) as usize;
            rng.fill(&mut value[..len]);
            // Whatever it says, it is no panic, and no longer than a value may be.
            assert!(unpack_value(&value[..len]).map_or(0, |it| it.len()) < 65_536);
        }
    }
}
