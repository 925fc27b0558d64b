//! The list of hot pages and rows of a store, which survives a restart: the next open reads them ahead. Byte
//! format: docs/format/hot-pages.md.
//!
//! Pages are named as in the cache, by the digest of their file, and rows by their keys, so a list that is
//! out of date names pages and rows that are gone, and never wrong ones. A damaged or missing list costs
//! warmth only.

use std::ops::Range;

use base::{
    Cursor, Error, KeyspaceId, Result, StoreId, crc32c, invariant, put_bytes, put_u32, put_u64,
    put_varint,
};

use crate::PageKey;
use crate::rows::ROW_BYTES_MAX;

const MAGIC: u64 = u64::from_le_bytes(*b"TERRAHOT");

/// The version of the format.
const VERSION: u32 = 2;

/// The version before lists had rows.
const WITHOUT_ROWS: u32 = 1;

const CRC_BYTES: usize = 4;

/// The place of the version in a list.
const VERSION_AT: usize = size_of::<u64>();

/// Memory of a file, and of a range of its pages and the read of that range, bytes.
const FILE_MEMORY: usize = 32;
const RANGE_MEMORY: usize = 40;

/// The most memory of a list, bytes for each of its bytes: a key of one byte takes two.
const MEMORY_A_BYTE_MAX: u64 = 21;

/// Pages of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotFile {
    /// The digest of the file.
    pub digest: u64,
    /// Numbers of pages: ranges that ascend and do not touch.
    pub pages: Vec<Range<u32>>,
}

/// Rows of one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRows {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Their keys, ascending; at least one.
    pub keys: Vec<Box<[u8]>>,
}

/// The hot pages of a store, by file, and its hot rows, by keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPages {
    /// The store.
    pub store: StoreId,
    /// The files, ascending by digest, each with at least one page.
    pub files: Vec<HotFile>,
    /// Rows, ascending by keyspace.
    pub rows: Vec<HotRows>,
    /// Memory that these rows took, bytes.
    pub row_bytes: u64,
}

impl HotPages {
    /// The longest encoded list, bytes: [`HotPages::PAGES_MAX`] pages fit, each in a file of its own, and
    /// rows of [`HotPages::ROW_KEYS_MAX`] bytes.
    pub const BYTES_MAX: usize = (4 << 20) + Self::ROW_KEYS_MAX;

    /// The most memory of the keys of rows, bytes, as [`HotPages::key_bytes`] counts it.
    pub const ROW_KEYS_MAX: usize = 16 << 20;

    /// The most pages of a list: 1 GiB.
    pub const PAGES_MAX: usize = 256 << 10;

    /// The name of the file in a store.
    pub const FILE_NAME: &str = "hot-pages";

    /// The name of a list that is being written.
    pub const NEW_FILE_NAME: &str = "hot-pages.new";

    /// Whether a file of this name is a list, or was to become one.
    #[must_use]
    pub fn is_file_name(name: &str) -> bool {
        name == Self::FILE_NAME || name == Self::NEW_FILE_NAME
    }

    /// The list of the first [`HotPages::PAGES_MAX`] of `pages`.
    #[must_use]
    pub fn new(store: StoreId, mut pages: Vec<PageKey>) -> Self {
        pages.truncate(Self::PAGES_MAX);
        pages.sort_unstable_by_key(|page| (page.file, page.page));
        let mut files: Vec<HotFile> = Vec::new();
        for PageKey { file, page } in pages {
            if files.last().is_none_or(|last| last.digest != file) {
                files.push(HotFile { digest: file, pages: Vec::new() });
            }
            let Some(last) = files.last_mut() else { continue };
            let end = page.saturating_add(1);
            match last.pages.last_mut() {
                Some(range) if range.end >= page => range.end = end,
                _ => last.pages.push(page..end),
            }
        }
        Self { store, files, rows: Vec::new(), row_bytes: 0 }
    }

    /// Adds rows of a keyspace, in any order, some perhaps twice. Keyspaces come ascending.
    pub fn add_rows(&mut self, keyspace: KeyspaceId, mut keys: Vec<Box<[u8]>>) {
        invariant!(
            self.rows.last().is_none_or(|last| last.keyspace < keyspace),
            "keyspaces of a list ascend"
        );
        keys.sort_unstable();
        keys.dedup();
        if !keys.is_empty() {
            self.rows.push(HotRows { keyspace, keys });
        }
    }

