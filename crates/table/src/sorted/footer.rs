//! The footer: the last page of a table file, from which everything else is found.

use base::{Cursor, Error, PageSeed, Result, StoreId, TableId, put_u32, put_u64, put_u128};

use crate::page::{Header, PageKind, payload, verify_page};

/// `TERRATBL`, read as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"TERRATBL");

/// The newest format version this build reads, and writes where a table has what version 1 lacks:
/// range deletes, entries other than puts and deletes, filters of other than 8 bits. A table
/// without those is written as version 1.
pub const FORMAT_VERSION: u32 = 2;

/// The first format version, and the last without a section of range deletes.
pub(crate) const FIRST_VERSION: u32 = 1;

/// Where a table's parts lie, and whose they are.
///
/// Data and metadata pages fill the pages before `range_deletes`; the range deletes, where there are
/// any, the pages before `top`; the top level the pages before `properties`; the properties the
/// pages before the footer itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The format version.
    pub version: u32,
    /// The pages of the file, this one included.
    pub pages: u32,
    /// The store the table belongs to.
    pub store: StoreId,
    /// The table.
    pub table: TableId,
    /// The first page of the range deletes; the same as `top` where there are none.
    pub range_deletes: u32,
    /// The first page of the top level.
    pub top: u32,
    /// The first page of the properties.
    pub properties: u32,
    /// The hash of the checksums of all pages before this one, in order: it stands for the
    /// content of the whole file.
    pub digest: u64,
}

impl Footer {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, MAGIC);
        put_u32(&mut out, self.version);
        put_u32(&mut out, self.pages);
        put_u128(&mut out, self.store.0);
        put_u64(&mut out, self.table.0);
        put_u32(&mut out, self.top);
        put_u32(&mut out, self.properties);
        put_u64(&mut out, self.digest);
        if self.version > FIRST_VERSION {
            put_u32(&mut out, self.range_deletes);
        }
        out
    }

    /// Reads the last page of a file of `pages` pages, whoever it belongs to: the checksum is
    /// verified under the identity the footer itself claims.
    ///
    /// # Errors
    /// `Corrupt` where the page is damaged or no footer, or the file has another length than the
    /// footer says; `Invalid` where a newer version wrote it.
    pub fn parse(page: &[u8], pages: u32) -> Result<Self> {
        let header = Header::parse(page)?;
        let mut cursor = Cursor::new("table footer", payload(page, &header)?);
        let (kind, magic) = (header.kind, cursor.u64()?);
        if kind != PageKind::Footer || magic != MAGIC {
            return Err(Error::corrupt("table footer")
                .expected(format_args!("a footer page with magic {MAGIC:016x}"))
                .got(format_args!("a {} page with {magic:016x}", kind.name())));
        }
        let mut footer = Self {
            version: cursor.u32()?,
            pages: cursor.u32()?,
            store: StoreId(cursor.u128()?),
            table: TableId(cursor.u64()?),
            range_deletes: 0,
            top: cursor.u32()?,
            properties: cursor.u32()?,
            digest: cursor.u64()?,
        };
        let last = pages.saturating_sub(1);
        verify_page(PageSeed::new(footer.store, footer.table), last, page)?;
        // Magic, version and seal stay where they are in every version, so that this can be said.
        if footer.version > FORMAT_VERSION {
            return Err(Error::invalid("table format version: a newer format")
                .expected(format_args!("at most {FORMAT_VERSION}"))
                .got(footer.version));
        }
        footer.range_deletes = match footer.version {
            0 | FIRST_VERSION => footer.top,
            _ => cursor.u32()?,
        };
        cursor.finish()?;
        if footer.version == 0 || footer.pages != pages {
            return Err(Error::corrupt("table length, pages (and format version)")
                .expected(format_args!("{} (and 1..={FORMAT_VERSION})", footer.pages))
                .got(format_args!("{pages} (and {})", footer.version)));
        }
        let Self { range_deletes, top, properties, .. } = footer;
        if range_deletes > top || top >= properties || properties >= last {
            return Err(Error::corrupt("table footer")
                .expected(format_args!(
                    "range deletes, top level, properties and footer ({last}) in this order"
                ))
                .got(format_args!("pages {range_deletes}, {top} and {properties}")));
        }
        Ok(footer)
    }

    /// The footer, where it is that of `table` in `store`.
    ///
    /// # Errors
    /// `Corrupt` where it is another's.
    pub fn expect(self, store: StoreId, table: TableId) -> Result<Self> {
        if (self.store, self.table) == (store, table) {
            return Ok(self);
        }
        Err(Error::corrupt("table identity")
            .expected(format_args!("table {table} of store {store}"))
            .got(format_args!("table {} of store {}", self.table, self.store)))
    }
}
