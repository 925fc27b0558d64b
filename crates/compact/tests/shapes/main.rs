//! Tree shapes under the planner, simulated without data.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod leveled;
mod progress;
mod small_device;
mod tree;

use terrace_compact::plan::Options;
use tree::{Content, ENTRY, GRID, Tree};

const UNIT: f64 = 16e6;

/// `flushes` tables with keys drawn evenly from all keys.
fn even(tree: &mut Tree, flushes: usize) {
    let n = tree.unit / ENTRY / GRID as f64;
    for _ in 0..flushes {
        tree.flush(Content { start: 0, cells: vec![(n, 0.0); GRID] });
    }
}

/// Nine tenths of the writes go to one tenth of the keys.
fn skewed(tree: &mut Tree, flushes: usize) {
    let n = tree.unit / ENTRY / GRID as f64;
    let share = |cell: usize| if (1000..1410).contains(&cell) { 9.0 } else { 1.0 / 9.0 };
    for _ in 0..flushes {
        let cells = (0..GRID).map(|cell| ((n * share(cell)).min(tree.population * 0.9), 0.0));
        tree.flush(Content { start: 0, cells: cells.collect() });
    }
}

/// Keys in order; each table covers its own part of the grid.
fn ordered(tree: &mut Tree, flushes: usize) {
    for number in 0..flushes {
        let cell = number * GRID / flushes;
        let n = tree.unit / ENTRY;
        tree.flush(Content { start: cell, cells: vec![(n, 0.0)] });
    }
}

/// A queue: keys are written in order at one end and deleted in order at the other.
fn queue(tree: &mut Tree, flushes: usize) {
    for number in 0..flushes {
        let at = number * GRID / flushes;
        let n = tree.unit / ENTRY;
        let old = at.saturating_sub(GRID / 8);
        let mut cells = vec![(0.0, 0.0); at + 1 - old];
        if let Some(first) = cells.first_mut().filter(|_| old > 0) {
            first.1 = n;
        }
        cells.last_mut().unwrap().0 = n;
        tree.flush(Content { start: old, cells });
    }
}

fn line(name: &str, tree: &mut Tree) -> String {
    let during = tree.figures.clone();
    tree.settle();
    let after = &tree.figures;
    format!(
        "| {name} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} \
         | {} | {} | {:.0} | {} | {:.0} | {:?} |",
        during.rewrites(),
        after.rewrites(),
        1.05 + 0.5 + 0.5 * after.rewrites(),
        during.space_max,
        during.temporary_max,
        tree.stored() / tree.distinct(),
        during.depth_mean(),
        during.depth_max,
        tree.depth(),
        after.largest_job / 1e6,
        after.jobs,
        tree.stored() / tree.files() as f64 / 1e6,
        after
            .by_reason
            .iter()
            .map(|(r, b)| format!("{r} {:.2}", b / after.flushed))
            .collect::<Vec<_>>()
    )
}

type Change = fn(&mut Tree);

#[test]
#[ignore = "prints the table of docs/decisions/005-compaction.md; minutes"]
fn table() {
    let ratio: usize = std::env::var("RATIO").ok().and_then(|r| r.parse().ok()).unwrap_or(260);
    let shapes: [(&str, Change); 10] = [
        ("chosen", |_| {}),
        ("fanout 8", |tree| tree.options.fanout = 8),
        ("fanout 16", |tree| tree.options.fanout = 16),
        ("fanout 24", |tree| tree.options.fanout = 24),
        ("space 1.4", |tree| tree.options.space_max = 1.4),
        ("space 1.6", |tree| tree.options.space_max = 1.6),
        ("slices 128 MiB", |tree| tree.options.slice_bytes = 128 << 20),
        ("tiered, 8", |tree| {
            tree.options = Options {
                fanout: 8,
                space_max: 1e9,
                settled_space: 1e9,
                settled_runs: 1000,
                ..Options::default()
            };
        }),
        ("leveled, 10", |tree| tree.policy = Some(Box::new(|s, o| leveled::plan(s, o, 10.0)))),
        ("leveled, 8", |tree| tree.policy = Some(Box::new(|s, o| leveled::plan(s, o, 8.0)))),
    ];
    println!("ratio {ratio}");
    println!(
        "| load, shape | rewrites during | after | bytes a user byte | space peak | temporary | settled \
         | runs mean | peak | settled | largest job MB | jobs | MB a file | by reason"
    );
    let only = std::env::var("SHAPE").unwrap_or_default();
    for (name, change) in shapes.iter().filter(|(name, _)| name.contains(&only)) {
        let make = |population: f64| {
            let mut tree = Tree::new(UNIT, population);
            change(&mut tree);
            tree
        };
        let keys = ratio as f64 * UNIT / ENTRY;
        let mut tree = make(keys);
        even(&mut tree, ratio);
        println!("{}", line(&format!("fillrandom {name}"), &mut tree));
        let mut tree = make(f64::INFINITY);
        even(&mut tree, ratio);
        println!("{}", line(&format!("fill unique {name}"), &mut tree));
        let mut tree = make(keys);
        even(&mut tree, ratio * 3);
        tree.settle();
        tree.figures = Default::default();
        even(&mut tree, ratio * 2);
        println!("{}", line(&format!("overwrite {name}"), &mut tree));
        let mut tree = make(keys);
        even(&mut tree, ratio * 3);
        tree.settle();
        tree.figures = Default::default();
        skewed(&mut tree, ratio * 2);
        println!("{}", line(&format!("skewed overwrite {name}"), &mut tree));
        let mut tree = make(f64::INFINITY);
        ordered(&mut tree, ratio);
        println!("{}", line(&format!("fillseq {name}"), &mut tree));
        let mut tree = make(keys);
        ordered(&mut tree, ratio);
        tree.figures = Default::default();
        even(&mut tree, ratio / 4);
        println!("{}", line(&format!("overwrite after fillseq {name}"), &mut tree));
        let mut tree = make(f64::INFINITY);
        queue(&mut tree, ratio);
        println!("{}", line(&format!("queue {name}"), &mut tree));
    }
}

