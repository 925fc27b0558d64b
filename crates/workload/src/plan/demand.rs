//! The demand of a workload: its hits as a function of the memory for rows and pages.
//!
//! DRAM caches rows and pages. The SCM tier caches pages, and rows too if it is memory. The pages of both
//! tiers together hit like one cache of some size (`cache::curve::equivalent_sizes`), so the miss-ratio curve
//! of pages, taken at two sizes, gives the hits of each tier. The same holds for the rows of both tiers
//! (`held_rows`). docs/planning.md says how accurate that is.

use cache::curve::{MissCurve, equivalent_sizes};

/// Overhead of a page in DRAM, its frame and its index entry, as a fraction of its 4 KiB.
const PAGE_OVERHEAD: f64 = 0.03;

/// The share of a row slot in the SCM tier that rows fill. The rest are entries of 8 B, and gaps that no row
/// fits.
const FILL: f64 = 0.86;

/// Slots per set of the SCM tier, and the most of them that rows may have (`cache::scm`).
const SLOTS: u32 = 16;
const ROW_SLOTS_MAX: u32 = 14;

/// The fraction of the bytes of rows in SCM that adds to those in DRAM. The rest is duplicates: rows that
/// were found in SCM and promoted. Fitted to a simulation (the test `rows_of_both_tiers_hit_like_one_cache`).
const ADDED: f64 = 0.93;

/// Parts of DRAM that are tried for rows, beside the sizes of which the demand is known. Their hits are
/// interpolated, so that the best split grows with DRAM and does not jump from one known size to the next.
const PARTS: u32 = 8;

/// The most of DRAM that metadata takes. A store with less has to read the rest of its metadata.
const META_MAX: f64 = 0.5;

/// The size of one row cache with as many hits as `dram` bytes of rows in DRAM over `scm` bytes in SCM.
pub(super) fn held_rows(dram: f64, scm: f64) -> f64 {
    dram + ADDED * scm
}

/// A workload, described behind row caches of several sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// The key lookups that the curves were made from.
    pub operations: u64,
    /// By size of the row cache, the smallest first.
    pub behind: Vec<BehindRowCache>,
    /// The size of all accessed entries as pages, bytes. More memory than this is of no use.
    pub footprint: f64,
    /// Metadata, bytes, which comes before rows and pages, in up to half of DRAM; the curves of pages exclude
    /// it.
    pub meta_bytes: f64,
}

/// A workload behind a row cache of one size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BehindRowCache {
    /// The memory of the row cache and its index, bytes.
    pub row_bytes: f64,
    /// The share of operations that no row answers.
    pub row_misses: f64,
    /// Page lookups per operation, averaged over all operations, those answered by rows included.
    pub lookups: f64,
    /// The miss-ratio curve of these page lookups.
    pub pages: MissCurve,
}

/// The tiers that answer the operations and their page lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reads {
    /// The memory of rows in DRAM, bytes; the rest of DRAM is for pages.
    pub row_bytes: f64,
    /// The memory of rows in SCM, bytes; the rest of SCM is for pages.
    pub scm_row_bytes: f64,
    /// The share of operations that a row in SCM answers.
    pub scm_rows: f64,
    /// Page hits in DRAM per operation.
    pub dram: f64,
    /// Page hits in SCM per operation.
    pub scm: f64,
    /// Pages read from flash per operation.
    pub flash: f64,
    /// Shares of the operations by the lowest tier that they reach: a row in DRAM, pages in DRAM, rows or
    /// pages in SCM, flash.
    pub ends: [f64; 4],
}

impl BehindRowCache {
    /// The reads with `dram` and `scm` bytes for pages. With `stay_below`, pages that are found in SCM are
    /// not promoted, because a hit there costs little more than in DRAM, and DRAM serves the pages that SCM
    /// does not hold.
    #[must_use]
    pub fn reads(&self, dram: f64, scm: f64, stay_below: bool) -> Reads {
        Interpolation { less: self, more: self, part: 0.0 }.reads(dram, scm, stay_below)
    }
}

