//! Possible merges of each column, scored by urgency.
//!
//! A candidate is a column and the runs to merge in it. [`slice`](mod@super::slice) widens a candidate to
//! adjacent columns; for space, the [`window`](mod@super::window) that frees most is merged instead. Scores
//! compare urgency: at 1 a merge becomes due, and higher scores are more overdue, so no candidate starves.
//! Merges that only a tree without writes needs score below 1.

use base::invariant;

use super::Piece;
use super::action::Reason;
use super::columns::{Cell, Column, Edge, Runs};
use super::tree_layout::TreeLayout;

/// Runs of one column that could be merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) column: usize,
    pub(super) runs: Runs,
    pub(super) reason: Reason,
    /// Whether `runs` includes the column's oldest run.
    pub(super) to_oldest: bool,
    /// The level of the inputs; the outputs are one level deeper if they are long enough.
    pub(super) level: u8,
    /// Urgency; at 1 the merge is due.
    pub(super) score: f64,
    /// Orders candidates of equal score: bytes freed per byte merged.
    pub(super) gain: f64,
}

/// More urgent than a merge that just became due, because a user waits.
const MANUAL_SCORE: f64 = 1.5;
/// As urgent as a level that just became full: readers pay until it is merged.
const READS_SCORE: f64 = 1.0;
/// How much faster the score for space rises than the score for runs. It matches the write delays of the
/// engine's `pace`, so that neither reason starves while both are overdue.
const SPACE_URGENCY: f64 = 3.0;
/// Upper bound of the score for space. Above it the score for runs decides, because too many runs slow down
/// every read, and too much space slows down none.
const SPACE_SCORE_MAX: f64 = 5.0;
/// A column with this share of tombstones is dense: merging it down drops most of what it reads.
const DENSE_SHARE: f64 = 0.5;
/// Dense columns come before all other reasons that are not far overdue: each walk over them crosses every
/// tombstone and the version below it, and their merge writes little.
const DENSE_SCORE: f64 = SPACE_SCORE_MAX + 1.0;
/// A range delete counts as this many tombstones, because it hides many entries.
const RANGE_DELETE_WEIGHT: f64 = 64.0;
/// A single piece is rewritten if its garbage exceeds this part of its bytes.
const DEAD_PART: u64 = 3;
/// A run this many times as long as all newer runs of its level together is excluded from that level.
const OUTSIZED: u64 = 4;

/// Excess space over the permitted excess: at 1 merges for space are due.
pub(super) fn space_excess(layout: &TreeLayout<'_>) -> f64 {
    (layout.space() - 1.0) / (layout.space_max() - 1.0).max(0.01)
}

/// The most urgent candidate of each column. `quiet`: the tree has no writes, so it may settle.
pub(super) fn candidates(layout: &TreeLayout<'_>, quiet: bool) -> Vec<Candidate> {
    let runs = layout.summary.runs.len();
    let Some(oldest) = runs.checked_sub(1) else { return Vec::new() };
    let whole = Runs { newest: 0, oldest };
    let space_excess = space_excess(layout);
    let settle_space = quiet && !layout.is_space_settled();
    let is_roomy = layout.room() >= layout.stored_bytes;
    let mut found = Vec::new();
    for (number, column) in layout.columns.all.iter().enumerate() {
        let mut best: Option<Candidate> = None;
        let mut offer = |candidate: Candidate| {
            if best.is_none_or(|best| best.score < candidate.score) {
                best = Some(candidate);
            }
        };
        if let Some(candidate) = tiered_candidate(layout, number, column) {
            offer(candidate);
        }
        let gain = gain(layout, column);
        let to_oldest = |reason, runs, score| {
            let level = column.cells.last().map_or(0, |cell| cell.level);
            Candidate { column: number, runs, reason, to_oldest: true, level, score, gain }
        };
        if is_reducible(column.within(whole)) && column.is_free(whole) {
            if space_excess > 1.0 {
                let score = 1.0 + (space_excess - 1.0) * SPACE_URGENCY;
                offer(to_oldest(Reason::Space, whole, score.min(SPACE_SCORE_MAX)));
            } else if settle_space {
                // On a tight device, newer runs may supersede more than was learned: a writer that is refused
                // adds nothing to learn from.
                let reason = if layout.is_tight() { Reason::Space } else { Reason::Settle };
                offer(to_oldest(reason, whole, 0.9));
            }
        }
        let share = deletes_share(layout, column, whole);
        let most = deletes_share_max(layout, quiet);
        if share > most && column.is_free(whole) {
            let score = match is_dense(layout, column, whole) {
                true => DENSE_SCORE,
                false => (1.0 + share - most).min(1.4),
            };
            offer(to_oldest(Reason::Deletes, whole, score));
        }
        if let Some(runs) = manual_runs(layout, number, column) {
            let manual = to_oldest(Reason::Manual, runs, MANUAL_SCORE);
            best = Some(more_urgent(best, manual, is_roomy));
        }
        if quiet
            && best.is_none()
            && let Some(candidate) = settle_candidate(layout, number, column)
        {
            best = Some(candidate);
        }
        invariant!(
            best.is_none_or(|best| best.score.is_finite() && best.runs.newest <= best.runs.oldest),
            "a candidate has a finite score and a newest run no older than its oldest"
        );
        found.extend(best);
    }
    found
}

