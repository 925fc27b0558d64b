//! Pages for reads: from the cache, else from the device, verified, then cached.
//!
//! I8: a page from a device is used only after its seeded checksum matched. I6: a cached page was
//! verified before it was cached and may vanish at any time.

use std::cell::Cell;
use std::sync::Arc;

use arena::Frame;
use base::limits::PAGE_BYTES;
use base::{Account, Charge, Counter, Result};
use cache::{Cached, PageCache, PageKey, PageKind, ScmRead};
use media::{Buf, Purpose};
use table::{Pages, Span, Step, Table, verify_page};

use super::below::{Below, Found};
use super::{Curves, PageFile, ReadOp, Rows};

/// Runs of more pages than this pass the cache by: they would each push out as many others.
pub(crate) const CACHED_RUN_PAGES_MAX: u32 = 16;

thread_local! {
    /// A buffer for this thread's next one-page read.
    static PAGE: Cell<Option<Buf>> = const { Cell::new(None) };
}

/// Where reads get pages. Shared by every reader of a store.
#[derive(Debug)]
pub(crate) struct PageReader {
    cache: Arc<PageCache>,
    pub(crate) rows: Rows,
    pub(crate) curves: Arc<Curves>,
    account: Account,
    pub(crate) counters: ReadCounters,
}

/// What reads did, by where they ended.
#[derive(Debug, Default)]
pub(crate) struct ReadCounters {
    /// Steps of read operations: gets, queued gets and cursor moves alike.
    pub(crate) steps: Counter,
    /// Lookups answered by a row.
    pub(crate) row: Counter,
    /// Lookups that needed no page.
    pub(crate) memtable: Counter,
    /// Lookups answered from cached pages.
    pub(crate) page: Counter,
    /// Lookups answered from the tier below DRAM.
    pub(crate) below: Counter,
    /// Lookups that read the device.
    pub(crate) flash: Counter,
    /// Pages that failed their checksum or could not be read.
    pub(crate) damaged: Counter,
}

/// The farthest place a read went to for a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// No page was needed.
    #[default]
    Memtable,
    /// Cached pages sufficed.
    Page,
    /// A page was used where it lies in the tier below DRAM.
    Below,
    /// A page was read from the tier below DRAM.
    BelowRead,
    /// The device was read.
    Flash,
}

impl ReadCounters {
    pub(crate) fn lookup_ended(&self, depth: Depth) {
        match depth {
            Depth::Memtable => self.memtable.add(1),
            Depth::Page => self.page.add(1),
            Depth::Below | Depth::BelowRead => self.below.add(1),
            Depth::Flash => self.flash.add(1),
        }
    }
}

