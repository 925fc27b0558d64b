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
    let plan = match layout.plan() {
        // It reads nothing.
        Some(Plan::Drop(pieces)) => Some(Plan::Drop(pieces)),
        ordered => keep::plan(summary, &keep_options)
            .or_else(|| garbage(ordered?, &keep_options).map(Plan::Merge)),
    };
    (plan, debt_of(&layout, &keep_options))
}

/// The debt of a `keep` keyspace.
#[must_use]
pub fn debt_keep(summary: &Summary, options: &Options) -> Debt {
    debt_of(&TreeLayout::new(summary, options), &slices(options))
}

/// The slices' debt of merges, with the space and the manual compactions of the ordered planner.
fn debt_of(layout: &TreeLayout<'_>, options: &keep::Options) -> Debt {
    let Debt { manual_bytes, space, space_fullness, .. } = layout.debt();
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
