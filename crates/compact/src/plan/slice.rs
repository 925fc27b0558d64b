//! Turns a candidate into a merge: one slice of a series, no larger than the free space allows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use base::{RunId, TableId, invariant};
use bytes::Bytes;

use super::action::{Merge, Reason};
use super::candidate::{
    Candidate, deletes_share, deletes_share_max, gain, is_reducible, manual_runs, output_bytes,
};
use super::columns::{Cell, Column, Edge, Runs};
use super::options::{filter_bits, table_bytes};
use super::tree_layout::TreeLayout;
use super::{Options, Piece, window};

/// A column with at most this part of the candidate's input bytes always belongs to the slice. Between two
/// tables of an older run, the newer runs hold almost nothing: a slice that ended there would be as long as
/// one table, and would leave small pieces that every scan has to search.
const GAP_PART: u64 = 64;

/// The merge of `candidate`'s runs in its column and in adjacent columns; `None` if there is no room for it.
pub(super) fn grow(layout: &TreeLayout<'_>, candidate: &Candidate) -> Option<Merge> {
    let columns = &layout.columns.all;
    let gap = input_bytes(columns.get(candidate.column)?, candidate.runs) / GAP_PART;
    let is_due = |number: usize| {
        let due = |column| is_column_due(layout, number, column, candidate);
        number == candidate.column || columns.get(number).is_some_and(due)
    };
    let wanted = |number: usize| {
        is_due(number) || columns.get(number).is_some_and(|column| is_gap(column, candidate, gap))
    };
    // A series goes from left to right, so the slice begins with the leftmost column that belongs to it.
    let mut from = candidate.column;
    while from.checked_sub(1).is_some_and(wanted) {
        from -= 1;
    }
    let mut to = candidate.column + 1;
    while wanted(to) {
        to += 1;
    }
    // Columns without inputs at either end are left out.
    let is_used = |column: &Column<'_>| input_bytes(column, candidate.runs) > 0;
    let region = columns.get(from..to)?;
    to = from + region.iter().rposition(is_used)? + 1;
    from += region.iter().position(is_used)?;
    let most = layout.slice_bytes.min(layout.room());
    let slice = first_slice(columns, from..to, candidate.runs, most, is_due)?;
    let runs = include_small_older_runs(layout, columns.get(slice.clone())?, candidate.runs);
    // Cut again: the slice must not exceed the columns that were found free for all of `runs`.
    let slice = first_slice(columns, slice, runs, most, is_due)?;
    invariant!(
        slice.clone().any(is_due),
        "a slice has a column that is due, so its merge makes progress"
    );
    let slice = include_whole_pointer_tables(columns, runs, slice, most);
    // The slice has at least one column; if even that has no room, there is no merge.
    let region = columns.get(slice.clone())?;
    let inputs: u64 = region.iter().map(|column| input_bytes(column, runs)).sum();
    let outputs: u64 = region.iter().map(|column| output_bytes(layout, column, runs)).sum();
    let outputs = outputs + layout.summary.overhead_bytes;
    // A manual compaction takes all of the files that it cuts, slice by slice, and frees them then. So it may
    // use the space that others leave, unless cut files already keep much of it.
    let frees_later = || {
        let cut = cut_bytes(region, runs);
        candidate.reason == Reason::Manual
            && (cut <= inputs / 4 || layout.unused_bytes() + cut <= layout.free() / 4)
    };
    let frees = outputs <= inputs / 4 * 3 || frees_later();
    if outputs > if frees { layout.room_to_free() } else { layout.room() } {
        return None;
    }
    build_merge(layout, candidate.reason, runs, slice)
}

/// The merge down to the oldest run that frees most for its cost; `None` if there is no room for any.
pub(super) fn space_merge(layout: &TreeLayout<'_>, whole: Runs) -> Option<Merge> {
    let columns = &layout.columns.all;
    let room = layout.room_to_free();
    let window = window::best(layout, whole, room)?;
    let most = layout.slice_bytes.min(room);
    let slice = include_whole_pointer_tables(columns, whole, window, most);
    build_merge(layout, Reason::Space, whole, slice)
}

