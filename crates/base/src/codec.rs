//! The byte codec: little-endian fixed-size integers and LEB128 varints. Encoders append to a `Vec<u8>`;
//! a [`Cursor`] decodes bytes from outside, checks every length and never panics.

use crate::{Error, Result, invariant};

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

/// Appends `value` as a LEB128 varint: 1 to 10 bytes of seven bits each, least significant first.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    let end = out.len() + varint_len(value);
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    debug_assert_eq!(out.len(), end, "varint_len predicts the encoded length");
}

/// The number of bytes that [`put_varint`] appends for `value`.
#[must_use]
pub const fn varint_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Appends the length of `bytes` as a varint, then `bytes`.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Decodes bytes from outside, front to back. Every read is checked; an error names the structure that was
/// decoded and the offset.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    /// The name of the decoded structure, for errors.
    subject: &'static str,
    bytes: &'a [u8],
    /// The offset of the next byte; at most `bytes.len()`.
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `bytes`. Errors call the decoded structure `subject`.
    #[must_use]
    pub const fn new(subject: &'static str, bytes: &'a [u8]) -> Self {
        Self { subject, bytes, at: 0 }
    }

    /// The offset of the next byte.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// The bytes not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        invariant!(self.at <= self.bytes.len(), "a cursor stays within its bytes");
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Whether every byte was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// `Corrupt` if fewer than `len` bytes are left.
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
        Error::corrupt(self.subject)
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

    /// One byte.
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

    /// A varint. Only the shortest encoding of a value is accepted, so that equal values have equal bytes.
    ///
    /// # Errors
    /// As [`Cursor::take`]; also `Corrupt` if the value exceeds 64 bits or its encoding is not the shortest.
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
        Err(Error::corrupt(self.subject)
            .at(format_args!("byte {start}"))
            .expected("a varint of at most 64 bits in its shortest form"))
    }

    /// A varint length of at most `max`.
    ///
    /// # Errors
    /// As [`Cursor::varint`]; also `Corrupt` if the length exceeds `max`.
    pub fn length(&mut self, max: usize) -> Result<usize> {
        let start = self.at;
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(length) if length <= max => Ok(length),
            _ => Err(Error::corrupt(self.subject)
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

    /// Checks that every byte was read.
    ///
    /// # Errors
    /// `Corrupt` if bytes are left.
    pub fn finish(self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        Err(Error::corrupt(self.subject)
            .at(format_args!("byte {}", self.at))
            .expected("end of data")
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
    fn truncated_overlong_and_too_large_varints_are_refused() {
        for bytes in [&[0x80][..], &[0x80, 0], &[0xff; 10], &[0xff; 11]] {
            assert!(Cursor::new("varint", bytes).varint().is_err(), "{bytes:?}");
        }
        let mut max = vec![0xff; 9];
        max.push(1);
        assert_eq!(Cursor::new("varint", &max).varint().unwrap(), u64::MAX);
    }

    #[test]
    fn a_short_read_reports_subject_and_offset() {
        let mut cursor = Cursor::new("record", &[1, 2, 3]);
        cursor.u16().unwrap();
        assert_eq!(
            cursor.u32().unwrap_err().to_string(),
            "corrupt: record at byte 2: expected 4 more bytes, got 1"
        );
    }
}
