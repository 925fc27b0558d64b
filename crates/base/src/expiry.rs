//! The stored form of a value that expires: its expiry, then the value.
//!
//! An expiry is a moment in Unix milliseconds, above zero, in eight bytes, little-endian. From that
//! moment on the version says what a delete would say.

use crate::{Error, Result, put_u64};

/// What the expiry adds to a value, bytes.
pub const BYTES: usize = 8;

/// Appends the stored form of `value`, which expires at `expiry`, Unix milliseconds.
pub fn put(out: &mut Vec<u8>, expiry: u64, value: &[u8]) {
    put_u64(out, expiry);
    out.extend_from_slice(value);
}

/// The expiry, Unix milliseconds, and the value of a stored form.
///
/// # Errors
/// `Corrupt` where there is no expiry, or it is zero: bytes from outside may say anything.
pub fn split(stored: &[u8]) -> Result<(u64, &[u8])> {
    match stored.split_first_chunk() {
        Some((expiry, value)) if *expiry != [0; BYTES] => Ok((u64::from_le_bytes(*expiry), value)),
        _ => Err(Error::corrupt("expiring value")
            .expected("an expiry above zero, 8 bytes")
            .got(format_args!("`{}`", stored.get(..BYTES).unwrap_or(stored).escape_ascii()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_split_again_and_nothing_else() {
        let mut stored = Vec::new();
        put(&mut stored, 0x0102, b"value");
        assert_eq!(stored, b"\x02\x01\0\0\0\0\0\0value");
        assert_eq!(split(&stored).unwrap(), (0x0102, &b"value"[..]));
        assert_eq!(split(&stored[..BYTES]).unwrap().1, b"");
        assert!(split(&stored[..BYTES - 1]).is_err());
        assert!(split(&[0; 20]).is_err());
    }
}
