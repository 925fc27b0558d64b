//! Pages for reads: from the cache, else from the device, verified, then cached.
//!
//! I8: a page from a device is used only after its seeded checksum matched. I6: a cached page was
//! verified before it was cached and may vanish at any time.

use std::cell::Cell;
use std::sync::Arc;

use arena::Frame;
use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, ErrorKind, Result};
use cache::{Balance, Cached, PageCache, PageKey, PageKind, ScmRead, Stage};
use media::{Buf, Purpose};
use table::{Pages, Span, Step, Table, verify_page};

use crate::tier_reader::{TierPage, TierReader};
use crate::{Curves, Depth, PageFile, ReadAhead, ReadCounters, ReadOp};

/// Runs of more pages than this pass the cache by: they would each push out as many others.
pub const CACHED_RUN_PAGES_MAX: u32 = 16;

thread_local! {
    /// A buffer for this thread's next one-page read.
    static PAGE: Cell<Option<Buf>> = const { Cell::new(None) };
}

/// Where reads get pages. Shared by every reader of a store.
#[derive(Debug)]
pub struct PageReader {
    cache: Arc<PageCache>,
    /// Weighs the memory of rows against that of pages; none if reads keep no rows.
    balance: Option<Arc<Balance>>,
    pub curves: Arc<Curves>,
    account: Account,
    pub counters: ReadCounters,
}

impl PageReader {
    /// What reads charge: long values, cursors.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// A frame of `page`, which the cache does not keep.
    pub(crate) fn uncached(&self, page: &[u8; PAGE_BYTES]) -> Frame {
        self.cache.uncached(page)
    }

    /// The verified page of `span`, which a short scan came to.
    pub(crate) fn passed(&self, span: Span, page: &[u8; PAGE_BYTES]) -> Frame {
        self.cache.insert_if_seen_before(Self::key(span, 0), kind(span), page)
    }

    pub fn new(
        cache: Arc<PageCache>,
        balance: Option<Arc<Balance>>,
        curves: Arc<Curves>,
        account: Account,
    ) -> Self {
        Self { cache, balance, curves, account, counters: ReadCounters::default() }
    }

    fn key(span: Span, number: u32) -> PageKey {
        PageKey { file: span.file, page: span.first + number }
    }

    /// Runs `op` to its end, reading one page at a time on this thread.
    pub fn run<O: ReadOp>(
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
        if let Some(ahead) = ahead {
            if let Some(balance) = &self.balance {
                balance.scanned();
            }
            if let Some(frame) = ahead.page(self, file, span)? {
                return Ok((Pages::Frame(frame), Depth::Flash));
            }
        }
        Ok((self.read(file, span)?, Depth::Flash))
    }

    /// The pages of `span`, read at once from the device.
    fn read(&self, file: &PageFile, span: Span) -> Result<Pages> {
        let _charge = self.charge_for(span)?;
        let buf = match span.pages {
            1 => PAGE.take().unwrap_or_else(|| Buf::pages(1)),
            pages => Buf::pages(pages as usize),
        };
        let at = u64::from(span.first) * PAGE_BYTES as u64;
        let began = self.cache.lower_tier().map(|tier| (tier, tier.now()));
        let (buf, result) = file.file.read(at, buf, purpose(span));
        if let Some((tier, began)) = began.filter(|_| span.pages == 1) {
            tier.flash_took(tier.now().saturating_sub(began));
        }
        if let Err(error) = result {
            return self.unreadable(file, span, error);
        }
        if span.pages > 1 {
            return self.admit(file, span, buf);
        }
        let admitted = self.admit_page(file, span, &buf);
        PAGE.set(Some(buf));
        admitted
    }

    /// The one page of `span` for which `op` asks, from the tier below where it is `found` there, read at
    /// once and timed; none where it is not to be, or is not there.
    pub(crate) fn read_alone<O: ReadOp>(
        &self,
        op: &O,
        span: Span,
        found: &mut Option<ScmRead>,
    ) -> Result<Option<(Pages, Depth)>> {
        let Some(tier) = self.cache.lower_tier() else { return Ok(None) };
        if span.pages > 1 || !tier.times_next_read(found.is_some()) {
            return Ok(None);
        }
        if let Some(read) = found.take() {
            let pages = self.have(op, span, TierPage::Read(read))?;
            return Ok(pages.map(|pages| (pages, Depth::BelowRead)));
        }
        let pages = self.read(&op.file().ok_or_else(no_file)?, span)?;
        Ok(Some((pages, Depth::Flash)))
    }

    /// Charges what a long value's pages take before they are read (I10). The value's own charge
    /// follows when it is decoded; short reads are covered by the fixed overhead.
    pub fn charge_for(&self, span: Span) -> Result<Option<Charge>> {
        if span.pages <= CACHED_RUN_PAGES_MAX {
            return Ok(None);
        }
        self.account.charge(u64::from(span.pages) * PAGE_BYTES as u64).map(Some)
    }

