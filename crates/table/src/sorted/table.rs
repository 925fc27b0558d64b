//! An open table: its file, its facts, and its top level in memory.
//!
//! Opening reads footer, properties and top level, usually in one read. Everything else is read
//! page by page by [`PointRead`](super::PointRead) and [`TableCursor`](super::TableCursor), whose
//! drivers hold caches and queues.
//!
//! Shared in an `Arc`, immutable. Pins about 20 bytes for each partition of about a hundred pages,
//! charged to memory (I10).

use std::fmt;
use std::sync::Arc;

use base::limits::{PAGE_BYTES, TABLE_PAGES_MAX};
use base::{Account, Charge, Error, PageSeed, Result, StoreId, TableId};
use bytes::Bytes;
use media::{Access, Buf, File, Medium, Purpose};

use super::footer::Footer;
use super::meta::MetaPage;
use super::properties::Properties;
use super::read::{decode_block, read_pages, read_raw, section};
use super::step::{Pages, Span};
use super::top::{Partition, Top};
use crate::dictionary::Dictionaries;
use crate::name::file_name;
use crate::page::{PageKind, verify_page};

/// The pages read first: the end of the file. It holds all that opening needs for tables of up to
/// some 100,000 pages.
const TAIL_PAGES: u32 = 16;

/// An open table.
pub struct Table {
    file: Arc<dyn File>,
    seed: PageSeed,
    footer: Footer,
    properties: Properties,
    top: Box<[u8]>,
    dictionaries: Arc<dyn Dictionaries>,
    account: Account,
    charge: Charge,
}

impl Table {
    /// Opens `table` of `store`.
    ///
    /// # Errors
    /// `Corrupt` where the file is damaged, another's, or not of `expected_bytes` where those are
    /// given; `Invalid` where there is none or a newer version wrote it; `Retry` where memory is
    /// short.
    pub fn open(
        medium: &dyn Medium,
        store: StoreId,
        table: TableId,
        expected_bytes: Option<u64>,
        dictionaries: Arc<dyn Dictionaries>,
        account: &Account,
    ) -> Result<Arc<Self>> {
        let name = file_name(table);
        let file = medium.open(&name, Access::Direct)?;
        let place = |error: Error| error.at(&name);
        let mut tail = Tail::read(&*file, expected_bytes, account).map_err(place)?;
        let footer = tail.footer.expect(store, table).map_err(place)?;
        tail.complete(&*file, account).map_err(place)?;
        let (top, properties, charge) = tail.sections().map_err(place)?;
        Ok(Arc::new(Self {
            seed: PageSeed::new(store, table),
            file,
            footer,
            properties,
            top: top.into(),
            dictionaries,
            account: account.clone(),
            charge,
        }))
    }

    /// The table's id.
    #[must_use]
    pub const fn id(&self) -> TableId {
        self.footer.table
    }

    /// What the table says about itself.
    #[must_use]
    pub const fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The identity of the table's pages.
    #[must_use]
    pub const fn seed(&self) -> PageSeed {
        self.seed
    }

    /// Where the parts of the file lie.
    #[must_use]
    pub const fn footer(&self) -> &Footer {
        &self.footer
    }

    /// The memory pinned while the table is open.
    #[must_use]
    pub const fn pinned_bytes(&self) -> u64 {
        self.charge.bytes()
    }

    /// Whether `key` lies between the first and the last key.
    #[must_use]
    pub fn covers(&self, key: &[u8]) -> bool {
        key >= &*self.properties.first_key && key <= &*self.properties.last_key
    }

