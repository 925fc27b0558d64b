//! Page reader: gets pages for read operations from DRAM, from the SCM tier, or from flash. Pages from a
//! device are verified, then cached.
//!
//! I8: a page from a device is used only after its seeded checksum matched. I6: a cached page was verified
//! before it was cached, and may be evicted at any time.
//!
//! Threads: any; all readers of a store share one. Cost of a cached page: one lookup in a shard of the page
//! cache.

use std::cell::Cell;
use std::sync::Arc;

use arena::Frame;
use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, ErrorKind, Owner, Result};
use cache::{Balance, Cached, PageCache, PageKey, PageKind, ScmRead, Stage};
use media::{Buf, Capabilities, Medium, Purpose};
use table::{Pages, Span, Step, Table, verify_page};

use crate::read_op::file_of;
use crate::tier_reader::{TierPage, TierReader};
use crate::{Curves, Depth, PageFile, ReadAhead, ReadCounters, ReadOp};

/// Longest run of pages that is cached. A longer one bypasses the cache, because it would evict as many other
/// pages.
pub const CACHED_RUN_PAGES_MAX: u32 = 16;

thread_local! {
    /// The buffer of this thread's next one-page read.
    static PAGE: Cell<Option<Buf>> = const { Cell::new(None) };
}

/// Gets pages for read operations. All readers of a store share it.
#[derive(Debug)]
pub struct PageReader {
    /// Reads of another process fail before they take a lock of the cache.
    owner: Owner,
    cache: Arc<PageCache>,
    /// Divides memory between rows and pages; `None` if the store keeps no rows.
    balance: Option<Arc<Balance>>,
    /// Miss-ratio curves of the store's reads.
    pub curves: Arc<Curves>,
    account: Account,
    /// The device of the tables, if it can have several reads of one thread in flight and they take time.
    device: Option<Arc<dyn Medium>>,
    /// Counts of reads, by the tier that served them.
    pub counters: ReadCounters,
}

impl PageReader {
    /// The account that reads charge, for long values and cursors.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Copies `page` to a frame outside the cache.
    pub(crate) fn uncached(&self, page: &[u8; PAGE_BYTES]) -> Frame {
        self.cache.uncached(page)
    }

    /// Copies the verified page of `span`, which a short scan read, to a frame; cached only if the ghost list
    /// has the page.
    pub(crate) fn frame_of_scan(&self, span: Span, page: &[u8; PAGE_BYTES]) -> Frame {
        self.cache.insert_if_seen_before(Self::key(span, 0), kind(span), page)
    }

    /// Creates a page reader over `cache`, for tables on `medium`.
    pub fn new(
        cache: Arc<PageCache>,
        balance: Option<Arc<Balance>>,
        curves: Arc<Curves>,
        account: Account,
        medium: Arc<dyn Medium>,
    ) -> Self {
        let (owner, counters) = (Owner::this(), ReadCounters::default());
        let Capabilities { byte_addressable, queue_depth, .. } = medium.capabilities();
        let device = (!byte_addressable && queue_depth > 1).then_some(medium);
        Self { owner, cache, balance, curves, account, device, counters }
    }

    /// The device of the tables, if several reads of one thread overlap there.
    pub(crate) fn overlapping(&self) -> Option<&dyn Medium> {
        self.device.as_deref()
    }

    /// The cache key of page `number` of `span`.
    fn key(span: Span, number: u32) -> PageKey {
        debug_assert!(number < span.pages, "the page is in the span");
        PageKey { file: span.file, page: span.first + number }
    }

