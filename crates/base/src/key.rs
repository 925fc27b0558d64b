//! Keys, bounded once at the edge.

use crate::limits::KEY_BYTES_MAX;
use crate::{Error, Result};

/// A key of 1 byte to 64 KiB. Everything past the public API takes this type, so no length is
/// checked twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Key<'a>(&'a [u8]);

/// A bound after every key there can be: the end of a range that has none. One byte longer than a
/// key, so that the range up to it holds the greatest key too.
pub static AFTER_EVERY_KEY: [u8; KEY_BYTES_MAX + 1] = [0xff; KEY_BYTES_MAX + 1];

impl<'a> Key<'a> {
    /// Bounds `bytes`.
    ///
    /// # Errors
    /// `Invalid` where `bytes` is empty or longer than 64 KiB.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        if bytes.is_empty() || bytes.len() > KEY_BYTES_MAX {
            return Err(Error::invalid("key length, bytes")
                .expected(format_args!("1..={KEY_BYTES_MAX}"))
                .got(bytes.len()));
        }
        Ok(Self(bytes))
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
    fn bounds() {
        assert_eq!(Key::new(b"").unwrap_err().kind(), ErrorKind::Invalid);
        assert!(Key::new(&[0]).is_ok());
        assert!(Key::new(&vec![0; KEY_BYTES_MAX]).is_ok());
        let error = Key::new(&vec![0; KEY_BYTES_MAX + 1]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the caller's mistake: key length, bytes: expected 1..=65536, got 65537"
        );
    }
}
