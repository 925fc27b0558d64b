//! The footer: the last page of a table file, which gives the position of every other part. The page
//! before it is a second copy.

use base::{
    Cursor, Error, ErrorKind, PageSeed, Result, StoreId, TableId, put_u32, put_u64, put_u128,
};
use media::{File, Purpose};

use super::layout::Layout;
use super::read::read_raw;
use crate::page::{Header, PageKind, payload, verify_page};
use crate::reread::reread;

/// `TERRATBL`, read as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"TERRATBL");

/// The newest format version that this build reads and writes.
pub const FORMAT_VERSION: u32 = 6;

/// The format version of sorted tables.
pub const SORTED_VERSION: u32 = 3;

/// The first format version; later versions have a section of range deletes.
const FIRST_VERSION: u32 = 1;

/// The first format version in which the tail and the footer are written twice.
const COPIES_VERSION: u32 = 3;

/// The format version of tables with bins and sorted blocks.
const BINS_VERSION: u32 = 4;

/// The format version of tables with compact blocks.
pub(crate) const COMPACT_VERSION: u32 = 5;

/// The format version of tables with compact blocks of which some straddle pages.
pub(crate) const STRADDLED_VERSION: u32 = 6;

/// The mark, beside the version, of a table that may have data pages of the codec DEFLATE. Earlier builds
/// refuse it as a newer version.
pub(crate) const MAY_DEFLATE: u32 = 1 << 8;

/// The positions of a table's parts, and the table's identity.
///
/// Order of the pages: data and metadata pages before `range_deletes`; range deletes, if there are any,
/// before `top`; the top level before `properties`; the properties before `copy`; at `copy` a second
/// copy of these three; two footers at the end. Before version 3 each exists once, and the properties
/// end at the one footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The format version, without marks.
    pub version: u32,
    /// Whether data pages may have the codec DEFLATE.
    pub may_deflate: bool,
    /// Number of pages in the file, this one included.
    pub pages: u32,
    /// The store the table belongs to.
    pub store: StoreId,
    /// The table.
    pub table: TableId,
    /// The first page of the range deletes; equal to `top` if there are none.
    pub range_deletes: u32,
    /// The first page of the top level.
    pub top: u32,
    /// The first page of the properties.
    pub properties: u32,
    /// The hash of the checksums of all pages except footers, in order ([`fold_digest`]). It identifies
    /// the content of the file.
    ///
    /// [`fold_digest`]: crate::fold_digest
    pub digest: u64,
    /// The first page of the second copy of range deletes, top level and properties, which ends before
    /// the footers. `None` before version 3.
    pub copy: Option<u32>,
}

impl Footer {
    /// The format version of a new table with the layout `layout`, whose blocks are compact or not, and
    /// straddled or not.
    pub(crate) const fn version_of(layout: Layout, is_compact: bool, is_straddled: bool) -> u32 {
        match layout {
            Layout::Sorted => SORTED_VERSION,
            Layout::Bins(_) if is_straddled => STRADDLED_VERSION,
            Layout::Bins(_) if is_compact => COMPACT_VERSION,
            Layout::Bins(_) => BINS_VERSION,
        }
    }

