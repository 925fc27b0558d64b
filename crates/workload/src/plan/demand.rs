//! What a workload asks of memory.
//!
//! DRAM holds rows and pages, the tier below it pages, and rows, too, where it is memory. Pages of both are
//! as good as one cache of some size (`cache::curve::equivalent_sizes`), so the curve of pages, taken at two
//! sizes, tells the hits of each; and so are rows of both (`held_rows`). docs/planning.md says how far that
//! holds.

use cache::curve::{MissCurve, equivalent_sizes};

/// What a page takes in DRAM beside its own 4 KiB, as a part of it: its slot, and its place in the index.
const PAGE_OVERHEAD: f64 = 0.03;

/// Of a page of rows in the tier, the part that rows take: the rest are entries of 8 B, and room that no row
/// fits into.
const FILL: f64 = 0.86;

/// Slots of each set of the tier, and how many of them rows may have (`cache::scm`).
const SLOTS: u32 = 16;
const ROW_SLOTS_MAX: u32 = 14;

/// What rows in the tier add to those in DRAM, as a part of what they take: those that were found and came up
/// lie in both. Fitted to a simulation (the test `rows_above_and_below_find_what_one_cache_does`).
const ADDED: f64 = 0.93;

/// The size of one cache that finds as many rows as do `dram` bytes of them with `scm` below.
pub(super) fn held_rows(dram: f64, scm: f64) -> f64 {
    dram + ADDED * scm
}

/// The same workload behind row caches of several sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Lookups of keys that the curves are of.
    pub operations: u64,
    /// By the memory of rows, the least first.
    pub behind: Vec<Behind>,
    /// What all that was asked for takes as pages, bytes: more memory is of no use.
    pub footprint: f64,
    /// What DRAM holds before rows and pages, bytes: metadata that the curves of pages are without.
    pub meta_bytes: f64,
}

/// A workload behind a row cache of one size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behind {
    /// The memory of rows and their index, bytes.
    pub row_bytes: f64,
    /// Of an operation, the part that no row answers.
    pub row_misses: f64,
    /// Pages looked up by an operation, those answered by rows included.
    pub lookups: f64,
    /// Of these.
    pub pages: MissCurve,
}

/// Where an operation's pages come from, and where it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reads {
    /// The memory of rows, bytes; the rest of DRAM is for pages.
    pub row_bytes: f64,
    /// What rows take of the tier below, bytes; the rest of it is for pages.
    pub scm_row_bytes: f64,
    /// Operations that a row in the tier below answers, as a part of 1.
    pub scm_rows: f64,
    /// Pages used in DRAM, by an operation.
    pub dram: f64,
    /// Pages used or read below.
    pub scm: f64,
    /// Pages read from flash.
    pub flash: f64,
    /// Operations by the farthest place they go to, as parts of 1: a row in DRAM, pages in DRAM, the tier
    /// below, its rows or pages, flash.
    pub ends: [f64; 4],
}

impl Behind {
    /// With so much memory for pages in DRAM and below, bytes. Where pages stay below, as on memory, whose
    /// hits cost little more than DRAM's, DRAM serves those that are not there.
    #[must_use]
    pub fn reads(&self, dram: f64, scm: f64, stay_below: bool) -> Reads {
        Between { less: self, more: self, part: 0.0 }.reads(dram, scm, stay_below)
    }
}

/// A workload behind rows of a size between two that are known: everything changes evenly from one to the
/// other, as on a curve.
struct Between<'a> {
    less: &'a Behind,
    more: &'a Behind,
    /// Of the way from `less` to `more`.
    part: f64,
}

