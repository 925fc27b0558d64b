//! The planner that keeps a window: the newest entries, up to a number of bytes.
//!
//! Each entry is written once. When the runs together are longer than the window, the oldest goes: dropped
//! unread, or, with a *partial discard*, rewritten without most of its entries. The rewrite merges it with
//! the run that earlier partial discards left, and its output takes the place of that run. So the kept
//! entries stay older than every other run (I4), and a newer version of a key always hides them. An entry is
//! kept only if it is the newest of these runs for its key and no tombstone: an older version must not
//! outlive the discarded newer one.
//!
//! The kept entries take at most a quarter of the window, or the discard would write more than it frees. A
//! discard takes as many of the oldest runs as make a sixteenth of the window, because it also rewrites what
//! earlier ones kept: then it writes at most four bytes for each byte of entries that it discards.
//!
//! If the filters and index of a window do not fit the memory for tables, the window is shortened until they
//! do ([`Options::within_memory`]).
//!
//! A window never waits for space: if the device has too little for the rewrite, or a table that it would
//! read is damaged, the oldest runs are dropped unread, the kept one first.
//!
//! A lookup asks the filter of each run. If there are more than [`Options::runs_max`], which takes a window
//! of many memtables or flushes of small ones, the adjacent runs that are cheapest to merge become one.

use base::{RunId, TableId};

use super::filters::run_filter_bits;
use super::slices::{bytes_in, hashes_of_piece};
use crate::plan::{Debt, Merge, Piece, Reason, RunSummary, Summary};

/// The largest part of the window that partial discards keep.
const RETAINED_PART: u64 = 4;

/// A discard takes runs of at least this part of the window, if it has memory for as many.
const DISCARDED_PART: u64 = 16;

/// The level of the run that partial discards leave.
const RETAINED_LEVEL: u8 = 1;

/// Most runs that a lookup searches, unless more are being merged.
const RUNS_MAX: usize = 256;

/// Runs that one merge replaces by one. Runs of equal length are rewritten once for each factor of this
/// number by which they exceed [`RUNS_MAX`].
const RUNS_PER_MERGE: usize = 8;

/// How the window evicts entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Length of the window, bytes.
    pub bytes: u64,
    /// Which entries of the oldest run are kept.
    pub kept: Kept,
    /// Most runs before adjacent ones are merged.
    pub runs_max: usize,
    /// Most input runs of one merge, at least two: its memory bounds them.
    pub inputs_max: usize,
}

/// The entries of the oldest run that stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// None: the window is first in, first out.
    None,
    /// Those that were read lately.
    Read,
    /// Those that a predicate chooses. A process that does not know the name cannot discard.
    Named(String),
}

/// The next action for a window.
#[derive(Clone, Debug, PartialEq)]
pub enum Eviction {
    /// The pieces of the oldest runs, to be dropped unread.
    Drop(Vec<(RunId, Piece)>),
    /// A rewrite of the oldest runs.
    Discard(Discard),
    /// A merge of adjacent runs, which evicts nothing.
    Merge(Merge),
}

/// A partial discard.
#[derive(Clone, Debug, PartialEq)]
pub struct Discard {
    /// The runs to merge: the oldest, and below them the one that earlier discards left, if there is one.
    pub merge: Merge,
    /// Which entries stay.
    pub kept: Kept,
    /// Most bytes of the entries that stay.
    pub kept_bytes_max: u64,
}

impl Options {
    /// The options of a window of `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64, kept: Kept) -> Self {
        Self { bytes, kept, runs_max: RUNS_MAX, inputs_max: RUNS_PER_MERGE }
    }

    /// The options while the tables of `summary` keep `memory` bytes of filters and index in memory, which is
    /// `excess` bytes too many. The window is shortened to the part of its entries whose filters fit. So a
    /// window that is too long for the memory evicts, and refuses no write.
    #[must_use]
    pub fn within_memory(self, summary: &Summary, memory: u64, excess: u64) -> Self {
        let stored = summary.runs.iter().map(bytes_of).fold(0, u64::saturating_add);
        let room = memory.saturating_sub(excess);
        let fits = u128::from(stored) * u128::from(room) / u128::from(memory.max(1));
        match excess {
            0 => self,
            _ => Self { bytes: self.bytes.min(fits as u64), ..self },
        }
    }

    /// Filter bits of a flushed table of `unit_bytes` bytes: a lookup asks the filter of every run.
    #[must_use]
    pub fn flush_filter_bits(&self, unit_bytes: u64) -> u8 {
        let runs = self.bytes as f64 / unit_bytes.max(1) as f64;
        run_filter_bits(runs.min(self.runs_max as f64))
    }
}

