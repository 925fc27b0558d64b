//! The whole planner of a `keep` keyspace: slices by [`keep`], garbage by the planner of ordered
//! trees.
//!
//! The schedule of slices bounds runs, and with them the memory of filters. Garbage is no different from that
//! of an ordered tree: tables that a range delete covers, expired and deleted entries, dead values. So what
//! that planner would do for these reasons is done, with the levels and filters of a base, whenever no slice
//! is due. What it would do for fewer runs is not.

use super::keep;
use crate::plan::{Debt, Merge, Options, Plan, Reason, Summary, TreeLayout};

/// The options of the schedule of slices that go with those of ordered trees.
fn slices(options: &Options) -> keep::Options {
    let own = keep::Options::default();
    keep::Options {
        runs_max: options.runs_max,
        base_filter_bits: options.base_filter_bits,
        slice_bytes_min: own.slice_bytes_min.min(options.slice_bytes),
        ..own
    }
}

/// The next action for a `keep` keyspace, `None` if there is nothing to do now; and its debt.
#[must_use]
pub fn plan_keep(summary: &Summary, options: &Options) -> (Option<Plan>, Debt) {
    let keep_options = slices(options);
    let layout = TreeLayout::new(summary, options);
    // A drop reads nothing, so it comes before any merge.
    let dropped = Some(layout.dropped()).filter(|pieces| !pieces.is_empty()).map(Plan::Drop);
    // The ordered planner compares all runs with one another, which takes longer than all the rest: last.
    let plan = dropped
        .or_else(|| keep::plan(summary, &keep_options))
        .or_else(|| garbage(layout.plan()?, &keep_options).map(Plan::Merge));
    (plan, debt_of(&layout, &keep_options))
}

/// The debt of a `keep` keyspace.
#[must_use]
pub fn debt_keep(summary: &Summary, options: &Options) -> Debt {
    debt_of(&TreeLayout::new(summary, options), &slices(options))
}

/// The slices' debt of merges, with the space and the manual compactions of the ordered planner.
fn debt_of(layout: &TreeLayout<'_>, options: &keep::Options) -> Debt {
    let Debt { manual_bytes, space, space_fullness, .. } = layout.debt_of_space();
    Debt { manual_bytes, space, space_fullness, ..keep::debt(layout.summary, options) }
}

/// The merge of `plan` if it is for garbage, in the form of a merge of slices.
fn garbage(plan: Plan, options: &keep::Options) -> Option<Merge> {
    let Plan::Merge(merge) = plan else { return None };
    match merge.reason {
        Reason::Runs | Reason::Reads | Reason::Settle => None,
        Reason::Space | Reason::Deletes | Reason::Manual | Reason::Values => Some(Merge {
            level: if merge.oldest { keep::BASE_LEVEL } else { 0 },
            filter_bits: match merge.oldest {
                true => f32::from(options.base_filter_bits),
                false => merge.filter_bits,
            },
            ..merge
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{RunId, TableId};
    use bytes::Bytes;

    use super::*;
    use crate::plan::{FileSummary, Piece, RunSummary};

    /// Flushed runs over all keys; the oldest expired if `expiry` is not 0.
    fn runs(count: u64, expiry: u64) -> Summary {
        let run = |number: u64| {
            let file = FileSummary {
                id: TableId(number),
                bytes: 1 << 20,
                entries: 1000,
                latest_expiry: if number == 1 { expiry } else { 0 },
                ..FileSummary::default()
            };
            let (first, end) = (Bytes::new(), None);
            let piece = Piece { file: Arc::new(file), level: 0, first, end, damaged: false };
            RunSummary { id: RunId(number), pieces: vec![piece] }
        };
        let runs = (1..=count).rev().map(run).collect();
        Summary { runs, unit_bytes: 1 << 20, now_ms: 100, ..Summary::default() }
    }

    #[test]
    fn dead_tables_are_dropped_before_a_slice_is_merged() {
        let options = Options::default();
        let (plan, debt) = plan_keep(&runs(20, 0), &options);
        assert!(matches!(plan, Some(Plan::Merge(_))), "a slice is due: {plan:?}");
        assert!(debt.bytes > 0, "{debt:?}");
        let (plan, _) = plan_keep(&runs(20, 100), &options);
        let Some(Plan::Drop(pieces)) = plan else { panic!("nothing is dropped: {plan:?}") };
        assert_eq!(pieces.iter().map(|(run, _)| *run).collect::<Vec<_>>(), [RunId(1)]);
        let (plan, _) = plan_keep(&runs(20, 101), &options);
        assert!(matches!(plan, Some(Plan::Merge(_))), "not yet expired: {plan:?}");
    }

    /// Of the merges of the ordered planner, those for garbage get the level and the filters of their place.
    #[test]
    fn merges_for_garbage_have_the_form_of_slices() {
        let merge = |reason, oldest| Merge {
            inputs: Vec::new(),
            first: Bytes::new(),
            end: None,
            into: RunId(1),
            level: 3,
            oldest,
            reason,
            bytes: 1,
            table_bytes: 1,
            filter_bits: 11.0,
            collect: Vec::new(),
        };
        let options = keep::Options { base_filter_bits: 8, ..keep::Options::default() };
        let form = |reason, oldest| {
            let merge = garbage(Plan::Merge(merge(reason, oldest)), &options)?;
            Some((merge.level, merge.filter_bits))
        };
        for reason in [Reason::Runs, Reason::Reads, Reason::Settle] {
            assert_eq!(form(reason, true), None, "{reason:?}");
        }
        for reason in [Reason::Space, Reason::Deletes, Reason::Manual, Reason::Values] {
            assert_eq!(form(reason, true), Some((keep::BASE_LEVEL, 8.0)), "{reason:?}");
            assert_eq!(form(reason, false), Some((0, 11.0)), "{reason:?}");
        }
        assert_eq!(garbage(Plan::Move(Vec::new()), &options), None);
    }
}
