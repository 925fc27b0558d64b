//! An open table: its file, its properties, and its top level in memory.
//!
//! Opening reads footer, properties and top level, usually in one read. All other pages are read one by
//! one by [`PointRead`](super::PointRead) and [`TableCursor`](super::TableCursor), whose callers own
//! caches and queues.
//!
//! Immutable, shared in an `Arc`. Keeps in memory about 20 bytes per partition of about a hundred pages, and
//! the range deletes until [`Table::release_range_deletes`], charged (I10). A table with bins ([`Layout`])
//! keeps its metadata pages as well, because they are small, so that a read needs one data page and no other;
//! those that merges of parts of the table leave unused are given back ([`Table::trim`]).
//!
//! An ingested table was made outside the store and has no seqnos of its own. It is opened with the
//! seqno at which all of its entries are read.

use std::fmt;
use std::iter;
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, Guard};
use arena::{Frame, Page};
use base::{
    Charge, Codec, Error, HashKey, KeyRange, PageSeed, Result, Seqno, StoreId, TableId, Trailer,
    invariant,
};
use bytes::Bytes;
use media::{Access, File, Medium, Purpose};
use parking_lot::Mutex;

use super::footer::Footer;
use super::held_filters::TableFilters;
use super::layout::Layout;
use super::meta::MetaPage;
use super::pinned::PinnedMeta;
use super::pinned_range_deletes::PinnedRangeDeletes;
use super::properties::Properties;
use super::read::{decode_pages, decode_run, read_pages};
use super::step::{Pages, Span};
use super::tail::{Sections, Tail};
use super::top::{Partition, Top};
use crate::Accounts;
use crate::codec::check_codec;
use crate::dictionary::Dictionaries;
use crate::name::file_name;
use crate::page::{Header, PageKind};

/// An open table.
pub struct Table {
    file: Arc<dyn File>,
    seed: PageSeed,
    footer: Footer,
    properties: Properties,
    top: Box<[u8]>,
    range_deletes: Mutex<RangeDeletesOf>,
    layout: Layout,
    /// The metadata pages of a table with bins; none of a sorted table.
    pinned: Option<ArcSwap<PinnedMeta>>,
    /// See [`Table::tail_damage`].
    tail_damage: Option<Error>,
    /// If set, the seqno of every entry, in place of the stored one.
    seqno: Option<Seqno>,
    dictionaries: Arc<dyn Dictionaries>,
    pub(super) accounts: Accounts,
    pub(super) filters: Arc<TableFilters>,
    charge: Charge,
}

/// The range deletes of an open table.
enum RangeDeletesOf {
    /// The table keeps them.
    Held(Arc<PinnedRangeDeletes>),
    /// The parts of the table that are in use keep them.
    Released(Weak<PinnedRangeDeletes>),
}