/// The more urgent of `best` and the manual compaction of a column. If there is room to merge everything, a
/// merge that the manual compaction includes is not done first, because its data would be written twice. If
/// there is not, it is done first: long tables of newer runs, which are freed only with the last slice, would
/// take the space that slices need.
fn more_urgent(best: Option<Candidate>, manual: Candidate, is_roomy: bool) -> Candidate {
    let holds = |it: Runs| manual.runs.newest <= it.newest && it.oldest <= manual.runs.oldest;
    match best {
        Some(best) if is_roomy && holds(best.runs) => {
            Candidate { score: best.score.max(manual.score), ..manual }
        }
        Some(best) if best.score >= manual.score => best,
        _ => manual,
    }
}

/// Bytes freed by merging the whole column, as far as is known.
pub(super) fn reclaimed(layout: &TreeLayout<'_>, column: &Column<'_>) -> f64 {
    let superseded =
        (column.live_bytes() - column.oldest_live_bytes()) as f64 * layout.summary.superseding;
    let known: u64 = column.cells.iter().map(Cell::garbage).sum();
    superseded + known as f64
}

/// Bytes freed by merging the whole column, per byte that it holds.
pub(super) fn gain(layout: &TreeLayout<'_>, column: &Column<'_>) -> f64 {
    let all = column.live_bytes();
    if all == 0 { 0.0 } else { reclaimed(layout, column) / all as f64 }
}

