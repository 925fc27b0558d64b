//! Manifest: the names of a repository's files, and the object of each. Byte format:
//! docs/format/object-store.md.
//!
//! Manifests are numbered. Each one is whole: a reader needs only the newest.

use std::collections::BTreeMap;

use base::{Cursor, Error, Result, hash64};
use base::{put_bytes, put_u32, put_u64, put_u128, put_varint};

const MAGIC: u64 = u64::from_le_bytes(*b"TERRAOBJ");
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
/// Longest manifest, bytes: half a million files.
pub(crate) const BYTES_MAX: usize = 64 << 20;
/// Longest description of a writer, bytes.
const WRITER_BYTES_MAX: usize = 255;
/// Longest name of a file, bytes.
pub(crate) const NAME_BYTES_MAX: usize = 128;
/// Longest key of an object below the repository's prefix, bytes.
const KEY_BYTES_MAX: usize = 256;

/// The object of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEntry {
    /// Its key, below the repository's prefix.
    pub key: String,
    /// Its length, bytes.
    pub len: u64,
}

/// The files of a repository as one writer published them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Its number; the first is 1. 0 before there is one.
    pub number: u64,
    /// Drawn at random by the writer.
    pub nonce: u128,
    /// When it was written, Unix milliseconds.
    pub written: u64,
    /// The writer in words: its host and process.
    pub writer: String,
    /// By name.
    pub files: BTreeMap<String, ObjectEntry>,
}

/// Whether a file may have this name: letters, digits, `.`, `-` and `_`, not hidden.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

fn is_key(key: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'/');
    key.starts_with("data/") && key.bytes().all(plain) && !key.contains("..")
}

impl Manifest {
    /// Encodes it.
    ///
    /// # Errors
    /// `Invalid` if there are too many files.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        put_u64(&mut body, self.number);
        put_u128(&mut body, self.nonce);
        put_u64(&mut body, self.written);
        put_bytes(&mut body, self.writer.as_bytes());
        put_varint(&mut body, self.files.len() as u64);
        for (name, entry) in &self.files {
            put_bytes(&mut body, name.as_bytes());
            put_bytes(&mut body, entry.key.as_bytes());
            put_varint(&mut body, entry.len);
        }
        if HEADER_BYTES + body.len() > BYTES_MAX {
            return Err(Error::invalid("files of a repository in an object store")
                .expected(format_args!("a manifest of at most {BYTES_MAX} bytes"))
                .got(format_args!("{} bytes for {} files", body.len(), self.files.len())));
        }
        let mut out = Vec::new();
        put_u64(&mut out, MAGIC);
        put_u32(&mut out, VERSION);
        put_u32(&mut out, body.len() as u32);
        let checksum = hash64(hash64(0, &out), &body);
        put_u64(&mut out, checksum);
        out.extend_from_slice(&body);
        Ok(out)
    }

    /// Decodes one.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged, `Invalid` if a newer version wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("manifest of an object store", bytes);
        let (magic, version) = (cursor.u64()?, cursor.u32()?);
        if magic != MAGIC {
            return Err(Error::corrupt("magic of a manifest of an object store")
                .expected(format_args!("{MAGIC:016x}"))
                .got(format_args!("{magic:016x}")));
        }
        let length = cursor.u32()? as usize;
        let stored = cursor.u64()?;
        let body = cursor.take(length)?;
        cursor.finish()?;
        let header = bytes.get(..HEADER_BYTES - 8).unwrap_or_default();
        let computed = hash64(hash64(0, header), body);
        if stored != computed {
            return Err(Error::corrupt("checksum of a manifest of an object store")
                .expected(format_args!("{computed:016x}"))
                .got(format_args!("{stored:016x}")));
        }
        if version == 0 || version > VERSION {
            return Err(Error::invalid("manifest of an object store: a newer format")
                .expected(format_args!("version {VERSION}"))
                .got(version));
        }
        Self::decode_body(body)
    }

    fn decode_body(body: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("manifest of an object store", body);
        let (number, nonce, written) = (cursor.u64()?, cursor.u128()?, cursor.u64()?);
        let writer = text(cursor.bytes(WRITER_BYTES_MAX)?)?;
        // A file takes at least four bytes.
        let count = cursor.length(body.len() / 4)?;
        let mut files: BTreeMap<String, ObjectEntry> = BTreeMap::new();
        for _ in 0..count {
            let name = text(cursor.bytes(NAME_BYTES_MAX)?)?;
            let key = text(cursor.bytes(KEY_BYTES_MAX)?)?;
            let len = cursor.varint()?;
            let is_next = files.last_key_value().is_none_or(|(last, _)| *last < name);
            if !is_next || !is_name(&name) || !is_key(&key) {
                return Err(Error::corrupt("file in a manifest of an object store")
                    .expected("names in order, and keys of data")
                    .got(format_args!("`{}` at `{}`", name.escape_debug(), key.escape_debug())));
            }
            files.insert(name, ObjectEntry { key, len });
        }
        cursor.finish()?;
        Ok(Self { number, nonce, written, writer, files })
    }

    /// Cuts the description of a writer to its longest form.
    pub(crate) fn writer_of(text: &str) -> String {
        let plain = text.chars().filter(|it| it.is_ascii_graphic() || *it == ' ');
        plain.take(WRITER_BYTES_MAX).collect()
    }
}

fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|error| {
        let subject = Error::corrupt("text in a manifest of an object store");
        subject.expected("UTF-8").caused_by(error)
    })
}

#[cfg(test)]
mod tests {
    use base::ErrorKind;

    use super::*;

    fn manifest() -> Manifest {
        let entry = |seq: u64, name: &str, len| {
            let key = format!("data/00000000000000000003-0123456789abcdef/{seq:08}-{name}");
            (name.to_owned(), ObjectEntry { key, len })
        };
        Manifest {
            number: 4,
            nonce: 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100,
            written: 1_700_000_000_000,
            writer: "shop-1 process 77".to_owned(),
            files: BTreeMap::from([
                entry(0, "00000000000000000009.table.0000000000002222", 1_228_800),
                entry(1, "backup-0000000001", 8192),
            ]),
        }
    }

    #[test]
    fn golden_bytes() {
        let bytes = manifest().encode().unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let golden: String =
            include_str!("../golden/object-store.hex").split_whitespace().collect();
        assert_eq!(hex, golden);
        assert_eq!(Manifest::decode(&bytes).unwrap(), manifest());
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let good = manifest().encode().unwrap();
        for at in 0..good.len() {
            for mask in [0x01, 0x80] {
                let mut bytes = good.clone();
                bytes[at] ^= mask;
                assert!(Manifest::decode(&bytes).is_err(), "byte {at}");
            }
            assert!(Manifest::decode(&good[..at]).is_err(), "cut at {at}");
        }
        assert!(Manifest::decode(&[&*good, &[0]].concat()).is_err(), "bytes at the end");
    }

    #[test]
    fn a_newer_version_is_refused() {
        let mut bytes = manifest().encode().unwrap();
        bytes[8] = 2;
        let checksum = hash64(hash64(0, &bytes[..16]), &bytes[24..]);
        bytes[16..24].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Manifest::decode(&bytes).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn names_and_keys_that_leave_the_repository_are_refused() {
        for (name, key) in [
            ("../x", "data/1/x"),
            (".x", "data/1/x"),
            ("", "data/1/x"),
            ("x", "latest"),
            ("x", "data/../latest"),
            ("x", "data/a b"),
        ] {
            let mut bad = manifest();
            bad.files =
                BTreeMap::from([(name.to_owned(), ObjectEntry { key: key.to_owned(), len: 1 })]);
            assert!(Manifest::decode(&bad.encode().unwrap()).is_err(), "{name} {key}");
        }
    }
}