impl PageReader {
    /// What reads charge: long values, cursors.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    pub(crate) fn new(
        cache: Arc<PageCache>,
        rows: Rows,
        curves: Arc<Curves>,
        account: Account,
    ) -> Self {
        Self { cache, rows, curves, account, counters: ReadCounters::default() }
    }

    fn key(span: Span, number: u32) -> PageKey {
        PageKey { file: span.file, page: span.first + number }
    }

    /// Runs `op` to its end, reading one page at a time on this thread.
    pub(crate) fn run<O: ReadOp>(
        &self,
        op: &mut O,
        ahead: Option<&mut ReadAhead>,
    ) -> Result<(O::Output, Depth)> {
        let mut ahead = ahead;
        let mut depth = Depth::default();
        let mut supplied = None;
        loop {
            self.counters.steps.add(1);
            match op.step(supplied.take())? {
                Step::Ready(output) => return Ok((output, depth)),
                Step::Need(span) => {
                    let (pages, from) = self.pages(op, span, ahead.as_deref_mut())?;
                    depth = depth.max(from);
                    supplied = Some(pages);
                }
            }
        }
    }

    fn pages<O: ReadOp>(
        &self,
        op: &O,
        span: Span,
        ahead: Option<&mut ReadAhead>,
    ) -> Result<(Pages, Depth)> {
        if let Some(pages) = self.cached(op, span)? {
            return Ok((pages, Depth::Page));
        }
        // What was read ahead already costs less than any other place.
        let is_ahead = ahead.as_ref().is_some_and(|ahead| ahead.has(span));
        if !is_ahead && let Some(found) = self.below(op, span)? {
            let depth = Depth::of(&found);
            if let Some(pages) = self.have(op, span, found)? {
                return Ok((pages, depth));
            }
        }
        let file = &op.file().ok_or_else(no_file)?;
        if let Some(ahead) = ahead
            && let Some(frame) = ahead.page(self, file, span)?
        {
            return Ok((Pages::Frame(frame), Depth::Flash));
        }
        let _charge = self.charge_for(span)?;
        let buf = match span.pages {
            1 => PAGE.take().unwrap_or_else(|| Buf::pages(1)),
            pages => Buf::pages(pages as usize),
        };
        let at = u64::from(span.first) * PAGE_BYTES as u64;
        let began = self.cache.below().map(|tier| (tier, tier.now()));
        let (buf, result) = file.file.read(at, buf, purpose(span));
        if let Some((tier, began)) = began.filter(|_| span.pages == 1) {
            tier.flash_took(tier.now().saturating_sub(began));
        }
        result
            .inspect_err(|_| self.counters.damaged.add(1))
            .map_err(|error| file.place(error, span.first))?;
        if span.pages > 1 {
            return Ok((self.admit(file, span, buf)?, Depth::Flash));
        }
        let admitted = self.admit_page(file, span, &buf);
        PAGE.set(Some(buf));
        Ok((admitted?, Depth::Flash))
    }

    /// Charges what a long value's pages take before they are read (I10). The value's own charge
    /// follows when it is decoded; short reads are covered by the fixed overhead.
    pub(crate) fn charge_for(&self, span: Span) -> Result<Option<Charge>> {
        if span.pages <= CACHED_RUN_PAGES_MAX {
            return Ok(None);
        }
        self.account.charge(u64::from(span.pages) * PAGE_BYTES as u64).map(Some)
    }

    /// The pages of `span`, for which `op` asks, if all of them are cached; the block of a page that is
    /// read again and again is kept as it is once decompressed.
    pub(crate) fn cached<O: ReadOp>(&self, op: &O, span: Span) -> Result<Option<Pages>> {
        if span.pages > CACHED_RUN_PAGES_MAX {
            return Ok(None);
        }
        (0..span.pages).for_each(|number| self.curves.page(Self::key(span, number), kind(span)));
        if span.pages > 1 {
            let cached = |number| self.cache.get(Self::key(span, number), kind(span));
            let frames = (0..span.pages).map(cached).collect::<Option<Vec<_>>>();
            return Ok(frames.map(Pages::Frames));
        }
        let key = Self::key(span, 0);
        Ok(match self.cache.read(key, kind(span)) {
            None => None,
            Some(Cached::Block(block)) => Some(Pages::Block(block)),
            Some(Cached::Page { frame, wants_block }) => {
                let table = op.table().filter(|_| wants_block && Table::is_compressed(&frame));
                let Some(table) = table else { return Ok(Some(Pages::Frame(frame))) };
                let block = table.decode(span, Pages::Frame(frame))?;
                self.cache.hang(key, &block);
                Some(Pages::Block(block))
            }
        })
    }

    /// What the tier below DRAM has of `span`, for which `op` asks.
    pub(super) fn below<O: ReadOp>(&self, op: &O, span: Span) -> Result<Option<Found>> {
        match Below::of(&self.cache) {
            Some(below) if span.pages <= CACHED_RUN_PAGES_MAX => below.find(op, span, kind(span)),
            _ => Ok(None),
        }
    }

    /// The pages that were found below, read at once where they are to be; none where they are not what
    /// they should be.
    fn have<O: ReadOp>(&self, op: &O, span: Span, found: Found) -> Result<Option<Pages>> {
        let read = match found {
            Found::Pages(pages) => return Ok(Some(pages)),
            Found::Read(read) => read,
        };
        let Some(below) = Below::of(&self.cache) else { return Ok(None) };
        let seed = op.file().ok_or_else(no_file)?.seed;
        let buf = PAGE.take().unwrap_or_else(|| Buf::pages(1));
        let (buf, pages) = below.read(read, seed, span, buf);
        PAGE.set(Some(buf));
        Ok(pages)
    }

    /// The page of `span` that a read of it below gave; none where it is not what it should be.
    pub(super) fn arrived_below(
        &self,
        read: ScmRead,
        file: &PageFile,
        span: Span,
        buf: &Buf,
        result: Result<()>,
    ) -> Option<Pages> {
        Below::of(&self.cache)?.arrived(read, file.seed, span, buf, result)
    }

    /// A queue for reads from the tier below, where there is one that is read.
    pub(super) fn queue_below(&self, depth: usize) -> Result<Option<Box<dyn media::Queue>>> {
        self.cache.below().map_or(Ok(None), |tier| tier.queue(depth))
    }

    /// Verifies the one page the device gave for `span` and caches a copy.
    pub(crate) fn admit_page(&self, file: &PageFile, span: Span, page: &[u8]) -> Result<Pages> {
        self.verify(file, span, page)?;
        Ok(Pages::Frame(self.cache.insert(Self::key(span, 0), kind(span), page)))
    }

    /// Verifies the run the device gave for `span` and caches it unless it is long.
    pub(crate) fn admit(&self, file: &PageFile, span: Span, buf: Buf) -> Result<Pages> {
        self.verify(file, span, &buf)?;
        if span.pages <= CACHED_RUN_PAGES_MAX {
            for (number, page) in (0..span.pages).zip(buf.chunks_exact(PAGE_BYTES)) {
                drop(self.cache.insert(Self::key(span, number), kind(span), page));
            }
        }
        Ok(Pages::Run(buf))
    }

    fn verify(&self, file: &PageFile, span: Span, bytes: &[u8]) -> Result<()> {
        for (page, bytes) in (span.first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            verify_page(file.seed, page, bytes)
                .inspect_err(|_| self.counters.damaged.add(1))
                .map_err(|error| file.damaged(error))?;
        }
        Ok(())
    }
}