    /// Memory of a key in a list, bytes.
    #[must_use]
    pub const fn key_bytes(key: &[u8]) -> usize {
        // The pointer, its length, and what an allocation rounds up to.
        key.len() + 40
    }

    /// Memory of the list while its pages and rows are read, bytes.
    fn memory_bytes(&self) -> u64 {
        let ranges: usize = self.files.iter().map(|file| file.pages.len()).sum();
        let keys = self.rows.iter().flat_map(|rows| &rows.keys);
        let keys: usize = keys.map(|key| Self::key_bytes(key)).sum();
        (self.files.len() * FILE_MEMORY + ranges * RANGE_MEMORY + keys) as u64
    }

    /// Memory that decoding `encoded` and reading its pages and rows takes, bytes.
    #[must_use]
    pub fn memory_of(encoded: &[u8]) -> u64 {
        let most = encoded.len() as u64 * MEMORY_A_BYTE_MAX;
        let field = encoded.get(VERSION_AT..).and_then(|rest| {
            let (version, rest) = rest.split_first_chunk()?;
            let memory = rest.get(size_of::<u128>()..)?.first_chunk()?;
            (u32::from_le_bytes(*version) == VERSION).then(|| u64::from_le_bytes(*memory))
        });
        field.map_or(most, |memory| memory.min(most))
    }

    /// The number of rows.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.rows.iter().map(|rows| rows.keys.len()).sum()
    }

    /// The number of pages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.files
            .iter()
            .flat_map(|file| &file.pages)
            .map(|pages| u64::from(pages.end - pages.start))
            .sum()
    }

    /// Encodes the list.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_u64(&mut bytes, MAGIC);
        put_u32(&mut bytes, VERSION);
        base::put_u128(&mut bytes, self.store.0);
        put_u64(&mut bytes, self.memory_bytes());
        put_u32(&mut bytes, self.files.len() as u32);
        for HotFile { digest, pages } in &self.files {
            put_u64(&mut bytes, *digest);
            put_varint(&mut bytes, pages.len() as u64);
            let mut at = 0;
            for range in pages {
                put_varint(&mut bytes, u64::from(range.start - at));
                put_varint(&mut bytes, u64::from(range.end - range.start));
                at = range.end;
            }
        }
        put_varint(&mut bytes, self.row_bytes);
        put_u32(&mut bytes, self.rows.len() as u32);
        for HotRows { keyspace, keys } in &self.rows {
            put_u32(&mut bytes, keyspace.0);
            put_varint(&mut bytes, keys.len() as u64);
            keys.iter().for_each(|key| put_bytes(&mut bytes, key));
        }
        let crc = crc32c(&bytes);
        put_u32(&mut bytes, crc);
        invariant!(bytes.len() <= Self::BYTES_MAX, "a list of hot pages is bounded");
        bytes
    }

    /// Decodes a list.
    ///
    /// # Errors
    /// `Corrupt` if the list is damaged, `Invalid` if a newer version wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &'static str| Error::corrupt("list of hot pages").expected(what);
        if bytes.len() > Self::BYTES_MAX {
            return Err(damaged("at most 4 MiB").got(bytes.len()));
        }
        let Some((covered, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
            return Err(damaged("a checksum"));
        };
        if crc32c(covered) != u32::from_le_bytes(*crc) {
            return Err(damaged("the checksum of its bytes"));
        }
        let mut cursor = Cursor::new("list of hot pages", covered);
        let (magic, version) = (cursor.u64()?, cursor.u32()?);
        if magic != MAGIC {
            return Err(damaged("its magic").got(format_args!("{magic:#018x}")));
        }
        if ![VERSION, WITHOUT_ROWS].contains(&version) {
            return Err(Error::invalid("version of a list of hot pages")
                .expected(VERSION)
                .got(version));
        }
        let store = StoreId(cursor.u128()?);
        let memory = if version == WITHOUT_ROWS { None } else { Some(cursor.u64()?) };
        let (count, mut files) = (cursor.u32()?, Vec::<HotFile>::new());
        for _ in 0..count {
            let digest = cursor.u64()?;
            if files.last().is_some_and(|last| last.digest >= digest) {
                return Err(damaged("files that ascend by digest"));
            }
            files.push(HotFile { digest, pages: decode_ranges(&mut cursor)? });
        }
        let mut list = Self { store, files, rows: Vec::new(), row_bytes: 0 };
        if memory.is_some() {
            (list.row_bytes, list.rows) = (cursor.varint()?, decode_rows(&mut cursor)?);
        }
        cursor.finish()?;
        if list.count() > Self::PAGES_MAX as u64 {
            return Err(damaged("at most 262144 pages").got(list.count()));
        }
        if memory.is_some_and(|memory| memory != list.memory_bytes()) {
            return Err(damaged("the memory that it takes").got(list.memory_bytes()));
        }
        Ok(list)
    }
}