    /// Encodes the footer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, MAGIC);
        put_u32(&mut out, self.version | if self.may_deflate { MAY_DEFLATE } else { 0 });
        put_u32(&mut out, self.pages);
        put_u128(&mut out, self.store.0);
        put_u64(&mut out, self.table.0);
        put_u32(&mut out, self.top);
        put_u32(&mut out, self.properties);
        put_u64(&mut out, self.digest);
        if self.version > FIRST_VERSION {
            put_u32(&mut out, self.range_deletes);
        }
        if let Some(copy) = self.copy {
            put_u32(&mut out, copy);
        }
        out
    }

    /// Reads the footer of a file of `pages` pages, of any identity: the last page or, if that is
    /// damaged, the page before it. Also returns the error of a damaged last page.
    ///
    /// # Errors
    /// As [`Footer::parse`] for the last page; otherwise the file's.
    pub fn read(file: &dyn File, pages: u32) -> Result<(Self, Option<Error>)> {
        Self::find(pages, |number| {
            let read = || Self::parse(&read_raw(file, number, 1, Purpose::Meta)?, number, pages);
            read().or_else(|first| reread(first, read))
        })
    }

    /// As [`Footer::read`]; `parse` reads and parses a page.
    pub(crate) fn find(
        pages: u32,
        mut parse: impl FnMut(u32) -> Result<Self>,
    ) -> Result<(Self, Option<Error>)> {
        let last = pages.saturating_sub(1);
        let lost = match parse(last) {
            Ok(footer) => return Ok((footer, None)),
            Err(error) if error.kind() != ErrorKind::Corrupt || last == 0 => return Err(error),
            Err(error) => error,
        };
        match parse(last - 1) {
            Ok(footer) => Ok((footer, Some(lost))),
            // Before version 3 that page is no footer; in a truncated file neither page is.
            Err(error) if error.kind() == ErrorKind::Corrupt => Err(lost),
            Err(error) => Err(error),
        }
    }

    /// Parses page `number`, the last or the one before it, of a file of `pages` pages, of any identity:
    /// the checksum is verified with the identity that the footer states.
    ///
    /// # Errors
    /// `Corrupt` if the page is damaged or no footer, or the file does not have the footer's length;
    /// `Invalid` if a newer version wrote it.
    pub fn parse(page: &[u8], number: u32, pages: u32) -> Result<Self> {
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
            may_deflate: false,
            pages: cursor.u32()?,
            store: StoreId(cursor.u128()?),
            table: TableId(cursor.u64()?),
            range_deletes: 0,
            top: cursor.u32()?,
            properties: cursor.u32()?,
            digest: cursor.u64()?,
            copy: None,
        };
        verify_page(PageSeed::new(footer.store, footer.table), number, page)?;
        // Magic, version and checksum have the same position in every version, so that a newer version
        // is recognised.
        footer.may_deflate = footer.version & MAY_DEFLATE != 0;
        footer.version &= !MAY_DEFLATE;
        if footer.version > FORMAT_VERSION {
            return Err(Error::invalid("table format version: a newer format")
                .expected(format_args!("at most {FORMAT_VERSION}"))
                .got(footer.version));
        }
        footer.range_deletes = match footer.version {
            0 | FIRST_VERSION => footer.top,
            _ => cursor.u32()?,
        };
        if footer.version >= COPIES_VERSION {
            footer.copy = Some(cursor.u32()?);
        }
        cursor.finish()?;
        if footer.version == 0 || footer.pages != pages {
            return Err(Error::corrupt("table length, pages (and format version)")
                .expected(format_args!("{} (and 1..={FORMAT_VERSION})", footer.pages))
                .got(format_args!("{pages} (and {})", footer.version)));
        }
        let Self { range_deletes, top, properties, copy, .. } = footer;
        let (first, end) = (footer.first_footer(), footer.tail_end());
        let is_ordered =
            range_deletes <= top && top < properties && properties < end && end <= first;
        let is_twice = || copy.is_none_or(|copy| copy - range_deletes == first - copy);
        if !is_ordered || !is_twice() || !(first..pages).contains(&number) {
            return Err(Error::corrupt("table footer")
                .expected(format_args!(
                    "range deletes, top level, properties, their copy and footer ({first}) in this order"
                ))
                .got(format_args!(
                    "pages {range_deletes}, {top}, {properties} and {copy:?}, on page {number}"
                )));
        }
        Ok(footer)
    }

    /// The first footer page.
    pub(crate) const fn first_footer(&self) -> u32 {
        self.pages.saturating_sub(if self.copy.is_some() { 2 } else { 1 })
    }

    /// The page after the first copy of the tail.
    pub(crate) fn tail_end(&self) -> u32 {
        self.copy.unwrap_or(self.first_footer())
    }

    /// The page with the same content as `page`, from which a lost page can be read. `None` for data and
    /// metadata pages, and before version 3.
    #[must_use]
    pub fn twin(&self, page: u32) -> Option<u32> {
        let (copy, first) = (self.copy?, self.first_footer());
        match page {
            _ if page >= self.pages || page < self.range_deletes => None,
            _ if page > first => Some(first),
            _ if page == first => Some(first + 1),
            _ if page >= copy => Some(page - copy + self.range_deletes),
            _ => Some(page - self.range_deletes + copy),
        }
    }

    /// Returns the footer if it is that of `table` in `store`.
    ///
    /// # Errors
    /// `Corrupt` if it is another's.
    pub fn expect(self, store: StoreId, table: TableId) -> Result<Self> {
        if (self.store, self.table) == (store, table) {
            return Ok(self);
        }
        Err(Error::corrupt("table identity")
            .expected(format_args!("table {table} of store {store}"))
            .got(format_args!("table {} of store {}", self.table, self.store)))
    }
}
