//! Write-through: a flush puts the pages that it writes into the page cache while the cache is not full, so
//! that the first read of data that fits into memory needs no device.
//!
//! The pages were sealed here and not read from a device, so they need no verification (I8). Readers find
//! them under the file's digest from before they get the table. Until then they are cold pages of the cache:
//! memory that a needed account asks for is taken from them. Without memory for a page, the page is left out.

use std::sync::Arc;

use cache::{PageCache, PageKind, WrittenPages};
use parking_lot::Mutex;
use read::CACHED_RUN_PAGES_MAX;
use table::{Header, PageSink};

/// The pages of one file that is being written.
#[derive(Clone, Debug)]
pub(crate) struct WriteThrough(Arc<Mutex<WrittenPages>>);

impl WriteThrough {
    /// The pages of a file that a flush begins. They go to `cache`.
    pub(crate) fn new(cache: &Arc<PageCache>) -> Self {
        Self(Arc::new(Mutex::new(WrittenPages::new(Arc::clone(cache)))))
    }

    /// The sink for the file's writer.
    pub(crate) fn sink(&self) -> Box<dyn PageSink> {
        Box::new(self.clone())
    }

    /// Caches the pages under `digest`, the digest of the finished file.
    pub(crate) fn cache(&self, digest: u64, cache: &Arc<PageCache>) {
        let none = WrittenPages::new(Arc::clone(cache));
        let pages = std::mem::replace(&mut *self.0.lock(), none);
        pages.cache(digest);
    }
}

impl PageSink for WriteThrough {
    fn written(&mut self, first: u32, pages: &[u8]) {
        self.0.lock().add(first, pages, cached_kind);
    }
}

/// The kind under which readers cache `page`; `None` if they do not.
pub(crate) fn cached_kind(page: &[u8]) -> Option<PageKind> {
    let header = Header::parse(page).ok()?;
    let is_short = header.run_pages() <= CACHED_RUN_PAGES_MAX as usize;
    match header.kind {
        table::PageKind::Data | table::PageKind::Straddled | table::PageKind::Values => {
            is_short.then_some(PageKind::Data)
        }
        table::PageKind::Meta => is_short.then_some(PageKind::Meta),
        _ => None,
    }
}
