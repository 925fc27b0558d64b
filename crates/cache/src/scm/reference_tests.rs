//! Each placement policy compared with the reference, access by access: what is found where, what is written,
//! what stays.
//!
//! Background work runs after each access, and the test advances the clock, so that both have the same state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base::{ManualClock, Rng};
use media::{Medium, MemoryMedium};

use super::placement::ALL;
use super::reference::{FoundIn, Reference};
use super::tests::{MIB, blocks, fill, key, look, memory, options, skewed, timed, upper_tier};
use super::*;
use crate::{LiveFile, PageCache, PageKey, PageKind};

/// Costs of SCM: next to nothing beside DRAM, somewhat more, much more.
const COSTS: [Costs; 3] = [
    Costs { dram_hit: 400, dram_put: 0, scm_hit: 420, scm_write: 900, rewritten: 128 },
    Costs { dram_hit: 400, dram_put: 300, scm_hit: 900, scm_write: 1200, rewritten: 64 },
    Costs { dram_hit: 400, dram_put: 2500, scm_hit: 10_400, scm_write: 10_000, rewritten: 64 },
];

/// The tiers and the reference, driven together.
struct Pair {
    name: String,
    clock: Arc<ManualClock>,
    tier: Arc<ScmTier>,
    cache: PageCache,
    reference: Reference,
    files: BTreeMap<u64, LiveFile>,
    counts: [u64; 3],
    /// One page in this many is a metadata page.
    meta_part: u64,
}

/// The default of `meta_part`; runs of pages have no metadata page here.
const META_PART: u64 = 40;

/// Pages per file, as in [`key`].
const FILE_PAGES: u64 = 1024;

impl Pair {
    fn new(name: &str, placement: Placement, costs: Costs, is_device: bool) -> Self {
        Self::limited(name, placement, costs, is_device, None)
    }

    fn limited(
        name: &str,
        placement: Placement,
        costs: Costs,
        is_device: bool,
        write_budget: Option<u64>,
    ) -> Self {
        let clock = Arc::new(ManualClock::default());
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let scm = if is_device { blocks(&medium, 8 * MIB) } else { memory(8 * MIB) };
        let options = ScmOptions { write_budget, ..options(placement) };
        let tier = timed(scm, options, &(Arc::clone(&clock) as _));
        tier.measured.fix(costs);
        let cache = upper_tier(&tier, 2 * MIB + 200_000);
        let frames = cache.statistics().capacity_pages as usize;
        let reference = Reference::new(frames, tier.map.sets(), placement, costs);
        let reference = reference.with(is_device, write_budget);
        let kind = if is_device { "device" } else { "memory" };
        let name = format!("{name} {} {kind} {costs:?}", placement.name());
        let (files, counts) = (BTreeMap::new(), [0; 3]);
        Self { name, clock, tier, cache, reference, files, counts, meta_part: META_PART }
    }

    /// One access of `pages` pages from `first` on, in both; compares where they were found.
    fn access(&mut self, first: u64, pages: u64) {
        let is_meta = first % self.meta_part == self.meta_part - 1;
        let kind = if is_meta { PageKind::Meta } else { PageKind::Data };
        let run: Vec<PageKey> = (first..first + pages).map(key).collect();
        let mut found = FoundIn::Dram;
        for key in &run {
            found = look(&self.cache, *key, kind);
            if found == FoundIn::Nowhere {
                run.iter().for_each(|key| fill(&self.cache, *key, kind));
                break;
            }
        }
        self.step();
        let expected = self.reference.access_run(&run, kind, self.now());
        assert_eq!(found, expected, "{} page {first} at {:?}", self.name, self.now());
        self.counts[found as usize] += 1;
    }

    fn now(&self) -> Duration {
        self.tier.now()
    }

    fn step(&self) {
        assert!(!self.tier.step(&self.cache), "one step does all");
    }

    /// Marks a file live.
    fn keep(&mut self, number: u64) {
        let file = key(number * FILE_PAGES).file;
        self.files.insert(number, self.cache.keep_file(file));
    }

    /// Makes a file obsolete.
    fn remove(&mut self, number: u64) {
        self.files.remove(&number);
        let pages = number * FILE_PAGES..(number + 1) * FILE_PAGES;
        let file = key(pages.start).file;
        self.cache.remove_file(file, FILE_PAGES as u32);
        self.step();
        let hashes: BTreeSet<u64> = pages.map(|page| key(page).hash()).collect();
        self.reference.remove(file, &hashes, self.now());
    }

    /// Compares the final content of SCM and the bytes written.
    fn finish(&self, least: u64) {
        let (counts, what) = (self.tier.statistics(), &self.name);
        let [_, in_scm, nowhere] = self.counts;
        assert!(in_scm > least && nowhere > least, "{what}: {:?}", self.counts);
        assert_eq!(counts.resident, self.reference.resident(), "{what}");
        assert_eq!(counts.bytes_written, self.reference.bytes_written(), "{what}");
        assert_eq!((counts.late, counts.damaged, counts.busy), (0, 0, 0), "{what}");
    }
}

