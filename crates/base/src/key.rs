//! Keys. Their length is checked once, when they enter through the public API.

use crate::limits::KEY_BYTES_MAX;
use crate::{Error, Result};

/// A key of 1 byte to 64 KiB. All code behind the public API takes this type, so the length is checked
/// only once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Key<'a>(&'a [u8]);

/// An exclusive upper bound greater than every key; the end of an unbounded range. It is one byte longer
/// than the longest key, so it is greater than a key of 64 KiB of `0xff`.
pub static AFTER_EVERY_KEY: [u8; KEY_BYTES_MAX + 1] = [0xff; KEY_BYTES_MAX + 1];

impl<'a> Key<'a> {
    /// The key `bytes`.
    ///
    /// # Errors
    /// `Invalid` if `bytes` is empty or longer than 64 KiB.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        if bytes.is_empty() || bytes.len() > KEY_BYTES_MAX {
            return Err(Error::invalid("key length, bytes")
                .expected(format_args!("1..={KEY_BYTES_MAX}"))
                .got(bytes.len()));
        }
        Ok(Self(bytes))
    }

    /// The key `bytes`, of a checked length.
    pub(crate) const fn of_checked(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl AsRef<[u8]> for Key<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn keys_of_1_byte_to_64_kib_are_accepted() {
        assert_eq!(Key::new(b"").unwrap_err().kind(), ErrorKind::Invalid);
        assert!(Key::new(&[0]).is_ok());
        assert!(Key::new(&vec![0; KEY_BYTES_MAX]).is_ok());
        let error = Key::new(&vec![0; KEY_BYTES_MAX + 1]).unwrap_err();
        assert_eq!(error.to_string(), "invalid: key length, bytes: expected 1..=65536, got 65537");
    }
}
