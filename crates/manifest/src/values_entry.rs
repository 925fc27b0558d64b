//! What the manifest knows of a value file. Bytes: docs/format/manifest.md.

use base::limits::PAGE_BYTES;
use base::{Cursor, KeyspaceId, Result, StoreId, TableId, put_u64, put_varint};
use table::{ValuesFooter, ValuesSummary};

/// What the manifest knows of a value file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValuesEntry {
    pub id: TableId,
    pub file_bytes: u64,
    /// How many values were written, and their bytes before compression. What tables point at of
    /// them is alive, the rest is dead.
    pub values: u64,
    pub value_bytes: u64,
    /// The hash of its pages' checksums.
    pub digest: u64,
}

impl ValuesEntry {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.id.0);
        put_varint(out, self.file_bytes);
        put_varint(out, self.values);
        put_varint(out, self.value_bytes);
        put_u64(out, self.digest);
    }

    /// What the footer of the file says, which is one of `keyspace` in `store`.
    pub fn footer(&self, store: StoreId, keyspace: KeyspaceId) -> ValuesFooter {
        let Self { id: file, file_bytes, values, value_bytes, digest } = *self;
        let pages = u32::try_from(file_bytes / PAGE_BYTES as u64).unwrap_or(u32::MAX);
        ValuesFooter { pages, store, file, keyspace, values, value_bytes, digest }
    }

    /// Reads the stored form; what a later version appended to it is skipped.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("value file in a manifest", bytes);
        Ok(Self {
            id: TableId(cursor.u64()?),
            file_bytes: cursor.varint()?,
            values: cursor.varint()?,
            value_bytes: cursor.varint()?,
            digest: cursor.u64()?,
        })
    }
}

impl From<ValuesSummary> for ValuesEntry {
    fn from(summary: ValuesSummary) -> Self {
        let ValuesSummary { file, file_bytes, values, value_bytes, digest } = summary;
        Self { id: file, file_bytes, values, value_bytes, digest }
    }
}