/// Whether merging `cells` frees anything: of several cells, the superseded versions; of a single cell, the
/// unused bytes of its file and the versions that no read needs.
pub(super) fn is_reducible(cells: &[Cell<'_>]) -> bool {
    match cells {
        [] => false,
        [only] => only.garbage() > only.bytes / DEAD_PART,
        _ => true,
    }
}

/// The share of tombstones above which a column is merged.
pub(super) fn deletes_share_max(layout: &TreeLayout<'_>, quiet: bool) -> f64 {
    layout.options.deletes_share / if quiet { 4.0 } else { 1.0 }
}

/// The share of a column's entries that are tombstones or expired, which a merge down to the oldest run
/// drops.
pub(super) fn deletes_share(layout: &TreeLayout<'_>, column: &Column<'_>, runs: Runs) -> f64 {
    let needs_range_deletes = layout.summary.range_deletes_pressing;
    share_of(column, runs, |piece| {
        let file = &piece.file;
        match () {
            () if piece.is_expired(layout.summary.now_ms) => file.entries as f64,
            () if !is_below_readers(layout, piece) => 0.0,
            () if needs_range_deletes && file.range_deletes > 0 => f64::INFINITY,
            () => file.deletes as f64 + file.range_deletes as f64 * RANGE_DELETE_WEIGHT,
        }
    })
}

/// The likely output of merging `runs` in the column, bytes, if each tombstone deletes a version of average
/// length: deletes are planned although their inputs would not fit on the device a second time. If they
/// delete less, the merge fails for lack of space, and frees nothing.
pub(super) fn output_bytes(layout: &TreeLayout<'_>, column: &Column<'_>, runs: Runs) -> u64 {
    let cells = column.within(runs);
    let inputs: u64 = cells.iter().map(|cell| cell.bytes).sum();
    if cells.len() < 2 || cells.len() < column.cells.len() {
        return inputs;
    }
    let share = share_of(column, runs, |piece| match is_below_readers(layout, piece) {
        true => piece.file.deletes as f64,
        false => 0.0,
    });
    let deleted = if share < 0.5 { share / (1.0 - share) } else { 1.0 };
    (inputs as f64 * (1.0 - deleted)) as u64
}

/// Whether no reader needs what the tombstones of `piece` hide.
fn is_below_readers(layout: &TreeLayout<'_>, piece: &Piece) -> bool {
    piece.file.seqno_max <= layout.summary.readers.oldest()
}

/// The share of a column's entries that `counted` counts in each piece, at most 1.
fn share_of(column: &Column<'_>, runs: Runs, counted: impl Fn(&Piece) -> f64) -> f64 {
    let (mut entries, mut found) = (0.0, 0.0);
    for cell in column.within(runs) {
        let file = &cell.piece.file;
        let part = cell.bytes as f64 / file.bytes.max(1) as f64;
        entries += file.entries as f64 * part;
        let count = counted(cell.piece);
        invariant!(count >= 0.0, "entries are counted up");
        found += count * part;
    }
    let share = if found == 0.0 { 0.0 } else { (found / entries.max(1.0)).min(1.0) };
    invariant!((0.0..=1.0).contains(&share), "a share of a column is a part of it");
    share
}

/// Whether a merge down to the oldest run finds a column that is mostly tombstones which no read needs. Range
/// deletes and expired versions do not count: walks do not cross them one by one.
fn is_dense(layout: &TreeLayout<'_>, column: &Column<'_>, runs: Runs) -> bool {
    let deletes = |piece: &Piece| match is_below_readers(layout, piece) {
        true => piece.file.deletes as f64,
        false => 0.0,
    };
    share_of(column, runs, deletes) >= DENSE_SHARE
}

/// A merge of the column's fullest level, if it is full or worth merging for readers.
fn tiered_candidate(
    layout: &TreeLayout<'_>,
    number: usize,
    column: &Column<'_>,
) -> Option<Candidate> {
    let options = layout.options;
    let fanout = options.fanout.max(2);
    let free = |run| column.is_free(Runs { newest: run, oldest: run });
    // A busy or damaged cell ends a group, because no merge passes it.
    let groups = column.cells.chunk_by(|a, b| a.level == b.level && free(a.run) && free(b.run));
    let (group, score, reason) = groups
        .map(|group| without_outsized(layout, group))
        .filter_map(|group| match group.len() {
            runs if runs >= fanout => Some((group, runs as f64 / fanout as f64, Reason::Runs)),
            runs if runs >= 2 && is_worth_merging(layout, group) => {
                Some((group, READS_SCORE, Reason::Reads))
            }
            _ => None,
        })
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let group = group.get(group.len().saturating_sub(options.runs_max.max(2))..)?;
    let (first, last) = (group.first()?, group.last()?);
    let (runs, level) = (Runs { newest: first.run, oldest: last.run }, last.level);
    let gain = gain(layout, column);
    column.is_free(runs).then_some(Candidate {
        column: number,
        runs,
        reason,
        to_oldest: false,
        level,
        score,
        gain,
    })
}

/// Whether the runs of `group`, all of one level, cost readers more time than merging them takes. Whole runs
/// are compared with all reads of the keyspace, because both spread over the same keys.
fn is_worth_merging(layout: &TreeLayout<'_>, group: &[Cell<'_>]) -> bool {
    let length = |cell: &Cell<'_>| layout.run_bytes.get(cell.run).copied().unwrap_or(0);
    let bytes = group.iter().map(length).sum();
    layout.summary.demand.is_worthwhile(group.len(), bytes, layout.options.fanout.max(2))
}

