//! The index of a backup: the files that make it up. Byte format: docs/format/backup.md.
//!
//! A backup exists when its index exists under its name. The index is stored twice in one file, so that no
//! single flipped byte loses a backup.

use base::limits::PAGE_BYTES;
use base::{Cursor, Error, ErrorKind, LineageId, Result, StoreId, hash64};
use base::{put_bytes, put_u32, put_u64, put_u128, put_varint};
use media::{Access, Buf, Medium, Purpose};

use crate::copier::Content;
use crate::store_file::StoreFile;

const MAGIC: u64 = u64::from_le_bytes(*b"TERRABAK");
/// The newest version that this code reads. Version 2 states a lineage; the backup of a store that is no copy
/// is written as version 1, which older builds read.
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 24;
/// Longest body, bytes: about ten million files.
const BODY_BYTES_MAX: usize = 512 << 20;
/// Longest label, bytes.
pub(super) const LABEL_BYTES_MAX: usize = 255;
const NAME_BYTES_MAX: usize = 64;

/// One file of a backed-up store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    /// Its name in the store.
    pub(super) name: String,
    /// Bytes stored.
    pub(super) bytes: u64,
    /// Its length, bytes. Behind the stored bytes it is zeros, in the last segment of a log.
    pub(super) len: u64,
    /// The digest of the stored bytes.
    pub(super) digest: u64,
}

impl IndexEntry {
    /// The name of its object in the repository. The name states the content, so that backups share objects.
    pub(super) fn object(&self) -> String {
        format!("{}.{:016x}", self.name, self.digest)
    }

    /// Checks that `digest` is that of the file.
    ///
    /// # Errors
    /// `Corrupt` if it is another.
    pub(super) fn expect(&self, digest: u64) -> Result<()> {
        if digest == self.digest {
            return Ok(());
        }
        Err(Error::corrupt("digest of a file")
            .at(self.object())
            .expected(format_args!("{:016x}", self.digest))
            .got(format_args!("{digest:016x}")))
    }

    /// How its content is verified.
    pub(super) fn content(&self, store: StoreId) -> Content {
        Content::of(&self.name, store)
    }
}

/// Whether `name` is the name of an object: a store's file name and a digest.
pub(super) fn is_object(name: &str) -> bool {
    let Some((file, digest)) = name.rsplit_once('.') else { return false };
    digest.len() == 16
        && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && StoreFile::of(file).is_some()
}

/// The index of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) id: u64,
    pub(super) store: StoreId,
    /// Tells backups of the store and of its copies apart.
    pub(super) lineage: LineageId,
    /// When the backup was created, Unix milliseconds.
    pub(super) created: u64,
    pub(super) label: String,
    /// Sorted by name.
    pub(super) files: Vec<IndexEntry>,
}

/// Returns the name of the index of backup `id`.
pub(super) fn file_name(id: u64) -> String {
    format!("backup-{id:010}")
}

/// Returns the backup with an index called `name`; `None` for another file.
pub(super) fn parse_file_name(name: &str) -> Option<u64> {
    let id = name.strip_prefix("backup-")?.parse().ok()?;
    // Each file has one name: other forms of the number are not accepted.
    (file_name(id) == name).then_some(id)
}

