//! Derives the demand of a trace. The keys of the trace are laid out in pages like those of a settled store,
//! and the accesses to a sample of the pages are simulated in caches of many sizes.
//!
//! A page is sampled together with all its rows, so the lookups of a page behind a row cache are exactly
//! those that miss its rows, at each size of the row cache. The trace is read twice, for its keys and for its
//! accesses. Cost: about 100 B of memory per distinct key.

use std::collections::HashMap;

use base::{Error, Result, invariant, key_hash};
use cache::PageKind;
use cache::curve::{Simulations, Subject};
use cache::rows::{ROW_BYTES_MAX, row_bytes};

use super::demand::{BehindRowCache, Demand};
use crate::trace::{KEYS_MAX, Op, Trace, for_each};

/// The approximate number of keys on sampled pages.
const SAMPLED_KEYS: f64 = 50_000.0;

/// Memory of each set of simulated caches, bytes: enough for the whole sample.
const SIMULATION_BYTES: usize = 64 << 20;

/// Overhead of an entry in a page besides its key and value, bytes.
const ENTRY_OVERHEAD: u64 = 8;

const PAGE_BYTES: u64 = 4096;

/// Memory of the index entry of a row, bytes.
const ROW_INDEX_BYTES: usize = 26;

/// Metadata pages as a fraction of all pages. A metadata page serves a hundred data pages and is hotter than
/// each of them, so DRAM is assumed to hold all metadata before anything else.
const META_PART: f64 = 0.012;

/// The number of simulated cache sizes. Row caches halve from one size to the next; page caches shrink by a
/// factor of 1.41.
const ROW_SIZES: i32 = 11;
const PAGE_SIZES: i32 = 21;

/// The layout of entries in pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout {
    /// The size of every value, bytes; overrides the sizes in the trace.
    pub value_bytes: Option<usize>,
    /// The size of a value if neither the trace nor `value_bytes` gives one, bytes.
    pub default_value_bytes: usize,
    /// The size of a compressed entry as a fraction of its size.
    pub compression_ratio: f64,
    /// Ends the survey after this many accesses.
    pub limit: Option<u64>,
}

impl Default for Layout {
    fn default() -> Self {
        Self { value_bytes: None, default_value_bytes: 100, compression_ratio: 0.5, limit: None }
    }
}

/// The pages of an entry, and its size as a row (0 if it is too large for a row).
#[derive(Clone, Copy, Debug, Default)]
struct EntryLocation {
    page: u64,
    pages: u32,
    row_bytes: u32,
    /// The key was written before.
    is_written: bool,
}

/// Derives the demand of the trace that `open` opens, which is read twice.
///
/// Reads are looked up. A read that puts the key if it finds nothing, and is the first access of its key,
/// misses at every size: the key is in no page, although its neighbours may be in a cached one. Only a delete
/// removes the row of its key: the row of a put returns with the flush of its memtable. Scans are ignored,
/// although a store caches the pages of short scans that repeat.
///
/// # Errors
/// `Invalid` if the trace has more than 16 M distinct keys or no reads; those of the trace.
pub fn survey(open: &mut dyn FnMut() -> Result<Box<dyn Trace>>, layout: &Layout) -> Result<Demand> {
    let mut locations = lay_out(&mut *open()?, layout)?;
    let pages =
        locations.values().map(|it| it.page + u64::from(it.pages)).max().unwrap_or_default();
    let mut caches = Caches::new(&locations, pages);
    let mut operations = 0u64;
    let mut pages_asked = 0u64;
    for_each(&mut *open()?, layout.limit, &mut |access| {
        let hash = key_hash(&access.key);
        let Some(location) = locations.get_mut(&hash) else { return Ok(()) };
        let is_new = !location.is_written && access.op == Op::GetOrPut;
        location.is_written |= matches!(access.op, Op::GetOrPut | Op::Put);
        match access.op {
            Op::Get | Op::GetOrPut | Op::Update => {
                operations += 1;
                pages_asked += u64::from(location.pages);
                match is_new {
                    true => caches.enter(hash, *location),
                    false => caches.read(hash, *location),
                }
            }
            Op::Delete => caches.invalidate(hash),
            // The flush after a put renews the row.
            Op::Put | Op::Scan(_) => {}
        }
        Ok(())
    })?;
    if operations == 0 {
        return Err(Error::invalid("trace").expected("reads").got("none"));
    }
    Ok(caches.demand(operations, pages_asked as f64 / operations as f64))
}

/// Lays out all keys in key order, as many entries per page as fit. Returns the location by hash of the key.
fn lay_out(trace: &mut dyn Trace, layout: &Layout) -> Result<HashMap<u64, EntryLocation>> {
    let mut keys: HashMap<Vec<u8>, u64> = HashMap::new();
    for_each(trace, layout.limit, &mut |access| {
        let recorded = access.value_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let value = layout.value_bytes.or(recorded).unwrap_or(layout.default_value_bytes);
        let value = value.min(base::limits::VALUE_BYTES_MAX) as u64;
        if let Some(known) = keys.get_mut(&access.key) {
            *known = value.max(*known);
            return Ok(());
        }
        if keys.len() >= KEYS_MAX {
            return Err(Error::invalid("trace")
                .expected(format_args!("at most {KEYS_MAX} distinct keys; --limit cuts it"))
                .got("more"));
        }
        keys.insert(access.key.clone(), value);
        Ok(())
    })?;
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_unstable();
    let mut locations = HashMap::with_capacity(keys.len());
    let (mut page, mut used) = (0u64, 0u64);
    for (key, value) in keys {
        let raw = (key.len() as u64 + value + ENTRY_OVERHEAD) as f64;
        let bytes = ((raw * layout.compression_ratio).ceil() as u64).max(1);
        let pages = bytes.div_ceil(PAGE_BYTES);
        if used + bytes > PAGE_BYTES && used > 0 {
            (page, used) = (page + 1, 0);
        }
        let row = row_bytes(key.len(), value as usize, false);
        let row_bytes = if row <= ROW_BYTES_MAX { (row + ROW_INDEX_BYTES) as u32 } else { 0 };
        let pages = pages as u32;
        let location = EntryLocation { page, pages, row_bytes, is_written: false };
        locations.insert(key_hash(&key), location);
        used += bytes;
        if pages > 1 {
            (page, used) = (page + u64::from(pages), 0);
        }
    }
    Ok(locations)
}