fn decode_rows(cursor: &mut Cursor<'_>) -> Result<Vec<HotRows>> {
    let damaged = |what: &'static str| Error::corrupt("list of hot pages").expected(what);
    let (count, mut all, mut memory) = (cursor.u32()?, Vec::<HotRows>::new(), 0);
    for _ in 0..count {
        let keyspace = KeyspaceId(cursor.u32()?);
        if all.last().is_some_and(|last| last.keyspace >= keyspace) {
            return Err(damaged("keyspaces that ascend"));
        }
        let (count, mut keys) = (cursor.varint()?, Vec::<Box<[u8]>>::new());
        // A key takes two bytes at least: the count is bounded by the bytes, and nothing is allocated ahead.
        for _ in 0..count {
            let key = cursor.bytes(ROW_BYTES_MAX)?;
            memory += HotPages::key_bytes(key);
            if key.is_empty() || keys.last().is_some_and(|last| **last >= *key) {
                return Err(damaged("keys of rows that ascend"));
            }
            if memory > HotPages::ROW_KEYS_MAX {
                return Err(damaged("keys of rows of 16 MiB at most"));
            }
            keys.push(key.into());
        }
        if keys.is_empty() {
            return Err(damaged("keys of rows"));
        }
        all.push(HotRows { keyspace, keys });
    }
    Ok(all)
}

