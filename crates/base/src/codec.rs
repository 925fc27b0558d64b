//! The byte codec: little-endian fixed integers and LEB128 varints, written to a `Vec<u8>`, read
//! through a [`Cursor`] that never panics.

use crate::{Error, Result};

/// Appends a `u16`.
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `u32`.
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `u64`.
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `u128`.
pub fn put_u128(out: &mut Vec<u8>, value: u128) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends `value` in 1 to 10 bytes, seven bits each, least significant first.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The bytes [`put_varint`] takes for `value`.
#[must_use]
pub const fn varint_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Appends a varint length, then the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads bytes from outside, front to back. Every read is checked; an error names what was read
/// and the offset.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes`, which are `what` (named in errors).
    #[must_use]
    pub const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, at: 0 }
    }

    /// The offset of the next byte.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// The bytes not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// True where every byte was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// `Corrupt` where fewer are left; the same for every read below.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        match self.at.checked_add(len).and_then(|end| self.bytes.get(self.at..end)) {
            Some(taken) => {
                self.at += len;
                Ok(taken)
            }
            None => Err(self.short(len)),
        }
    }

    #[cold]
    fn short(&self, len: usize) -> Error {
        Error::corrupt(self.what)
            .at(format_args!("byte {}", self.at))
            .expected(format_args!("{len} more bytes"))
            .got(self.bytes.len().saturating_sub(self.at))
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// A byte.
    ///
    /// # Errors
    /// As [`Cursor::take`].
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A `u16`.
    ///
    /// # Errors
    /// As [`Cursor::take`].
    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// A `u32`.
    ///
    /// # Errors
    /// As [`Cursor::take`].
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A `u64`.
    ///
    /// # Errors
    /// As [`Cursor::take`].
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A `u128`.
    ///
    /// # Errors
    /// As [`Cursor::take`].
    pub fn u128(&mut self) -> Result<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// A varint. Only the shortest form of a value is accepted, so that equal content has equal
    /// bytes.
    ///
    /// # Errors
    /// As [`Cursor::take`]; `Corrupt` too where it is over 64 bits or not in its shortest form.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        let start = self.at;
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    break;
                }
                return Ok(value);
            }
        }
        Err(Error::corrupt(self.what)
            .at(format_args!("byte {start}"))
            .expected("a varint of at most 64 bits in its shortest form"))
    }

    /// A varint length of at most `max`.
    ///
    /// # Errors
    /// As [`Cursor::varint`]; `Corrupt` too where the length is over `max`.
    pub fn length(&mut self, max: usize) -> Result<usize> {
        let start = self.at;
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(length) if length <= max => Ok(length),
            _ => Err(Error::corrupt(self.what)
                .at(format_args!("byte {start}"))
                .expected(format_args!("a length of at most {max}"))
                .got(value)),
        }
    }

    /// A varint length of at most `max`, then that many bytes.
    ///
    /// # Errors
    /// As [`Cursor::length`].
    pub fn bytes(&mut self, max: usize) -> Result<&'a [u8]> {
        let length = self.length(max)?;
        self.take(length)
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// `Corrupt` where something is.
    pub fn finish(self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        Err(Error::corrupt(self.what)
            .at(format_args!("byte {}", self.at))
            .expected("the end")
            .got(format_args!("{} more bytes", self.bytes.len() - self.at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn varints_round_trip_at_every_length() {
        let mut rng = Rng::new(1);
        for bits in 0..=64 {
            for _ in 0..100 {
                let value = if bits == 0 { 0 } else { rng.next_u64() >> (64 - bits) };
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
                let mut cursor = Cursor::new("varint", &out);
                assert_eq!(cursor.varint().unwrap(), value);
                cursor.finish().unwrap();
            }
        }
    }

    #[test]
    fn long_and_truncated_varints_are_refused() {
        for bytes in [&[0x80][..], &[0x80, 0], &[0xff; 10], &[0xff; 11]] {
            assert!(Cursor::new("varint", bytes).varint().is_err(), "{bytes:?}");
        }
        let mut max = vec![0xff; 9];
        max.push(1);
        assert_eq!(Cursor::new("varint", &max).varint().unwrap(), u64::MAX);
    }

    #[test]
    fn errors_name_the_offset() {
        let mut cursor = Cursor::new("record", &[1, 2, 3]);
        cursor.u16().unwrap();
        assert_eq!(
            cursor.u32().unwrap_err().to_string(),
            "corrupt: record at byte 2: expected 4 more bytes, got 1"
        );
    }
}
