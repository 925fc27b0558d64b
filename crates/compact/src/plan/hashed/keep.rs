//! The planner that keeps everything: slices of the base are merged with their part of the runs.
//!
//! The pieces of the lowest level in a slice of the hash space are its *base*; all others are runs. A lookup
//! asks the filters of the runs above a key, and reads the base, which needs no filter. Runs cost memory for
//! their filters, merges cost writes: with runs of *d* bytes per byte of base when a slice is merged,
//!
//! - the runs hold *d* / 2 of the base on average, which bounds the memory of filters;
//! - each byte written is merged 1 / *d* times: write amplification is that plus the flush;
//! - (*d* / 2) / (bytes of a flush / bytes of the base) runs lie above a key.
//!
//! One slice is merged at a time, the one with the most run bytes for its base, whenever all runs together
//! hold more than *d* / 2 of all bases. So at any time some slices were just merged, some are due, and the
//! others lie evenly between: the peak is hardly above the mean. A slice may have more runs than a job has
//! memory for. If the oldest of them, as many as fit a job, hold too few bytes for a merge with the base,
//! they are merged with one another, which does not write the base. Slices that cannot be merged, because a
//! job works there or a table is damaged, do not count: others are not merged early in their place.

use std::ops::Range;

use base::{RunId, invariant};

use super::filters::run_filter_bits;
use super::slices::{Slices, bytes_in, clipped, hashes_of, hashes_of_piece, key_of, meet};
use crate::plan::{Area, Debt, ManualRange, Merge, Piece, Plan, Reason, RunSummary, Summary};

/// The shape that the planner aims for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// A slice is merged once its runs have this share of the bytes of its base.
    pub run_share: f64,
    /// Filter bits of the base; 0: none. With filters, lookups of missing keys read less.
    pub base_filter_bits: u8,
    /// Most input runs of one job, which bounds its memory.
    pub runs_max: usize,
    /// A base below this many bytes is divided into fewer slices.
    pub slice_bytes_min: u64,
    /// A base above this many bytes in each slice is divided into more slices.
    pub slice_bytes_max: u64,
    /// Maximum length of a table of the base, bytes.
    pub table_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            run_share: 0.27,
            base_filter_bits: 0,
            runs_max: 192,
            slice_bytes_min: 1 << 20,
            slice_bytes_max: 512 << 20,
            table_bytes: 256 << 20,
        }
    }
}

impl Options {
    /// Filter bits of a flushed table of `unit_bytes` bytes over a base of `base_bytes` bytes.
    #[must_use]
    pub fn flush_filter_bits(&self, unit_bytes: u64, base_bytes: u64) -> u8 {
        let units = self.runs_over(base_bytes, unit_bytes.max(1)) / unit_bytes.max(1) as f64;
        run_filter_bits(units)
    }

    /// Bytes that all runs may hold together over bases of `base_bytes` bytes. Over a small base this is the
    /// size of [`RUNS_MIN`] flushed tables of `unit_bytes` bytes.
    fn runs_over(&self, base_bytes: u64, unit_bytes: u64) -> f64 {
        let least = unit_bytes.saturating_mul(RUNS_MIN) as f64;
        (base_bytes as f64 * self.run_share / 2.0).max(least)
    }
}

/// Flushed tables over a base that is too small for [`Options::run_share`] to make sense.
const RUNS_MIN: u64 = 4;

/// A slice with this many times its due share of runs is merged, however few all others have.
const OVERDUE: f64 = 1.5;

/// Runs of less than this part of a slice's due share are folded, if all of them are too many for a job.
const FOLDED: f64 = 0.8;

/// The level of the base.
pub const BASE_LEVEL: u8 = 1;

/// The content of one slice.
#[derive(Clone, Debug, Default)]
struct Slice {
    /// Bytes of its runs, and their number.
    run_bytes: u64,
    runs: usize,
    base_bytes: u64,
    /// Whether it has runs that the user's manual compaction includes.
    is_asked: bool,
    /// Whether a job works in it.
    is_busy: bool,
    /// The newest run with a damaged table in it.
    damaged: Option<usize>,
}

