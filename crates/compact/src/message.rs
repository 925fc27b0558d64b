//! The frame of encoded jobs and outcomes: magic, version, body, checksum. Also the encoding of key ranges.

use base::limits::KEY_BYTES_MAX;
use base::{Cursor, Error, Result, hash64, invariant, put_bytes, put_u32, put_u64};
use bytes::Bytes;

use crate::KeyRange;

/// Longest encoded message, bytes: room for a horizon and ranges of some hundred thousand keys.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The end of a range may be the longest key with a zero byte appended.
const BOUND_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

/// The magic and newest version of a message.
pub(crate) struct MessageKind {
    pub(crate) name: &'static str,
    pub(crate) magic: [u8; 8],
    /// The newest version that this program reads and writes.
    pub(crate) version: u32,
}

const HEADER_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 8;

impl MessageKind {
    /// Starts a message of `version`: magic and version. The caller appends the body.
    pub(crate) fn start(&self, version: u32) -> Vec<u8> {
        invariant!(
            (1..=self.version).contains(&version),
            "messages are written in a known version"
        );
        let mut out = self.magic.to_vec();
        put_u32(&mut out, version);
        out
    }

    /// Appends the checksum to a message that [`MessageKind::start`] began.
    pub(crate) fn seal(mut out: Vec<u8>) -> Vec<u8> {
        let checksum = hash64(0, &out);
        put_u64(&mut out, checksum);
        out
    }

    /// The version and the body of `message`.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged or another kind of message, `Invalid` if its version is unknown.
    pub(crate) fn open<'a>(&self, message: &'a [u8]) -> Result<(u32, Cursor<'a>)> {
        let length = message.len();
        if !(HEADER_BYTES + CHECKSUM_BYTES..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(Error::corrupt(self.name)
                .expected(format_args!("a header and at most {MESSAGE_BYTES_MAX} bytes"))
                .got(length));
        }
        let (covered, stored) = message.split_at(length - CHECKSUM_BYTES);
        let mut header = Cursor::new(self.name, covered);
        if header.take(self.magic.len())? != self.magic {
            return Err(Error::corrupt(self.name)
                .expected(format_args!("magic `{}`", self.magic.escape_ascii())));
        }
        // The version comes first: another version may have another checksum.
        let version = header.u32()?;
        if version == 0 || version > self.version {
            return Err(Error::invalid(format!("{}: unknown version", self.name))
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

/// Decodes a count of at most `max`, then that many elements of at least `bytes_min` bytes each. Memory is
/// reserved for elements that the remaining bytes can hold, not for the count that the message claims.
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

/// Appends a key range: first key, whether it has an end, end.
pub(crate) fn put_range(out: &mut Vec<u8>, range: &KeyRange) {
    put_bytes(out, &range.first);
    out.push(u8::from(range.end.is_some()));
    if let Some(end) = &range.end {
        put_bytes(out, end);
    }
}

/// Decodes a key range.
///
/// # Errors
/// `Corrupt` if the range holds no key.
pub(crate) fn range(cursor: &mut Cursor<'_>) -> Result<KeyRange> {
    let key = |cursor: &mut Cursor<'_>| cursor.bytes(BOUND_BYTES_MAX).map(Bytes::copy_from_slice);
    let first = key(cursor)?;
    let flag = cursor.u8()?;
    let end = if flag == 0 { None } else { Some(key(cursor)?) };
    let range = KeyRange { first, end };
    if flag > 1 || range.is_empty() {
        return Err(Error::corrupt("key range").expected("a range that holds keys").got(range));
    }
    Ok(range)
}
