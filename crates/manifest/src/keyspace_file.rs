//! The file of a keyspace: states its kind and name beside the manifest. Byte format:
//! docs/format/keyspace.md.
//!
//! An ordered keyspace has none. One of another kind has the file from before the manifest names it until
//! after the manifest dropped it, so that a repair without a manifest knows how keys are stored, also if no
//! table states it yet. The manifest decides while it can be read: an open writes a file that is missing or
//! says something else, and removes that of a keyspace that does not exist.
//!
//! Threads: any; one of them creates, opens or drops a keyspace at a time. Cost: one page.

use base::limits::PAGE_BYTES;
use base::{Cursor, Error, ErrorKind, KeyspaceId, Result, StoreId, crc32c, put_u32, put_u64};
use media::{Access, Buf, Medium, Purpose};

use crate::header::VERSION as MANIFEST_VERSION;
use crate::{Edit, KeyspaceEntry, KeyspaceKind};

const MAGIC: u64 = u64::from_le_bytes(*b"TERRAKSP");

/// The version of the format.
const VERSION: u32 = 1;

/// Offset of the checksum, which covers the bytes before it.
const CRC_AT: usize = PAGE_BYTES - 4;

/// The longest edit, bytes: a keyspace with the longest names.
const EDIT_BYTES_MAX: usize = CRC_AT - 36;

/// The content of a keyspace's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceFile {
    /// The store.
    pub store: StoreId,
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Its kind, never ordered.
    pub kind: KeyspaceKind,
    /// Its name.
    pub name: String,
}

impl KeyspaceFile {
    /// The file of a keyspace of `store`; `None` if it has none, because it is ordered.
    #[must_use]
    pub fn of(
        store: StoreId,
        keyspace: KeyspaceId,
        kind: &KeyspaceKind,
        name: &str,
    ) -> Option<Self> {
        if *kind == KeyspaceKind::Ordered {
            return None;
        }
        Some(Self { store, keyspace, kind: kind.clone(), name: name.to_owned() })
    }

    /// As [`KeyspaceFile::of`], of an entry of the manifest.
    #[must_use]
    pub fn of_entry(store: StoreId, keyspace: KeyspaceId, entry: &KeyspaceEntry) -> Option<Self> {
        Self::of(store, keyspace, &entry.kind, &entry.name)
    }

    /// The name of the file of `keyspace`.
    #[must_use]
    pub fn file_name(keyspace: KeyspaceId) -> String {
        format!("keyspace-{}", keyspace.0)
    }

    /// The keyspace with a file of this name; `None` if it is not the name of such a file.
    #[must_use]
    pub fn parse_file_name(name: &str) -> Option<KeyspaceId> {
        let keyspace = KeyspaceId(name.strip_prefix("keyspace-")?.parse().ok()?);
        // Signs and leading zeros parse as numbers too, but each file has exactly one name.
        (Self::file_name(keyspace) == name).then_some(keyspace)
    }