/// A tree, by slices.
struct Tree<'a> {
    summary: &'a Summary,
    options: &'a Options,
    slices: Slices,
    all: Vec<Slice>,
    /// Bytes of base at which a slice counts if its own is less.
    base_min: f64,
}

impl<'a> Tree<'a> {
    fn new(summary: &'a Summary, options: &'a Options) -> Self {
        let pieces = || summary.runs.iter().flat_map(|run| &run.pieces);
        let stored = pieces().map(|piece| bytes_in(piece, &hashes_of_piece(piece))).sum();
        let slices = Slices::of(stored, options.slice_bytes_min, options.slice_bytes_max);
        let mut all = vec![Slice::default(); slices.count as usize];
        for (index, run) in summary.runs.iter().enumerate() {
            count(index, run, slices, summary.manual.as_ref(), &mut all);
        }
        for (number, slice) in all.iter_mut().enumerate() {
            let hashes = slices.hashes(number);
            let meets = |area: &Area| meet(&hashes_of(&area.first, area.end.as_deref()), &hashes);
            slice.is_busy = summary.busy.iter().any(meets);
        }
        let least = options.runs_over(0, summary.unit_bytes);
        let base_min = least / slices.count as f64 * 2.0 / options.run_share.max(0.01);
        Self { summary, options, slices, all, base_min }
    }

    /// Bytes of runs of `slice` for each byte of base.
    fn share(&self, slice: &Slice) -> f64 {
        slice.run_bytes as f64 / (slice.base_bytes as f64).max(self.base_min).max(1.0)
    }

    /// Bytes of runs over those that the slices may hold together: above 1 a merge is due.
    fn fullness(&self) -> f64 {
        let mergeable = || self.all.iter().filter(|slice| slice.is_mergeable());
        let runs: u64 = mergeable().map(|slice| slice.run_bytes).sum();
        let bases: f64 = mergeable().map(|it| (it.base_bytes as f64).max(self.base_min)).sum();
        runs as f64 / (bases * self.options.run_share / 2.0).max(1.0)
    }

    /// Whether `slice` is merged whatever the others hold.
    fn is_overdue(&self, slice: &Slice) -> bool {
        slice.runs >= self.options.runs_max || self.share(slice) > self.options.run_share * OVERDUE
    }

    /// Whether the runs of `slice`, of the hashes `hashes`, are merged with one another, not with the base:
    /// one job cannot take all of them and the base, and those that it can take, the oldest, are too short to
    /// rewrite the base for. Runs pile up behind a burst of writes, so the bytes of all runs would not tell.
    fn is_folded(&self, slice: &Slice, hashes: &Range<u128>) -> bool {
        if slice.runs < self.options.runs_max {
            return false;
        }
        let run_bytes = |run: &RunSummary| -> u64 {
            let pieces = run.pieces.iter().filter(|piece| piece.level < BASE_LEVEL);
            pieces
                .filter(|it| meet(&hashes_of_piece(it), hashes))
                .map(|it| bytes_in(it, hashes))
                .sum()
        };
        let oldest = self.summary.runs.iter().rev().map(run_bytes).filter(|bytes| *bytes > 0);
        let run_bytes = oldest.take(self.options.runs_max.max(2) - 1).sum();
        self.share(&Slice { run_bytes, ..slice.clone() }) < self.options.run_share * FOLDED
    }

