//! An open table: its file, its facts, and its top level in memory.
//!
//! Opening reads footer, properties and top level, usually in one read. Everything else is read
//! page by page by [`PointRead`](super::PointRead) and [`TableCursor`](super::TableCursor), whose
//! drivers hold caches and queues.
//!
//! Shared in an `Arc`, immutable. Pins about 20 bytes for each partition of about a hundred pages, and
//! the range deletes, charged to memory (I10).
//!
//! A table that was made outside the store, and taken in whole, says nothing of when: it is opened
//! with the sequence number at which all of it is to be read.

use std::fmt;
use std::sync::Arc;

use base::limits::{PAGE_BYTES, TABLE_PAGES_MAX};
use base::{Account, Charge, Codec, Error, PageSeed, Result, Seqno, StoreId, TableId, Trailer};
use bytes::Bytes;
use media::{Access, Buf, File, Medium, Purpose};

use super::footer::Footer;
use super::meta::MetaPage;
use super::properties::Properties;
use super::range_section;
use super::read::{decode_pages, read_pages, read_raw, section};
use super::step::{Pages, Span};
use super::top::{Partition, Top};
use crate::Accounts;
use crate::dictionary::Dictionaries;
use crate::name::file_name;
use crate::page::{Header, PageKind, verify_page};
use crate::range_deletes::RangeDeletes;
use crate::reread::reread;

/// The pages read first: the end of the file. It holds all that opening needs for tables of up to
/// some 100,000 pages.
const TAIL_PAGES: u32 = 16;

/// The most keys that [`Table::splits`] names.
const SPLITS_MAX: usize = 64;

/// An open table.
pub struct Table {
    file: Arc<dyn File>,
    seed: PageSeed,
    footer: Footer,
    properties: Properties,
    top: Box<[u8]>,
    range_deletes: RangeDeletes,
    /// What every entry's sequence number is, instead of the stored one.
    seqno: Option<Seqno>,
    dictionaries: Arc<dyn Dictionaries>,
    /// Charged for long values.
    account: Account,
    charge: Charge,
}

impl Table {
    /// Opens `table` of `store`. With `seqno`, every entry and range delete reads as of that
    /// sequence number; such a table stores 0 in each, and no key twice. What cannot be read is read
    /// again ([`reread`]).
    ///
    /// # Errors
    /// `Corrupt` where the file is damaged, another's, or not of `expected_bytes` where those are
    /// given, or has sequence numbers of its own beside `seqno`; `Invalid` where there is none or a
    /// newer version wrote it; `Retry` where memory is short.
    pub fn open(
        medium: &dyn Medium,
        store: StoreId,
        table: TableId,
        expected_bytes: Option<u64>,
        seqno: Option<Seqno>,
        dictionaries: Arc<dyn Dictionaries>,
        accounts: impl Into<Accounts>,
    ) -> Result<Arc<Self>> {
        let accounts = accounts.into();
        let open = || {
            let dictionaries = Arc::clone(&dictionaries);
            Self::open_once(medium, store, table, expected_bytes, seqno, dictionaries, &accounts)
        };
        open().or_else(|first| reread(first, open))
    }

    fn open_once(
        medium: &dyn Medium,
        store: StoreId,
        table: TableId,
        expected_bytes: Option<u64>,
        seqno: Option<Seqno>,
        dictionaries: Arc<dyn Dictionaries>,
        Accounts { pinned, values }: &Accounts,
    ) -> Result<Arc<Self>> {
        let name = file_name(table);
        let file = medium.open(&name, Access::Direct)?;
        let place = |error: Error| error.at(&name);
        let mut tail = Tail::read(&*file, expected_bytes, pinned).map_err(place)?;
        let footer = tail.footer.expect(store, table).map_err(place)?;
        tail.complete(&*file, pinned).map_err(place)?;
        let Sections { top, properties, range_deletes, charge } = tail.sections().map_err(place)?;
        let table = Self {
            seed: PageSeed::new(store, table),
            file,
            footer,
            properties,
            top: top.into(),
            range_deletes,
            seqno: None,
            dictionaries,
            account: values.clone(),
            charge,
        };
        match seqno {
            Some(seqno) => table.as_of(seqno).map(Arc::new).map_err(place),
            None => Ok(Arc::new(table)),
        }
    }