#[test]
fn a_load_has_low_write_amplification_and_settles_to_few_runs() {
    for population in [130.0 * UNIT / ENTRY, f64::INFINITY] {
        let mut tree = Tree::new(UNIT, population);
        even(&mut tree, 130);
        assert!(tree.figures.rewrites() < 2.3, "{:?}", tree.figures);
        tree.settle();
        assert!(tree.figures.rewrites() < 2.8, "{:?}", tree.figures);
        assert!(tree.depth() <= tree.options.settled_runs);
        assert!(tree.stored() / tree.distinct() < 1.26);
        assert!(tree.figures.largest_job < 90e6, "{:?}", tree.figures);
        assert!(tree.figures.temporary_max < 0.35, "{:?}", tree.figures);
    }
}

#[test]
fn overwriting_has_bounded_space_amplification() {
    let mut tree = Tree::new(UNIT, 130.0 * UNIT / ENTRY);
    even(&mut tree, 3 * 130);
    tree.settle();
    tree.figures = tree::Figures::default();
    even(&mut tree, 2 * 130);
    let figures = &tree.figures;
    assert!(figures.space_max < 1.8 && figures.rewrites() < 3.0, "{figures:?}");
    assert!(figures.depth_max < 40 && figures.depth_mean() < 24.0, "{figures:?}");
}

#[test]
fn a_tree_with_slow_merges_still_settles() {
    let mut tree = Tree::new(UNIT, 60.0 * UNIT / ENTRY);
    tree.merge_speed = 1.5;
    even(&mut tree, 120);
    tree.settle();
    assert!(tree.depth() <= tree.options.settled_runs);
    assert!(tree.stored() / tree.distinct() < 1.26);
}

#[test]
fn keys_in_order_are_never_rewritten() {
    let mut tree = Tree::new(UNIT, f64::INFINITY);
    ordered(&mut tree, 130);
    tree.settle();
    assert_eq!((tree.figures.jobs, tree.depth()), (0, 1));
}

/// Tables written in key order keep the level of a flushed table, but are not merged with flushed tables.
#[test]
fn keys_in_order_are_not_rewritten_for_a_dozen_flushes() {
    let mut tree = Tree::new(UNIT, 130.0 * UNIT / ENTRY);
    ordered(&mut tree, 130);
    tree.figures = tree::Figures::default();
    even(&mut tree, 26);
    assert!(tree.figures.rewrites() < 2.0, "{:?}", tree.figures);
}

#[test]
fn tombstones_of_a_queue_are_merged_down() {
    let mut tree = Tree::new(UNIT, f64::INFINITY);
    queue(&mut tree, 130);
    tree.settle();
    assert!(tree.stored() / tree.distinct() < 1.3);
    assert!(tree.figures.rewrites() < 2.0, "{:?}", tree.figures);
}

/// Bytes merged per byte flushed on a machine of two cores while a memtable fills at full speed: 4.1 in
/// total, of which filling and flushing take 2.9. Planning and installing a job cost as much as merging 6 MB,
/// opening a table as much as 150 KB. Measured: docs/decisions/005-compaction.md.
const SPEED: f64 = 4.1;
const WRITING: f64 = 2.9;
const JOB_COSTS: (f64, f64) = (6e6, 150e3);

/// Figures of overwriting a tree that was loaded in key order, at full speed: its content is overwritten five
/// times, and the last three times count. A `speed` above [`SPEED`] stands for faster merges.
fn outrun(ratio: usize, unit: f64, speed: f64) -> tree::Figures {
    let mut tree = Tree::new(unit, ratio as f64 * unit / ENTRY);
    ordered(&mut tree, ratio);
    (tree.merge_speed, tree.writing, tree.is_delayed) = (speed, WRITING, true);
    tree.job_costs = JOB_COSTS;
    even(&mut tree, ratio * 2);
    tree.figures = tree::Figures::default();
    even(&mut tree, ratio * 3);
    tree.figures
}

#[test]
#[ignore = "prints the table of writers that outrun merges, docs/decisions/005-compaction.md; minutes"]
fn outrun_merges() {
    println!(
        "| all speed | of full speed | rewrites | space mean | peak | runs mean | peak | MB a job"
    );
    for speed in [3.5, SPEED, 5.0, 6.0] {
        let figures = outrun(400, 10.7e6, speed);
        println!(
            "| {speed} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} | {} | {:.0} |",
            figures.throughput(),
            figures.rewrites(),
            figures.space_mean(),
            figures.space_max,
            figures.depth_mean(),
            figures.depth_max,
            figures.merged_in / figures.jobs as f64 / 1e6
        );
    }
}

/// If merges are far behind, writers settle at the speed of the merges, and neither runs nor garbage grow
/// without bound.
#[test]
fn writers_that_outrun_merges_settle_at_the_speed_of_merges() {
    let figures = outrun(100, UNIT, SPEED);
    assert!(figures.space_max < 2.6 && figures.depth_max < 90, "{figures:?}");
    assert!(figures.space_mean() < 2.2 && figures.depth_mean() < 60.0, "{figures:?}");
    assert!(figures.throughput() > 0.55, "{figures:?}");
}
