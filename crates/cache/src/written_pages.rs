//! The pages of a file that a flush writes, kept until they can be cached.
//!
//! Cached pages are named by the digest of their file, which is known only when the file is complete. Until
//! then the pages wait here, in memory that is charged to the cache (I10) and taken only while the cache may
//! grow: nothing is evicted for them. Once the memory is full, later pages of the file are left out.
//!
//! One thread. Cost: a copy of each page here, and another one into its frame.

use std::fmt;
use std::sync::Arc;

use base::Charge;
use base::limits::PAGE_BYTES;

use crate::{PageCache, PageKey, PageKind};

/// The pages of a file that is being written.
pub struct WrittenPages {
    cache: Arc<PageCache>,
    parts: Vec<Part>,
    /// A part was left out for lack of memory.
    is_full: bool,
}

/// Consecutive pages, as they were written at once.
struct Part {
    first: u32,
    bytes: Box<[u8]>,
    _charge: Charge,
}

impl WrittenPages {
    /// None yet, of a file whose pages go to `cache`.
    #[must_use]
    pub const fn new(cache: Arc<PageCache>) -> Self {
        Self { cache, parts: Vec::new(), is_full: false }
    }

    /// Keeps a copy of `pages`, which are written from page `first` on, if there is room.
    pub fn add(&mut self, first: u32, pages: &[u8]) {
        let has_room = !self.is_full && self.cache.grows();
        let charge = if has_room { self.cache.try_charge(pages.len() as u64) } else { None };
        let Some(charge) = charge else {
            self.is_full = true;
            return;
        };
        self.parts.push(Part { first, bytes: pages.into(), _charge: charge });
    }

    /// Caches the pages under the digest `file`, those for which `kind` returns a kind. Returns the number of
    /// pages that were cached.
    pub fn cache(self, file: u64, kind: impl Fn(&[u8]) -> Option<PageKind>) -> u32 {
        let mut cached = 0;
        for part in self.parts {
            let (pages, _) = part.bytes.as_chunks::<PAGE_BYTES>();
            for (page, bytes) in (part.first..).zip(pages) {
                let Some(kind) = kind(bytes) else { continue };
                cached += u32::from(self.cache.insert_written(PageKey { file, page }, kind, bytes));
            }
        }
        cached
    }
}

impl fmt::Debug for WrittenPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrittenPages({} parts)", self.parts.len())
    }
}