pub(crate) fn no_file() -> base::Error {
    base::Error::invalid("read operation").expected("a file to read from")
}

pub(crate) fn purpose(span: Span) -> Purpose {
    if span.meta { Purpose::Meta } else { Purpose::Data }
}

fn kind(span: Span) -> PageKind {
    if span.meta { PageKind::Meta } else { PageKind::Data }
}

/// Read-ahead for one cursor: while data pages are asked for in file order, forward or backward,
/// one read fetches a growing number of pages. They are handed out from here and not cached, so
/// that a scan pushes nothing out of the cache.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// The data page asked for last, and how many were asked for in sequence.
    last: Option<(base::TableId, u32)>,
    streak: u32,
    /// What the last large read got.
    window: Option<Window>,
    /// For the window, from the first one on.
    charge: Option<Charge>,
}

#[derive(Debug)]
struct Window {
    table: base::TableId,
    first: u32,
    buf: Buf,
}

/// Sequential requests before reading ahead starts, and pages in one read at most: 128 KiB.
const STREAK_MIN: u32 = 2;
const WINDOW_PAGES_MAX: u32 = 32;

impl ReadAhead {
    /// What a window takes at most.
    const BYTES: u64 = WINDOW_PAGES_MAX as u64 * PAGE_BYTES as u64;

    /// The page of `span`, if it is one that reading ahead has or gets.
    fn page(&mut self, reader: &PageReader, file: &PageFile, span: Span) -> Result<Option<Frame>> {
        if span.pages != 1 {
            return Ok(None);
        }
        if let Some(frame) = self.page_in_window(reader, file, span)? {
            self.note(span);
            return Ok(Some(frame));
        }
        let backward = self.last.is_some_and(|(_, last)| span.first < last);
        self.note(span);
        if span.meta || self.streak < STREAK_MIN {
            return Ok(None);
        }
        if self.charge.is_none() {
            self.charge = reader.account.try_charge(Self::BYTES);
            if self.charge.is_none() {
                // Page by page it goes, too.
                return Ok(None);
            }
        }
        let pages = (1 << self.streak.min(5)).min(WINDOW_PAGES_MAX);
        let first = if backward { (span.first + 1).saturating_sub(pages) } else { span.first };
        let end = (first + pages).min(file.pages).max(span.first + 1);
        // There is memory for one window: the last one's is used again, or goes first.
        let bytes = (end - first) as usize * PAGE_BYTES;
        let last = self.window.take().map(|window| window.buf).filter(|buf| buf.len() == bytes);
        let buf = last.unwrap_or_else(|| Buf::pages((end - first) as usize));
        let at = u64::from(first) * PAGE_BYTES as u64;
        let (buf, result) = file.file.read(at, buf, Purpose::ReadAhead);
        if result.is_err() {
            // A bad sector further on costs the read of this page nothing.
            return Ok(None);
        }
        self.window = Some(Window { table: span.table, first, buf });
        self.page_in_window(reader, file, span)
    }

    /// Whether the last large read got the page of `span`.
    fn has(&self, span: Span) -> bool {
        let window = self.window.as_ref().filter(|window| window.table == span.table);
        window.is_some_and(|window| {
            let pages = (window.buf.len() / PAGE_BYTES) as u32;
            span.pages == 1 && span.first.wrapping_sub(window.first) < pages
        })
    }

    fn page_in_window(
        &self,
        reader: &PageReader,
        file: &PageFile,
        span: Span,
    ) -> Result<Option<Frame>> {
        let Some(window) = self.window.as_ref().filter(|window| window.table == span.table) else {
            return Ok(None);
        };
        let Some(offset) = span.first.checked_sub(window.first) else { return Ok(None) };
        let Some(page) = window.buf.chunks_exact(PAGE_BYTES).nth(offset as usize) else {
            return Ok(None);
        };
        reader.verify(file, span, page)?;
        Ok(page.first_chunk().map(|page| reader.cache.uncached(page)))
    }

    /// Counts how long data pages have been asked for in file order. A partition's metadata page
    /// in between does not break the sequence.
    fn note(&mut self, span: Span) {
        if span.meta {
            return;
        }
        let sequential = self.last.is_some_and(|(table, last)| {
            table == span.table && span.first.abs_diff(last) <= 2 && span.first != last
        });
        self.streak = if sequential { self.streak.saturating_add(1) } else { 0 };
        self.last = Some((span.table, span.first));
    }
}