impl Index {
    /// Stored bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        total(self.files.iter())
    }

    /// Encodes one copy, in whole pages.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put_u64(&mut body, self.id);
        put_u128(&mut body, self.store.0);
        put_u64(&mut body, self.created);
        put_bytes(&mut body, self.label.as_bytes());
        put_varint(&mut body, self.files.len() as u64);
        for entry in &self.files {
            put_bytes(&mut body, entry.name.as_bytes());
            put_varint(&mut body, entry.bytes);
            put_varint(&mut body, entry.len);
            put_u64(&mut body, entry.digest);
        }
        let is_copy = self.lineage != LineageId::of_origin(self.store);
        if is_copy {
            put_u128(&mut body, self.lineage.0);
        }
        let mut out = Vec::new();
        put_u64(&mut out, MAGIC);
        put_u32(&mut out, if is_copy { 2 } else { 1 });
        put_u32(&mut out, body.len() as u32);
        let checksum = hash64(hash64(0, &out), &body);
        put_u64(&mut out, checksum);
        out.extend_from_slice(&body);
        out.resize(out.len().next_multiple_of(PAGE_BYTES), 0);
        out
    }

    /// Decodes one copy.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged, `Invalid` if a newer version wrote it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("backup index", bytes);
        let (magic, version) = (cursor.u64()?, cursor.u32()?);
        if magic != MAGIC {
            return Err(Error::corrupt("backup index magic")
                .expected(format_args!("{MAGIC:016x}"))
                .got(format_args!("{magic:016x}")));
        }
        let length = cursor.u32()? as usize;
        let stored = cursor.u64()?;
        let body = cursor.take(length)?;
        let header = bytes.get(..HEADER_BYTES - 8).unwrap_or_default();
        let computed = hash64(hash64(0, header), body);
        if stored != computed {
            return Err(Error::corrupt("backup index checksum")
                .expected(format_args!("{computed:016x}"))
                .got(format_args!("{stored:016x}")));
        }
        if version == 0 || version > VERSION {
            return Err(Error::invalid("backup format version: a newer format")
                .expected(format_args!("at most {VERSION}"))
                .got(version));
        }
        if cursor.rest().iter().any(|byte| *byte != 0) {
            return Err(Error::corrupt("backup index").expected("zeros after the content"));
        }
        Self::decode_body(body, version)
    }

    fn decode_body(body: &[u8], version: u32) -> Result<Self> {
        let mut cursor = Cursor::new("backup index", body);
        let (id, store, created) = (cursor.u64()?, StoreId(cursor.u128()?), cursor.u64()?);
        let label = text(cursor.bytes(LABEL_BYTES_MAX)?)?;
        // An entry of a file has at least eleven bytes.
        let count = cursor.length(body.len() / 11)?;
        let mut files: Vec<IndexEntry> = Vec::with_capacity(count);
        for _ in 0..count {
            let name = text(cursor.bytes(NAME_BYTES_MAX)?)?;
            if StoreFile::of(&name).is_none() || files.last().is_some_and(|last| last.name >= name)
            {
                return Err(Error::corrupt("file name in a backup index")
                    .expected("names of a store's files in order")
                    .got(format_args!("`{}`", name.escape_debug())));
            }
            let (bytes, len, digest) = (cursor.varint()?, cursor.varint()?, cursor.u64()?);
            let page = PAGE_BYTES as u64;
            if bytes > len || !bytes.is_multiple_of(page) || !len.is_multiple_of(page) {
                let error = Error::corrupt("file length in a backup index").at(name);
                let got = format_args!("{bytes} bytes of {len}");
                return Err(error.expected("whole pages").got(got));
            }
            files.push(IndexEntry { name, bytes, len, digest });
        }
        let lineage = match version {
            1 => LineageId::of_origin(store),
            _ => LineageId(cursor.u128()?),
        };
        cursor.finish()?;
        Ok(Self { id, store, lineage, created, label, files })
    }

    /// Writes the index under `name` and syncs it; the caller makes the name durable.
    ///
    /// # Errors
    /// `Invalid` if the index is too long; the device's.
    pub(super) fn write(&self, medium: &dyn Medium, name: &str) -> Result<()> {
        let is_sorted = self.files.is_sorted_by(|one, other| one.name < other.name);
        base::invariant!(is_sorted, "the files of an index have ascending names");
        let copy = self.encode();
        if copy.len() > BODY_BYTES_MAX {
            return Err(Error::invalid("files of a backup")
                .expected(format_args!("an index of at most {BODY_BYTES_MAX} bytes"))
                .got(copy.len()));
        }
        let mut buf = Buf::pages(2 * copy.len() / PAGE_BYTES);
        for (to, from) in buf.iter_mut().zip(copy.iter().chain(&copy)) {
            *to = *from;
        }
        let file = medium.create(name, Access::Direct, buf.len() as u64)?;
        file.write(0, buf, Purpose::Manifest).1?;
        file.sync(Purpose::Manifest)
    }

    /// Reads the index of backup `id`.
    ///
    /// # Errors
    /// `Invalid` if there is no such backup or a newer version wrote it, `Corrupt` if both copies are
    /// damaged.
    pub(super) fn read(medium: &dyn Medium, id: u64) -> Result<Self> {
        let name = file_name(id);
        let file = medium.open(&name, Access::Direct).map_err(|error| match error.kind() {
            ErrorKind::Invalid => Error::invalid("backup").expected("one that exists").got(id),
            _ => error,
        })?;
        let size = file.size()?;
        let most = 2 * (BODY_BYTES_MAX + HEADER_BYTES).next_multiple_of(PAGE_BYTES) as u64;
        if size > most || size == 0 || !size.is_multiple_of(2 * PAGE_BYTES as u64) {
            return Err(Error::corrupt("backup index length, bytes")
                .at(name)
                .expected(format_args!("two copies in whole pages, at most {most}"))
                .got(size));
        }
        let half = size / 2;
        let copy = |at: u64| {
            let (buf, result) =
                file.read(at, Buf::pages(half as usize / PAGE_BYTES), Purpose::Scrub);
            result?;
            Self::decode(&buf)
        };
        let found = copy(0).or_else(|first| copy(half).map_err(|_| first));
        let index = found.map_err(|error| error.at(&name))?;
        if index.id != id {
            let error = Error::corrupt("backup number").at(name);
            return Err(error.expected(id).got(index.id));
        }
        Ok(index)
    }
}