/// A workload behind a row cache of a size between two known ones, by linear interpolation, as on a curve.
#[derive(Clone, Copy)]
struct Interpolation<'a> {
    less: &'a BehindRowCache,
    more: &'a BehindRowCache,
    /// The position between `less` and `more`, 0 to 1.
    part: f64,
}

impl Interpolation<'_> {
    fn of(&self, what: impl Fn(&BehindRowCache) -> f64) -> f64 {
        let less = what(self.less);
        less + (what(self.more) - less) * self.part
    }

    fn row_bytes(&self) -> f64 {
        self.of(|it| it.row_bytes)
    }

    fn row_misses(&self) -> f64 {
        self.of(|it| it.row_misses.clamp(0.0, 1.0))
    }

    /// As [`BehindRowCache::reads`].
    fn reads(&self, dram: f64, scm: f64, stay_below: bool) -> Reads {
        let misses = |bytes: f64| self.of(|it| it.lookups * it.pages.miss_ratio(bytes));
        let sizes = equivalent_sizes(dram / (1.0 + PAGE_OVERHEAD), scm, stay_below);
        let [past_dram, flash] = sizes.map(misses);
        let lookups = self.of(|it| it.lookups);
        let past_dram = if stay_below && scm > 0.0 { lookups } else { past_dram };
        let scm = (past_dram - flash).max(0.0);
        // An operation that reads two pages of one tier is counted once for each, though it ends there once.
        // That is rare, because the second page is metadata that a hundred data pages share.
        let searched = self.row_misses();
        let ends_flash = flash.min(searched);
        let ends_scm = scm.min(searched - ends_flash);
        let ends_dram = searched - ends_flash - ends_scm;
        debug_assert!(ends_dram >= -1e-9, "every operation ends in one tier");
        Reads {
            row_bytes: self.row_bytes(),
            dram: (lookups - past_dram).max(0.0),
            scm,
            flash,
            ends: [1.0 - searched, ends_dram, ends_scm, ends_flash],
            ..Reads::default()
        }
    }
}

impl Reads {
    /// The share of operations that read nothing from flash.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        1.0 - self.ends.last().copied().unwrap_or_default()
    }

    /// The same reads if DRAM holds the share `covered` of the metadata. Each page lookup needs metadata, and
    /// reads the rest of it from flash: lookups of hot pages as often as others, which is cautious.
    fn with_metadata(self, covered: f64) -> Self {
        if covered >= 1.0 {
            return self;
        }
        let read = self.dram + self.scm + self.flash;
        let [row, dram, scm, flash] = self.ends;
        let scm_pages = scm - self.scm_rows;
        let lost = (dram + scm_pages) * (1.0 - covered);
        let ends = [row, dram * covered, self.scm_rows + scm_pages * covered, flash + lost];
        Self { flash: self.flash + read * (1.0 - covered), ends, ..self }
    }
}

impl Demand {
    /// All splits of `dram` bytes between rows and pages, with `scm` bytes of SCM. With `stay_below`, also
    /// all splits of SCM, by slots per set, most rows first.
    pub fn splits(&self, dram: f64, scm: f64, stay_below: bool) -> impl Iterator<Item = Reads> {
        let held = self.meta_bytes.min(dram * META_MAX);
        let covered = if held < self.meta_bytes { held / self.meta_bytes } else { 1.0 };
        let dram = dram - held;
        let row_slots = if stay_below && scm > 0.0 { ROW_SLOTS_MAX } else { 0 };
        let splits = self.rows_within(dram).flat_map(move |rows| {
            let row_bytes = rows.row_bytes();
            let with_rows = (1..=row_slots).rev().filter_map(move |slots| {
                let scm_rows = scm * f64::from(slots) / f64::from(SLOTS);
                self.with_rows_below(rows, dram - row_bytes, [scm_rows, scm - scm_rows])
            });
            with_rows.chain([rows.reads(dram - row_bytes, scm, stay_below)])
        });
        splits.map(move |reads| reads.with_metadata(covered))
    }