/// The merge of two adjacent runs in one column that frees most per byte: for when whole columns have no
/// room.
pub(super) fn pair_merge(layout: &TreeLayout<'_>) -> Option<Merge> {
    let room = layout.room_to_free();
    let columns = layout.columns.all.iter().enumerate();
    let pairs = columns.flat_map(|(number, column)| {
        column.cells.windows(2).filter_map(move |cells| {
            let [newer, older] = cells else { return None };
            let (runs, bytes) =
                (Runs { newest: newer.run, oldest: older.run }, newer.bytes + older.bytes);
            let written = bytes + layout.summary.overhead_bytes;
            let fits = newer.bytes > 0 && written <= room && column.is_free(runs);
            let freed = newer.bytes.min(older.bytes) + newer.garbage() + older.garbage();
            let gain = freed.checked_sub(layout.summary.overhead_bytes)? as f64 / bytes as f64;
            fits.then_some((number, runs, gain))
        })
    });
    let (number, runs, gain) = pairs.max_by(|one, other| one.2.total_cmp(&other.2))?;
    invariant!(gain.is_finite(), "a pair has bytes");
    build_merge(layout, Reason::Space, runs, number..number + 1)
}

/// The columns of `series` that make the first slice of about `most` bytes. Gaps may come first. If the slice
/// would end before the first due column, it begins with that column instead: a merge of gaps alone rewrites
/// them, leaves the tree as it is, and would be planned again without end.
fn first_slice(
    columns: &[Column<'_>],
    series: Range<usize>,
    runs: Runs,
    most: u64,
    is_due: impl Fn(usize) -> bool,
) -> Option<Range<usize>> {
    let due = series.clone().find(|number| is_due(*number))?;
    let slice_from = |from: usize| {
        let rest = columns.get(from..series.end)?;
        Some(from..from + columns_in_slice(rest, runs, most))
    };
    let slice = slice_from(series.start)?;
    if due < slice.end { Some(slice) } else { slice_from(due) }
}

/// The number of `columns` that make one slice of about `most` bytes.
fn columns_in_slice(columns: &[Column<'_>], runs: Runs, most: u64) -> usize {
    let total: u64 = columns.iter().map(|column| input_bytes(column, runs)).sum();
    // Two slices of equal size, if the rest would be too small to be worth a job.
    let target = if total > most && total / 3 < most / 2 { total / 2 } else { most };
    let mut bytes = 0;
    let fitting = columns.iter().take_while(|column| {
        bytes += input_bytes(column, runs);
        bytes <= target
    });
    fitting.count().max(1).min(columns.len())
}

/// `runs` and the older runs that are small compared with them: including these saves a run at little cost.
/// The oldest run is included if it is about as long, and as far as it is superseded: otherwise the output
/// would become a run beside it, and space would soon require to merge the two.
fn include_small_older_runs(layout: &TreeLayout<'_>, columns: &[Column<'_>], runs: Runs) -> Runs {
    let bytes = |runs: Runs| -> u64 {
        columns.iter().flat_map(|column| column.within(runs)).map(|cell| cell.bytes).sum()
    };
    let mut wide = runs;
    loop {
        let older = Runs { newest: wide.oldest + 1, oldest: usize::MAX };
        let cells = || columns.iter().flat_map(|column| column.within(older));
        let Some(next) = cells().map(|cell| cell.run).min() else { return wide };
        let is_oldest = cells().all(|cell| cell.run == next);
        let part = if is_oldest { 1.5 * layout.summary.superseding } else { 0.0 };
        let wider = Runs { newest: runs.newest, oldest: next };
        let length = bytes(Runs { newest: next, oldest: next });
        let is_small = length as f64 <= bytes(wide) as f64 * part.max(0.5);
        if !is_small || !columns.iter().all(|column| column.is_free(wider)) {
            return wide;
        }
        invariant!(wider.oldest > wide.oldest, "a slice grows by older runs only");
        wide = wider;
    }
}

/// Widens `slice` to adjacent columns until it cuts no table of pointers to values, as far as `most`
/// bytes and other merges permit. The piece that a cut leaves would keep all values alive that the table
/// points at. Such a table is short, so rewriting the whole of it costs little.
fn include_whole_pointer_tables(
    columns: &[Column<'_>],
    runs: Runs,
    slice: Range<usize>,
    most: u64,
) -> Range<usize> {
    invariant!(slice.end <= columns.len(), "a slice lies within the columns");
    let region = columns.get(slice.clone()).unwrap_or_default();
    let Range { start: mut from, mut end } = slice;
    let mut bytes: u64 = region.iter().map(|column| input_bytes(column, runs)).sum();
    // Whether column `next`, adjacent to column `edge`, is included.
    let mut joins = |edge: usize, next: Option<usize>| {
        let (Some(edge), Some(next)) = (columns.get(edge), next.and_then(|next| columns.get(next)))
        else {
            return false;
        };
        let reaches = |cell: &Cell<'_>| {
            cell.piece.file.is_of_pointers()
                && next.within(runs).iter().any(|other| std::ptr::eq(other.piece, cell.piece))
        };
        let more = input_bytes(next, runs);
        let is_one = edge.within(runs).iter().any(reaches)
            && next.is_free(runs)
            && bytes.saturating_add(more) <= most;
        bytes += if is_one { more } else { 0 };
        is_one
    };
    while joins(from, from.checked_sub(1)) {
        from -= 1;
    }
    while joins(end.saturating_sub(1), Some(end)) {
        end += 1;
    }
    from..end
}

/// Input bytes of files that the slice `region` cuts: merging it does not free them.
pub(super) fn cut_bytes(region: &[Column<'_>], runs: Runs) -> u64 {
    let mut files: BTreeMap<TableId, (u64, u64)> = BTreeMap::new();
    for cell in region.iter().flat_map(|column| column.within(runs)) {
        let file = &cell.piece.file;
        files.entry(file.id).or_insert((0, file.bytes)).0 += cell.bytes;
    }
    // The metadata of a file is in no cell.
    let cut = files.into_values().filter(|(inside, bytes)| *inside < bytes / 10 * 9);
    cut.map(|(inside, _)| inside).sum()
}

fn input_bytes(column: &Column<'_>, runs: Runs) -> u64 {
    column.within(runs).iter().map(|cell| cell.bytes.max(1)).sum()
}

/// Whether a column is merged for its own sake: the merge reduces its runs or frees something in it.
fn is_column_due(
    layout: &TreeLayout<'_>,
    number: usize,
    column: &Column<'_>,
    candidate: &Candidate,
) -> bool {
    let cells = column.within(candidate.runs);
    let Options { fanout, settled_runs, .. } = *layout.options;
    let enough = match candidate.reason {
        // Manual compaction takes every column of its range and no other, whatever a merge there frees.
        Reason::Manual => return manual_runs(layout, number, column) == Some(candidate.runs),
        _ if !column.is_free(candidate.runs) => return false,
        Reason::Deletes => {
            let share = deletes_share(layout, column, candidate.runs);
            return share > 0.0 && share >= deletes_share_max(layout, layout.summary.quiet) / 2.0;
        }
        _ if candidate.to_oldest => {
            let gives = gain(layout, column) >= (candidate.gain / 2.0).min(layout.gain());
            return is_reducible(cells) && gives;
        }
        Reason::Settle => column.cells.len() > settled_runs,
        Reason::Reads => true,
        _ => cells.len() >= fanout / 4 * 3,
    };
    enough && cells.len() >= 2 && are_of_level(cells, candidate)
}

/// Whether a column of at most `gap` input bytes belongs to a candidate's slice although it is not due. A
/// column with a deeper level does not. Slices for tombstones include only empty columns, and slices of a
/// manual compaction no gaps at all.
fn is_gap(column: &Column<'_>, candidate: &Candidate, gap: u64) -> bool {
    let cells = column.within(candidate.runs);
    let is_included = match candidate.reason {
        Reason::Manual => false,
        Reason::Deletes => cells.is_empty(),
        _ => {
            input_bytes(column, candidate.runs) <= gap
                && (candidate.to_oldest || are_of_level(cells, candidate))
        }
    };
    is_included && column.is_free(candidate.runs)
}

/// Whether no cell is of a deeper level than the candidate merges.
fn are_of_level(cells: &[Cell<'_>], candidate: &Candidate) -> bool {
    cells.iter().all(|cell| cell.level <= candidate.level)
}

/// The merge of `runs` in the columns `slice`.
fn build_merge(
    layout: &TreeLayout<'_>,
    reason: Reason,
    runs: Runs,
    slice: Range<usize>,
) -> Option<Merge> {
    let region = layout.columns.all.get(slice.clone())?;
    let (from, to) = (layout.columns.edges.get(slice.start)?, layout.columns.edges.get(slice.end)?);
    let Edge::Key(first) = *from else { return None };
    let end = match *to {
        Edge::Key(key) => Some(key),
        Edge::End => None,
    };
    invariant!(
        region.iter().all(|column| column.is_free(runs)),
        "a slice takes only runs that no job works on and that are not damaged"
    );
    let cells = || region.iter().flat_map(|column| column.within(runs));
    // More runs than a job has memory for are merged in turns, newest first, because newer runs are shorter.
    let most = layout.options.runs_max.max(2);
    let numbers: BTreeSet<usize> = cells().map(|cell| cell.run).collect();
    if let Some(oldest) = numbers.iter().nth(most - 1).filter(|_| numbers.len() > most) {
        let runs = Runs { newest: runs.newest, oldest: *oldest };
        return build_merge(layout, reason, runs, slice);
    }
    let into = cells().map(|cell| cell.run).max()?;
    let mut inputs: Vec<(RunId, Vec<Piece>)> = Vec::new();
    for number in runs.newest..=into {
        let mut pieces: Vec<&Piece> =
            cells().filter(|cell| cell.run == number).map(|cell| cell.piece).collect();
        pieces.dedup_by(|a, b| std::ptr::eq(*a, *b));
        if !pieces.is_empty() {
            let clipped = pieces.into_iter().map(|piece| clip(piece, first, end));
            inputs.push((layout.run_id(number)?, clipped.collect()));
        }
    }
    let below = Runs { newest: into + 1, oldest: usize::MAX };
    let oldest = region.iter().all(|column| column.within(below).is_empty());
    Some(Merge {
        into: inputs.last()?.0,
        inputs,
        first: Bytes::copy_from_slice(first),
        end: end.map(Bytes::copy_from_slice),
        level: level(layout, runs, region),
        oldest,
        reason,
        bytes: cells().map(|cell| cell.bytes).sum(),
        table_bytes: table_bytes(layout.slice_bytes, oldest),
        filter_bits: filter_bits(oldest),
        collect: Vec::new(),
    })
}

/// The part of `piece` from `first` to `end`.
fn clip(piece: &Piece, first: &[u8], end: Option<&[u8]>) -> Piece {
    let mut clipped = piece.clone();
    if &*piece.first < first {
        clipped.first = Bytes::copy_from_slice(first);
    }
    if let Some(end) = end.filter(|end| Edge::Key(end) < Edge::of_end(piece.end.as_ref())) {
        clipped.end = Some(Bytes::copy_from_slice(end));
    }
    clipped
}

/// The level of the outputs: one deeper than the inputs if two of them have the same level and the runs are
/// about as long as that level's. Short runs, flushed from a nearly idle keyspace, keep their level.
fn level(layout: &TreeLayout<'_>, runs: Runs, region: &[Column<'_>]) -> u8 {
    let columns = || region.iter().map(|column| column.within(runs));
    let top = columns().flatten().map(|cell| cell.level).max().unwrap_or(0);
    let at_top = columns().map(|cells| cells.iter().filter(|cell| cell.level == top).count());
    if at_top.max().unwrap_or(0) < 2 {
        return top;
    }
    let inputs = layout.summary.runs.get(runs.newest..=runs.oldest);
    let pieces = inputs.unwrap_or_default().iter().flat_map(|run| &run.pieces);
    let length: u64 = pieces.map(|piece| piece.file.bytes).sum();
    let full = layout.options.fanout as f64;
    let least = layout.summary.unit_bytes as f64 * full.powi(i32::from(top) + 1) / 8.0;
    if length as f64 >= least { top.saturating_add(1) } else { top }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::{table, tree};
    use super::super::{Area, Plan, Summary, plan};
    use super::*;

    fn paired(summary: &Summary) -> Option<Merge> {
        pair_merge(&TreeLayout::new(summary, &Options::default()))
    }

    /// Two columns: `m` has many superseded bytes, `a` few.
    fn two_columns(free: u64) -> Summary {
        let newer = vec![table(5, 0, "a", "c", 10), table(6, 0, "m", "p", 50)];
        let older = vec![table(1, 1, "a", "c", 40), table(2, 1, "m", "p", 60)];
        Summary { free_bytes: Some(free), ..tree(vec![newer, older]) }
    }

    #[test]
    fn the_pair_that_frees_most_is_merged() {
        let job = paired(&two_columns(1000)).unwrap();
        assert_eq!((job.reason, job.newest(), job.into), (Reason::Space, RunId(2), RunId(1)));
        assert_eq!((&*job.first, job.end.as_deref()), (&b"m"[..], Some(&b"p"[..])));
        assert_eq!((job.bytes, job.oldest), (110, true));
        // The pair must fit into three quarters of the free space.
        let job = paired(&two_columns(100)).unwrap();
        assert_eq!((&*job.first, job.bytes), (&b"a"[..], 50));
        assert_eq!(paired(&two_columns(64)), None);
    }

    /// A column of 90 bytes with 100 keys, of which a newer table of 10 bytes deletes `deletes`.
    fn deleted(deletes: u64, free: u64) -> Summary {
        let counted = |mut piece: Piece, entries, deletes| {
            let file = Arc::make_mut(&mut piece.file);
            (file.entries, file.deletes) = (entries, deletes);
            vec![piece]
        };
        let newer = counted(table(5, 0, "a", "c", 10), deletes.max(1), deletes);
        let older = counted(table(1, 1, "a", "c", 90), 100, 0);
        Summary { free_bytes: Some(free), ..tree(vec![newer, older]) }
    }

    #[test]
    fn a_merge_needs_space_for_what_deletes_leave() {
        let whole = Runs { newest: 0, oldest: 1 };
        let is_merged = |deletes, free| {
            let summary = deleted(deletes, free);
            space_merge(&TreeLayout::new(&summary, &Options::default()), whole).is_some()
        };
        assert!(is_merged(0, 200) && !is_merged(0, 100));
        // Half of the keys are left, and the tombstones go.
        assert!(is_merged(50, 100) && !is_merged(50, 40));
        assert!(is_merged(100, 4));
    }

    #[test]
    fn a_pair_above_older_runs_is_not_the_oldest() {
        let run = |id, bytes| vec![table(id, 1, "a", "z", bytes)];
        let runs = vec![run(5, 5), run(4, 100), run(3, 90), run(2, 1000)];
        let summary = Summary { free_bytes: Some(500), ..tree(runs) };
        let job = paired(&summary).unwrap();
        assert_eq!((job.newest(), job.into, job.bytes), (RunId(3), RunId(2), 190));
        assert!(!job.oldest && job.inputs.len() == 2, "something older lies below: {job:?}");
    }

    #[test]
    fn busy_or_damaged_pieces_are_in_no_pair() {
        let mut summary = two_columns(1000);
        summary.busy = vec![Area {
            newest: RunId(1),
            oldest: RunId(1),
            first: "m".into(),
            end: None,
            bytes: 0,
        }];
        assert_eq!(&*paired(&summary).unwrap().first, b"a");
        summary.runs[0].pieces[0].damaged = true;
        assert_eq!(paired(&summary), None);
    }

    /// Four runs of one level that overlap in `a` to `m` and in `n` to `z`. In between, only the oldest run
    /// has bytes: `between` of them.
    fn gapped(between: u64) -> Summary {
        let newer = |id| vec![table(id, 0, "a", "m", 500), table(id + 1, 0, "n", "z", 500)];
        let mut across = table(1, 0, "a", "z", 1000 + between);
        let splits = [("m", 500), ("n", 500 + between)];
        Arc::make_mut(&mut across.file).splits =
            splits.map(|(key, bytes)| (Bytes::from_static(key.as_bytes()), bytes)).into();
        tree(vec![newer(6), newer(4), newer(2), vec![across]])
    }

    fn range(summary: &Summary, reason: Reason) -> (Bytes, Option<Bytes>) {
        let options = Options { fanout: 4, ..Options::default() };
        let layout = TreeLayout::new(summary, &options);
        let runs = Runs { newest: 0, oldest: 3 };
        let (to_oldest, level) = (false, 0);
        let candidate =
            Candidate { column: 0, runs, reason, to_oldest, level, score: 1.0, gain: 0.0 };
        let job = grow(&layout, &candidate).unwrap();
        (job.first, job.end)
    }

    #[test]
    fn a_gap_between_tables_does_not_end_a_slice() {
        let (a, m, z) = ("a".into(), Some("m".into()), Some("z".into()));
        let gap = 2000 / GAP_PART;
        assert_eq!(range(&gapped(gap), Reason::Runs), (a, z));
        assert_eq!(range(&gapped(gap + 1), Reason::Runs).1, m, "that much is no gap");
        assert_eq!(range(&gapped(gap), Reason::Deletes).1, m, "no deletes are in it");
        let mut deeper = gapped(gap);
        deeper.runs[3].pieces[0].level = 1;
        assert_eq!(range(&deeper, Reason::Runs).1, m, "of a level that is not merged");
    }

    /// Three runs of one level in `c` to `z`, in tables without split keys that are longer than a slice. The
    /// middle run also has a table of `between` bytes in `a` to `b`.
    fn gap_before_a_full_column(between: u64) -> Summary {
        let full = |id| table(id, 0, "c", "z", 250 << 10);
        let oldest = vec![table(1, 2, "a", "b", 8 << 20), table(2, 2, "c", "z", 8 << 20)];
        let middle = vec![table(5, 0, "a", "b", between), full(3)];
        let runs = vec![vec![full(6)], middle, vec![full(4)], oldest];
        Summary { superseding: 0.0, ..tree(runs) }
    }

    /// A slice that ended before the full column would rewrite the gap's only table, and the same merge would
    /// be planned again without end.
    #[test]
    fn a_slice_does_not_end_before_the_column_that_is_due() {
        let options = Options { fanout: 3, slice_bytes: 128 << 10, ..Options::default() };
        for between in [1, (750 << 10) / GAP_PART] {
            let summary = gap_before_a_full_column(between);
            let Some(Plan::Merge(job)) = plan(&summary, &options) else { panic!("none") };
            assert_eq!((job.reason, &*job.first, job.inputs.len()), (Reason::Runs, &b"c"[..], 3));
        }
    }

    #[test]
    fn one_run_has_no_pair() {
        let summary = tree(vec![vec![table(5, 0, "a", "c", 10), table(6, 0, "m", "p", 50)]]);
        assert_eq!(paired(&summary), None);
    }
}
