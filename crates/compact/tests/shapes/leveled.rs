//! Leveled compaction, for comparison: each level is one run, ten times as long as the level above.

use base::RunId;
use terrace_compact::plan::{Merge, Options, Piece, Plan, Reason, Summary};

use crate::tree::{GRID, key};

/// Plans as a leveled tree does, to compare with. Run `8 - n` is level `n`; higher runs are flushed tables.
/// The fullest level merges one table at a time into the next level: the table with the least overlap.
pub(crate) fn plan(summary: &Summary, options: &Options, ratio: f64) -> Option<Plan> {
    if !summary.busy.is_empty() {
        return None;
    }
    let run = |level: u64| summary.runs.iter().find(|run| run.id.0 == 8 - level);
    let flushed: Vec<_> = summary.runs.iter().filter(|run| run.id.0 >= 8).collect();
    if flushed.len() >= 4 {
        let mut inputs: Vec<_> = flushed.iter().map(|run| (run.id, run.pieces.clone())).collect();
        inputs.extend(run(1).map(|run| (run.id, run.pieces.clone())));
        return Some(merge(options, inputs, 1, run(2).is_none()));
    }
    for level in 1..7 {
        let Some(upper) = run(level) else { continue };
        let bytes: u64 = upper.pieces.iter().map(|piece| piece.file.bytes).sum();
        // Target sizes are computed from the last level upwards, each a tenth of the next.
        let deepest = (1..8).rfind(|level| run(*level).is_some()).unwrap_or(1);
        let last: u64 = run(deepest)?.pieces.iter().map(|piece| piece.file.bytes).sum();
        let base = 4.0 * summary.unit_bytes as f64;
        let target = if level == deepest {
            base * ratio.powi(level as i32 - 1)
        } else {
            (last as f64 / ratio.powi((deepest - level) as i32)).max(base)
        };
        if bytes as f64 <= target {
            continue;
        }
        let below = |piece: &Piece| -> Vec<Piece> {
            let pieces = run(level + 1).map_or(&[][..], |run| &run.pieces);
            let meets = |other: &&Piece| {
                other.first < *piece.end.as_ref().unwrap()
                    && piece.first < *other.end.as_ref().unwrap()
            };
            pieces.iter().filter(meets).cloned().collect()
        };
        let cost = |piece: &&Piece| {
            let met: u64 = below(piece).iter().map(|piece| piece.file.bytes).sum();
            met * 1000 / piece.file.bytes.max(1)
        };
        let piece = upper.pieces.iter().min_by_key(cost)?;
        let mut inputs = vec![(upper.id, vec![piece.clone()])];
        inputs.push((RunId(8 - level - 1), below(piece)));
        return Some(merge(options, inputs, level + 1, run(level + 2).is_none()));
    }
    None
}

fn merge(
    options: &Options,
    mut inputs: Vec<(RunId, Vec<Piece>)>,
    level: u64,
    oldest: bool,
) -> Plan {
    let pieces = || inputs.iter().flat_map(|(_, pieces)| pieces);
    let first = pieces().map(|piece| piece.first.clone()).min().unwrap_or(key(0));
    let end = pieces().map(|piece| piece.end.clone()).max().unwrap_or(Some(key(GRID)));
    let bytes = pieces().map(|piece| piece.file.bytes).sum();
    let into = RunId(8 - level);
    if inputs.last().is_none_or(|(id, _)| *id != into) {
        inputs.push((into, Vec::new()));
    }
    Plan::Merge(Merge {
        collect: Vec::new(),
        inputs,
        first,
        end,
        into,
        level: level as u8,
        oldest,
        reason: Reason::Runs,
        bytes,
        table_bytes: options.slice_bytes / 4,
        filter_bits: 9.0,
    })
}