impl Between<'_> {
    fn of(&self, what: impl Fn(&Behind) -> f64) -> f64 {
        let less = what(self.less);
        less + (what(self.more) - less) * self.part
    }

    fn row_misses(&self) -> f64 {
        self.of(|it| it.row_misses.clamp(0.0, 1.0))
    }

    /// As [`Behind::reads`].
    fn reads(&self, dram: f64, scm: f64, stay_below: bool) -> Reads {
        let misses = |bytes: f64| self.of(|it| it.lookups * it.pages.miss_ratio(bytes));
        let sizes = equivalent_sizes(dram / (1.0 + PAGE_OVERHEAD), scm, stay_below);
        let [past_dram, flash] = sizes.map(misses);
        let lookups = self.of(|it| it.lookups);
        let past_dram = if stay_below && scm > 0.0 { lookups } else { past_dram };
        let scm = (past_dram - flash).max(0.0);
        // An operation that reads two pages from one place ends there once, which is rare: the second is
        // metadata of a hundred data pages.
        let searched = self.row_misses();
        let ends_flash = flash.min(searched);
        let ends_scm = scm.min(searched - ends_flash);
        let ends_dram = searched - ends_flash - ends_scm;
        Reads {
            row_bytes: self.of(|it| it.row_bytes),
            dram: (lookups - past_dram).max(0.0),
            scm,
            flash,
            ends: [1.0 - searched, ends_dram, ends_scm, ends_flash],
            ..Reads::default()
        }
    }
}

impl Reads {
    /// The part of operations that flash has no part in.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        1.0 - self.ends.last().copied().unwrap_or_default()
    }
}

impl Demand {
    /// Every way to split `dram` bytes between rows and pages, with `scm` bytes below; and where pages stay
    /// below, every way to split these, too, by slots of a set, most rows first.
    pub fn splits(&self, dram: f64, scm: f64, stay_below: bool) -> impl Iterator<Item = Reads> {
        let dram = (dram - self.meta_bytes).max(0.0);
        let fits = move |behind: &&Behind| behind.row_bytes <= dram;
        let row_slots = if stay_below && scm > 0.0 { ROW_SLOTS_MAX } else { 0 };
        self.behind.iter().filter(fits).flat_map(move |rows| {
            let with_rows = (1..=row_slots).rev().filter_map(move |slots| {
                let scm_rows = scm * f64::from(slots) / f64::from(SLOTS);
                self.with_rows_below(rows, dram - rows.row_bytes, [scm_rows, scm - scm_rows])
            });
            with_rows.chain([rows.reads(dram - rows.row_bytes, scm, stay_below)])
        })
    }

    /// With `rows` in DRAM, `dram` bytes of pages there, and so many bytes below for rows and for pages,
    /// which stay there; none where these rows would answer nothing.
    fn with_rows_below(
        &self,
        rows: &Behind,
        dram: f64,
        [scm_row_bytes, scm]: [f64; 2],
    ) -> Option<Reads> {
        let both = self.between(held_rows(rows.row_bytes, scm_row_bytes * FILL))?;
        let row = 1.0 - rows.row_misses.clamp(0.0, 1.0);
        let scm_rows = 1.0 - row - both.row_misses();
        if scm_rows <= 0.0 {
            return None;
        }
        let reads = both.reads(dram, scm, true);
        let [_, ends_dram, ends_scm, ends_flash] = reads.ends;
        let ends = [row, ends_dram, ends_scm + scm_rows, ends_flash];
        Some(Reads { row_bytes: rows.row_bytes, scm_row_bytes, scm_rows, ends, ..reads })
    }

    /// Behind `row_bytes` of rows; more than are known are of no use.
    fn between(&self, row_bytes: f64) -> Option<Between<'_>> {
        let at = self.behind.partition_point(|it| it.row_bytes <= row_bytes);
        let less = self.behind.get(at.saturating_sub(1))?;
        let more = self.behind.get(at).unwrap_or(less);
        let step = more.row_bytes - less.row_bytes;
        let part = if step > 0.0 { ((row_bytes - less.row_bytes) / step).max(0.0) } else { 0.0 };
        Some(Between { less, more, part })
    }

    /// Of an open store: the curves of its rows and of its pages. Of `operations` lookups that memtables did
    /// not answer, `rows.accesses` were of rows that are kept or may be, and rows, in DRAM or below, answered
    /// `row_hits`. With another size of rows as many pages more or fewer are asked for as lookups pass the
    /// rows, and these are found as often as the others.
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
            Behind { row_bytes: bytes as f64, row_misses, lookups, pages: pages.clone() }
        });
        let largest = pages.points.last().map_or(0.0, |point| point.bytes as f64);
        Self { operations, behind: behind.collect(), footprint: largest, meta_bytes: 0.0 }
    }

    /// The same workload over data `times` as large.
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
