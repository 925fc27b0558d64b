//! Hot pages over a restart: which pages of a store's tables are hot in the page cache, and reading those of
//! an earlier run ahead.
//!
//! The engine stores the list ([`cache::HotPages`]) and runs the steps in the background. Each step reads one
//! row of pages of one table, verifies each page (I8), and gives it to the page cache while that may grow:
//! nothing is evicted for a page that is read ahead, and reads of callers come first into the cache. Pages of
//! tables that are gone are left out. Cost: one device read a step.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{StoreId, TableId};
use cache::{HotPages, PageCache, PageKey};
use media::{Buf, Purpose};
use table::verify_page;

use crate::write_through::cached_kind;
use crate::{TableFile, Trees};

/// Most pages of one read.
const READ_PAGES: u32 = 64;

/// A gap of so many pages is read too: less than another read costs.
const GAP_PAGES: u32 = 4;

/// The hot pages of `store`, which are in the cache now.
#[must_use]
pub fn hot_pages(store: StoreId, trees: &Trees, cache: &PageCache) -> HotPages {
    let tables = tables(trees);
    let is_own = |page: &PageKey| tables.contains_key(&page.file);
    HotPages::new(store, cache.hot_pages(HotPages::PAGES_MAX, is_own))
}

/// The tables of all trees, by digest.
fn tables(trees: &Trees) -> BTreeMap<u64, Arc<TableFile>> {
    let trees = trees.all();
    let views: Vec<_> = trees.iter().map(|tree| tree.view_owned()).collect();
    let files = views.iter().flat_map(|view| view.version.files());
    let named =
        files.filter_map(|file| Some((file.table().ok()?.footer().digest, Arc::clone(file))));
    named.collect()
}

/// Reads a list of hot pages ahead, step by step.
#[derive(Debug)]
pub struct HotPageReader {
    cache: Arc<PageCache>,
    rows: VecDeque<(Arc<TableFile>, Range<u32>)>,
    /// Pages read and cached so far.
    cached: u64,
}

impl HotPageReader {
    /// Reads those of `pages` whose tables are in `trees`, and on a device of the store (`is_local`).
    #[must_use]
    pub fn new(
        pages: &HotPages,
        trees: &Trees,
        cache: &Arc<PageCache>,
        is_local: &dyn Fn(TableId) -> bool,
    ) -> Self {
        let mut tables = tables(trees);
        tables.retain(|_, file| is_local(file.entry().id));
        let mut rows = VecDeque::new();
        for file in &pages.files {
            let Some(table) = tables.get(&file.digest) else { continue };
            file.pages.iter().for_each(|pages| add_row(&mut rows, table, pages.clone()));
        }
        Self { cache: Arc::clone(cache), rows, cached: 0 }
    }

    /// Pages read and cached so far.
    #[must_use]
    pub const fn cached(&self) -> u64 {
        self.cached
    }

    /// Reads the next pages. Returns whether there are more to read.
    pub fn step(&mut self) -> bool {
        let Some((file, pages)) = self.rows.pop_front() else { return false };
        if !file.is_obsolete() && !self.read(&file, pages) {
            // The cache is full.
            self.rows.clear();
        }
        !self.rows.is_empty()
    }

    /// Reads a row of pages. Returns false if the cache has no room for one.
    fn read(&mut self, file: &TableFile, pages: Range<u32>) -> bool {
        let Ok(table) = file.table() else { return true };
        let at = u64::from(pages.start) * PAGE_BYTES as u64;
        let buf = Buf::pages((pages.end - pages.start) as usize);
        // A list that is out of date, or a device that fails: the reader of the page reports an error.
        let (buf, Ok(())) = table.file().read(at, buf, Purpose::ReadAhead) else { return true };
        let (bytes, _) = buf.as_chunks::<PAGE_BYTES>();
        for (page, content) in pages.zip(bytes) {
            let key = PageKey { file: table.footer().digest, page };
            let Some(kind) = cached_kind(content) else { continue };
            if self.cache.peek(key).is_some() || verify_page(table.seed(), page, content).is_err() {
                continue;
            }
            if !self.cache.insert_read_ahead(key, kind, content) {
                return false;
            }
            self.cached += 1;
        }
        true
    }
}

/// Adds the reads of `pages`: a short gap between two is read with them.
fn add_row(
    rows: &mut VecDeque<(Arc<TableFile>, Range<u32>)>,
    table: &Arc<TableFile>,
    mut pages: Range<u32>,
) {
    if let Some((last, row)) = rows.back_mut()
        && Arc::ptr_eq(last, table)
        && pages.start <= row.end.saturating_add(GAP_PAGES)
        && pages.end - row.start <= READ_PAGES
    {
        row.end = pages.end;
        return;
    }
    while pages.start < pages.end {
        let end = pages.end.min(pages.start.saturating_add(READ_PAGES));
        rows.push_back((Arc::clone(table), pages.start..end));
        pages.start = end;
    }
}
