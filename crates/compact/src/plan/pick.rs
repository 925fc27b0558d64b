//! Picks the next action: the order in which drops, merges and moves are considered.

use base::{RunId, invariant};
use bytes::Bytes;

use super::action::{Merge, Plan, Reason};
use super::candidate::{Candidate, candidates, space_excess};
use super::columns::Edge;
use super::summary::{Area, Piece, RunSummary, Summary};
use super::tree_layout::TreeLayout;
use super::value_files::ValueFileGarbage;
use super::{cut_files, slice, trivial};

/// Candidates tried until one fits into the free space.
const TRIES_MAX: usize = 64;

impl TreeLayout<'_> {
    /// The next action; `None` if there is nothing to do now.
    #[must_use]
    pub fn plan(&self) -> Option<Plan> {
        let plan = pick(self);
        if let Some(plan) = &plan {
            check(self, plan);
        }
        plan
    }

    /// The pieces that [`Self::plan`] drops before it plans anything else; empty if there are none.
    pub(super) fn dropped(&self) -> Vec<(RunId, Piece)> {
        trivial::droppable(self)
    }
}

/// Checks a plan before the engine acts on it: it reserves and installs exactly this.
fn check(layout: &TreeLayout<'_>, plan: &Plan) {
    match plan {
        Plan::Merge(merge) => {
            check_inputs(layout, merge);
            check_rectangle(layout.summary, merge);
            check_progress(layout, merge);
        }
        Plan::Move(moves) => invariant!(
            !moves.iter().any(|moved| moved.piece.damaged),
            "a quarantined table is not moved"
        ),
        Plan::Drop(pieces) => invariant!(
            !pieces.iter().any(|(_, piece)| piece.damaged),
            "a quarantined table is not dropped"
        ),
    }
}

/// Checks the form of a merge.
fn check_inputs(layout: &TreeLayout<'_>, merge: &Merge) {
    let pieces = || merge.inputs.iter().flat_map(|(_, pieces)| pieces);
    let (first, end) = (&merge.first, end_of(&merge.end));
    invariant!(Edge::Key(first) < end, "the key range of a merge holds keys");
    invariant!(
        merge.inputs.is_sorted_by(|a, b| a.0 > b.0),
        "a merge lists its inputs newest run first"
    );
    invariant!(
        merge.inputs.last().is_some_and(|(run, _)| *run == merge.into),
        "the outputs of a merge join its oldest input run"
    );
    invariant!(
        merge.inputs.len() <= layout.options.runs_max.max(2),
        "a merge has no more runs than it has memory for"
    );
    invariant!(!pieces().any(|piece| piece.damaged), "a merge reads no quarantined table");
    invariant!(
        pieces().all(|piece| *first <= piece.first && end_of(&piece.end) <= end),
        "the inputs of a merge are clipped to its key range"
    );
    invariant!(
        merge.collect.is_sorted_by(|a, b| a < b),
        "a merge lists the value files that it collects in order"
    );
}

/// Checks that the rectangle of a merge is whole and its own: I4 and I5 rest on it.
fn check_rectangle(summary: &Summary, merge: &Merge) {
    let (first, end) = (Edge::Key(&merge.first), end_of(&merge.end));
    let overlaps = |piece: &&Piece| Edge::Key(&piece.first) < end && first < end_of(&piece.end);
    let is_taken = |run: &&RunSummary| merge.into <= run.id && run.id <= merge.newest();
    let taken = summary.runs.iter().filter(is_taken).flat_map(|run| &run.pieces).filter(overlaps);
    let inputs = merge.inputs.iter().map(|(_, pieces)| pieces.len()).sum::<usize>();
    invariant!(
        taken.count() == inputs,
        "a merge takes every piece of its runs in its key range (I4)"
    );
    let mut older =
        summary.runs.iter().filter(|run| run.id < merge.into).flat_map(|run| &run.pieces);
    invariant!(
        !merge.oldest || !older.any(|piece| overlaps(&piece)),
        "nothing lies below a merge into the oldest run (I5)"
    );
    let meets = |area: &Area| {
        area.oldest <= merge.newest()
            && merge.into <= area.newest
            && Edge::Key(&area.first) < end
            && first < end_of(&area.end)
    };
    invariant!(!summary.busy.iter().any(meets), "the rectangles of two jobs do not overlap");
}