    /// The merge of the runs of slice `number` with one another, or of as many of the oldest as one job
    /// takes.
    fn fold(&self, number: usize) -> Option<Merge> {
        let hashes = self.slices.hashes(number);
        let mut inputs = Vec::new();
        for run in &self.summary.runs {
            let inside = run.pieces.iter().filter(|it| meet(&hashes_of_piece(it), &hashes));
            let pieces: Vec<Piece> = inside.map(|piece| clipped(piece, &hashes)).collect();
            if pieces.iter().any(|piece| piece.level >= BASE_LEVEL) {
                break;
            }
            if !pieces.is_empty() {
                inputs.push((run.id, pieces));
            }
        }
        inputs.drain(..inputs.len().saturating_sub(self.options.runs_max.max(2)));
        let length = |(_, pieces): &(RunId, Vec<Piece>)| -> u64 {
            pieces.iter().map(|piece| bytes_in(piece, &hashes)).sum()
        };
        let mut bytes = inputs.iter().map(length).sum::<u64>();
        // A run that an earlier fold left is not written again with a few short ones.
        while let Some(oldest) = inputs.last().map(length)
            && inputs.len() > self.options.runs_max / 2 + 1
            && oldest > (bytes - oldest) / 2
        {
            inputs.pop();
            bytes -= oldest;
        }
        let into = inputs.last().filter(|_| inputs.len() > 1)?.0;
        if self.summary.free_bytes.is_some_and(|free| free < bytes) {
            return None;
        }
        let base = self.all.iter().map(|slice| slice.base_bytes).sum();
        Some(Merge {
            inputs,
            first: key_of(hashes.start).unwrap_or_default(),
            end: key_of(hashes.end),
            into,
            level: 0,
            oldest: false,
            reason: Reason::Runs,
            bytes,
            table_bytes: self.options.table_bytes,
            filter_bits: f32::from(self.options.flush_filter_bits(self.summary.unit_bytes, base)),
            collect: Vec::new(),
        })
    }

    /// The merge of slice `number`: of its base and all its runs, or as many of the oldest as one job takes.
    fn merge(&self, number: usize, reason: Reason) -> Option<Merge> {
        let hashes = self.slices.hashes(number);
        let slice = self.all.get(number)?;
        if slice.damaged.is_none() && reason == Reason::Runs && self.is_folded(slice, &hashes) {
            return self.fold(number);
        }
        // Nothing passes a damaged table: the runs above it are merged with one another.
        let runs = self.summary.runs.get(..slice.damaged.unwrap_or(self.summary.runs.len()))?;
        let newest = self.summary.manual.as_ref().filter(|_| reason == Reason::Manual);
        let inside = |run: &RunSummary| -> Vec<Piece> {
            let is_inside = |piece: &&Piece| meet(&hashes_of_piece(piece), &hashes);
            let pieces = run.pieces.iter().filter(is_inside);
            pieces.map(|piece| clipped(piece, &hashes)).collect()
        };
        let mut inputs: Vec<_> = runs
            .iter()
            .filter(|run| newest.is_none_or(|manual| run.id <= manual.newest))
            .map(|run| (run.id, inside(run)))
            .filter(|(_, pieces)| !pieces.is_empty())
            .collect();
        inputs.drain(..inputs.len().saturating_sub(self.options.runs_max.max(2)));
        let is_oldest = slice.damaged.is_none();
        // A first base is made even of a single run. Otherwise a merge of one run changes nothing.
        let is_progress = inputs.len() > 1
            || (is_oldest && inputs.iter().flat_map(|it| &it.1).any(|it| it.level < BASE_LEVEL));
        let into = inputs.last().filter(|_| is_progress)?.0;
        let pieces = inputs.iter().flat_map(|(_, pieces)| pieces);
        let bytes = pieces.map(|piece| bytes_in(piece, &hashes)).sum();
        if self.summary.free_bytes.is_some_and(|free| free < bytes) {
            return None;
        }
        let base: u64 = self.all.iter().map(|slice| slice.base_bytes).sum();
        let filter_bits = match is_oldest {
            true => self.options.base_filter_bits,
            false => self.options.flush_filter_bits(self.summary.unit_bytes, base),
        };
        Some(Merge {
            inputs,
            first: key_of(hashes.start).unwrap_or_default(),
            end: key_of(hashes.end),
            into,
            level: if is_oldest { BASE_LEVEL } else { 0 },
            oldest: is_oldest,
            reason,
            bytes,
            table_bytes: self.options.table_bytes,
            filter_bits: f32::from(filter_bits),
            collect: Vec::new(),
        })
    }

    /// The slices to merge, the most urgent first, each with its reason.
    fn candidates(&self) -> Vec<(usize, Reason)> {
        let is_due = self.fullness() > 1.0;
        let mut found: Vec<(usize, Reason, f64)> = Vec::new();
        for (number, slice) in self.all.iter().enumerate() {
            let share = self.share(slice);
            let is_crowded = slice.damaged.is_some() && slice.runs >= self.options.runs_max / 2;
            if slice.is_busy {
                continue;
            }
            if slice.is_asked && slice.is_mergeable() {
                found.push((number, Reason::Manual, share + 2.0));
            } else if is_crowded || (slice.is_mergeable() && self.is_overdue(slice)) {
                found.push((number, Reason::Runs, share + 1.0));
            } else if is_due && slice.is_mergeable() && slice.run_bytes > 0 {
                found.push((number, Reason::Runs, share));
            }
        }
        found.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.cmp(&b.0)));
        found.into_iter().map(|(number, reason, _)| (number, reason)).collect()
    }
}