fn decode_ranges(cursor: &mut Cursor<'_>) -> Result<Vec<Range<u32>>> {
    let damaged = || Error::corrupt("list of hot pages").expected("ranges of pages that ascend");
    let (count, mut pages) = (cursor.varint()?, Vec::<Range<u32>>::new());
    // A range takes two bytes at least: the count is bounded by the bytes, and nothing is allocated ahead.
    for number in 0..count {
        let (gap, len) = (cursor.varint()?, cursor.varint()?);
        let start = u64::from(pages.last().map_or(0, |last| last.end)).saturating_add(gap);
        let end = start.saturating_add(len);
        let (Ok(from), Ok(to)) = (u32::try_from(start), u32::try_from(end)) else {
            return Err(damaged());
        };
        if len == 0 || (gap == 0 && number > 0) {
            return Err(damaged());
        }
        pages.push(from..to);
    }
    if pages.is_empty() { Err(damaged()) } else { Ok(pages) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use base::ErrorKind;

    use super::*;

    fn sample() -> HotPages {
        let page = |(file, page)| PageKey { file, page };
        let pages = [(0x0807_0605_0403_0201, 300), (7, 0), (7, 2), (7, 1), (7, 9), (7, 9)];
        let id = StoreId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);
        let mut list = HotPages::new(id, pages.map(page).to_vec());
        let keys = |keys: &[&str]| keys.iter().map(|key| key.as_bytes().into()).collect();
        list.add_rows(KeyspaceId(1), keys(&["b", "ab", "b"]));
        list.add_rows(KeyspaceId(2), Vec::new());
        list.add_rows(KeyspaceId(259), keys(&["key"]));
        list.row_bytes = 300;
        list
    }

    fn golden() -> Vec<u8> {
        bytes_of(include_bytes!("../golden/hot-pages.hex"))
    }

    fn bytes_of(hex: &[u8]) -> Vec<u8> {
        let digits: Vec<u8> = hex.iter().copied().filter(u8::is_ascii_hexdigit).collect();
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn golden_bytes_of_a_list() {
        let list = sample();
        assert_eq!((list.count(), list.files.len()), (5, 2));
        assert_eq!((list.row_count(), list.rows.len()), (3, 2));
        assert_eq!(list.files[0], HotFile { digest: 7, pages: vec![0..3, 9..10] });
        let hex: String = list.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(list.encode(), golden(), "{hex}");
        assert_eq!(HotPages::decode(&golden()).unwrap(), list);
    }

    #[test]
    fn a_list_from_before_rows_is_read() {
        let mut expected = sample();
        (expected.rows, expected.row_bytes) = (Vec::new(), 0);
        let before = bytes_of(include_bytes!("../golden/hot-pages-1.hex"));
        assert_eq!(HotPages::decode(&before).unwrap(), expected);
    }

    #[test]
    fn damage_and_newer_versions_are_refused() {
        let bytes = sample().encode();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert_eq!(
                HotPages::decode(&flipped).unwrap_err().kind(),
                ErrorKind::Corrupt,
                "byte {at}"
            );
            assert!(HotPages::decode(&bytes[..at]).is_err(), "{at} bytes");
        }
        let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = bytes[..bytes.len() - CRC_BYTES].to_vec();
            change(&mut bytes);
            let crc = crc32c(&bytes);
            put_u32(&mut bytes, crc);
            HotPages::decode(&bytes).map(drop).map_err(|error| error.kind())
        };
        assert_eq!(sealed(&|_| {}), Ok(()));
        assert_eq!(sealed(&|bytes| bytes[8] = 3), Err(ErrorKind::Invalid));
        // A count of files that are not there, a range without pages, bytes behind the files.
        assert_eq!(sealed(&|bytes| bytes[36..40].fill(0xff)), Err(ErrorKind::Corrupt));
        assert_eq!(sealed(&|bytes| bytes[50] = 0), Err(ErrorKind::Corrupt));
        assert_eq!(sealed(&|bytes| bytes.push(0)), Err(ErrorKind::Corrupt));
        assert_eq!(sealed(&|bytes| bytes[28] ^= 1), Err(ErrorKind::Corrupt), "its memory");
        // A key that is empty, keys and keyspaces that do not ascend.
        let row = bytes.len() - CRC_BYTES - 4;
        assert_eq!(sealed(&|bytes| bytes[row] = 0), Err(ErrorKind::Corrupt));
        let first = bytes.windows(3).position(|it| it == b"\x02ab").unwrap();
        assert_eq!(sealed(&|bytes| bytes[first + 1] = b'c'), Err(ErrorKind::Corrupt));
        assert_eq!(sealed(&|bytes| bytes[first - 4] = 0xff), Err(ErrorKind::Corrupt));
    }

    #[test]
    fn the_memory_of_a_list_is_known_before_it_is_decoded() {
        let (list, bytes) = (sample(), sample().encode());
        assert_eq!(HotPages::memory_of(&bytes), list.memory_bytes());
        assert_eq!(list.memory_bytes(), 2 * 32 + 3 * 40 + (1 + 2 + 3) + 3 * 40);
        let before = bytes_of(include_bytes!("../golden/hot-pages-1.hex"));
        assert_eq!(HotPages::memory_of(&before), 21 * before.len() as u64);
        assert_eq!(HotPages::memory_of(&bytes[..20]), 21 * 20);
    }

    #[test]
    fn the_longest_list_is_bounded_and_read_again() {
        let page = |number: usize| PageKey { file: 2 * number as u64, page: u32::MAX - 1 };
        let list = HotPages::new(StoreId(1), (0..HotPages::PAGES_MAX + 5).map(page).collect());
        assert_eq!(list.count(), HotPages::PAGES_MAX as u64);
        let bytes = list.encode();
        let without_rows = HotPages::BYTES_MAX - HotPages::ROW_KEYS_MAX;
        assert!(bytes.len() > without_rows / 10 * 9 && bytes.len() <= without_rows);
        assert!(HotPages::decode(&bytes).unwrap() == list);
        let none = HotPages::new(StoreId(1), Vec::new());
        assert_eq!(HotPages::decode(&none.encode()).unwrap(), none);
    }
}
