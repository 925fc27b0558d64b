//! The planner that keeps a window: the newest entries, up to a number of bytes.
//!
//! Each entry is written once. When the runs together are longer than the window, the oldest goes: dropped
//! unread, or, with a *partial discard*, rewritten without most of its entries. The rewrite merges it with
//! the run that earlier partial discards left, and its output takes the place of that run. So the kept
//! entries stay older than every other run (I4), and a newer version of a key always hides them. An entry is
//! kept only if it is the newest of the two runs for its key and no tombstone: an older version must not
//! outlive the discarded newer one.
//!
//! The kept entries take at most a quarter of the window, or the discard would write more than it frees.

use base::{RunId, invariant};

use super::filters::run_filter_bits;
use super::slices::{bytes_in, hashes_of_piece};
use crate::plan::{Merge, Piece, Reason, RunSummary, Summary};

/// The largest part of the window that partial discards keep.
const RETAINED_PART: u64 = 4;

/// The level of the run that partial discards leave.
const RETAINED_LEVEL: u8 = 1;

/// How the window evicts entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Length of the window, bytes.
    pub bytes: u64,
    /// Which entries of the oldest run are kept.
    pub kept: Kept,
}

/// The entries of the oldest run that stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// None: the window is first in, first out.
    None,
    /// Those that were read lately, by two bits an entry.
    Read,
    /// Those that a predicate chooses. A process that does not know the name cannot discard.
    Named(String),
}

/// The next action for a window.
#[derive(Clone, Debug, PartialEq)]
pub enum Eviction {
    /// The pieces of the oldest runs, to be dropped unread.
    Drop(Vec<(RunId, Piece)>),
    /// A rewrite of the oldest run.
    Discard(Discard),
}

/// A partial discard.
#[derive(Clone, Debug, PartialEq)]
pub struct Discard {
    /// The runs to merge: the oldest, and the one that earlier discards left, if there is one.
    pub merge: Merge,
    /// Which entries stay.
    pub kept: Kept,
    /// Most bytes of the entries that stay.
    pub kept_bytes_max: u64,
}

impl Options {
    /// Filter bits of a flushed table of `unit_bytes` bytes: a lookup asks the filter of every run.
    #[must_use]
    pub fn flush_filter_bits(&self, unit_bytes: u64) -> u8 {
        run_filter_bits(self.bytes as f64 / unit_bytes.max(1) as f64)
    }
}

/// Bytes of a run.
fn bytes_of(run: &RunSummary) -> u64 {
    run.pieces.iter().map(|piece| bytes_in(piece, &hashes_of_piece(piece))).sum()
}

/// Whether a run is what earlier discards left.
fn is_retained(run: &RunSummary) -> bool {
    run.pieces.iter().all(|piece| piece.level >= RETAINED_LEVEL)
}

/// The next eviction; `None` if the runs fit the window, or a job works on the oldest.
#[must_use]
pub fn plan(summary: &Summary, options: &Options) -> Option<Eviction> {
    let lengths: Vec<u64> = summary.runs.iter().map(bytes_of).collect();
    let mut over = lengths.iter().sum::<u64>().checked_sub(options.bytes).filter(|it| *it > 0)?;
    let is_busy = |run: &RunSummary| {
        summary.busy.iter().any(|area| area.oldest <= run.id && run.id <= area.newest)
    };
    let oldest = summary.runs.last().filter(|run| !is_busy(run))?;
    let retained = Some(oldest).filter(|run| is_retained(run) && options.kept != Kept::None);
    let fresh = summary.runs.len().checked_sub(1 + usize::from(retained.is_some()));
    let candidate = fresh.and_then(|index| summary.runs.get(index)).filter(|run| !is_busy(run));
    if let (Some(run), true) = (candidate, options.kept != Kept::None) {
        // A damaged table cannot be rewritten, so its run goes as a whole.
        let is_sound = |run: &RunSummary| run.pieces.iter().all(|piece| !piece.damaged);
        if is_sound(run) && retained.is_none_or(is_sound) {
            return discard(run, retained, summary, options).map(Eviction::Discard);
        }
    }
    let mut dropped = Vec::new();
    for (run, bytes) in summary.runs.iter().zip(&lengths).rev() {
        // The newest flushed run stays, whatever its length.
        let is_first = summary.runs.first().is_some_and(|newest| newest.id == run.id);
        let is_newest = is_first && !is_retained(run);
        if over == 0 || is_busy(run) || is_newest {
            break;
        }
        dropped.extend(run.pieces.iter().map(|piece| (run.id, piece.clone())));
        over = over.saturating_sub(*bytes);
    }
    (!dropped.is_empty()).then_some(Eviction::Drop(dropped))
}

/// The rewrite of `run` and of the `retained` run below it.
fn discard(
    run: &RunSummary,
    retained: Option<&RunSummary>,
    summary: &Summary,
    options: &Options,
) -> Option<Discard> {
    let runs: Vec<&RunSummary> = [Some(run), retained].into_iter().flatten().collect();
    let into = runs.last()?.id;
    invariant!(
        summary.runs.last().is_some_and(|oldest| oldest.id == into),
        "a discard leaves nothing below its output"
    );
    let bytes = runs.iter().map(|run| bytes_of(run)).sum();
    if summary.free_bytes.is_some_and(|free| free < bytes) {
        return None;
    }
    let merge = Merge {
        inputs: runs.iter().map(|run| (run.id, run.pieces.clone())).collect(),
        first: bytes::Bytes::new(),
        end: None,
        into,
        level: RETAINED_LEVEL,
        oldest: true,
        reason: Reason::Space,
        bytes,
        table_bytes: bytes.max(1),
        filter_bits: f32::from(options.flush_filter_bits(summary.unit_bytes)),
        collect: Vec::new(),
    };
    let kept_bytes_max = options.bytes / RETAINED_PART;
    Some(Discard { merge, kept: options.kept.clone(), kept_bytes_max })
}
