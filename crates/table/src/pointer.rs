//! Pointers to separated values, which are stored in value files.

use base::{Cursor, Error, Result, TableId, put_u32, put_u64};

/// The location of a separated value: the content of an entry of kind `PutPointer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pointer {
    /// The value file.
    pub file: TableId,
    /// The value's first page in the file.
    pub page: u32,
    /// Number of pages that the value fills.
    pub pages: u32,
    /// Length of the value, bytes.
    pub bytes: u64,
    /// Time of expiry, Unix milliseconds; 0: never.
    pub expiry: u64,
}

impl Pointer {
    /// Length of the stored form, bytes.
    pub const BYTES: usize = 32;

    /// Encodes the pointer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::BYTES);
        put_u64(&mut out, self.file.0);
        put_u32(&mut out, self.page);
        put_u32(&mut out, self.pages);
        put_u64(&mut out, self.bytes);
        put_u64(&mut out, self.expiry);
        out
    }

    /// Decodes the stored form.
    ///
    /// # Errors
    /// `Corrupt` if it has another length, or names no pages.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("pointer to a value", value);
        let pointer = Self {
            file: TableId(cursor.u64()?),
            page: cursor.u32()?,
            pages: cursor.u32()?,
            bytes: cursor.u64()?,
            expiry: cursor.u64()?,
        };
        cursor.finish()?;
        if pointer.pages == 0 || pointer.page.checked_add(pointer.pages).is_none() {
            return Err(Error::corrupt("pointer to a value")
                .expected("pages of a file")
                .got(format_args!("{pointer:?}")));
        }
        Ok(pointer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_round_trips_and_foreign_bytes_are_refused() {
        let pointer = Pointer { file: TableId(7), page: 9, pages: 5, bytes: 20_000, expiry: 1 };
        let bytes = pointer.encode();
        assert_eq!(bytes.len(), Pointer::BYTES);
        assert_eq!(Pointer::decode(&bytes).unwrap(), pointer);
        assert!(Pointer::decode(&bytes[1..]).is_err());
        assert!(Pointer::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
        assert!(Pointer::decode(&[0; 32]).is_err());
        assert!(Pointer::decode(&[0xff; 32]).is_err());
    }
}