    /// Runs `op` to its end on this thread: one page read at a time, or the reads of its parts at once.
    /// Returns the output, and the depth of the read. `ahead`: the read-ahead of a cursor.
    ///
    /// # Errors
    /// The read's: `Corrupt` for damage, the device's, `Retry` without memory for a long value,
    /// `Closed` in a forked child.
    pub fn run<O: ReadOp>(
        &self,
        op: &mut O,
        ahead: Option<&mut ReadAhead>,
    ) -> Result<(O::Output, Depth)> {
        self.owner.check()?;
        let mut ahead = ahead;
        let mut depth = Depth::default();
        let mut supplied = None;
        loop {
            self.counters.steps.add(1);
            let span = match op.step(supplied.take())? {
                Step::Ready(output) => return Ok((output, depth)),
                Step::Need(span) => span,
            };
            let (pages, from) = match self.without_flash(op, span, ahead.as_deref_mut())? {
                Some(found) => found,
                None => {
                    if let Some(ahead) = ahead.as_deref_mut()
                        && let Some(reads) = self.run_parts(op, span, ahead)?
                    {
                        (0..reads).for_each(|_| op.device_read());
                        depth = Depth::Flash;
                        continue;
                    }
                    let pages = self.read_flash(op, span, ahead.as_deref_mut())?;
                    op.device_read();
                    (pages, Depth::Flash)
                }
            };
            depth = depth.max(from);
            supplied = Some(pages);
        }
    }

    /// As [`PageReader::run`], without waiting for a device: `None` if a page is neither in DRAM nor in
    /// memory of the SCM tier.
    ///
    /// # Errors
    /// As [`PageReader::run`], without those of devices.
    pub fn run_in_memory<O: ReadOp>(&self, op: &mut O) -> Result<Option<(O::Output, Depth)>> {
        self.owner.check()?;
        let (mut depth, mut supplied) = (Depth::default(), None);
        loop {
            self.counters.steps.add(1);
            let span = match op.step(supplied.take())? {
                Step::Ready(output) => return Ok(Some((output, depth))),
                Step::Need(span) => span,
            };
            let (pages, from) = match self.cached(op, span)? {
                Some(pages) => (pages, Depth::Page),
                None => match self.find_in_scm(op, span)? {
                    Some(TierPage::Pages(pages)) => (pages, Depth::Scm),
                    Some(TierPage::Read(_)) | None => return Ok(None),
                },
            };
            depth = depth.max(from);
            supplied = Some(pages);
        }
    }

    /// Gets the pages of `span` from DRAM, a read-ahead window, or the SCM tier.
    fn without_flash<O: ReadOp>(
        &self,
        op: &O,
        span: Span,
        ahead: Option<&mut ReadAhead>,
    ) -> Result<Option<(Pages, Depth)>> {
        if let Some(found) = self.in_dram(op, span, ahead)? {
            return Ok(Some(found));
        }
        let Some(found) = self.find_in_scm(op, span)? else { return Ok(None) };
        let depth = Depth::of(&found);
        Ok(self.scm_pages(op, span, found)?.map(|pages| (pages, depth)))
    }

    /// Gets the pages of `span` from the cache, or from a read-ahead window: a page there costs less than a
    /// lookup in the SCM tier.
    pub(crate) fn in_dram<O: ReadOp + ?Sized>(
        &self,
        op: &O,
        span: Span,
        ahead: Option<&mut ReadAhead>,
    ) -> Result<Option<(Pages, Depth)>> {
        if let Some(pages) = self.cached(op, span)? {
            return Ok(Some((pages, Depth::Page)));
        }
        let Some(ahead) = ahead.filter(|ahead| ahead.has(span)) else { return Ok(None) };
        self.scanned();
        let frame = ahead.page(self, &file_of(op)?, span)?;
        Ok(frame.map(|frame| (Pages::Frame(frame), Depth::Page)))
    }

    /// Counts a page that a scan needed and the cache did not have.
    pub(crate) fn scanned(&self) {
        if let Some(balance) = &self.balance {
            balance.scanned();
        }
    }

