//! Pointers to values that lie apart from their keys, in value files.

use base::{Cursor, Error, Result, TableId, put_u32, put_u64};

/// Where a long value lies: what an entry of kind `PutPointer` holds instead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pointer {
    /// The value file.
    pub file: TableId,
    /// The value's first page in it.
    pub page: u32,
    /// The pages it fills.
    pub pages: u32,
    /// Its length.
    pub bytes: u64,
    /// When it expires, Unix milliseconds; 0: never.
    pub expiry: u64,
}

impl Pointer {
    /// The bytes of the stored form.
    pub const BYTES: usize = 32;

    /// The stored form.
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

    /// Reads the stored form.
    ///
    /// # Errors
    /// `Corrupt` where it has another length, or points at no page.
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