    /// The table with every entry and range delete read as of `seqno`; it stores 0 in each, and no
    /// key twice.
    ///
    /// # Errors
    /// `Corrupt` where it has sequence numbers of its own.
    pub fn as_of(mut self, seqno: Seqno) -> Result<Self> {
        let Properties { keys, entries, seqno_max, .. } = self.properties;
        if seqno_max > Seqno::ZERO || keys != entries {
            return Err(Error::corrupt("table to be read as of one sequence number")
                .expected("no sequence numbers of its own, and no key twice")
                .got(format_args!("up to {seqno_max}, {entries} entries of {keys} keys")));
        }
        self.range_deletes = self.range_deletes.with_seqno(seqno);
        self.seqno = Some(seqno);
        Ok(self)
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

    /// The range deletes, as of the sequence number that the table was opened with, if any.
    #[must_use]
    pub const fn range_deletes(&self) -> &RangeDeletes {
        &self.range_deletes
    }

    /// The sequence number that every entry reads as, where that is not the stored one.
    #[must_use]
    pub const fn seqno(&self) -> Option<Seqno> {
        self.seqno
    }

    /// Whether the table may hold an entry of `key`; its range deletes apart.
    #[must_use]
    pub fn covers(&self, key: &[u8]) -> bool {
        let Properties { entries, first_key, last_key, .. } = &self.properties;
        *entries > 0 && key >= &**first_key && key <= &**last_key
    }

    /// The first page that no walk over the keys before `end` needs. Takes no read.
    ///
    /// # Errors
    /// `Corrupt` where the top level is damaged.
    pub fn pages_before(&self, end: &[u8]) -> Result<u32> {
        let top = self.top()?;
        if top.partitions() == 0 {
            return Ok(0);
        }
        let last = top.search(end, Trailer::from_word(u64::MAX))?;
        Ok(top.partition(last)?.meta_page + 1)
    }

    /// As [`Table::pages_before`], told more exactly by `meta`, the metadata page of the partition in
    /// which `end` lies.
    ///
    /// # Errors
    /// `Corrupt` where that page is damaged.
    pub fn pages_before_within(&self, meta: &[u8], end: &[u8]) -> Result<u32> {
        let meta = MetaPage::parse(meta)?;
        let last = meta.search(end, Trailer::from_word(u64::MAX))?;
        let (first, pages) = meta.block_pages(last)?;
        Ok(first + pages)
    }

    /// The partition behind the one that page `page` belongs to. Takes no read.
    #[must_use]
    pub fn partition_after(&self, page: u32) -> Option<Partition> {
        let top = self.top().ok()?;
        let next = top.holding(page) + 1;
        (next < top.partitions()).then(|| top.partition(next).ok())?
    }

    /// Keys that cut the table in parts, ascending, and the bytes of the file before each: at most
    /// 64, about evenly apart, none where it is smaller than two partitions. Takes no read.
    #[must_use]
    pub fn splits(&self) -> Vec<(Vec<u8>, u64)> {
        let Ok(top) = self.top() else { return Vec::new() };
        let separators = top.separators().count();
        let mut splits: Vec<(Vec<u8>, u64)> = Vec::new();
        let step = separators.div_ceil(SPLITS_MAX).max(1);
        for index in (step - 1..separators).step_by(step) {
            let (Ok(separator), Ok(partition)) =
                (top.separators().get(index), top.partition(index + 1))
            else {
                break;
            };
            // Versions of one key may fill several partitions.
            if splits.last().is_none_or(|(last, _)| *last < separator.key) {
                splits.push((separator.key, u64::from(partition.first_page) * PAGE_BYTES as u64));
            }
        }
        splits
    }

    /// A version as a reader sees it.
    pub(crate) fn seen(&self, trailer: Trailer) -> Trailer {
        let kind = trailer.word() & 0xff;
        self.seqno.map_or(trailer, |seqno| Trailer::from_word(seqno.get() << 8 | kind))
    }

    /// Where a reader's `at` lies among the stored versions of a key; `None`: after them all.
    pub(crate) fn stored(&self, at: Trailer) -> Option<Trailer> {
        match self.seqno {
            None => Some(at),
            Some(seqno) if at.seqno() < seqno => None,
            Some(seqno) if at.seqno() > seqno => Some(Trailer::from_word(u64::MAX)),
            // Stored numbers are 0, and kinds are what they are.
            Some(_) => Some(Trailer::from_word(at.word() & 0xff)),
        }
    }

    pub(crate) fn top(&self) -> Result<Top<'_>> {
        Top::parse(&self.top)
    }

