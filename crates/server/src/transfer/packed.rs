//! The packed forms of small collections in a dump file: ziplist, listpack, intset and zipmap; and LZF.
//!
//! Each is one string of the file. Every length is checked against the string, and nothing is allocated by a
//! length alone. A damaged one is an error.

/// What is wrong with a packed string.
pub(super) type Broken = &'static str;

/// Bytes that are read from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("it is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Broken> {
        self.take(1)?.first().copied().ok_or("it is cut off")
    }

    /// A little-endian number of up to eight bytes.
    fn number(&mut self, bytes: usize) -> Result<u64, Broken> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// A little-endian number with a sign.
    fn signed(&mut self, bytes: usize) -> Result<i64, Broken> {
        let unused = 64 - 8 * bytes as u32;
        Ok((self.number(bytes)? << unused).cast_signed() >> unused)
    }

    fn length(&mut self, bytes: usize) -> Result<usize, Broken> {
        usize::try_from(self.number(bytes)?).map_err(|_| "a length is too large")
    }
}

fn text(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The entries of a ziplist.
pub(super) fn ziplist(packed: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
    let mut bytes = Bytes(packed);
    bytes.take(10)?;
    let mut entries = Vec::new();
    loop {
        match bytes.byte()? {
            0xff => return Ok(entries),
            // The length of the entry before.
            254 => drop(bytes.take(4)?),
            _ => {}
        }
        let head = bytes.byte()?;
        entries.push(match head >> 6 {
            0 => bytes.take(usize::from(head & 0x3f))?.to_vec(),
            1 => {
                let length = usize::from(head & 0x3f) << 8 | usize::from(bytes.byte()?);
                bytes.take(length)?.to_vec()
            }
            2 => {
                let length =
                    bytes.take(4)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                bytes.take(length)?.to_vec()
            }
            _ => text(match head {
                0xc0 => bytes.signed(2)?,
                0xd0 => bytes.signed(4)?,
                0xe0 => bytes.signed(8)?,
                0xf0 => bytes.signed(3)?,
                0xfe => bytes.signed(1)?,
                0xf1..=0xfd => i64::from(head & 0x0f) - 1,
                _ => return Err("a ziplist has an unknown entry"),
            }),
        });
    }
}

/// The entries of a listpack.
pub(super) fn listpack(packed: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
    let mut bytes = Bytes(packed);
    bytes.take(6)?;
    let mut entries = Vec::new();
    loop {
        let before = bytes.0.len();
        let head = bytes.byte()?;
        entries.push(match head {
            0xff => return Ok(entries),
            0..=0x7f => text(i64::from(head)),
            0x80..=0xbf => bytes.take(usize::from(head & 0x3f))?.to_vec(),
            0xc0..=0xdf => {
                let number = i64::from(head & 0x1f) << 8 | i64::from(bytes.byte()?);
                text(if number >= 1 << 12 { number - (1 << 13) } else { number })
            }
            0xe0..=0xef => {
                let length = usize::from(head & 0x0f) << 8 | usize::from(bytes.byte()?);
                bytes.take(length)?.to_vec()
            }
            0xf0 => {
                let length = bytes.length(4)?;
                bytes.take(length)?.to_vec()
            }
            0xf1 => text(bytes.signed(2)?),
            0xf2 => text(bytes.signed(3)?),
            0xf3 => text(bytes.signed(4)?),
            0xf4 => text(bytes.signed(8)?),
            _ => return Err("a listpack has an unknown entry"),
        });
        // The length of the entry stands behind it, 7 bits a byte.
        let length = before - bytes.0.len();
        let back = match length {
            0..=127 => 1,
            128..=16_383 => 2,
            16_384..=2_097_151 => 3,
            2_097_152..=268_435_455 => 4,
            _ => 5,
        };
        bytes.take(back)?;
    }
}

/// The members of an intset.
pub(super) fn intset(packed: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
    let mut bytes = Bytes(packed);
    let (width, count) = (bytes.length(4)?, bytes.length(4)?);
    if !matches!(width, 2 | 4 | 8) || bytes.0.len() / width < count {
        return Err("an intset has a wrong length");
    }
    (0..count).map(|_| bytes.signed(width).map(text)).collect()
}

/// The fields and values of a zipmap, one behind the other.
pub(super) fn zipmap(packed: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
    let mut bytes = Bytes(packed);
    bytes.byte()?;
    let mut entries = Vec::new();
    loop {
        let length = |bytes: &mut Bytes<'_>| {
            Ok::<_, Broken>(match bytes.byte()? {
                0xff => None,
                254 => Some(bytes.length(4)?),
                length => Some(usize::from(length)),
            })
        };
        let Some(field) = length(&mut bytes)? else { return Ok(entries) };
        entries.push(bytes.take(field)?.to_vec());
        let value = length(&mut bytes)?.ok_or("a zipmap has a field without a value")?;
        let free = usize::from(bytes.byte()?);
        entries.push(bytes.take(value)?.to_vec());
        bytes.take(free)?;
    }
}

/// The `length` bytes that `packed` has compressed by LZF.
pub(super) fn unpack_lzf(packed: &[u8], length: usize) -> Result<Vec<u8>, Broken> {
    // A reference of three bytes gives at most 264.
    if length / 264 > packed.len() {
        return Err("a compressed string is longer than its bytes can give");
    }
    let (mut bytes, mut out) = (Bytes(packed), Vec::with_capacity(length));
    while !bytes.0.is_empty() {
        let head = usize::from(bytes.byte()?);
        if head < 32 {
            out.extend_from_slice(bytes.take(head + 1)?);
        } else {
            let mut count = head >> 5;
            if count == 7 {
                count += usize::from(bytes.byte()?);
            }
            let back = ((head & 0x1f) << 8 | usize::from(bytes.byte()?)) + 1;
            let start =
                out.len().checked_sub(back).ok_or("a compressed string refers before its start")?;
            // The copy may overlap its own end.
            for at in start..start + count + 2 {
                let byte = out.get(at).copied().ok_or("a compressed string is damaged")?;
                out.push(byte);
            }
        }
        if out.len() > length {
            return Err("a compressed string is longer than it says");
        }
    }
    if out.len() == length { Ok(out) } else { Err("a compressed string is shorter than it says") }
}
