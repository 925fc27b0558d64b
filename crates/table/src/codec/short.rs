//! Packed values: a short value compressed alone with LZ4, followed by its length, two bytes
//! little-endian.
//!
//! For single values in memory, never in a file.

use base::{Error, Result};

use super::lz4;

/// The length at the end of a packed value.
const LENGTH_BYTES: usize = size_of::<u16>();

/// Shorter values hardly repeat anything, bytes.
const VALUE_BYTES_MIN: usize = 64;

/// A value is packed if that saves at least one part in this many.
const SAVED_PART: usize = 8;

/// Replaces `out` with the packed form of `value`. Returns false, with unspecified content in `out`, if
/// packing saves less than an eighth, or the value is shorter than 64 or longer than 65,535 bytes.
pub fn pack_value(value: &[u8], out: &mut Vec<u8>) -> bool {
    let Ok(length) = u16::try_from(value.len()) else { return false };
    if value.len() < VALUE_BYTES_MIN || lz4::compress(value, out).is_err() {
        return false;
    }
    out.extend(length.to_le_bytes());
    out.len() + value.len() / SAVED_PART <= value.len()
}

/// The value that [`pack_value`] packed into `packed`.
///
/// # Errors
/// `Corrupt` if it is no packed value.
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
    fn repetitive_values_are_packed_and_unpacked_to_the_same_bytes() {
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
    fn incompressible_values_and_foreign_bytes_are_refused() {
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
            // Any bytes: no panic, and no value longer than the bound.
            assert!(unpack_value(&value[..len]).map_or(0, |it| it.len()) < 65_536);
        }
    }
}
