//! The footer of a value file: its last page.

use base::{
    Cursor, Error, KeyspaceId, PageSeed, Result, StoreId, TableId, put_u32, put_u64, put_u128,
};

use crate::page::{Header, PageKind, payload, verify_page};

/// `TERRAVAL`, read as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"TERRAVAL");

/// The newest format version of value files.
const VERSION: u32 = 1;

/// The mark, beside the version, of a file that may have DEFLATE values. Earlier builds refuse it
/// as a newer version.
const MAY_DEFLATE: u32 = 1 << 8;

/// The identity and the contents of a value file. The values fill the pages before the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValuesFooter {
    /// Number of pages in the file, this one included.
    pub pages: u32,
    /// The store the file belongs to.
    pub store: StoreId,
    /// The file.
    pub file: TableId,
    /// The keyspace of its values.
    pub keyspace: KeyspaceId,
    /// Number of values in the file.
    pub values: u64,
    /// Length of all values together, before compression, bytes.
    pub value_bytes: u64,
    /// The hash of the checksums of all earlier pages, in order.
    pub digest: u64,
}

impl ValuesFooter {
    /// Encodes the footer of a file, with values of the codec DEFLATE or without.
    #[must_use]
    pub fn encode(&self, may_deflate: bool) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, MAGIC);
        put_u32(&mut out, VERSION | if may_deflate { MAY_DEFLATE } else { 0 });
        put_u32(&mut out, self.pages);
        put_u128(&mut out, self.store.0);
        put_u64(&mut out, self.file.0);
        put_u32(&mut out, self.keyspace.0);
        put_u64(&mut out, self.values);
        put_u64(&mut out, self.value_bytes);
        put_u64(&mut out, self.digest);
        out
    }

    /// Parses the last page of a file of `pages` pages, of any identity: the checksum is verified with
    /// the identity that the footer states.
    ///
    /// # Errors
    /// `Corrupt` if the page is damaged or no footer, or the file does not have the footer's length;
    /// `Invalid` if a newer version wrote it.
    pub fn parse(page: &[u8], pages: u32) -> Result<Self> {
        let header = Header::parse(page)?;
        let mut cursor = Cursor::new("footer of a value file", payload(page, &header)?);
        let (kind, magic) = (header.kind, cursor.u64()?);
        if kind != PageKind::Footer || magic != MAGIC {
            return Err(Error::corrupt("footer of a value file")
                .expected(format_args!("a footer page with magic {MAGIC:016x}"))
                .got(format_args!("a {} page with {magic:016x}", kind.name())));
        }
        let version = cursor.u32()? & !MAY_DEFLATE;
        let stated_pages = cursor.u32()?;
        let (store, file) = (StoreId(cursor.u128()?), TableId(cursor.u64()?));
        verify_page(PageSeed::new(store, file), pages.saturating_sub(1), page)?;
        // Magic, version and checksum have the same position in every version, so that a newer version
        // is recognised.
        if version > VERSION {
            return Err(Error::invalid("format version of a value file: a newer format")
                .expected(format_args!("at most {VERSION}"))
                .got(version));
        }
        let footer = Self {
            pages: stated_pages,
            store,
            file,
            keyspace: KeyspaceId(cursor.u32()?),
            values: cursor.u64()?,
            value_bytes: cursor.u64()?,
            digest: cursor.u64()?,
        };
        cursor.finish()?;
        if version == 0 || stated_pages != pages {
            return Err(Error::corrupt("length of a value file, pages (and format version)")
                .expected(format_args!("{stated_pages} (and 1..={VERSION})"))
                .got(format_args!("{pages} (and {version})")));
        }
        Ok(footer)
    }

    /// Returns the footer if it is that of `file` in `store`.
    ///
    /// # Errors
    /// `Corrupt` if it is another's.
    pub fn expect(self, store: StoreId, file: TableId) -> Result<Self> {
        if (self.store, self.file) == (store, file) {
            return Ok(self);
        }
        Err(Error::corrupt("identity of a value file")
            .expected(format_args!("file {file} of store {store}"))
            .got(format_args!("file {} of store {}", self.file, self.store)))
    }
}