    /// The pages of `span`, for which `op` asks, if all of them are cached; the block of a page that is
    /// read again and again is kept as it is once decompressed.
    pub fn cached<O: ReadOp>(&self, op: &O, span: Span) -> Result<Option<Pages>> {
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
            Some(Cached::Block(block)) => Some(Pages::Attached(block)),
            Some(Cached::Page { frame, wants_block }) => {
                let table = op.table().filter(|_| wants_block && Table::is_compressed(&frame));
                let Some(table) = table else { return Ok(Some(Pages::Frame(frame))) };
                let block = table.decode(span, Pages::Frame(frame))?;
                self.cache.attach(key, &block);
                Some(Pages::Block(block))
            }
        })
    }

    /// Asks the processor for what reading the first page of `span` from the cache takes, stage by stage.
    #[inline]
    pub fn prefetch(&self, span: Span, stage: Stage) {
        self.cache.prefetch(Self::key(span, 0), stage);
    }

    /// What the tier below DRAM has of `span`, for which `op` asks.
    pub(crate) fn below<O: ReadOp>(&self, op: &O, span: Span) -> Result<Option<TierPage>> {
        match TierReader::of(&self.cache) {
            Some(below) if span.pages <= CACHED_RUN_PAGES_MAX => below.find(op, span, kind(span)),
            _ => Ok(None),
        }
    }

    /// The pages that were found below, read at once where they are to be; none where they are not what
    /// they should be.
    fn have<O: ReadOp>(&self, op: &O, span: Span, found: TierPage) -> Result<Option<Pages>> {
        let read = match found {
            TierPage::Pages(pages) => return Ok(Some(pages)),
            TierPage::Read(read) => read,
        };
        let Some(below) = TierReader::of(&self.cache) else { return Ok(None) };
        let seed = op.file().ok_or_else(no_file)?.seed;
        let buf = PAGE.take().unwrap_or_else(|| Buf::pages(1));
        let (buf, pages) = below.read(read, seed, span, buf);
        PAGE.set(Some(buf));
        Ok(pages)
    }

    /// The page of `span` that a read of it below gave; none where it is not what it should be.
    pub(crate) fn arrived_below(
        &self,
        read: ScmRead,
        file: &PageFile,
        span: Span,
        buf: &Buf,
        result: Result<()>,
    ) -> Option<Pages> {
        TierReader::of(&self.cache)?.arrived(read, file.seed, span, buf, result)
    }

    /// A queue for reads from the tier below, where there is one that is read.
    pub(crate) fn queue_below(&self, depth: usize) -> Option<Box<dyn media::Queue>> {
        self.cache.lower_tier().and_then(|tier| tier.queue(depth))
    }

    /// The tier below failed: it is not used any more.
    pub(crate) fn below_failed(&self, error: Error) {
        if let Some(tier) = self.cache.lower_tier() {
            tier.fail(error);
        }
    }

    /// Verifies the one page the device gave for `span` and caches a copy.
    pub fn admit_page(&self, file: &PageFile, span: Span, page: &[u8]) -> Result<Pages> {
        match self.verify(file, span, page) {
            Ok(()) => Ok(Pages::Frame(self.cache.insert(Self::key(span, 0), kind(span), page))),
            Err(error) => self.without(file, span, error),
        }
    }

    /// What becomes of a read of `span` that the device failed with `error`.
    #[cold]
    pub fn unreadable(&self, file: &PageFile, span: Span, error: Error) -> Result<Pages> {
        self.counters.damaged.add(1);
        self.without(file, span, file.place(error, span.first))
    }

    /// The page of `span`, which is damaged as `error` says: a metadata page is made anew, from the blocks
    /// that it is of. It is cached as the stored one would be; the scrubber and merges tell of that one.
    #[cold]
    fn without(&self, file: &PageFile, span: Span, error: Error) -> Result<Pages> {
        let table = file.table.as_ref().filter(|_| span.meta && error.kind() == ErrorKind::Corrupt);
        let Some(table) = table else { return Err(error) };
        let page = table.rebuilt_meta(span.first, &self.account);
        let page = page.map_err(|other| if other.is_retryable() { other } else { error })?;
        Ok(Pages::Frame(self.cache.insert(Self::key(span, 0), kind(span), &page[..])))
    }

    /// Verifies the run the device gave for `span` and caches it unless it is long.
    pub fn admit(&self, file: &PageFile, span: Span, buf: Buf) -> Result<Pages> {
        self.verify(file, span, &buf)?;
        if span.pages <= CACHED_RUN_PAGES_MAX {
            for (number, page) in (0..span.pages).zip(buf.chunks_exact(PAGE_BYTES)) {
                drop(self.cache.insert(Self::key(span, number), kind(span), page));
            }
        }
        Ok(Pages::Run(buf))
    }

    pub(crate) fn verify(&self, file: &PageFile, span: Span, bytes: &[u8]) -> Result<()> {
        for (page, bytes) in (span.first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            verify_page(file.seed, page, bytes)
                .inspect_err(|_| self.counters.damaged.add(1))
                .map_err(|error| file.damaged(error))?;
        }
        Ok(())
    }
}

pub(crate) fn no_file() -> Error {
    Error::invalid("read operation").expected("a file to read from")
}

pub(crate) fn purpose(span: Span) -> Purpose {
    if span.meta { Purpose::Meta } else { Purpose::Data }
}

fn kind(span: Span) -> PageKind {
    if span.meta { PageKind::Meta } else { PageKind::Data }
}
