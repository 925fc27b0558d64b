//! What jobs and outcomes share as bytes: a magic, a version, a checksum, and ranges of keys.

use base::limits::KEY_BYTES_MAX;
use base::{Cursor, Error, Result, hash64, put_bytes, put_u32, put_u64};
use bytes::Bytes;

use crate::KeyRange;

/// The longest such message: a horizon and ranges of some hundred thousand keys.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The end of a range may be a key with a zero behind it.
const BOUND_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

/// A kind of message.
pub(crate) struct MessageKind {
    pub(crate) name: &'static str,
    pub(crate) magic: [u8; 8],
    /// The newest version.
    pub(crate) version: u32,
}

const HEADER_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 8;

impl MessageKind {
    /// The start of a message of `version`, to which the body is appended.
    pub(crate) fn start(&self, version: u32) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        put_u32(&mut out, version);
        out
    }

    /// Ends the message that [`MessageKind::start`] began.
    pub(crate) fn seal(mut out: Vec<u8>) -> Vec<u8> {
        let checksum = hash64(0, &out);
        put_u64(&mut out, checksum);
        out
    }

    /// The version and the body of `message`.
    ///
    /// # Errors
    /// `Corrupt` where it is damaged or no such message, `Invalid` where it is of another version.
    pub(crate) fn open<'a>(&self, message: &'a [u8]) -> Result<(u32, Cursor<'a>)> {
        let length = message.len();
        if !(HEADER_BYTES + CHECKSUM_BYTES..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(Error::corrupt(self.name)
                .expected(format_args!("at most {MESSAGE_BYTES_MAX} bytes, and a header"))
                .got(length));
        }
        let (covered, stored) = message.split_at(length - CHECKSUM_BYTES);
        let mut header = Cursor::new(self.name, covered);
        if header.take(self.magic.len())? != self.magic {
            return Err(Error::corrupt(self.name)
                .expected(format_args!("magic `{}`", self.magic.escape_ascii())));
        }
        // The version tells how to read all that follows, the checksum included.
        let version = header.u32()?;
        if version == 0 || version > self.version {
            return Err(Error::invalid(format!("{}: another version", self.name))
                .expected(format_args!("1 to {}", self.version))
                .got(version));
        }
        let stored = Cursor::new(self.name, stored).u64()?;
        let computed = hash64(0, covered);
        if stored != computed {
            return Err(Error::corrupt(self.name)
                .at("checksum")
                .expected(format_args!("{computed:016x}"))
                .got(format_args!("{stored:016x}")));
        }
        Ok((version, Cursor::new(self.name, header.rest())))
    }
}

/// Reads a count of at most `max` things of at least `bytes_min` bytes each, then that many of
/// them: memory is taken for what is there, not for what is promised.
pub(crate) fn list<T>(
    cursor: &mut Cursor<'_>,
    max: usize,
    bytes_min: usize,
    mut item: impl FnMut(&mut Cursor<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = cursor.length(max)?;
    let mut items = Vec::with_capacity(count.min(cursor.rest().len() / bytes_min.max(1)));
    for _ in 0..count {
        items.push(item(cursor)?);
    }
    Ok(items)
}

/// Appends a range of keys: its first key, whether it ends, its end.
pub(crate) fn put_range(out: &mut Vec<u8>, range: &KeyRange) {
    put_bytes(out, &range.first);
    out.push(u8::from(range.end.is_some()));
    if let Some(end) = &range.end {
        put_bytes(out, end);
    }
}

/// Reads a range of keys.
///
/// # Errors
/// `Corrupt` where no key is in it.
pub(crate) fn range(cursor: &mut Cursor<'_>) -> Result<KeyRange> {
    let key = |cursor: &mut Cursor<'_>| cursor.bytes(BOUND_BYTES_MAX).map(Bytes::copy_from_slice);
    let first = key(cursor)?;
    let flag = cursor.u8()?;
    let end = if flag == 0 { None } else { Some(key(cursor)?) };
    let range = KeyRange { first, end };
    if flag > 1 || range.is_empty() {
        return Err(Error::corrupt("range of keys").expected("one that holds keys").got(range));
    }
    Ok(range)
}
