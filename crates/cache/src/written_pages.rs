//! The pages of a file that is being written, in the cache before the file has its name there.
//!
//! Cached pages are named by the digest of their file, which is known only when the file is complete. Until
//! then the pages are in the cache under a number that nobody looks up ([`PageCache::unnamed_file`]).
//! They are ordinary cold pages: whoever needs memory evicts them, and they evict nothing. When the file has
//! its digest, those that are still there take their names, each in its frame: a page is copied once.
//!
//! One thread writes a file. Dropped before [`WrittenPages::cache`], the pages leave the cache.

use std::fmt;
use std::sync::Arc;

use base::limits::PAGE_BYTES;

use crate::{PageCache, PageKey, PageKind};

/// The pages of a file that is being written.
pub struct WrittenPages {
    cache: Arc<PageCache>,
    /// The number that stands for the file.
    unnamed: u64,
    /// All cached pages have lower numbers.
    end: u32,
    /// A page was left out for lack of memory.
    is_full: bool,
}

impl WrittenPages {
    /// None yet, of a file whose pages go to `cache`.
    #[must_use]
    pub fn new(cache: Arc<PageCache>) -> Self {
        let unnamed = cache.unnamed_file();
        Self { cache, unnamed, end: 0, is_full: false }
    }

    /// Caches those of `pages` for which `kind` returns a kind, as long as the cache may grow. They are
    /// written from page `first` on.
    pub fn add(&mut self, first: u32, pages: &[u8], kind: impl Fn(&[u8]) -> Option<PageKind>) {
        let (pages, _) = pages.as_chunks::<PAGE_BYTES>();
        for (page, bytes) in (first..).zip(pages) {
            if self.is_full {
                return;
            }
            let Some(kind) = kind(bytes) else { continue };
            let key = PageKey { file: self.unnamed, page };
            if self.cache.insert_written(key, kind, bytes) {
                self.end = page.saturating_add(1);
            } else {
                self.is_full = true;
            }
        }
    }

    /// Names the pages after `file`, the digest of the finished file. Returns the number of pages that are
    /// cached.
    pub fn cache(mut self, file: u64) -> u32 {
        let (mut cached, end) = (0, std::mem::take(&mut self.end));
        for page in 0..end {
            let from = PageKey { file: self.unnamed, page };
            cached += u32::from(self.cache.rename(from, PageKey { file, page }));
        }
        cached
    }
}

impl Drop for WrittenPages {
    fn drop(&mut self) {
        for page in 0..self.end {
            self.cache.remove_page(PageKey { file: self.unnamed, page });
        }
    }
}

impl fmt::Debug for WrittenPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrittenPages(below page {})", self.end)
    }
}