/// Bytes of a run, separated values included.
fn bytes_of(run: &RunSummary) -> u64 {
    let values = run.pieces.iter().map(|piece| piece.file.value_bytes());
    values.fold(table_bytes_of(run), u64::saturating_add)
}

/// Bytes of the tables of a run: a merge writes these again. Separated values stay in their files.
fn table_bytes_of(run: &RunSummary) -> u64 {
    let of = |piece: &Piece| bytes_in(piece, &hashes_of_piece(piece));
    run.pieces.iter().map(of).fold(0, u64::saturating_add)
}

/// Whether a run is what earlier discards left.
fn is_retained(run: &RunSummary) -> bool {
    run.pieces.iter().all(|piece| piece.level >= RETAINED_LEVEL)
}

/// The number of the newest run such that no read needs its entries or those of older runs: they
/// expired, are tombstones, or lie below a range delete, which covers all keys of a hashed keyspace.
fn dead_from(summary: &Summary) -> usize {
    let is_settled = |piece: &Piece| piece.file.seqno_max <= summary.readers.oldest();
    let deletes = |piece: &Piece| piece.file.range_deletes > 0 && is_settled(piece);
    let covered = summary.runs.iter().position(|run| run.pieces.iter().any(deletes));
    let is_dead = |piece: &Piece| {
        (piece.is_expired(summary.now_ms) || piece.is_all_deletes()) && is_settled(piece)
    };
    let live = summary.runs.iter().rposition(|run| !run.pieces.iter().all(is_dead));
    let dead = live.map_or(0, |live| live + 1);
    covered.map_or(dead, |covered| dead.min(covered + 1))
}

/// Whether a job works on `run`.
fn is_busy(summary: &Summary, run: &RunSummary) -> bool {
    summary.busy.iter().any(|area| area.oldest <= run.id && run.id <= area.newest)
}

/// The next action; `None` if the runs fit the window, or a job works on those that do not.
#[must_use]
pub fn plan(summary: &Summary, options: &Options) -> Option<Eviction> {
    let dead = summary.runs.get(dead_from(summary)..).unwrap_or_default();
    if !dead.is_empty() && !dead.iter().any(|run| is_busy(summary, run)) {
        return Some(Eviction::Drop(pieces_of(dead)));
    }
    evict(summary, options).or_else(|| merge(summary, options).map(Eviction::Merge))
}

/// The debt of a window: the part of its runs that wait for a merge.
#[must_use]
pub fn debt(summary: &Summary, options: &Options) -> Debt {
    let runs = summary.runs.len();
    // The newest run stays, whatever its length.
    let evictable = summary.runs.iter().skip(1).map(bytes_of).fold(0, u64::saturating_add);
    let is_partial = options.kept != Kept::None;
    let is_behind = runs > options.runs_max || is_partial && evictable > options.bytes;
    let busy = summary.busy.iter().map(|area| area.bytes.max(1)).fold(0, u64::saturating_add);
    Debt {
        bytes: busy.max(u64::from(is_behind)),
        runs,
        // Merges keep up easily; twice the runs mean that they do not, and delay writers.
        fullness: runs as f64 / options.runs_max.max(1) as f64,
        space: 1.0,
        // Whole runs are dropped at once. A discard takes time, in which the window grows.
        space_fullness: match is_partial {
            true => evictable as f64 / options.bytes.max(1) as f64,
            false => 0.0,
        },
        ..Debt::default()
    }
}

/// The pieces of `runs`, which are newest first, from the oldest run on.
fn pieces_of(runs: &[RunSummary]) -> Vec<(RunId, Piece)> {
    let of = |run: &RunSummary| {
        let id = run.id;
        run.pieces.iter().map(move |piece| (id, piece.clone())).collect::<Vec<_>>()
    };
    runs.iter().rev().flat_map(of).collect()
}