/// Checks that a merge changes the tree: otherwise the planner would plan it without end. A merge of several
/// runs takes its rectangle away from its newest run, does not touch newer runs and adds only to its oldest
/// run, so a series of such merges ends. A series of merges of one run ends with the garbage that they free.
fn check_progress(layout: &TreeLayout<'_>, merge: &Merge) {
    let frees = || match merge.reason {
        Reason::Runs | Reason::Reads => false,
        Reason::Values => !merge.collect.is_empty(),
        Reason::Space | Reason::Deletes | Reason::Manual | Reason::Settle => {
            merge.inputs.iter().flat_map(|(_, pieces)| pieces).any(|it| has_garbage(layout, it))
        }
    };
    invariant!(merge.inputs.len() > 1 || frees(), "a merge of one run frees something");
}

/// Whether a rewrite of `piece` may free anything: bytes of its file that no piece uses, superseded versions,
/// tombstones or expired entries.
fn has_garbage(layout: &TreeLayout<'_>, piece: &Piece) -> bool {
    let file = &piece.file;
    let cells = layout.columns.all.iter().flat_map(|column| &column.cells);
    let used: u64 = cells.filter(|it| it.piece.file.id == file.id).map(|it| it.bytes).sum();
    used < file.bytes
        || file.superseded.bytes > 0
        || file.deletes > 0
        || file.range_deletes > 0
        || piece.is_expired(layout.summary.now_ms)
}

fn end_of(end: &Option<Bytes>) -> Edge<'_> {
    Edge::of_end(end.as_ref())
}

/// The next action, in this order: drop pieces; if space is short, rewrite cut files; if dead values
/// dominate, collect a value file; the most urgent candidate; collect a value file; if space is short, merge
/// two runs of one column; trivial moves.
fn pick(layout: &TreeLayout<'_>) -> Option<Plan> {
    let dropped = trivial::droppable(layout);
    if !dropped.is_empty() {
        return Some(Plan::Drop(dropped));
    }
    if layout.is_tight()
        && let Some(merge) = cut_files::rewrite(layout)
    {
        return Some(Plan::Merge(merge));
    }
    let garbage = ValueFileGarbage::new(layout);
    if garbage.is_pressing
        && let Some(merge) = garbage.collection(layout)
    {
        return Some(Plan::Merge(merge));
    }
    let quiet = layout.summary.quiet;
    let mut found = candidates(layout, quiet);
    found.sort_by(|a, b| {
        b.score.total_cmp(&a.score).then(b.gain.total_cmp(&a.gain)).then(a.column.cmp(&b.column))
    });
    // All candidates for space give the same merge: try it once.
    let mut is_tried = false;
    let is_new =
        |it: &&Candidate| it.reason != Reason::Space || !std::mem::replace(&mut is_tried, true);
    let found = found.iter().filter(is_new);
    let merge = found.take(TRIES_MAX).find_map(|candidate| match candidate.reason {
        Reason::Space => slice::space_merge(layout, candidate.runs),
        _ => slice::grow(layout, candidate),
    });
    if let Some(mut merge) = merge {
        let inputs = merge.inputs.iter().flat_map(|(_, pieces)| pieces);
        let used = inputs.flat_map(|piece| piece.file.values.iter().copied());
        merge.collect = garbage.collectable_from(layout, used, merge.bytes);
        return Some(Plan::Merge(merge));
    }
    if let Some(merge) = garbage.collection(layout) {
        return Some(Plan::Merge(merge));
    }
    let is_excess =
        || space_excess(layout) > 1.0 || (layout.summary.quiet && !layout.is_space_settled());
    if layout.is_tight()
        && is_excess()
        && let Some(merge) = slice::pair_merge(layout)
    {
        return Some(Plan::Merge(merge));
    }
    let moves = trivial::moves(layout);
    (!moves.is_empty()).then_some(Plan::Move(moves))
}