/// Sum of the stored bytes of files.
pub(super) fn total<'a>(entries: impl Iterator<Item = &'a IndexEntry>) -> u64 {
    // The lengths are read from a file, and may overflow.
    entries.fold(0, |sum: u64, entry| sum.saturating_add(entry.bytes))
}

fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|error| {
        Error::corrupt("text in a backup index").expected("UTF-8").caused_by(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::MemoryMedium;

    fn index() -> Index {
        let entry = |name: &str, pages: u64, digest| IndexEntry {
            name: name.to_owned(),
            bytes: pages * PAGE_BYTES as u64,
            len: pages.next_multiple_of(100) * PAGE_BYTES as u64,
            digest,
        };
        Index {
            id: 3,
            store: StoreId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100),
            lineage: LineageId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100),
            created: 1_700_000_000_000,
            label: "before the upgrade".to_owned(),
            files: vec![
                entry(&table::file_name(base::TableId(9)), 300, 0x2222),
                entry("0000000001.dictionary", 2, 0x1111),
                entry("log-0-0000000004", 256, 0x3333),
                entry("manifest-0000000000000001", 1, 0x4444),
            ],
        }
    }

    #[test]
    fn golden_bytes() {
        let copy = Index { lineage: LineageId(0x1f1e), ..index() };
        for (index, golden) in [
            (index(), include_str!("../../golden/backup.hex")),
            (copy, include_str!("../../golden/backup-2.hex")),
        ] {
            let bytes = index.encode();
            let used =
                HEADER_BYTES + u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
            let hex: String = bytes[..used].iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, golden.split_whitespace().collect::<String>());
            assert_eq!(Index::decode(&bytes).unwrap(), index);
        }
    }

    #[test]
    fn a_flipped_byte_loses_no_backup_and_confuses_none_with_another() {
        let medium = MemoryMedium::new();
        index().write(&medium, &file_name(3)).unwrap();
        let good = medium.content(&file_name(3)).unwrap();
        for at in 0..good.len() {
            for mask in [0x01, 0x80] {
                let mut bytes = good.clone();
                bytes[at] ^= mask;
                assert!(Index::decode(&bytes[..good.len() / 2]).is_err() || at >= good.len() / 2);
                medium.insert(&file_name(3), bytes).unwrap();
                assert_eq!(Index::read(&medium, 3).unwrap(), index(), "byte {at}");
            }
        }
        medium.insert(&file_name(4), good).unwrap();
        let error = Index::read(&medium, 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let error = Index::read(&medium, 5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }

    #[test]
    fn a_newer_version_is_refused_and_any_cut_is_an_error() {
        let bytes = index().encode();
        for cut in 0..bytes.len() {
            assert!(Index::decode(&bytes[..cut]).is_err() || cut >= 200, "cut at {cut}");
        }
        let mut newer = bytes;
        newer[8] = 3;
        let length = u32::from_le_bytes(newer[12..16].try_into().unwrap()) as usize;
        let checksum = hash64(hash64(0, &newer[..16]), &newer[24..24 + length]);
        newer[16..24].copy_from_slice(&checksum.to_le_bytes());
        let error = Index::decode(&newer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }

    #[test]
    fn index_and_object_names_have_one_form() {
        assert_eq!(parse_file_name(&file_name(17)), Some(17));
        for other in ["backup-17", "backup-00000000017", "backup-+000000017", "backup-"] {
            assert_eq!(parse_file_name(other), None, "{other}");
        }
        assert!(index().files.iter().all(|entry| is_object(&entry.object())));
        for other in ["log-0-0000000004", "notes.0123456789abcdef", "log-0-0000000004.0123"] {
            assert!(!is_object(other), "{other}");
        }
    }
}
