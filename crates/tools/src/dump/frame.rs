//! Header and frames of a dump: their bytes, and their checksums.

use base::limits::{KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX, KEYSPACES_MAX, VALUE_BYTES_MAX};
use base::{Cursor, Error, Result, crc32c_append, put_bytes, put_u32, put_varint};

use super::DumpedKeyspace;

/// The first bytes of a dump.
pub(super) const MAGIC: [u8; 8] = *b"TERRADMP";
/// The version that this code writes, and the newest that it reads.
pub(super) const VERSION: u32 = 1;
/// Magic, version, checksum.
pub(super) const HEADER_BYTES: usize = 16;
/// Length and kind, before a payload.
pub(super) const PREFIX_BYTES: usize = 5;
pub(super) const CHECKSUM_BYTES: usize = 4;

/// Longest payload: one entry with the longest key and value.
pub(super) const PAYLOAD_BYTES_MAX: usize = KEY_BYTES_MAX + VALUE_BYTES_MAX + 64;
/// Most options of a keyspace, and their longest names and values.
pub(super) const OPTIONS_MAX: usize = 64;
const OPTION_NAME_BYTES_MAX: usize = 64;
const OPTION_VALUE_BYTES_MAX: usize = 4096;

/// The entry has an expiry.
pub(super) const EXPIRING: u8 = 1;

/// The kinds of frames. Numbers are append-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A keyspace begins.
    Keyspace = 1,
    /// Entries of the keyspace.
    Entries = 2,
    /// The keyspace ends.
    KeyspaceEnd = 3,
    /// The dump ends.
    End = 4,
}

impl FrameKind {
    pub(super) fn of(number: u8) -> Result<Self> {
        Ok(match number {
            1 => Self::Keyspace,
            2 => Self::Entries,
            3 => Self::KeyspaceEnd,
            4 => Self::End,
            other => {
                return Err(Error::corrupt("kind of a frame").expected("1 to 4").got(other));
            }
        })
    }
}

/// The header of a dump.
pub(super) fn header() -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    put_u32(&mut header, VERSION);
    let checksum = crc32c_append(0, &header);
    put_u32(&mut header, checksum);
    header
}

/// Checks the first bytes of an input, which may be fewer than a header has.
///
/// # Errors
/// `Invalid` if they are those of no dump.
pub(super) fn check_magic(begin: &[u8]) -> Result<()> {
    if begin.iter().zip(&MAGIC).all(|(byte, of_magic)| byte == of_magic) {
        return Ok(());
    }
    Err(Error::invalid("dump").expected("a file that `terrace dump` wrote"))
}

/// Checks a header.
///
/// # Errors
/// `Invalid` for a newer version; `Corrupt` if the header is damaged.
pub(super) fn check_header(header: &[u8]) -> Result<()> {
    let mut cursor = Cursor::new("header of a dump", header);
    check_magic(cursor.take(MAGIC.len())?)?;
    let version = cursor.u32()?;
    let checked = crc32c_append(0, header.get(..MAGIC.len() + 4).unwrap_or_default());
    let found = cursor.u32()?;
    if checked != found {
        return Err(Error::corrupt("checksum of the header of a dump")
            .expected(format_args!("{checked:08x}"))
            .got(format_args!("{found:08x}")));
    }
    if version > VERSION || version == 0 {
        return Err(Error::invalid("version of a dump")
            .expected(format_args!("at most {VERSION}"))
            .got(version));
    }
    Ok(())
}

/// The checksum of frame `number`, with its length, kind and payload. A frame that is missing or moved
/// changes the numbers of those behind it.
pub(super) fn checksum(number: u64, prefix: &[u8], payload: &[u8]) -> u32 {
    let crc = crc32c_append(0, &number.to_le_bytes());
    crc32c_append(crc32c_append(crc, prefix), payload)
}

pub(super) fn encode_keyspace(keyspace: &DumpedKeyspace, out: &mut Vec<u8>) {
    put_bytes(out, keyspace.name.as_bytes());
    put_varint(out, keyspace.options.len() as u64);
    for (name, value) in &keyspace.options {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value.as_bytes());
    }
}

/// Decodes a keyspace.
///
/// # Errors
/// `Corrupt` for lengths out of bounds, texts that are not UTF-8, and bytes behind the options.
pub(super) fn decode_keyspace(payload: &[u8]) -> Result<DumpedKeyspace> {
    let mut cursor = Cursor::new("keyspace of a dump", payload);
    let name = text(cursor.bytes(KEYSPACE_NAME_BYTES_MAX)?)?;
    let count = cursor.length(OPTIONS_MAX)?;
    let mut options = Vec::with_capacity(count);
    for _ in 0..count {
        let name = text(cursor.bytes(OPTION_NAME_BYTES_MAX)?)?;
        options.push((name, text(cursor.bytes(OPTION_VALUE_BYTES_MAX)?)?));
    }
    cursor.finish()?;
    Ok(DumpedKeyspace { name, options })
}

fn text(bytes: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned).map_err(|error| Error::corrupt("text of a dump").caused_by(error))
}

/// Appends an entry. `expiry_unix_ms` is 0 if it does not expire.
pub(super) fn encode_entry(key: &[u8], value: &[u8], expiry_unix_ms: u64, out: &mut Vec<u8>) {
    out.push(if expiry_unix_ms > 0 { EXPIRING } else { 0 });
    if expiry_unix_ms > 0 {
        put_varint(out, expiry_unix_ms);
    }
    put_bytes(out, key);
    put_bytes(out, value);
}

/// An entry of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodedEntry<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) expiry_unix_ms: u64,
}

/// Decodes the entry at `cursor`.
///
/// # Errors
/// `Corrupt` for unknown flags, an expiry of 0, and lengths out of bounds.
pub(super) fn decode_entry<'a>(cursor: &mut Cursor<'a>) -> Result<DecodedEntry<'a>> {
    let refused = |subject, found: u64| Error::corrupt(subject).got(found);
    let expiry_unix_ms = match cursor.u8()? {
        0 => 0,
        EXPIRING => match cursor.varint()? {
            0 => return Err(refused("expiry of a dumped entry", 0)),
            expiry => expiry,
        },
        flags => return Err(refused("flags of a dumped entry", flags.into())),
    };
    let key = cursor.bytes(KEY_BYTES_MAX)?;
    if key.is_empty() {
        return Err(refused("key length of a dumped entry", 0));
    }
    Ok(DecodedEntry { key, value: cursor.bytes(VALUE_BYTES_MAX)?, expiry_unix_ms })
}

/// Decodes one count.
pub(super) fn decode_count(payload: &[u8]) -> Result<u64> {
    let mut cursor = Cursor::new("count of a dump", payload);
    let count = cursor.varint()?;
    cursor.finish()?;
    Ok(count)
}

/// Decodes the numbers of keyspaces and entries of the whole dump.
pub(super) fn decode_end(payload: &[u8]) -> Result<(u64, u64)> {
    let mut cursor = Cursor::new("end of a dump", payload);
    let keyspaces = cursor.length(KEYSPACES_MAX)?;
    let entries = cursor.varint()?;
    cursor.finish()?;
    Ok((keyspaces as u64, entries))
}