    pub(crate) fn dictionaries(&self) -> &dyn Dictionaries {
        &*self.dictionaries
    }

    /// The span of a partition's metadata page.
    pub(crate) const fn meta_span(&self, partition: Partition) -> Span {
        self.span(partition.meta_page, 1, true)
    }

    /// The span of data pages.
    pub(crate) const fn data_span(&self, first: u32, pages: u32) -> Span {
        self.span(first, pages, false)
    }

    const fn span(&self, first: u32, pages: u32, meta: bool) -> Span {
        Span { table: self.footer.table, file: self.footer.digest, first, pages, meta }
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

    /// The block that `pages` of `span` hold, decompressed.
    ///
    /// # Errors
    /// `Corrupt` where they hold none, `Retry` where memory for a long value is short.
    pub fn decode(&self, span: Span, pages: Pages) -> Result<Bytes> {
        decode_pages(PageKind::Data, pages, span.pages, self.dictionaries(), &self.account)
            .map_err(|error| self.place(error, span.first))
    }

    /// Whether decoding a data page, which was verified, decompresses it.
    #[must_use]
    pub fn is_compressed(page: &[u8]) -> bool {
        Header::parse(page).is_ok_and(|header| header.codec != Codec::None)
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

/// What an open table keeps in memory.
pub(crate) struct Sections {
    pub(crate) top: Vec<u8>,
    pub(crate) properties: Properties,
    pub(crate) range_deletes: RangeDeletes,
    pub(crate) charge: Charge,
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
        let Footer { store, table, range_deletes: from, pages, .. } = self.footer;
        let seed = PageSeed::new(store, table);
        if from < self.first {
            let charge = account.charge(Self::memory_for(pages - from))?;
            self.buf = read_pages(file, seed, from, pages - from, Purpose::Meta)?;
            (self.first, self.charge) = (from, charge);
            return Ok(());
        }
        for (number, page) in (self.first..).zip(self.buf.chunks_exact(PAGE_BYTES)) {
            if number >= from {
                verify_page(seed, number, page)?;
            }
        }
        Ok(())
    }

    /// Range deletes, top level and properties, and what they are charged.
    pub(crate) fn sections(mut self) -> Result<Sections> {
        let Footer { range_deletes, top, properties, pages, .. } = self.footer;
        let cut = |from: u32, to: u32| {
            let offset = |page: u32| (page - self.first) as usize * PAGE_BYTES;
            self.buf.get(offset(from)..offset(to)).unwrap_or_default()
        };
        let mut top_level = section(PageKind::Top, cut(top, properties))?;
        let properties =
            Properties::decode(&section(PageKind::Properties, cut(properties, pages - 1))?)?;
        Top::parse(&top_level)?.check(range_deletes)?;
        top_level.shrink_to_fit();
        let ranges = match range_deletes < top {
            true => section(PageKind::RangeDeletes, cut(range_deletes, top))?.into(),
            false => Bytes::new(),
        };
        let mut kept = (size_of::<Table>() + top_level.len() + properties.memory_bytes()) as u64;
        let mut deletes = RangeDeletes::default();
        if !ranges.is_empty() {
            deletes = range_section::decode(&ranges, &mut self.charge)?;
            // Its keys are kept in the section they came in.
            kept += (ranges.len() + deletes.bytes()) as u64;
        }
        self.charge.shrink_to(kept);
        Ok(Sections { top: top_level, properties, range_deletes: deletes, charge: self.charge })
    }
}