/// Simulated row caches, and behind each size of them simulated page caches.
struct Caches {
    /// Pages with a hash up to this are sampled.
    threshold: u64,
    rows: Simulations,
    row_sizes: Vec<u64>,
    /// The first without a row cache, the others behind a row cache of each size.
    pages: Vec<Simulations>,
    /// Reads of entries too large for a row, sampled or not, and reads of keys that are new.
    no_rows: u64,
    new: u64,
    footprint: f64,
}

/// `count` sizes up to `bytes`, each `step` times the one before.
fn sizes(bytes: f64, step: f64, count: i32) -> Vec<u64> {
    (0..count).rev().map(|at| (bytes * step.powi(-at)) as u64).collect()
}

impl Caches {
    fn new(locations: &HashMap<u64, EntryLocation>, pages: u64) -> Self {
        let footprint = (pages * PAGE_BYTES) as f64;
        let all_rows: f64 = locations.values().map(|location| f64::from(location.row_bytes)).sum();
        let rate = (SAMPLED_KEYS / locations.len().max(1) as f64).min(1.0);
        // The share `rate` of all hashes; all of them at 1.
        let threshold = (rate * u64::MAX as f64) as u64;
        let row_sizes =
            if all_rows > 0.0 { sizes(all_rows * 1.02, 2.0, ROW_SIZES) } else { vec![] };
        let page_sizes = sizes(footprint * 1.02, 2f64.sqrt(), PAGE_SIZES);
        let behind =
            |_| Simulations::following(Subject::Pages, &page_sizes, rate, SIMULATION_BYTES);
        let rows = Simulations::following(Subject::Rows, &row_sizes, rate, SIMULATION_BYTES);
        let pages = (0..=row_sizes.len()).map(behind).collect();
        Self { threshold, rows, row_sizes, pages, no_rows: 0, new: 0, footprint }
    }

    fn read(&mut self, key: u64, location: EntryLocation) {
        self.no_rows += u64::from(location.row_bytes == 0);
        let hash = |page: u64| key_hash(&page.to_le_bytes());
        if hash(location.page) > self.threshold {
            return;
        }
        let missed = match location.row_bytes {
            0 => u64::MAX,
            bytes => {
                let asked = self.rows.ask(key, bytes, PageKind::Data);
                asked.map_or(u64::MAX, |asked| asked.missed)
            }
        };
        for (at, pages) in self.pages.iter_mut().enumerate() {
            if at > 0 && missed >> (at - 1) & 1 == 0 {
                continue;
            }
            for page in location.page..location.page + u64::from(location.pages) {
                pages.ask(hash(page), PAGE_BYTES as u32, PageKind::Data);
            }
        }
    }

    /// A new key is read and put: no cache can have it before.
    fn enter(&mut self, key: u64, location: EntryLocation) {
        self.new += 1;
        let hash = |page: u64| key_hash(&page.to_le_bytes());
        if hash(location.page) > self.threshold {
            return;
        }
        if location.row_bytes > 0 {
            self.rows.bring(key, location.row_bytes);
        }
        for pages in &mut self.pages {
            for page in location.page..location.page + u64::from(location.pages) {
                pages.bring(hash(page), PAGE_BYTES as u32);
            }
        }
    }

    fn invalidate(&mut self, key: u64) {
        self.rows.invalidate(key);
    }

    fn demand(self, operations: u64, pages_asked: f64) -> Demand {
        invariant!(
            self.no_rows + self.new <= operations,
            "reads of new keys, and of entries too large for a row, are operations"
        );
        invariant!(
            self.pages.len() == self.row_sizes.len() + 1,
            "page caches are simulated without a row cache and behind each size of it"
        );
        let all = operations as f64;
        let no_rows = self.no_rows as f64 / all;
        let new = self.new as f64;
        let rows = self.rows.curve(operations - self.no_rows - self.new);
        let sizes = [0].into_iter().chain(self.row_sizes);
        let behind = sizes.zip(&self.pages).map(|(bytes, pages)| {
            let asked = 1.0 - no_rows - new / all;
            let row_misses = no_rows + new / all + asked * rows.miss_ratio(bytes as f64);
            let lookups = pages_asked * row_misses;
            let mut pages = pages.curve((lookups * all) as u64);
            pages.points.iter_mut().for_each(|point| point.misses += new * pages_asked);
            BehindRowCache { row_bytes: bytes as f64, row_misses, lookups, pages }
        });
        let (footprint, meta_bytes) = (self.footprint, self.footprint * META_PART);
        Demand { operations, behind: behind.collect(), footprint, meta_bytes }
    }
}