impl Slice {
    const fn is_mergeable(&self) -> bool {
        !self.is_busy && self.damaged.is_none()
    }
}

/// Counts the pieces of run number `index` in the slices that they meet.
fn count(
    index: usize,
    run: &RunSummary,
    slices: Slices,
    manual: Option<&ManualRange>,
    all: &mut [Slice],
) {
    let asked = manual.filter(|manual| run.id <= manual.newest);
    let asked = asked.map(|manual| hashes_of(&manual.first, manual.end.as_deref()));
    for piece in &run.pieces {
        for number in slices.meeting(&hashes_of_piece(piece)) {
            let hashes = slices.hashes(number);
            let Some(slice) = all.get_mut(number) else { continue };
            let bytes = bytes_in(piece, &hashes);
            if piece.damaged && slice.damaged.is_none() {
                slice.damaged = Some(index);
            }
            if piece.level >= BASE_LEVEL {
                slice.base_bytes += bytes;
                continue;
            }
            slice.run_bytes += bytes;
            slice.runs += 1;
            slice.is_asked |= asked.as_ref().is_some_and(|asked| meet(asked, &hashes));
        }
    }
}

/// The next action; `None` if there is nothing to do now.
#[must_use]
pub fn plan(summary: &Summary, options: &Options) -> Option<Plan> {
    let tree = Tree::new(summary, options);
    let mut candidates = tree.candidates().into_iter();
    let merge = candidates.find_map(|(number, reason)| tree.merge(number, reason))?;
    invariant!(
        merge.inputs.is_sorted_by(|a, b| a.0 > b.0),
        "a merge lists its inputs newest run first"
    );
    invariant!(
        merge.inputs.iter().flat_map(|(_, pieces)| pieces).all(|piece| !piece.damaged),
        "a merge reads no quarantined table"
    );
    Some(Plan::Merge(merge))
}

/// The compaction debt: the work left until no merge is due.
#[must_use]
pub fn debt(summary: &Summary, options: &Options) -> Debt {
    let tree = Tree::new(summary, options);
    let mut slices: Vec<&Slice> = tree.all.iter().filter(|slice| slice.is_mergeable()).collect();
    slices.sort_by(|a, b| tree.share(b).total_cmp(&tree.share(a)));
    let bases: f64 = slices.iter().map(|it| (it.base_bytes as f64).max(tree.base_min)).sum();
    let held: u64 = slices.iter().map(|slice| slice.run_bytes).sum();
    let mut excess = held as f64 - bases * options.run_share / 2.0;
    let mut bytes = 0;
    for slice in slices {
        if excess <= 0.0 && !tree.is_overdue(slice) {
            continue;
        }
        excess -= slice.run_bytes as f64;
        bytes += slice.run_bytes + slice.base_bytes;
    }
    let manual = tree.all.iter().filter(|slice| slice.is_asked);
    let manual_bytes = manual.map(|slice| slice.run_bytes + slice.base_bytes).sum();
    let sum = |of: fn(&Slice) -> u64| tree.all.iter().map(of).sum::<u64>();
    let (runs, base) = (sum(|slice| slice.run_bytes), sum(|slice| slice.base_bytes));
    let busy: u64 = summary.busy.iter().map(|area| area.bytes.max(1)).sum();
    let debt = Debt {
        bytes: bytes + busy,
        manual_bytes,
        runs: tree.all.iter().map(|it| it.runs + usize::from(it.base_bytes > 0)).max().unwrap_or(0),
        fullness: tree.fullness(),
        space: 1.0 + runs as f64 / base.max(1) as f64,
        space_fullness: 0.0,
    };
    invariant!(
        debt.fullness.is_finite() && debt.space.is_finite(),
        "the figures of the compaction debt are finite"
    );
    debt
}