/// Zipfian distribution over `pages` pages, exponent 0.99, scattered.
struct Zipfian(Vec<f64>);

impl Zipfian {
    fn of(pages: u64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=pages).map(|rank| {
            sum += (rank as f64).powf(-0.99);
            sum
        });
        Self(weights.collect())
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let (pages, all) = (self.0.len() as u64, self.0.last().copied().unwrap());
        let at = rng.unit() * all;
        let rank = self.0.partition_point(|sum| *sum < at) as u64;
        rank.min(pages - 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % pages
    }
}

/// Runs with each policy, at each cost, on memory and on a device.
fn each(mut run: impl FnMut(Placement, Costs, bool)) {
    for (_, placement) in Placement::NAMES {
        for costs in COSTS {
            [false, true].into_iter().for_each(|is_device| run(placement, costs, is_device));
        }
    }
}

#[test]
fn every_access_matches_the_reference_while_the_hot_set_moves() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    each(|placement, costs, is_device| {
        let mut pair = Pair::new(&format!("phases {seed}"), placement, costs, is_device);
        for turn in 0..60_000 {
            let page = turn / 20_000 * 3000 + skewed(&mut rng, 6000);
            pair.access(page, 1);
        }
        pair.finish(1000);
    });
}

#[test]
fn every_access_matches_the_reference_with_scans_and_page_runs() {
    let ((mut rng, seed), zipfian) = (Rng::from_env(), Zipfian::of(8000));
    println!("TERRACE_SEED={seed}");
    each(|placement, costs, is_device| {
        let mut pair = Pair::new(&format!("scans {seed}"), placement, costs, is_device);
        for turn in 0..30_000 {
            if turn % 8000 == 7999 {
                let first = rng.below(6000);
                (first..first + 2000).for_each(|page| pair.access(page, 1));
            }
            let page = zipfian.draw(&mut rng);
            // One page in sixteen stands for a value of several pages.
            let pages = if page.is_multiple_of(16) { 1 + page % 5 } else { 1 };
            pair.access(page, pages);
            if turn % 64 == 0 {
                // Lets the promoted share be updated, and map pages be written.
                pair.clock.advance(Duration::from_millis(40));
            }
        }
        pair.finish(1000);
    });
}

/// Metadata pages are evicted before they were used often enough for promotions to pay off at low SCM costs.
#[test]
fn every_access_matches_the_reference_when_metadata_exceeds_dram() {
    let ((mut rng, seed), zipfian) = (Rng::from_env(), Zipfian::of(8000));
    println!("TERRACE_SEED={seed}");
    each(|placement, costs, is_device| {
        let mut pair = Pair::new(&format!("metadata {seed}"), placement, costs, is_device);
        pair.meta_part = 2;
        for _ in 0..30_000 {
            pair.access(zipfian.draw(&mut rng), 1);
            pair.clock.advance(Duration::from_millis(2));
        }
        pair.finish(100);
        let share = pair.reference.promoted_share(PageKind::Meta);
        assert!(costs.promotion_heat().is_some() || share < ALL, "{}: {share}", pair.name);
    });
}

#[test]
fn every_access_matches_the_reference_under_a_write_budget() {
    let ((mut rng, seed), zipfian) = (Rng::from_env(), Zipfian::of(8000));
    println!("TERRACE_SEED={seed}");
    each(|placement, costs, is_device| {
        let (name, rate) = (format!("budget {seed}"), 30_000);
        let mut pair = Pair::limited(&name, placement, costs, is_device, Some(rate));
        for turn in 0..30_000 {
            // The hot set moves, so that there is always more to write than the budget allows.
            let page = turn / 4000 * 500 + zipfian.draw(&mut rng);
            pair.access(page, 1);
            pair.clock.advance(Duration::from_millis(rng.below(16)));
        }
        pair.finish(100);
        let refused = pair.tier.statistics().refused.budget;
        assert!(refused > 1000, "{}: {refused}", pair.name);
    });
}

#[test]
fn every_access_matches_the_reference_while_files_become_obsolete() {
    let ((mut rng, seed), zipfian) = (Rng::from_env(), Zipfian::of(6 * FILE_PAGES));
    println!("TERRACE_SEED={seed}");
    each(|placement, costs, is_device| {
        let mut pair = Pair::new(&format!("files {seed}"), placement, costs, is_device);
        let mut first = 0;
        (0..6).for_each(|number| pair.keep(number));
        for turn in 0..30_000 {
            if turn % 4000 == 3999 {
                pair.remove(first);
                pair.keep(first + 6);
                first += 1;
            }
            let page = first * FILE_PAGES + zipfian.draw(&mut rng);
            pair.access(page, 1);
            // A page of an obsolete file, as a reader that began before would read it.
            if first > 0 && turn % 50 == 0 {
                pair.access(rng.below(first * FILE_PAGES), 1);
            }
        }
        pair.finish(1000);
        let dead = pair.tier.statistics().refused.dead;
        assert!(dead > 0 || first == 0, "{}: {dead}", pair.name);
    });
}