/// The cheapest merge of adjacent flushed runs into one, if there are too many runs.
fn merge(summary: &Summary, options: &Options) -> Option<Merge> {
    let count = RUNS_PER_MERGE.min(options.inputs_max).max(2);
    if summary.runs.len() <= options.runs_max {
        return None;
    }
    let is_fit = |run: &RunSummary| {
        !is_retained(run) && !is_busy(summary, run) && !run.pieces.iter().any(|it| it.damaged)
    };
    // Among equals the newest, because its entries stay longest: the first minimum.
    let groups = summary.runs.windows(count).filter(|runs| runs.iter().all(is_fit));
    let bytes_of_all =
        |runs: &[RunSummary]| runs.iter().map(table_bytes_of).fold(0, u64::saturating_add);
    let sized = groups.map(|runs| (bytes_of_all(runs), runs));
    let (bytes, runs) = sized.min_by_key(|(bytes, _)| *bytes)?;
    if summary.free_bytes.is_some_and(|free| free < bytes) {
        return None;
    }
    let into = runs.last()?.id;
    Some(Merge {
        inputs: runs.iter().map(|run| (run.id, run.pieces.clone())).collect(),
        first: bytes::Bytes::new(),
        end: None,
        into,
        level: 0,
        oldest: summary.runs.last().is_some_and(|oldest| oldest.id == into),
        reason: Reason::Runs,
        bytes,
        table_bytes: bytes.max(1),
        filter_bits: f32::from(options.flush_filter_bits(summary.unit_bytes)),
        collect: Vec::new(),
    })
}

/// The next eviction, if the runs exceed the window.
fn evict(summary: &Summary, options: &Options) -> Option<Eviction> {
    let lengths: Vec<u64> = summary.runs.iter().map(bytes_of).collect();
    let stored = lengths.iter().copied().fold(0, u64::saturating_add);
    let mut over = stored.checked_sub(options.bytes).filter(|it| *it > 0)?;
    let oldest = summary.runs.last()?;
    // A discard waits for a merge of the oldest flushed run: dropping would evict the retained run first.
    let flushed = summary.runs.iter().rfind(|run| !is_retained(run));
    let waits = options.kept != Kept::None && flushed.is_some_and(|run| is_busy(summary, run));
    if waits || is_busy(summary, oldest) {
        return None;
    }
    if let Some(discard) = discard(summary, &lengths, options) {
        return Some(Eviction::Discard(discard));
    }
    let mut count = 0;
    for (run, bytes) in summary.runs.iter().zip(&lengths).rev() {
        // The newest flushed run stays, whatever its length.
        let is_first = summary.runs.first().is_some_and(|newest| newest.id == run.id);
        let is_newest = is_first && !is_retained(run);
        if over == 0 || is_busy(summary, run) || is_newest {
            break;
        }
        count += 1;
        over = over.saturating_sub(*bytes);
    }
    let dropped = summary.runs.get(summary.runs.len() - count..)?;
    (!dropped.is_empty()).then(|| Eviction::Drop(pieces_of(dropped)))
}

/// The rewrite of the oldest flushed runs and of the retained run below them; `None` if the window keeps
/// nothing, if damage is in the way, or if there is no space for it.
fn discard(summary: &Summary, lengths: &[u64], options: &Options) -> Option<Discard> {
    if options.kept == Kept::None {
        return None;
    }
    // A damaged table cannot be rewritten, so its run goes as a whole.
    let is_fit =
        |run: &RunSummary| !is_busy(summary, run) && run.pieces.iter().all(|piece| !piece.damaged);
    let retained = usize::from(summary.runs.last().is_some_and(is_retained));
    let end = summary.runs.len().checked_sub(retained)?;
    let mut first = end;
    let mut taken = 0u64;
    // The newest run stays.
    while first > 1 && summary.runs.len() - first < options.inputs_max.max(2) {
        if first < end && taken >= options.bytes / DISCARDED_PART {
            break;
        }
        first -= 1;
        taken = taken.saturating_add(lengths.get(first).copied().unwrap_or(0));
        if summary.runs.get(first).is_none_or(|run| !is_fit(run)) {
            // The runs below it can go nevertheless.
            first += 1;
            break;
        }
    }
    let runs = summary.runs.get(first..).filter(|_| first < end)?;
    if !runs.iter().all(is_fit) {
        return None;
    }
    let into = runs.last()?.id;
    let bytes = lengths.get(first..)?.iter().copied().fold(0, u64::saturating_add);
    let kept_bytes_max = options.bytes / RETAINED_PART;
    if summary.free_bytes.is_some_and(|free| free < bytes.min(kept_bytes_max)) {
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
        collect: value_files_of(summary, runs),
    };
    Some(Discard { merge, kept: options.kept.clone(), kept_bytes_max })
}

/// The value files of `runs` whose values can be copied, ascending: the files go with the discarded entries.
fn value_files_of(summary: &Summary, runs: &[RunSummary]) -> Vec<TableId> {
    let pieces = runs.iter().flat_map(|run| &run.pieces);
    let mut files: Vec<_> =
        pieces.flat_map(|piece| piece.file.values.iter().map(|(file, _)| *file)).collect();
    files.sort_unstable();
    files.dedup();
    let is_excluded = |id: TableId| summary.values.iter().any(|it| it.id == id && it.excluded);
    files.retain(|id| !is_excluded(*id));
    files
}
