//! Pages for reads from the tier below DRAM: where they lie, or read from there.
//!
//! I8: what lies below is used only once it was verified, memory once since it was written, a device at
//! each read. What does not verify is dropped there, and the page comes from flash. A tier that fails is
//! off, and no read with it: whoever used a page in place that was lost meanwhile asks for it again.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{PageSeed, Result};
use cache::{PageCache, PageKey, PageKind, ScmHit, ScmPage, ScmRead, ScmTier};
use media::{Buf, Purpose};
use table::{Pages, Span, verify_page};

use crate::page_reader::no_file;
use crate::{Depth, ReadOp};

/// What the tier below has of a span.
pub(crate) enum TierPage {
    /// All of it.
    Pages(Pages),
    /// The one page, to be read.
    Read(ScmRead),
}

/// The tier below DRAM, as reads use it.
#[derive(Debug)]
pub(crate) struct TierReader<'a> {
    cache: &'a PageCache,
    tier: &'a Arc<ScmTier>,
}

impl<'a> TierReader<'a> {
    /// None where there is no such tier.
    pub(crate) fn of(cache: &'a PageCache) -> Option<Self> {
        cache.lower_tier().map(|tier| Self { cache, tier })
    }

    /// The pages of `span`, for which `op` asks, if all of them lie here, or here and in DRAM.
    pub(crate) fn find<O: ReadOp>(
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
                    let is_right = self.is_right(op, span.first, &page)?;
                    is_right.then(|| TierPage::Pages(Pages::InPlace(page.page)))
                }
            });
        }
        self.find_run(op, span, kind)
    }

    /// The pages of a run, each from where it is; those to be read are, one after the other.
    fn find_run<O: ReadOp>(&self, op: &O, span: Span, kind: PageKind) -> Result<Option<TierPage>> {
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
                        let seed = op.file().ok_or_else(no_file)?.seed;
                        let (_, pages) = self.read(read, seed, span, Buf::pages(1));
                        let Some(pages) = pages else { return Ok(None) };
                        pages
                    }
                },
            };
            let run: &mut Buf = run.get_or_insert_with(|| Buf::pages(all));
            let to = run.get_mut(at..at + PAGE_BYTES).unwrap_or_default();
            if let Some(page) = pages.one() {
                to.copy_from_slice(page);
            }
            if pages.are_lost() {
                return Ok(None);
            }
        }
        Ok(run.map(|run| TierPage::Pages(Pages::Run(run))))
    }

    /// Whether the page that lies here is page `number` of the table that `op` reads.
    fn is_right<O: ReadOp>(&self, op: &O, number: u32, page: &ScmPage) -> Result<bool> {
        if page.is_verified {
            return Ok(true);
        }
        let seed = op.file().ok_or_else(no_file)?.seed;
        let is_right = verify_page(seed, number, &*page.page).is_ok();
        match is_right {
            true => self.tier.verified(page),
            false if page.page.is_lost() => {}
            false => self.tier.damaged(page.slot),
        }
        Ok(is_right)
    }

    /// Reads the page at once, into `buf`; none where it is not what it should be.
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

    /// The page that a read of it gave; none where it is not what it should be.
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
        let page = buf.first_chunk::<PAGE_BYTES>()?;
        if !read.may_be(page) || verify_page(seed, span.first, page).is_err() {
            self.tier.damaged(read.slot);
            return None;
        }
        let kind = if span.meta { PageKind::Meta } else { PageKind::Data };
        let key = PageKey { file: span.file, page: span.first };
        let up = if read.should_promote { self.cache.insert_warm(key, kind, page) } else { None };
        if up.is_some() {
            self.tier.promoted(read.slot);
        }
        Some(Pages::Frame(up.unwrap_or_else(|| self.cache.uncached(page))))
    }
}

impl Depth {
    /// Where `found` was.
    pub(crate) const fn of(found: &TierPage) -> Self {
        match found {
            TierPage::Pages(_) => Self::Below,
            TierPage::Read(_) => Self::BelowRead,
        }
    }
}
