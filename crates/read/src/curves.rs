//! Miss-ratio curves of a store's reads: one of rows, one of pages.
//!
//! A row access is counted when a row serves a lookup, and when a lookup finds a value of which a row may be
//! cached. Lookups served by a memtable do not count until it is flushed, when the row is inserted. A page
//! access is counted whenever a cached page would serve. Both curves are of one store alone, as if it had the
//! caches for itself.
//!
//! Threads: any. Cost: that of `cache::curve`, and two counters that are not on the path of a row hit.

use base::limits::PAGE_BYTES;
use base::{Account, Counter};
use cache::curve::{Meter, MissCurve, Subject};
use cache::rows::row_bytes;
use cache::{PageKey, PageKind};

/// The curves of one store; a curve is missing if there was no memory for it.
#[derive(Debug, Default)]
pub struct Curves {
    rows: Option<Meter>,
    pages: Option<Meter>,
    row_misses: Counter,
    page_lookups: Counter,
}

impl Curves {
    /// Meters for caches from a sixteenth of `memory` bytes to sixteen times as much. `stores` is the number
    /// of open stores, this one included.
    pub fn new(account: &Account, memory: u64, stores: u64, has_rows: bool) -> Self {
        let meter = |subject| Meter::new(account, subject, memory, stores);
        let rows = if has_rows { meter(Subject::Rows) } else { None };
        Self { rows, pages: meter(Subject::Pages), ..Self::default() }
    }

    /// Counts a row hit. The value takes `stored` bytes.
    #[inline]
    pub fn row_hit(&self, hash: u64, key: &[u8], stored: usize) {
        if let Some(rows) = &self.rows {
            rows.ask(hash, row_bytes(key.len(), stored, false), PageKind::Data);
        }
    }

    /// Counts a row miss, of a value with a row that may be cached.
    pub fn row_missed(&self, hash: u64, key: &[u8], stored: usize) {
        self.row_misses.add(1);
        self.row_hit(hash, key, stored);
    }

    /// Inserts a row that a flush brings: no access is counted.
    pub fn row_flushed(&self, hash: u64, key: &[u8], stored: usize) {
        if let Some(rows) = &self.rows {
            rows.bring(hash, row_bytes(key.len(), stored, false));
        }
    }

    /// Invalidates the row of a key that was written.
    #[inline]
    pub fn invalidate_row(&self, hash: u64) {
        if let Some(rows) = &self.rows {
            rows.invalidate(hash);
        }
    }

    /// Counts a page access.
    #[inline]
    pub fn page(&self, key: PageKey, kind: PageKind) {
        if let Some(pages) = &self.pages {
            self.page_lookups.add(1);
            pages.ask(key.hash(), PAGE_BYTES, kind);
        }
    }

    /// The miss-ratio curve of rows, given the number of row hits.
    pub fn rows(&self, hits: u64) -> MissCurve {
        let accesses = hits + self.row_misses.get();
        self.rows.as_ref().map(|rows| rows.curve(accesses)).unwrap_or_default()
    }

    /// The miss-ratio curve of pages.
    pub fn pages(&self) -> MissCurve {
        let accesses = self.page_lookups.get();
        self.pages.as_ref().map(|pages| pages.curve(accesses)).unwrap_or_default()
    }
}
