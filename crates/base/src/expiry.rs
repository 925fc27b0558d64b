//! The stored form of a value that expires: 8 bytes of expiry, little-endian, then the value.
//!
//! An expiry is a time in Unix milliseconds, greater than 0. From that time on, the version reads as a
//! tombstone.

use crate::{Error, Result, invariant, put_u64};

/// The bytes that an expiry adds to a value.
pub const BYTES: usize = 8;

/// Appends the stored form of `value`, which expires at `expiry`, Unix milliseconds, greater than 0.
pub fn put(out: &mut Vec<u8>, expiry: u64, value: &[u8]) {
    invariant!(expiry > 0, "an expiry is greater than 0");
    put_u64(out, expiry);
    out.extend_from_slice(value);
}

/// Splits a stored form into the expiry, Unix milliseconds, and the value.
///
/// # Errors
/// `Corrupt` if `stored` is shorter than an expiry or the expiry is 0.
pub fn split(stored: &[u8]) -> Result<(u64, &[u8])> {
    match stored.split_first_chunk() {
        Some((expiry, value)) if *expiry != [0; BYTES] => Ok((u64::from_le_bytes(*expiry), value)),
        _ => Err(Error::corrupt("expiring value")
            .expected("an expiry greater than 0, 8 bytes")
            .got(format_args!("`{}`", stored.get(..BYTES).unwrap_or(stored).escape_ascii()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_returns_the_parts_and_refuses_a_short_or_zero_expiry() {
        let mut stored = Vec::new();
        put(&mut stored, 0x0102, b"value");
        assert_eq!(stored, b"\x02\x01\0\0\0\0\0\0value");
        assert_eq!(split(&stored).unwrap(), (0x0102, &b"value"[..]));
        assert_eq!(split(&stored[..BYTES]).unwrap().1, b"");
        assert!(split(&stored[..BYTES - 1]).is_err());
        assert!(split(&[0; 20]).is_err());
    }
}
