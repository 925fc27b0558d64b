//! Planning ends, because every plan lowers a measure of the tree or frees garbage.
//!
//! The measure is the number of grid cells that each run covers, compared lexicographically from the newest
//! run on. A merge of several runs takes its rectangle away from its newest run, leaves newer runs alone and
//! adds only to its oldest run, so it lowers the measure. So do moves and drops. A merge of one run raises
//! the measure at most by the holes between its pieces, and takes at least one grid cell from a file with
//! garbage: at most [`GRID`] of these come one after another.

use std::collections::BTreeMap;

use base::Rng;
use terrace_compact::plan::{Merge, Options, Piece, Plan, Reason, TreeLayout};

use crate::tree::{Content, ENTRY, GRID, Tree, cell};

fn cells(piece: &Piece) -> usize {
    cell(piece.end.as_ref().unwrap()) - cell(&piece.first)
}

/// Grid cells that each run covers.
fn covered(tree: &Tree) -> BTreeMap<u64, usize> {
    tree.runs.iter().map(|(run, pieces)| (*run, pieces.iter().map(cells).sum())).collect()
}

/// For each grid cell that a run covers, the number of runs from this one to the oldest; the sum of these. A
/// merge that does not fill holes of its oldest run lowers the sum, so it bounds the number of such merges.
fn depths(tree: &Tree) -> usize {
    covered(tree).values().enumerate().map(|(older, cells)| cells * (older + 1)).sum()
}

/// Whether the newest run that differs covers less in `after`.
fn is_lower(before: &BTreeMap<u64, usize>, after: &BTreeMap<u64, usize>) -> bool {
    let in_both = |run: &u64| (before.get(run).copied(), after.get(run).copied());
    let runs = before.keys().rev().map(in_both);
    assert!(after.keys().all(|run| before.contains_key(run)), "a merge makes no run");
    runs.into_iter().find(|(before, after)| before != after).is_some_and(|(b, a)| a < b)
}

/// Whether rewriting the inputs alone frees anything.
fn has_garbage(tree: &Tree, job: &Merge) -> bool {
    let used = |piece: &Piece| -> usize {
        let pieces = tree.runs.values().flatten();
        pieces.filter(|other| other.file.id == piece.file.id).map(cells).sum()
    };
    job.inputs.iter().flat_map(|(_, pieces)| pieces).any(|piece| {
        let whole = tree.runs.values().flatten();
        let whole = whole.filter(|other| other.file.id == piece.file.id).collect::<Vec<_>>();
        let hull = whole.iter().map(|it| cell(it.end.as_ref().unwrap())).max().unwrap()
            - whole.iter().map(|it| cell(&it.first)).min().unwrap();
        let live = whole.iter().map(|it| tree.bytes(it)).sum::<f64>();
        piece.file.deletes > 0 || used(piece) < hull || live + 1.0 < piece.file.bytes as f64
    })
}

/// Plans until nothing is left to do; returns the number of plans.
fn settle(tree: &mut Tree) -> usize {
    tree.quiet = true;
    let (bound, mut steps, mut alone) = (depths(tree), 0, 0);
    while let Some(plan) = TreeLayout::new(&tree.summary(), &tree.options).plan() {
        let before = covered(tree);
        let mut of_one = None;
        if let Plan::Merge(job) = &plan
            && let [(run, pieces)] = &job.inputs[..]
        {
            assert!(!matches!(job.reason, Reason::Runs | Reason::Reads), "{job:?}");
            assert!(has_garbage(tree, job), "rewrites one run for nothing: {job:?}");
            let all = cell(job.end.as_ref().unwrap()) - cell(&job.first);
            of_one = Some((run.0, all - pieces.iter().map(cells).sum::<usize>()));
        }
        let shown = format!("{plan:?}");
        tree.start(plan);
        tree.finish();
        let after = covered(tree);
        let lower = is_lower(&before, &after);
        let is_filled = of_one.is_some_and(|(run, holes)| {
            let filled = before[&run]..=before[&run] + holes;
            let others = before.iter().filter(|(it, _)| **it != run);
            filled.contains(&after[&run]) && others.eq(after.iter().filter(|(it, _)| **it != run))
        });
        assert!(lower || is_filled, "no progress by {shown}");
        alone = if lower { 0 } else { alone + 1 };
        steps += 1;
        assert!(alone <= GRID && steps <= bound, "{steps} plans, no more than {bound} are needed");
    }
    let debt = TreeLayout::new(&tree.summary(), &tree.options).debt();
    assert_eq!(debt.bytes, 0, "nothing is planned, so nothing is left to do");
    assert!(tree.depth() <= tree.options.settled_runs);
    steps
}

/// A number from `low` to `high`, small ones as often as large ones.
pub(crate) fn log_uniform(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.unit())
}

/// A tree of up to 40 flushes of any width and length over one that holds every key.
fn random_tree(rng: &mut Rng) -> Tree {
    let mut tree = Tree::new(40e3, log_uniform(rng, 1e3, 1e6));
    tree.options = Options {
        fanout: 2 + rng.below(5) as usize,
        settled_runs: 1 + rng.below(4) as usize,
        slice_bytes: log_uniform(rng, 4e3, 1e6) as u64,
        runs_max: if rng.one_in(4) { 3 + rng.below(6) as usize } else { 64 },
        ..Options::default()
    };
    tree.parts = if rng.one_in(2) { 1.0 } else { log_uniform(rng, 1.0, 64.0) };
    // Without merges meanwhile, runs pile up.
    tree.jobs_max = rng.below(2) as usize;
    let all = log_uniform(rng, 1e5, 4e6) / ENTRY / GRID as f64;
    tree.flush(Content { start: 0, cells: vec![(all, 0.0); GRID] });
    for _ in 0..1 + rng.below(40) {
        let width = log_uniform(rng, 1.0, GRID as f64) as usize;
        let start = rng.below((GRID - width + 1) as u64) as usize;
        let puts = log_uniform(rng, 2e3, 4e5) / ENTRY / width as f64;
        let deletes = if rng.one_in(4) { all / 100.0 } else { 0.0 };
        tree.flush(Content { start, cells: vec![(puts.min(tree.population), deletes); width] });
    }
    tree.finish();
    tree
}

#[test]
fn every_plan_makes_progress_until_random_trees_are_settled() {
    let (mut rng, seed) = Rng::from_env();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 3000 } else { 200 };
    let mut most = 0;
    for round in 0..rounds {
        println!("TERRACE_SEED={seed}, round {round}");
        most = most.max(settle(&mut random_tree(&mut rng)));
    }
    println!("at most {most} plans");
}