impl Table {
    /// Opens `table` of `store`. With `seqno`, every entry and range delete reads at that seqno; such a
    /// table stores 0 in each, and no key twice. A page that cannot be read is read again, and then from
    /// its copy if it has one.
    ///
    /// # Errors
    /// `Corrupt` if the file is damaged, another's, or not of `expected_bytes` if given, or has seqnos
    /// of its own although `seqno` is given; `Invalid` if there is no file or a newer version wrote it;
    /// `Retry` if memory is short.
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
        let pinned = accounts.pinned.clone();
        let name = file_name(table);
        let file = medium.open(&name, Access::Direct)?;
        let locate = |error: Error| error.at(&name);
        let mut tail = Tail::read(&*file, expected_bytes, &pinned).map_err(locate)?;
        let footer = tail.footer.expect(store, table).map_err(locate)?;
        tail.complete(&*file, &pinned).map_err(locate)?;
        let tail_damage = tail.lost.take().map(|(_, error)| locate(error));
        let Sections { top, properties, range_deletes, charge } =
            tail.sections(&accounts.range_deletes).map_err(locate)?;
        check_codec(properties.codec.0).map_err(locate)?;
        let mut table = Self {
            seed: PageSeed::new(store, table),
            file,
            footer,
            layout: properties.layout().map_err(locate)?,
            pinned: None,
            properties,
            top: top.into(),
            range_deletes: Mutex::new(RangeDeletesOf::Held(Arc::new(range_deletes))),
            tail_damage,
            seqno: None,
            dictionaries,
            accounts,
            filters: Arc::default(),
            charge,
        };
        if table.layout != Layout::Sorted {
            table.pin_meta().map_err(locate)?;
        }
        match seqno {
            Some(seqno) => table.as_of(seqno).map(Arc::new).map_err(locate),
            None => Ok(Arc::new(table)),
        }
    }

    /// Makes every entry and range delete read at `seqno`. The table must store 0 in each, and no key
    /// twice.
    ///
    /// # Errors
    /// `Corrupt` if the table has seqnos of its own.
    pub fn as_of(mut self, seqno: Seqno) -> Result<Self> {
        invariant!(self.seqno.is_none(), "a table reads at one seqno only");
        let Properties { keys, entries, seqno_max, .. } = self.properties;
        if seqno_max > Seqno::ZERO || keys != entries {
            return Err(Error::corrupt("table to be read as of one sequence number")
                .expected("no sequence numbers of its own, and no key twice")
                .got(format_args!("up to {seqno_max}, {entries} entries of {keys} keys")));
        }
        self.seqno = Some(seqno);
        let released = RangeDeletesOf::Released(Weak::new());
        let own = match std::mem::replace(self.range_deletes.get_mut(), released) {
            RangeDeletesOf::Held(own) => Arc::into_inner(own),
            RangeDeletesOf::Released(_) => None,
        };
        let moved = match own {
            Some(own) => own.with_seqno(seqno),
            None => self.read_range_deletes()?,
        };
        *self.range_deletes.get_mut() = RangeDeletesOf::Held(Arc::new(moved));
        Ok(self)
    }

    /// Reads the metadata pages, and keeps them in memory. A page that cannot be read is rebuilt from
    /// the data pages of its partition; if that fails too, reads of its keys fail, and no others.
    fn pin_meta(&mut self) -> Result<()> {
        let (pinned, damage) = PinnedMeta::read(self, &self.accounts.pinned)?;
        self.pinned = Some(ArcSwap::from_pointee(pinned));
        self.tail_damage = self.tail_damage.take().or(damage);
        Ok(())
    }

    /// The table's id.
    #[must_use]
    pub const fn id(&self) -> TableId {
        self.footer.table
    }

    /// The layout of the data pages.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// The hash key with which compact blocks are read.
    #[inline]
    pub(crate) const fn hash_key(&self) -> Option<HashKey> {
        self.properties.hash_key.0
    }

    /// The metadata pages that the table keeps in memory, if it has bins.
    #[inline]
    pub(crate) fn pinned(&self) -> Option<Guard<Arc<PinnedMeta>>> {
        self.pinned.as_ref().map(ArcSwap::load)
    }

    /// Gives back the memory of metadata pages that only keys outside the ranges `live` need. Reads of such
    /// keys read the pages from the device. The caller is the only one at a time.
    ///
    /// # Errors
    /// `Retry` if memory is short, and those of a damaged top level: nothing changes then.
    pub fn trim(&self, live: &[KeyRange]) -> Result<()> {
        let Some(pinned) = &self.pinned else { return Ok(()) };
        let top = self.top()?;
        let newest = Trailer::seek(Seqno::MAX);
        let mut kept = Vec::with_capacity(live.len());
        for KeyRange { first, end } in live {
            let last = end.as_ref().map(|end| top.search(end, newest)).transpose()?;
            kept.push(top.search(first, newest)?..=last.unwrap_or(usize::MAX));
        }
        if let Some(trimmed) = pinned.load().within(&kept, &self.accounts.pinned)? {
            pinned.store(Arc::new(trimmed));
        }
        Ok(())
    }

    /// The properties that the table stores.
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

    /// The positions of the parts of the file.
    #[must_use]
    pub const fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Memory held while the table is open, bytes.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        let range_deletes = self.held_range_deletes();
        let range_deletes = range_deletes.map_or(0, |deletes| deletes.charged_bytes());
        let pinned = self.pinned().map_or(0, |pinned| pinned.bytes());
        self.charge.bytes() + range_deletes + pinned
    }

    /// The part of [`Table::pinned_bytes`] that is filters: those of a table with bins.
    #[must_use]
    pub fn pinned_filter_bytes(&self) -> u64 {
        self.pinned().map_or(0, |pinned| pinned.filter_bytes())
    }

    /// Whether lookups of absent keys are answered by filters.
    #[must_use]
    pub const fn has_filters(&self) -> bool {
        self.properties.filter_bytes > 0
    }

    /// The range deletes, if something keeps them in memory.
    #[must_use]
    pub fn held_range_deletes(&self) -> Option<Arc<PinnedRangeDeletes>> {
        match &*self.range_deletes.lock() {
            RangeDeletesOf::Held(deletes) => Some(Arc::clone(deletes)),
            RangeDeletesOf::Released(deletes) => deletes.upgrade(),
        }
    }

    /// The range deletes, at the seqno with which the table was opened, if any. Reads them from the file if
    /// the table has released them and nothing else keeps them.
    ///
    /// # Errors
    /// Those of [`Table::open`], if they are read.
    pub fn range_deletes(&self) -> Result<Arc<PinnedRangeDeletes>> {
        if let Some(deletes) = self.held_range_deletes() {
            return Ok(deletes);
        }
        let read = self.read_range_deletes();
        read.map(Arc::new).map_err(|error| error.at(file_name(self.id())))
    }

    /// Lets go of the range deletes: they stay in memory as long as someone else keeps them. The owner of the
    /// table keeps those of the parts of it that are in use.
    pub fn release_range_deletes(&self) {
        let mut state = self.range_deletes.lock();
        if let RangeDeletesOf::Held(deletes) = &*state {
            *state = RangeDeletesOf::Released(Arc::downgrade(deletes));
        }
    }

    /// Reads the range deletes from the file.
    fn read_range_deletes(&self) -> Result<PinnedRangeDeletes> {
        if self.properties.range_deletes == 0 {
            return Ok(PinnedRangeDeletes::default());
        }
        let mut tail = Tail::read(&*self.file, None, &self.accounts.pinned)?;
        tail.complete(&*self.file, &self.accounts.pinned)?;
        let stored = tail.sections(&self.accounts.range_deletes)?.range_deletes;
        Ok(match self.seqno {
            Some(seqno) => stored.with_seqno(seqno),
            None => stored,
        })
    }

    /// The error of a page that the open could not read: it was read from its copy, or, if it is a
    /// metadata page of a table with bins, rebuilt from the data pages of its partition. Nothing is
    /// repaired: a merge writes the table anew. Pages that the open did not need are not checked.
    #[must_use]
    pub const fn tail_damage(&self) -> Option<&Error> {
        self.tail_damage.as_ref()
    }

    /// Returns the table if the open needed no page's copy. For a caller that has just written the
    /// table, and otherwise writes it again.
    ///
    /// # Errors
    /// The error of [`Table::tail_damage`].
    pub fn whole(self: Arc<Self>) -> Result<Arc<Self>> {
        self.tail_damage.clone().map_or(Ok(self), Err)
    }

    /// The seqno at which every entry reads, if it is not the stored one.
    #[must_use]
    pub const fn seqno(&self) -> Option<Seqno> {
        self.seqno
    }

    /// Whether the table may contain an entry of `key`. Range deletes do not count.
    #[must_use]
    pub fn covers(&self, key: &[u8]) -> bool {
        let Properties { entries, first_key, last_key, .. } = &self.properties;
        *entries > 0 && key >= &**first_key && key <= &**last_key
    }

    /// The first page that no iteration over the keys before `end` needs. Takes no read.
    ///
    /// # Errors
    /// `Corrupt` if the top level is damaged.
    pub fn pages_before(&self, end: &[u8]) -> Result<u32> {
        let top = self.top()?;
        if top.partitions() == 0 {
            return Ok(0);
        }
        let last = top.search(end, Trailer::from_word(u64::MAX))?;
        invariant!(last < top.partitions(), "a search in the top level leads to a partition");
        Ok(top.partition(last)?.meta_page + 1)
    }

    /// As [`Table::pages_before`], but more exact: `meta` is the metadata page of the partition that
    /// contains `end`.
    ///
    /// # Errors
    /// `Corrupt` if that page is damaged.
    pub fn pages_before_within(&self, meta: &[u8], end: &[u8]) -> Result<u32> {
        let meta = MetaPage::parse(meta)?;
        let last = meta.search(end, Trailer::from_word(u64::MAX))?;
        let (first, pages) = meta.block_pages(last)?;
        Ok(first + pages)
    }

    /// The partition after the one that page `page` belongs to. Takes no read.
    #[must_use]
    pub fn partition_after(&self, page: u32) -> Option<Partition> {
        let top = self.top().ok()?;
        let next = top.holding(page) + 1;
        (next < top.partitions()).then(|| top.partition(next).ok())?
    }

    /// The trailer of a version as a reader sees it.
    #[inline]
    pub(crate) fn visible_trailer(&self, trailer: Trailer) -> Trailer {
        let kind = trailer.word() & 0xff;
        self.seqno.map_or(trailer, |seqno| Trailer::from_word(seqno.get() << 8 | kind))
    }

    /// The stored trailer that corresponds to a reader's `at`; `None` if it is after all stored versions
    /// of a key.
    pub(crate) fn stored_trailer(&self, at: Trailer) -> Option<Trailer> {
        match self.seqno {
            None => Some(at),
            Some(seqno) if at.seqno() < seqno => None,
            Some(seqno) if at.seqno() > seqno => Some(Trailer::from_word(u64::MAX)),
            // Stored seqnos are 0, and stored kinds are the real ones.
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

    /// The metadata page on `pages`, which were read for `span`.
    pub(crate) fn meta<'a>(&self, span: Span, pages: &'a Pages) -> Result<MetaPage<'a>> {
        let page = pages.iter().next().unwrap_or_default();
        let meta = MetaPage::parse(page).map_err(|error| self.locate_error(error, span.first))?;
        let is_layout = meta.check_layout(self.layout);
        is_layout.map_err(|error| self.locate_error(error, span.first))?;
        let (first, pages) = meta.data_pages();
        if first.checked_add(pages) == Some(span.first) {
            return Ok(meta);
        }
        let error = Error::corrupt("partition").expected("its data right before its metadata");
        Err(self.locate_error(error.got(format_args!("{pages} pages from {first}")), span.first))
    }

    /// Reads and verifies (I8) the pages of `span`, past every cache.
    ///
    /// # Errors
    /// `Corrupt` if they are damaged, otherwise the device's.
    pub fn read(&self, span: Span, purpose: Purpose) -> Result<Pages> {
        read_pages(&*self.file, self.seed, span.first, span.pages, purpose).map(Pages::Run)
    }

    /// The decompressed block on `pages` of `span`.
    ///
    /// # Errors
    /// `Corrupt` if they contain no block, `Retry` if memory for a long value is short.
    pub fn decode(&self, span: Span, pages: Pages) -> Result<Bytes> {
        decode_pages(PageKind::Data, pages, span.pages, self.dictionaries(), &self.accounts.values)
            .map_err(|error| self.locate_error(error, span.first))
    }

    /// As [`Table::decode`], for the only page of `span`; the block does not keep the page.
    pub(crate) fn decode_page(&self, span: Span, page: &[u8]) -> Result<Bytes> {
        decode_run(iter::once(page), span.pages, self.dictionaries(), &self.accounts.values)
            .map_err(|error| self.locate_error(error, span.first))
    }

    /// A copy of `page` in memory of its own.
    pub(crate) fn copied(&self, page: &Page) -> Pages {
        Pages::Frame(Frame::heap(&self.accounts.values, page))
    }

    /// Whether the block on a verified data page is compressed.
    #[must_use]
    pub fn is_compressed(page: &[u8]) -> bool {
        Header::parse(page).is_ok_and(|header| header.codec != Codec::None)
    }

    /// Adds page and table to `error`.
    #[cold]
    pub(crate) fn locate_error(&self, error: Error, page: u32) -> Error {
        error.at(format_args!("page {page}")).at(format_args!("table {}", self.id()))
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({}, {} pages)", self.id(), self.footer.pages)
    }
}