    pub(crate) fn top(&self) -> Result<Top<'_>> {
        Top::parse(&self.top)
    }

    pub(crate) fn dictionaries(&self) -> &dyn Dictionaries {
        &*self.dictionaries
    }

    /// The span of a partition's metadata page.
    pub(crate) const fn meta_span(&self, partition: Partition) -> Span {
        Span { table: self.footer.table, first: partition.meta_page, pages: 1, meta: true }
    }

    /// The span of data pages.
    pub(crate) const fn data_span(&self, first: u32, pages: u32) -> Span {
        Span { table: self.footer.table, first, pages, meta: false }
    }

    /// The metadata page that `pages` hold, read for `span`.
    pub(crate) fn meta<'a>(&self, span: Span, pages: &'a Pages) -> Result<MetaPage<'a>> {
        let page = pages.iter().next().unwrap_or_default();
        let meta = MetaPage::parse(page).map_err(|error| self.place(error, span.first))?;
        let (first, pages) = meta.data_pages();
        if first.checked_add(pages) == Some(span.first) {
            return Ok(meta);
        }
        let error = Error::corrupt("partition").expected("its data right before its metadata");
        Err(self.place(error.got(format_args!("{pages} pages from {first}")), span.first))
    }

    /// The block that `pages` hold, decompressed. An error names the table.
    pub(crate) fn decode(&self, span: Span, pages: Pages) -> Result<Bytes> {
        decode_block(pages, span.pages, self.dictionaries(), &self.account)
            .map_err(|error| self.place(error, span.first))
    }

    /// Names where `error` was met.
    #[cold]
    pub(crate) fn place(&self, error: Error, page: u32) -> Error {
        error.at(format_args!("page {page}")).at(format_args!("table {}", self.id()))
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({}, {} pages)", self.id(), self.footer.pages)
    }
}

/// The end of a table file, read once and verified under the identity it claims.
pub(crate) struct Tail {
    pub(crate) footer: Footer,
    /// The file's pages from `first` on.
    buf: Buf,
    first: u32,
    charge: Charge,
}

impl Tail {
    /// Reads the last pages and the footer among them.
    pub(crate) fn read(
        file: &dyn File,
        expected_bytes: Option<u64>,
        account: &Account,
    ) -> Result<Self> {
        let size = file.size()?;
        if expected_bytes.is_some_and(|expected| expected != size) {
            return Err(Error::corrupt("table length, bytes")
                .expected(expected_bytes.unwrap_or_default())
                .got(size));
        }
        let pages = size / PAGE_BYTES as u64;
        if !size.is_multiple_of(PAGE_BYTES as u64) || pages == 0 || pages > TABLE_PAGES_MAX {
            return Err(Error::corrupt("table length, bytes")
                .expected(format_args!("whole pages of {PAGE_BYTES}, at most {TABLE_PAGES_MAX}"))
                .got(size));
        }
        let pages = pages as u32;
        let first = pages.saturating_sub(TAIL_PAGES);
        let charge = account.charge(Self::memory_for(pages - first))?;
        let buf = read_raw(file, first, pages - first, Purpose::Meta)?;
        let last = buf.chunks_exact(PAGE_BYTES).next_back().unwrap_or_default();
        let footer = Footer::parse(last, pages)?;
        Ok(Self { footer, buf, first, charge })
    }

    /// The pages as read, and what is copied from them.
    const fn memory_for(pages: u32) -> u64 {
        2 * pages as u64 * PAGE_BYTES as u64
    }

    /// Reads what sections are missing, and verifies all.
    pub(crate) fn complete(&mut self, file: &dyn File, account: &Account) -> Result<()> {
        let Footer { store, table, top, pages, .. } = self.footer;
        let seed = PageSeed::new(store, table);
        if top < self.first {
            let charge = account.charge(Self::memory_for(pages - top))?;
            self.buf = read_pages(file, seed, top, pages - top, Purpose::Meta)?;
            (self.first, self.charge) = (top, charge);
            return Ok(());
        }
        for (number, page) in (self.first..).zip(self.buf.chunks_exact(PAGE_BYTES)) {
            if number >= top {
                verify_page(seed, number, page)?;
            }
        }
        Ok(())
    }

    /// Top level and properties, and what they are charged.
    pub(crate) fn sections(mut self) -> Result<(Vec<u8>, Properties, Charge)> {
        let Footer { top, properties, pages, .. } = self.footer;
        let cut = |from: u32, to: u32| {
            let offset = |page: u32| (page - self.first) as usize * PAGE_BYTES;
            self.buf.get(offset(from)..offset(to)).unwrap_or_default()
        };
        let mut top_level = section(PageKind::Top, cut(top, properties))?;
        let properties =
            Properties::decode(&section(PageKind::Properties, cut(properties, pages - 1))?)?;
        Top::parse(&top_level)?.check(top)?;
        top_level.shrink_to_fit();
        let keys = properties.first_key.len() + properties.last_key.len();
        self.charge.shrink_to((size_of::<Table>() + top_level.len() + keys) as u64);
        Ok((top_level, properties, self.charge))
    }
}
