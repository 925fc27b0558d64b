//! The manifest's entry of a value file. Byte format: docs/format/manifest.md.

use base::limits::PAGE_BYTES;
use base::{Cursor, KeyspaceId, Result, StoreId, TableId, put_u64, put_varint};
use table::{ValuesFooter, ValuesSummary};

/// The manifest's entry of a value file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValuesEntry {
    /// The file's id, drawn from the same sequence as table ids.
    pub id: TableId,
    /// Length of the file, bytes.
    pub file_bytes: u64,
    /// Number of values in the file, live and dead.
    pub values: u64,
    /// Bytes of those values before compression. A value that a table points to is live; the rest are dead.
    pub value_bytes: u64,
    /// The file's digest: a hash over the checksums of its pages.
    pub digest: u64,
}

impl ValuesEntry {
    /// Appends the stored form to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.id.0);
        put_varint(out, self.file_bytes);
        put_varint(out, self.values);
        put_varint(out, self.value_bytes);
        put_u64(out, self.digest);
    }

    /// Returns the footer that the file must have, if it belongs to `keyspace` of `store`.
    pub fn footer(&self, store: StoreId, keyspace: KeyspaceId) -> ValuesFooter {
        let Self { id: file, file_bytes, values, value_bytes, digest } = *self;
        let pages = u32::try_from(file_bytes / PAGE_BYTES as u64).unwrap_or(u32::MAX);
        ValuesFooter { pages, store, file, keyspace, values, value_bytes, digest }
    }

    /// Decodes the stored form; fields that a later version appended are skipped.
    ///
    /// # Errors
    /// `Corrupt` if `bytes` ends early.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
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
        base::invariant!(
            values > 0 && file_bytes.is_multiple_of(PAGE_BYTES as u64),
            "a value file that was written has a value, and whole pages"
        );
        Self { id: file, file_bytes, values, value_bytes, digest }
    }
}
