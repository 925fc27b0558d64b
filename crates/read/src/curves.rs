//! Miss-ratio curves of a store's reads, kept while it is read: one of rows, one of pages.
//!
//! A row is asked for where a row answered, and where one may be left of what was found; what a memtable
//! answers is no matter of caches until it is flushed, when it has a row. A page is asked for wherever a
//! cached page would do. Both are of this store alone, as if it had the caches for itself. Cost:
//! `cache::curve`, and two counters off the path of a row's hit.

use base::limits::PAGE_BYTES;
use base::{Account, Counter};
use cache::curve::{Meter, MissCurve, Subject};
use cache::rows::row_bytes;
use cache::{PageKey, PageKind};

/// The curves of one store, as far as there was memory for them.
#[derive(Debug, Default)]
pub struct Curves {
    rows: Option<Meter>,
    pages: Option<Meter>,
    row_misses: Counter,
    page_lookups: Counter,
}

impl Curves {
    /// For caches of `memory` bytes, and from a sixteenth to sixteen times as much, of one of `stores` that
    /// are open by now.
    pub fn new(account: &Account, memory: u64, stores: u64, has_rows: bool) -> Self {
        let meter = |subject| Meter::new(account, subject, memory, stores);
        let rows = if has_rows { meter(Subject::Rows) } else { None };
        Self { rows, pages: meter(Subject::Pages), ..Self::default() }
    }

    /// A row of this hash answered, whose value lies there in `stored` bytes.
    #[inline]
    pub fn row_hit(&self, hash: u64, key: &[u8], stored: usize) {
        if let Some(rows) = &self.rows {
            rows.ask(hash, row_bytes(key.len(), stored, false), PageKind::Data);
        }
    }

    /// None did, and one may be left.
    pub fn row_missed(&self, hash: u64, key: &[u8], stored: usize) {
        self.row_misses.add(1);
        self.row_hit(hash, key, stored);
    }

    /// A row of this hash comes with a flush.
    pub fn row_expected(&self, hash: u64, key: &[u8], stored: usize) {
        if let Some(rows) = &self.rows {
            rows.bring(hash, row_bytes(key.len(), stored, false));
        }
    }

    /// A row of this hash is of no use any more.
    #[inline]
    pub fn forget_row(&self, hash: u64) {
        if let Some(rows) = &self.rows {
            rows.forget(hash);
        }
    }

    /// A page is looked up.
    #[inline]
    pub fn page(&self, key: PageKey, kind: PageKind) {
        if let Some(pages) = &self.pages {
            self.page_lookups.add(1);
            pages.ask(key.hash(), PAGE_BYTES, kind);
        }
    }

    /// Over the memory of rows, where rows answered so many lookups.
    pub fn rows(&self, hits: u64) -> MissCurve {
        let accesses = hits + self.row_misses.get();
        self.rows.as_ref().map(|rows| rows.curve(accesses)).unwrap_or_default()
    }

    /// Over the memory of pages, in DRAM or below.
    pub fn pages(&self) -> MissCurve {
        let accesses = self.page_lookups.get();
        self.pages.as_ref().map(|pages| pages.curve(accesses)).unwrap_or_default()
    }
}
