//! SCM pages for reads: used in place in the tier, or read from it.
//!
//! I8: a page of the tier is used only after it was verified: memory once since it was written, a device at
//! each read. A page that does not verify is dropped from the tier, and the read gets it from flash. A tier
//! that fails is turned off, and no read fails with it: if a page is lost while a read uses it in place, the
//! read asks for it again.
//!
//! Threads: any.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{PageSeed, Result, broken_invariant};
use cache::{PageCache, PageKey, PageKind, ScmHit, ScmPage, ScmRead, ScmTier};
use media::{Buf, Purpose};
use table::{Pages, Span, verify_page};

use crate::read_op::file_of;
use crate::{Depth, ReadOp};

/// Pages of a span that the tier has.
pub(crate) enum TierPage {
    /// All pages of the span.
    Pages(Pages),
    /// The location of the span's only page, which must be read.
    Read(ScmRead),
}

/// The SCM tier, as reads use it.
#[derive(Debug)]
pub(crate) struct TierReader<'a> {
    cache: &'a PageCache,
    tier: &'a Arc<ScmTier>,
}

impl<'a> TierReader<'a> {
    /// `None` if there is no SCM tier.
    pub(crate) fn of(cache: &'a PageCache) -> Option<Self> {
        cache.lower_tier().map(|tier| Self { cache, tier })
    }

    /// Finds the pages of `span`, for which `op` asks. `None` unless all of them are in the tier, or (of a
    /// run) in the tier and in DRAM.
    pub(crate) fn find<O: ReadOp + ?Sized>(
        &self,
        op: &O,
        span: Span,
        kind: PageKind,
    ) -> Result<Option<TierPage>> {
        let key = |number: u32| PageKey { file: span.file, page: span.first + number };
        if span.pages == 1 {
            return Ok(match self.tier.find(key(0), kind) {
                None => None,
                Some(ScmHit::Read(read)) => Some(TierPage::Read(read)),
                Some(ScmHit::InPlace(page)) => {
                    let is_valid = self.is_valid(op, span.first, &page)?;
                    is_valid.then(|| TierPage::Pages(Pages::InPlace(page.page)))
                }
            });
        }
        self.find_run(op, span, kind)
    }

    /// Gets the pages of a run, each from its tier. Pages that must be read are read at once, one after the
    /// other.
    fn find_run<O: ReadOp + ?Sized>(
        &self,
        op: &O,
        span: Span,
        kind: PageKind,
    ) -> Result<Option<TierPage>> {
        let (mut run, all) = (None, span.pages as usize);
        for (number, at) in (0..span.pages).zip((0..).step_by(PAGE_BYTES)) {
            let span = Span { first: span.first + number, pages: 1, ..span };
            let key = PageKey { file: span.file, page: span.first };
            let pages = match self.cache.get(key, kind) {
                Some(frame) => Pages::Frame(frame),
                None => match self.find(op, span, kind)? {
                    None => return Ok(None),
                    Some(TierPage::Pages(pages)) => pages,
                    Some(TierPage::Read(read)) => {
                        let seed = file_of(op)?.seed;
                        let (_, pages) = self.read(read, seed, span, Buf::pages(1));
                        let Some(pages) = pages else { return Ok(None) };
                        pages
                    }
                },
            };
            let run: &mut Buf = run.get_or_insert_with(|| Buf::pages(all));
            let (Some(to), Some(page)) = (run.get_mut(at..at + PAGE_BYTES), pages.one()) else {
                return Err(broken_invariant!("a span of one page gets one page"));
            };
            to.copy_from_slice(page);
            if pages.are_lost() {
                return Ok(None);
            }
        }
        Ok(run.map(|run| TierPage::Pages(Pages::Run(run))))
    }

    /// Whether `page` is page `number` of the file that `op` reads. Verifies it unless that was done since it
    /// was written; drops a page that does not verify.
    fn is_valid<O: ReadOp + ?Sized>(&self, op: &O, number: u32, page: &ScmPage) -> Result<bool> {
        if page.is_verified {
            return Ok(true);
        }
        let seed = file_of(op)?.seed;
        let is_valid = verify_page(seed, number, &*page.page).is_ok();
        match is_valid {
            true => self.tier.verified(page),
            false if page.page.is_lost() => {}
            false => self.tier.damaged(page.slot),
        }
        Ok(is_valid)
    }

    /// Reads the page into `buf` and waits for it. `None` if the read failed or the page does not verify.
    pub(crate) fn read(
        &self,
        read: ScmRead,
        seed: PageSeed,
        span: Span,
        buf: Buf,
    ) -> (Buf, Option<Pages>) {
        let began = self.tier.now();
        let (buf, result) = read.file().read(read.at(), buf, Purpose::Data);
        self.tier.read_took(self.tier.now().saturating_sub(began));
        let pages = self.arrived(read, seed, span, &buf, result);
        (buf, pages)
    }

    /// Verifies a page that was read from the tier, and promotes it if it should be. `None` if the read
    /// failed or the page does not verify.
    pub(crate) fn arrived(
        &self,
        read: ScmRead,
        seed: PageSeed,
        span: Span,
        buf: &Buf,
        result: Result<()>,
    ) -> Option<Pages> {
        if let Err(error) = result {
            self.tier.fail(error);
            return None;
        }
        base::invariant!(buf.len() == PAGE_BYTES, "a slot of the tier has one page");
        let page = buf.first_chunk::<PAGE_BYTES>()?;
        if !read.may_be(page) || verify_page(seed, span.first, page).is_err() {
            self.tier.damaged(read.slot);
            return None;
        }
        let kind = if span.meta { PageKind::Meta } else { PageKind::Data };
        let key = PageKey { file: span.file, page: span.first };
        let promoted =
            if read.should_promote { self.cache.insert_warm(key, kind, page) } else { None };
        if promoted.is_some() {
            self.tier.promoted(read.slot);
        }
        Some(Pages::Frame(promoted.unwrap_or_else(|| self.cache.uncached(page))))
    }
}

impl Depth {
    /// The depth of a read that uses `found`.
    pub(crate) const fn of(found: &TierPage) -> Self {
        match found {
            TierPage::Pages(_) => Self::Scm,
            TierPage::Read(_) => Self::ScmRead,
        }
    }
}