    /// Gets the pages of `span` from flash, read ahead or read alone.
    pub(crate) fn read_flash<O: ReadOp + ?Sized>(
        &self,
        op: &O,
        span: Span,
        ahead: Option<&mut ReadAhead>,
    ) -> Result<Pages> {
        let file = &file_of(op)?;
        if let Some(ahead) = ahead {
            self.scanned();
            if let Some(frame) = ahead.page(self, file, span)? {
                return Ok(Pages::Frame(frame));
            }
        }
        self.read(file, span)
    }

    /// Reads the pages of `span` from flash and waits for them.
    fn read(&self, file: &PageFile, span: Span) -> Result<Pages> {
        let _charge = self.charge_for(span)?;
        let buf = match span.pages {
            1 => PAGE.take().unwrap_or_else(|| Buf::pages(1)),
            pages => Buf::pages(pages as usize),
        };
        let at = u64::from(span.first) * PAGE_BYTES as u64;
        let start = self.cache.lower_tier().map(|tier| (tier, tier.now()));
        let (buf, result) = file.file.read(at, buf, purpose(span));
        if let Some((tier, start)) = start.filter(|_| span.pages == 1) {
            tier.flash_took(tier.now().saturating_sub(start));
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

    /// Reads the page of `span` alone and times it, for the tier's latency sampler: from the SCM tier if
    /// `found`, else from flash. Returns `None`, and reads nothing, if the next read is not to be timed;
    /// `None` also if the page in the tier does not verify (`found` is then empty).
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
            let pages = self.scm_pages(op, span, TierPage::Read(read))?;
            return Ok(pages.map(|pages| (pages, Depth::ScmRead)));
        }
        let pages = self.read(&file_of(op)?, span)?;
        Ok(Some((pages, Depth::Flash)))
    }

    /// Charges the pages of a long value before they are read (I10). The value's own charge follows when it
    /// is decoded. Short reads are covered by a fixed charge.
    pub(crate) fn charge_for(&self, span: Span) -> Result<Option<Charge>> {
        if span.pages <= CACHED_RUN_PAGES_MAX {
            return Ok(None);
        }
        self.account.charge(u64::from(span.pages) * PAGE_BYTES as u64).map(Some)
    }