/// The cells of one level in a column, without the oldest if its run is far longer than the others. Tables
/// written in key order, or ingested, move to the oldest run and keep the level of a flushed table; merging a
/// dozen flushed tables with them would rewrite all of them for little. Whole runs are compared, because a
/// table's bytes in one column are a rough estimate; if the oldest run is short in this column, the slice
/// includes it anyway.
fn without_outsized<'a, 'b>(layout: &TreeLayout<'_>, group: &'a [Cell<'b>]) -> &'a [Cell<'b>] {
    let length = |cell: &Cell<'_>| layout.run_bytes.get(cell.run).copied().unwrap_or(0);
    let Some((oldest, newer)) = group.split_last() else { return group };
    let above: u64 = newer.iter().map(length).sum();
    if length(oldest) > above.saturating_mul(OUTSIZED) { newer } else { group }
}

/// The runs of a column that the manual compaction includes, if they are due and free.
pub(super) fn manual_runs(
    layout: &TreeLayout<'_>,
    number: usize,
    column: &Column<'_>,
) -> Option<Runs> {
    let manual = layout.summary.manual.as_ref()?;
    let oldest = layout.summary.runs.len().checked_sub(1)?;
    let (from, to) = (layout.columns.edges.get(number)?, layout.columns.edges.get(number + 1)?);
    if *to <= Edge::Key(&manual.first) || Edge::of_end(manual.end.as_ref()) <= *from {
        return None;
    }
    let newest = layout.summary.runs.partition_point(|run| run.id > manual.newest);
    if newest > oldest {
        return None;
    }
    let runs = Runs { newest, oldest };
    let cells = column.within(runs);
    let is_due = is_reducible(cells)
        || cells.iter().any(|cell| cell.superseded > 0)
        || deletes_share(layout, column, runs) > 0.0;
    (is_due && column.is_free(runs)).then_some(runs)
}

/// A merge of the column's newest runs, if a settled tree has fewer.
fn settle_candidate(
    layout: &TreeLayout<'_>,
    number: usize,
    column: &Column<'_>,
) -> Option<Candidate> {
    let over = column.cells.len().checked_sub(layout.options.settled_runs.max(1))?;
    let last = column.cells.get(over).filter(|_| over > 0)?;
    let (runs, level) = (Runs { newest: column.cells.first()?.run, oldest: last.run }, last.level);
    if !column.is_free(runs) {
        return None;
    }
    let (score, gain) = (0.5, over as f64);
    let reason = Reason::Settle;
    Some(Candidate { column: number, runs, reason, to_oldest: false, level, score, gain })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::super::tests::{table, tree};
    use super::super::{Demand, ManualRange, Options, Plan, Summary};
    use super::*;
    use crate::plan;

    /// The candidate for twelve flushed tables over `bytes` that were loaded in key order.
    fn over_a_load(bytes: u64) -> Runs {
        let mut runs: Vec<_> = (2..14).map(|id| vec![table(16 - id, 0, "a", "z", 10)]).collect();
        runs.push(vec![table(1, 0, "a", "m", bytes / 2), table(2, 0, "m", "z", bytes / 2)]);
        let summary = Summary { superseding: 0.0, ..tree(runs) };
        let options = Options::default();
        let layout = TreeLayout::new(&summary, &options);
        candidates(&layout, false).iter().find(|it| it.reason == Reason::Runs).unwrap().runs
    }

    #[test]
    fn a_load_in_key_order_is_not_merged_with_a_dozen_short_tables() {
        assert_eq!(over_a_load(10_000), Runs { newest: 0, oldest: 11 });
        assert_eq!(over_a_load(200), Runs { newest: 0, oldest: 12 }, "as long as these: it is");
    }

    /// A full level is merged once, together with the manual compaction, and not by itself before.
    #[test]
    fn a_full_level_is_merged_once_with_the_manual_compaction() {
        let mut runs: Vec<_> =
            (0..30).map(|id| vec![table(31 - id, 0, "a", "z", 1 << 20)]).collect();
        runs.push(vec![table(1, 3, "a", "z", 1 << 30)]);
        let (full, options) = (Summary { superseding: 0.0, ..tree(runs) }, Options::default());
        let Some(Plan::Merge(merge)) = plan::plan(&full, &options) else { panic!("none") };
        assert_eq!((merge.reason, merge.oldest), (Reason::Runs, false));
        let newest = full.runs[0].id;
        let manual = Some(ManualRange { first: "a".into(), end: None, newest });
        let Some(Plan::Merge(merge)) = plan::plan(&Summary { manual, ..full.clone() }, &options)
        else {
            panic!("none")
        };
        assert_eq!((merge.reason, merge.inputs.len(), merge.oldest), (Reason::Manual, 31, true));
        // The manual compaction excludes later runs, so the level is merged as usual.
        let manual = Some(ManualRange { first: "a".into(), end: None, newest: full.runs[20].id });
        let Some(Plan::Merge(merge)) = plan::plan(&Summary { manual, ..full }, &options) else {
            panic!("none")
        };
        assert_eq!(merge.reason, Reason::Runs);
    }

    /// In a keyspace with many scans and few writes, short runs are merged and long ones are kept.
    #[test]
    fn scans_merge_a_level_before_it_is_full() {
        let mut runs: Vec<_> =
            (0..6).map(|id| vec![table(10 + id, 0, "a", "z", 1 << 20)]).collect();
        runs.extend((0..2).map(|id| vec![table(20 + id, 1, "a", "z", 4 << 30)]));
        let (tree, options) = (Summary { superseding: 0.0, ..tree(runs) }, Options::default());
        assert_eq!(plan::plan(&tree, &options), None, "no level is full");
        let demand = Demand { seeks: 5000.0, written: 1e5 };
        let scanned = Summary { demand, ..tree };
        let Some(Plan::Merge(merge)) = plan::plan(&scanned, &options) else { panic!("none") };
        assert_eq!((merge.reason, merge.inputs.len(), merge.level), (Reason::Reads, 6, 1));
        let debt = plan::debt(&scanned, &options);
        assert!(debt.fullness < 1.0, "it is no reason to slow writers down: {debt:?}");
        let written = Summary { demand: Demand { written: 1e9, ..demand }, ..scanned };
        assert_eq!(plan::plan(&written, &options), None, "the level is full at once anyway");
    }
}