    /// Encodes the page.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Self { store, keyspace, kind, name } = self;
        let mut edit = Vec::new();
        let created =
            Edit::KeyspaceCreated { keyspace: *keyspace, kind: kind.clone(), name: name.clone() };
        created.encode(&mut edit);
        base::invariant!(edit.len() <= EDIT_BYTES_MAX, "names of a keyspace are bounded");
        let mut page = Vec::with_capacity(PAGE_BYTES);
        put_u64(&mut page, MAGIC);
        put_u32(&mut page, VERSION);
        put_u32(&mut page, kind.format_version());
        base::put_u128(&mut page, store.0);
        put_u32(&mut page, edit.len() as u32);
        page.extend_from_slice(&edit);
        page.resize(CRC_AT, 0);
        let crc = crc32c(&page);
        put_u32(&mut page, crc);
        page
    }

    /// Decodes the page.
    ///
    /// # Errors
    /// `Corrupt` if the page is damaged, `Invalid` if a newer version wrote it.
    pub fn decode(page: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("file of a keyspace", page);
        let covered = cursor.take(CRC_AT)?;
        let (stored, computed) = (cursor.u32()?, crc32c(covered));
        if stored != computed {
            return Err(Error::corrupt("checksum of a keyspace's file")
                .expected(format_args!("{computed:#010x}"))
                .got(format_args!("{stored:#010x}")));
        }
        let mut cursor = Cursor::new("file of a keyspace", covered);
        let (magic, version, states) = (cursor.u64()?, cursor.u32()?, cursor.u32()?);
        if magic != MAGIC {
            return Err(Error::corrupt("magic of a keyspace's file")
                .expected(format_args!("{MAGIC:#018x}"))
                .got(format_args!("{magic:#018x}")));
        }
        if version != VERSION || states > MANIFEST_VERSION {
            return Err(Error::invalid("version of a keyspace's file")
                .expected(format_args!("{VERSION}, of kinds up to {MANIFEST_VERSION}"))
                .got(format_args!("{version}, of kinds up to {states}")));
        }
        let store = StoreId(cursor.u128()?);
        let length = cursor.u32()? as usize;
        let edits = Edit::decode_all(cursor.take(length)?)?;
        if cursor.rest().iter().any(|byte| *byte != 0) {
            return Err(Error::corrupt("file of a keyspace").expected("zeros behind the keyspace"));
        }
        let mut edits = edits.into_iter();
        match (edits.next(), edits.next()) {
            (Some(Edit::KeyspaceCreated { keyspace, kind, name }), None) => {
                Self::of(store, keyspace, &kind, &name)
            }
            _ => None,
        }
        .ok_or_else(|| Error::corrupt("file of a keyspace").expected("one keyspace, not ordered"))
    }

    /// The file of `keyspace` on `medium`; `None` if there is none.
    ///
    /// # Errors
    /// As [`KeyspaceFile::decode`]; `Corrupt` if it is the file of another keyspace; those of the device.
    pub fn find(medium: &dyn Medium, keyspace: KeyspaceId) -> Result<Option<Self>> {
        let name = Self::file_name(keyspace);
        if !medium.list()?.iter().any(|file| file.name == name) {
            return Ok(None);
        }
        let file = medium.open(&name, Access::Bytes)?;
        let (page, read) = file.read(0, Buf::pages(1), Purpose::Manifest);
        let found = read.and_then(|()| Self::decode(&page)).map_err(|error| error.at(&name))?;
        if found.keyspace != keyspace {
            return Err(Error::corrupt("keyspace of a file")
                .at(name)
                .expected(keyspace)
                .got(found.keyspace));
        }
        Ok(Some(found))
    }

    /// Checks that the file on `medium` says the same, or is missing.
    ///
    /// # Errors
    /// As [`KeyspaceFile::find`]; `Corrupt` if it says something else.
    pub fn check(&self, medium: &dyn Medium) -> Result<()> {
        let shown =
            |it: &Self| format!("`{}`, {}, of store {}", it.name.escape_debug(), it.kind, it.store);
        match Self::find(medium, self.keyspace)? {
            Some(found) if found != *self => Err(Error::corrupt("file of a keyspace")
                .at(Self::file_name(self.keyspace))
                .expected(shown(self))
                .got(shown(&found))),
            Some(_) | None => Ok(()),
        }
    }

    /// Writes the file durably, in place of another one.
    ///
    /// # Errors
    /// Those of the device.
    pub fn install(&self, medium: &dyn Medium) -> Result<()> {
        let name = Self::file_name(self.keyspace);
        if medium.list()?.iter().any(|file| file.name == name) {
            medium.remove(&name)?;
        }
        let file = medium.create(&name, Access::Bytes, PAGE_BYTES as u64)?;
        file.store(0, &self.encode(), Purpose::Manifest)?;
        file.sync(Purpose::Manifest)?;
        medium.sync_names(&[&name])
    }

    /// Writes the files that the keyspaces of `store` lack, and removes those of keyspaces that do not exist.
    /// On a full device a file may stay missing: the manifest is there.
    ///
    /// # Errors
    /// Those of the device other than `NoSpace`.
    pub fn install_all<'a>(
        medium: &dyn Medium,
        store: StoreId,
        keyspaces: impl Iterator<Item = (KeyspaceId, &'a KeyspaceEntry)>,
    ) -> Result<()> {
        let listed = medium.list()?.into_iter();
        let mut stale: std::collections::BTreeSet<_> =
            listed.filter_map(|file| Self::parse_file_name(&file.name)).collect();
        for (id, entry) in keyspaces {
            let Some(file) = Self::of_entry(store, id, entry) else { continue };
            let exists = stale.remove(&id);
            // A file that a newer version wrote, or that the device cannot read, is written again too: the
            // manifest is right.
            if exists && file.check(medium).is_ok() {
                continue;
            }
            match file.install(medium) {
                Err(error) if error.kind() == ErrorKind::NoSpace => {}
                installed => installed?,
            }
        }
        stale.iter().try_for_each(|id| medium.remove(&Self::file_name(*id)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{HashKey, HashedPolicy};
    use media::MemoryMedium;

    use super::*;
    use crate::tests::golden;

    fn sample() -> KeyspaceFile {
        KeyspaceFile {
            store: StoreId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100),
            keyspace: KeyspaceId(300),
            kind: KeyspaceKind::Hashed {
                hash_key: HashKey::new([0xf0; HashKey::BYTES]),
                policy: HashedPolicy::Keep,
                base_filter_bits: 8,
            },
            name: "keep".to_owned(),
        }
    }

    fn entry(file: &KeyspaceFile) -> KeyspaceEntry {
        KeyspaceEntry::new(file.name.clone(), file.kind.clone())
    }

    #[test]
    fn golden_bytes_of_a_keyspaces_file() {
        let page = sample().encode();
        let mut expected = golden(include_str!("../golden/keyspace.hex"));
        let crc = expected.split_off(expected.len() - 4);
        expected.resize(CRC_AT, 0);
        expected.extend_from_slice(&crc);
        let used: Vec<_> = page[..80].iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(page == expected, "{} .. {:02x?}", used.concat(), &page[CRC_AT..]);
        assert_eq!(KeyspaceFile::decode(&expected).unwrap(), sample());
    }

    #[test]
    fn every_flipped_byte_is_noticed_and_newer_kinds_are_refused() {
        let page = sample().encode();
        for at in 0..PAGE_BYTES {
            let mut flipped = page.clone();
            flipped[at] ^= 0x10;
            let error = KeyspaceFile::decode(&flipped).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}");
        }
        for at in [8, 12] {
            let mut newer = page.clone();
            newer[at] = 200;
            let crc = crc32c(&newer[..CRC_AT]);
            newer[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(KeyspaceFile::decode(&newer).unwrap_err().kind(), ErrorKind::Invalid);
        }
        assert!(KeyspaceFile::decode(&page[..100]).is_err());
    }

    #[test]
    fn each_file_has_one_name() {
        assert_eq!(KeyspaceFile::file_name(KeyspaceId(300)), "keyspace-300");
        assert_eq!(KeyspaceFile::parse_file_name("keyspace-300"), Some(KeyspaceId(300)));
        for other in ["keyspace-", "keyspace-+3", "keyspace-03", "keyspace-3.damaged", "manifest-3"]
        {
            assert_eq!(KeyspaceFile::parse_file_name(other), None, "{other}");
        }
    }

    /// Missing, wrong and stale files become those of the manifest; right ones are not written.
    #[test]
    fn the_files_become_those_of_the_manifest() {
        let medium = MemoryMedium::new();
        let file = sample();
        let (id, store) = (file.keyspace, file.store);
        let ordered = KeyspaceEntry { kind: KeyspaceKind::Ordered, ..entry(&file) };
        let entries = [(id, entry(&file)), (KeyspaceId(1), ordered)];
        let install =
            || KeyspaceFile::install_all(&medium, store, entries.iter().map(|(id, it)| (*id, it)));
        install().unwrap();
        assert_eq!(KeyspaceFile::find(&medium, id).unwrap(), Some(file.clone()));
        let other = KeyspaceFile { name: "other".to_owned(), ..file.clone() };
        other.install(&medium).unwrap();
        assert_eq!(file.check(&medium).unwrap_err().kind(), ErrorKind::Corrupt);
        let stale = KeyspaceFile { keyspace: KeyspaceId(7), ..file.clone() };
        stale.install(&medium).unwrap();
        medium.create("keyspace-1", Access::Bytes, 0).unwrap();
        install().unwrap();
        file.check(&medium).unwrap();
        let names: Vec<_> = medium.list().unwrap().into_iter().map(|file| file.name).collect();
        assert_eq!(names, ["keyspace-300"]);
        // The file of another keyspace under this name is damage.
        let moved = Arc::new(MemoryMedium::new());
        stale.install(&*moved).unwrap();
        moved.rename("keyspace-7", "keyspace-300").unwrap();
        assert_eq!(KeyspaceFile::find(&*moved, id).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
