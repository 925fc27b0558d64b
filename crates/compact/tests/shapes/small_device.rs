//! Trees on devices that they nearly fill.

use base::Rng;
use terrace_compact::plan::{Options, TreeLayout};

use crate::progress::log_uniform;
use crate::tree::{Content, ENTRY, GRID, Tree};

/// Bytes of a flushed table.
const UNIT: f64 = 40e3;

/// A tree of up to 60 flushed tables, some of them of keys in order, with and without merges meanwhile.
fn random_tree(rng: &mut Rng) -> Tree {
    let units = log_uniform(rng, 8.0, 60.0);
    let mut tree = Tree::new(UNIT, units * UNIT / ENTRY);
    tree.options = Options {
        fanout: 3 + rng.below(10) as usize,
        settled_runs: 1 + rng.below(4) as usize,
        slice_bytes: log_uniform(rng, 0.5 * UNIT, 8.0 * UNIT) as u64,
        ..Options::default()
    };
    // As many as a table has that a merge cuts.
    tree.parts = log_uniform(rng, 16.0, 64.0);
    tree.jobs_max = rng.below(2) as usize;
    let entries = UNIT / ENTRY;
    let loads = rng.below(units as u64) as usize;
    for number in 0..loads {
        let (from, to) = (number * GRID / loads, (number + 1) * GRID / loads);
        let each = entries / (to - from) as f64;
        tree.flush(Content { start: from, cells: vec![(each, 0.0); to - from] });
    }
    for _ in 0..1 + rng.below(40) {
        let width = match rng.one_in(2) {
            true => GRID,
            false => log_uniform(rng, 1.0, GRID as f64) as usize,
        };
        let start = rng.below((GRID - width + 1) as u64) as usize;
        let each = (entries / width as f64).min(tree.population);
        tree.flush(Content { start, cells: vec![(each, 0.0); width] });
    }
    tree.finish();
    tree
}

/// An eighth of the device is free, or four flushed tables: about what the log leaves. Whatever was learned
/// of the tree, merges get its garbage back within that.
#[test]
fn a_full_device_gets_its_garbage_back() {
    let (mut rng, seed) = Rng::from_env();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 400 } else { 20 };
    for round in 0..rounds {
        println!("TERRACE_SEED={seed}, round {round}");
        let mut tree = random_tree(&mut rng);
        if rng.one_in(2) {
            let new = tree.stored() as u64;
            tree.turnover.merged(new, 0, new);
        }
        tree.quiet = true;
        let capacity = tree.stored() + (tree.stored() / 7.0).max(4.0 * UNIT);
        tree.capacity = Some(capacity);
        while let Some(plan) = TreeLayout::new(&tree.summary(), &tree.options).plan() {
            let shown = format!("{plan:?}");
            tree.start(plan);
            tree.finish();
            assert!(tree.stored() <= capacity, "{shown}");
        }
        let (stored, distinct) = (tree.stored(), tree.distinct());
        assert!(stored < distinct * 1.3 + UNIT, "{stored} B for {distinct}, of {capacity}");
    }
}