    /// Row caches of at most `dram` bytes: those of known sizes, and parts of `dram` between them.
    fn rows_within(&self, dram: f64) -> impl Iterator<Item = Interpolation<'_>> {
        let sizes = |at: Option<&BehindRowCache>| at.map_or(0.0, |it| it.row_bytes);
        let (least, most) = (sizes(self.behind.first()), sizes(self.behind.last()));
        let known = self.behind.iter().filter(move |it| it.row_bytes <= dram);
        let known = known.map(|it| Interpolation { less: it, more: it, part: 0.0 });
        let parts = (1..=PARTS).map(move |part| dram * f64::from(part) / f64::from(PARTS));
        let between = parts.filter(move |bytes| *bytes > least && *bytes < most);
        known.chain(between.filter_map(|bytes| self.between(bytes)))
    }

    /// The reads with `rows` and `dram` bytes of pages in DRAM, and the given bytes for rows and for pages in
    /// SCM, whose pages are not promoted. `None` if the rows in SCM would answer nothing.
    fn with_rows_below(
        &self,
        rows: Interpolation<'_>,
        dram: f64,
        [scm_row_bytes, scm]: [f64; 2],
    ) -> Option<Reads> {
        let row_bytes = rows.row_bytes();
        let both = self.between(held_rows(row_bytes, scm_row_bytes * FILL))?;
        let row = 1.0 - rows.row_misses();
        let scm_rows = 1.0 - row - both.row_misses();
        if scm_rows <= 0.0 {
            return None;
        }
        let reads = both.reads(dram, scm, true);
        let [_, ends_dram, ends_scm, ends_flash] = reads.ends;
        let ends = [row, ends_dram, ends_scm + scm_rows, ends_flash];
        Some(Reads { row_bytes, scm_row_bytes, scm_rows, ends, ..reads })
    }

    /// The workload behind a row cache of `row_bytes`. Beyond the largest known size, more memory has no
    /// effect.
    fn between(&self, row_bytes: f64) -> Option<Interpolation<'_>> {
        let at = self.behind.partition_point(|it| it.row_bytes <= row_bytes);
        let less = self.behind.get(at.saturating_sub(1))?;
        let more = self.behind.get(at).unwrap_or(less);
        let step = more.row_bytes - less.row_bytes;
        let part = if step > 0.0 { ((row_bytes - less.row_bytes) / step).max(0.0) } else { 0.0 };
        Some(Interpolation { less, more, part })
    }

    /// The demand of an open store, from its miss-ratio curves of rows and pages. Of `operations` lookups
    /// that no memtable answered, `rows.accesses` were of entries that may be cached as rows, and rows in
    /// DRAM or SCM answered `row_hits`. Behind a row cache of another size, page lookups are assumed to
    /// change in proportion to the operations that miss the rows, at an unchanged miss ratio.
    #[must_use]
    pub fn measured(operations: u64, rows: &MissCurve, pages: &MissCurve, row_hits: u64) -> Self {
        let all = operations.max(1) as f64;
        let by_rows = rows.accesses.min(operations) as f64 / all;
        let searched = (1.0 - row_hits as f64 / all).clamp(1e-9, 1.0);
        let page_lookups = pages.accesses as f64 / all;
        let sizes = [0].into_iter().chain(rows.points.iter().map(|point| point.bytes));
        let behind = sizes.map(|bytes| {
            let row_misses = (1.0 - by_rows) + by_rows * rows.miss_ratio(bytes as f64);
            let lookups = page_lookups * row_misses / searched;
            BehindRowCache { row_bytes: bytes as f64, row_misses, lookups, pages: pages.clone() }
        });
        let largest = pages.points.last().map_or(0.0, |point| point.bytes as f64);
        Self { operations, behind: behind.collect(), footprint: largest, meta_bytes: 0.0 }
    }

    /// The same workload on data that is `times` as large.
    #[must_use]
    pub fn scaled(mut self, times: f64) -> Self {
        let scale = |bytes: u64| (bytes as f64 * times) as u64;
        for behind in &mut self.behind {
            behind.row_bytes *= times;
            behind.pages.points.iter_mut().for_each(|point| point.bytes = scale(point.bytes));
        }
        self.footprint *= times;
        self.meta_bytes *= times;
        self
    }
}