    /// Returns the pages of `span`, for which `op` asks, if all of them are cached. If the cache says that a
    /// page is read repeatedly, its decompressed block is attached to the page.
    pub(crate) fn cached<O: ReadOp + ?Sized>(&self, op: &O, span: Span) -> Result<Option<Pages>> {
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

    /// Prefetches the memory that a cache lookup of the first page of `span` reads, stage by stage.
    #[inline]
    pub fn prefetch(&self, span: Span, stage: Stage) {
        self.cache.prefetch(Self::key(span, 0), stage);
    }

    /// Finds the pages of `span`, for which `op` asks, in the SCM tier. Runs longer than those that are
    /// cached are never there.
    pub(crate) fn find_in_scm<O: ReadOp + ?Sized>(
        &self,
        op: &O,
        span: Span,
    ) -> Result<Option<TierPage>> {
        match TierReader::of(&self.cache) {
            Some(tier) if span.pages <= CACHED_RUN_PAGES_MAX => tier.find(op, span, kind(span)),
            _ => Ok(None),
        }
    }

    /// Returns the pages that were found in the SCM tier, reading them if needed. `None` if they do not
    /// verify.
    pub(crate) fn scm_pages<O: ReadOp + ?Sized>(
        &self,
        op: &O,
        span: Span,
        found: TierPage,
    ) -> Result<Option<Pages>> {
        let read = match found {
            TierPage::Pages(pages) => return Ok(Some(pages)),
            TierPage::Read(read) => read,
        };
        let Some(tier) = TierReader::of(&self.cache) else { return Ok(None) };
        let seed = file_of(op)?.seed;
        let buf = PAGE.take().unwrap_or_else(|| Buf::pages(1));
        let (buf, pages) = tier.read(read, seed, span, buf);
        PAGE.set(Some(buf));
        Ok(pages)
    }

    /// Verifies the page of `span` that a read from the SCM tier returned. `None` if the read failed or the
    /// page does not verify.
    pub(crate) fn scm_page_arrived(
        &self,
        read: ScmRead,
        file: &PageFile,
        span: Span,
        buf: &Buf,
        result: Result<()>,
    ) -> Option<Pages> {
        TierReader::of(&self.cache)?.arrived(read, file.seed, span, buf, result)
    }

    /// Returns a queue for reads from the SCM tier; `None` if no tier is read by a queue.
    pub(crate) fn scm_queue(&self, depth: usize) -> Option<Box<dyn media::Queue>> {
        self.cache.lower_tier().and_then(|tier| tier.queue(depth))
    }

    /// Turns the SCM tier off, after its device failed with `error`.
    pub(crate) fn scm_failed(&self, error: Error) {
        if let Some(tier) = self.cache.lower_tier() {
            tier.fail(error);
        }
    }

    /// Verifies the page of `span` that flash returned, and caches a copy.
    pub(crate) fn admit_page(&self, file: &PageFile, span: Span, page: &[u8]) -> Result<Pages> {
        base::invariant!(page.len() == PAGE_BYTES, "a read of one page returns one page");
        match self.verify(file, span, page) {
            Ok(()) => Ok(Pages::Frame(self.cache.insert(Self::key(span, 0), kind(span), page))),
            Err(error) => self.rebuild_meta(file, span, error),
        }
    }

    /// Handles a read of `span` that failed with `error`: a metadata page is rebuilt if the error is damage.
    #[cold]
    pub(crate) fn unreadable(&self, file: &PageFile, span: Span, error: Error) -> Result<Pages> {
        self.counters.damaged.add(1);
        self.rebuild_meta(file, span, file.name_page(error, span.first))
    }

    /// Rebuilds a damaged metadata page from the data blocks of its partition; fails with `error` for any
    /// other page. The rebuilt page is cached like the stored one; scrub and merges report the damage.
    #[cold]
    fn rebuild_meta(&self, file: &PageFile, span: Span, error: Error) -> Result<Pages> {
        let table = file.table.as_ref().filter(|_| span.meta && error.kind() == ErrorKind::Corrupt);
        let Some(table) = table else { return Err(error) };
        let page = table.rebuilt_meta(span.first, &self.account);
        let page = page.map_err(|other| if other.is_retryable() { other } else { error })?;
        Ok(Pages::Frame(self.cache.insert(Self::key(span, 0), kind(span), &page[..])))
    }

    /// Verifies the run of pages that flash returned for `span`, and caches it unless it is long.
    pub(crate) fn admit(&self, file: &PageFile, span: Span, buf: Buf) -> Result<Pages> {
        base::invariant!(
            buf.len() == span.pages as usize * PAGE_BYTES,
            "a read returns the pages of its span"
        );
        self.verify(file, span, &buf)?;
        if span.pages <= CACHED_RUN_PAGES_MAX {
            for (number, page) in (0..span.pages).zip(buf.chunks_exact(PAGE_BYTES)) {
                drop(self.cache.insert(Self::key(span, number), kind(span), page));
            }
        }
        Ok(Pages::Run(buf))
    }

    /// Verifies the pages in `bytes`, which were read from `file` from the first page of `span` on.
    pub(crate) fn verify(&self, file: &PageFile, span: Span, bytes: &[u8]) -> Result<()> {
        for (page, bytes) in (span.first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            verify_page(file.seed, page, bytes)
                .inspect_err(|_| self.counters.damaged.add(1))
                .map_err(|error| file.name_damaged(error))?;
        }
        Ok(())
    }
}

pub(crate) fn purpose(span: Span) -> Purpose {
    if span.meta { Purpose::Meta } else { Purpose::Data }
}

fn kind(span: Span) -> PageKind {
    if span.meta { PageKind::Meta } else { PageKind::Data }
}
