//! Trees of hashed keyspaces under their planners: a simulation of the schedule of `keep` against its
//! formulas, and random trees against models.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::{Rng, RunId, Seqno, TableId};
use bytes::Bytes;

use super::*;
use crate::Horizon;
use crate::plan::{
    Area, FileSummary, ManualRange, Merge, Piece, Plan, RunSummary, Summary, ValueFileSummary,
};

/// The pieces of a tree by run, and what is on the way.
#[derive(Default)]
struct Runs {
    runs: BTreeMap<u64, Vec<Piece>>,
    running: Vec<Merge>,
    next: u64,
}

impl Runs {
    /// A table with these bytes and this range of keys.
    fn table(&mut self, bytes: u64, level: u8, first: &[u8], end: Option<&[u8]>) -> Piece {
        self.next += 1;
        let last_key = end.map_or(vec![0xff; 8], <[u8]>::to_vec);
        let file = FileSummary {
            id: TableId(self.next),
            bytes,
            first_key: [first, &[0]].concat().into(),
            last_key: last_key.into(),
            ..FileSummary::default()
        };
        let (first, end) = (Bytes::copy_from_slice(first), end.map(Bytes::copy_from_slice));
        Piece { file: Arc::new(file), level, first, end, damaged: false }
    }

    fn summary(&self, unit_bytes: u64) -> Summary {
        let runs = self.runs.iter().rev();
        let area = |job: &Merge| Area {
            newest: job.newest(),
            oldest: job.into,
            first: job.first.clone(),
            end: job.end.clone(),
            bytes: job.bytes,
        };
        Summary {
            runs: runs.map(|(id, p)| RunSummary { id: RunId(*id), pieces: p.clone() }).collect(),
            busy: self.running.iter().map(area).collect(),
            unit_bytes,
            ..Summary::default()
        }
    }

    /// Takes the keys of `job` out of its inputs.
    fn cut(&mut self, job: &Merge) {
        for (run, _) in &job.inputs {
            let mut left = Vec::new();
            for piece in self.runs.remove(&run.0).unwrap() {
                if !meets(&piece, &job.first, job.end.as_deref()) {
                    left.push(piece);
                    continue;
                }
                if piece.first < job.first {
                    left.push(Piece { end: Some(job.first.clone()), ..piece.clone() });
                }
                if let Some(end) = &job.end
                    && piece.end.as_ref().is_none_or(|own| own > end)
                {
                    left.push(Piece { first: end.clone(), ..piece });
                }
            }
            if !left.is_empty() {
                self.runs.insert(run.0, left);
            }
        }
    }

    fn insert(&mut self, run: u64, piece: Piece) {
        let pieces = self.runs.entry(run).or_default();
        let overlaps = |other: &Piece| meets(other, &piece.first, piece.end.as_deref());
        let other = pieces.iter().find(|other| overlaps(other));
        assert!(other.is_none(), "tables of a run overlap: {piece:?} {other:?}");
        pieces.push(piece);
        pieces.sort_by(|a, b| a.first.cmp(&b.first));
    }

    /// Every piece in the rectangle is an input, clipped to it; none is damaged; no other job works there.
    fn check(&self, job: &Merge) {
        let end = job.end.as_deref();
        for (id, pieces) in self.runs.range(job.into.0..=job.newest().0) {
            let inside: Vec<_> = pieces.iter().filter(|p| meets(p, &job.first, end)).collect();
            let inputs = job.inputs.iter().find(|(run, _)| run.0 == *id);
            let inputs = inputs.map_or(&[][..], |(_, pieces)| pieces);
            assert_eq!(inside.len(), inputs.len(), "run {id} is not whole");
            for (piece, part) in inside.into_iter().zip(inputs) {
                assert!(piece.file.id == part.file.id && !piece.damaged);
                assert_eq!(part.first, (&piece.first).max(&job.first));
                assert!(part.end == piece.end || part.end == job.end);
            }
        }
        assert!(job.inputs.is_sorted_by(|a, b| a.0 > b.0));
        let mut older = self.runs.range(..job.into.0).flat_map(|(_, pieces)| pieces);
        assert!(!job.oldest || !older.any(|p| meets(p, &job.first, end)), "something lies below");
        for other in &self.running {
            let keys = other.end.as_ref().is_none_or(|end| job.first < end)
                && end.is_none_or(|end| *other.first < *end);
            assert!(!keys, "two jobs work on the same keys");
        }
    }
}

fn meets(piece: &Piece, first: &[u8], end: Option<&[u8]>) -> bool {
    let before = |key: &[u8], end: Option<&[u8]>| end.is_none_or(|end| key < end);
    before(&piece.first, end) && before(first, piece.end.as_deref())
}

/// The figures of a simulation of `keep`.
#[derive(Debug)]
struct Figures {
    write_amplification: f64,
    runs: f64,
    run_share: f64,
    run_share_max: f64,
    filter_bits: u8,
    dram_bytes: f64,
}

/// Updates of 2 million keys, 256 bytes each, spread evenly, for several cycles of merges: the flushes are
/// `flush_part` of the keys each.
fn simulate(flush_part: f64, run_share: f64) -> Figures {
    const KEYS: f64 = 2e6;
    const USER: f64 = 256.0;
    // An entry takes 5 bytes more, and pages are 95 % full; a filter takes 4.5 % more bits; the index of the
    // table takes 0.537 bits an entry.
    const STORED: f64 = 261.0 / 0.95;
    const FILTER: f64 = 1.045;
    const INDEX: f64 = 0.537;
    let options = keep::Options { run_share, ..keep::Options::default() };
    let base = (KEYS * STORED) as u64;
    let unit = flush_part * KEYS * STORED;
    let filter_bits = options.flush_filter_bits(unit as u64, base);
    let unit = (unit + flush_part * KEYS * f64::from(filter_bits) * FILTER / 8.0) as u64;
    let mut tree = Runs::default();
    for slice in 0..64u8 {
        let end = [(slice + 1) << 2];
        let piece = tree.table(base / 64, 1, &[slice << 2], (slice < 63).then_some(&end));
        tree.insert(1, piece);
    }
    let cycle = (run_share / flush_part) as usize;
    let (mut user, mut written, mut samples) = (0.0, 0.0, Vec::new());
    for flush in 0..7 * cycle {
        let piece = tree.table(unit, 0, b"", None);
        let run = tree.next + 1;
        tree.insert(run, piece);
        let is_measured = flush >= 3 * cycle;
        if is_measured {
            user += flush_part * KEYS * USER;
            written += unit as f64;
        }
        while let Some(Plan::Merge(merge)) = keep::plan(&tree.summary(unit), &options) {
            tree.check(&merge);
            assert!(merge.oldest && merge.filter_bits == 0.0);
            assert_eq!(merge.inputs.last().unwrap().1.len(), 1, "a slice of the base");
            tree.cut(&merge);
            let piece = tree.table(base / 64, merge.level, &merge.first, merge.end.as_deref());
            tree.insert(merge.into.0, piece);
            written += if is_measured { (base / 64) as f64 } else { 0.0 };
        }
        if is_measured {
            let debt = keep::debt(&tree.summary(unit), &options);
            assert!(debt.fullness <= 1.0 && debt.bytes == 0, "{debt:?}");
            let runs = tree.runs.values().flatten().filter(|piece| piece.level == 0);
            let slices: f64 = runs.map(slices_of).sum();
            samples.push(slices / 64.0);
        }
    }
    let runs = samples.iter().sum::<f64>() / samples.len() as f64;
    let share = |runs: f64| runs * flush_part;
    let bits = INDEX * (1.0 + share(runs)) + f64::from(filter_bits) * FILTER * share(runs);
    Figures {
        write_amplification: written / user,
        runs,
        run_share: share(runs),
        run_share_max: share(samples.iter().copied().fold(0.0, f64::max)),
        filter_bits,
        dram_bytes: bits / 8.0,
    }
}

/// The number of the 64 slices that a piece covers.
fn slices_of(piece: &Piece) -> f64 {
    let start = f64::from(piece.first.first().copied().unwrap_or(0));
    (piece.end.as_ref().map_or(256.0, |end| f64::from(end[0])) - start) / 4.0
}

/// Write amplification with the log on another device, runs above a key, filter bits and memory per entry are
/// within 5 % of the formulas, and of the figures that the design derived from them. All slices begin merged,
/// so it also shows that they spread by themselves.
#[test]
fn the_schedule_of_keep_has_the_figures_of_its_formulas() {
    for (flush_part, run_share, bits, dram, writes) in [
        (0.002, 0.26, 13, 0.297, 5.21),
        (0.004, 0.26, 12, 0.280, 5.21),
        (0.004, 0.28, 12, 0.296, 4.91),
        (0.01, 0.30, 11, 0.293, 4.66),
    ] {
        let figures = simulate(flush_part, run_share);
        println!("{flush_part} {run_share}: {figures:?}");
        let near = |found: f64, expected: f64, name| {
            let off = found / expected - 1.0;
            assert!(
                off.abs() < 0.05,
                "{name} of {flush_part} and {run_share}: {found}, {expected}"
            );
        };
        near(figures.write_amplification, writes, "write amplification");
        near(figures.runs, run_share / flush_part / 2.0, "runs above a key");
        near(figures.run_share, run_share / 2.0, "share of runs");
        near(figures.dram_bytes, dram, "memory per entry");
        assert_eq!(figures.filter_bits, bits);
        assert!(figures.run_share_max < run_share / 2.0 * 1.08, "{figures:?}");
        let useless = figures.runs * 2f64.powi(-i32::from(bits));
        assert!(useless <= 0.01, "{useless} useless reads");
    }
}

/// Jobs with memory for fewer runs than a slice has when it is due merge its runs with one another first:
/// that costs less than another write of each entry, and the base is not rewritten more often. So it is if
/// writes come in bursts of several flushes, between which nothing is planned.
#[test]
fn few_runs_in_a_job_do_not_rewrite_the_base_more_often() {
    const BASE: u64 = 256 << 20;
    const FLUSH: u64 = BASE / 250;
    for (runs_max, burst) in
        [(6, 1), (12, 1), (24, 1), (40, 1), (192, 1), (6, 67), (12, 67), (24, 30)]
    {
        let options = keep::Options { runs_max, ..keep::Options::default() };
        let mut tree = Runs::default();
        for slice in 0..64u8 {
            let end = [(slice + 1) << 2];
            let piece = tree.table(BASE / 64, 1, &[slice << 2], (slice < 63).then_some(&end));
            tree.insert(1, piece);
        }
        let (mut written, mut base_written, mut user) = (0, 0, 0);
        for flush in 0..6 * 67 {
            let piece = tree.table(FLUSH, 0, b"", None);
            let run = tree.next + 1;
            tree.insert(run, piece);
            let is_measured = flush >= 2 * 67;
            user += if is_measured { FLUSH } else { 0 };
            if (flush + 1) % burst != 0 {
                continue;
            }
            while let Some(Plan::Merge(merge)) = keep::plan(&tree.summary(FLUSH), &options) {
                tree.check(&merge);
                assert!(merge.inputs.len() <= runs_max.max(2));
                tree.cut(&merge);
                let bytes = if merge.oldest { BASE / 64 } else { merge.bytes };
                let piece = tree.table(bytes, merge.level, &merge.first, merge.end.as_deref());
                tree.insert(merge.into.0, piece);
                written += if is_measured { bytes } else { 0 };
                base_written += if is_measured && merge.oldest { bytes } else { 0 };
            }
        }
        let part = |bytes: u64| bytes as f64 / user as f64;
        let (all, base) = (part(written), part(base_written));
        println!("{runs_max} in bursts of {burst}: {all:.2} written, {base:.2} to the base");
        // A job takes runs of 0.8 of the due share at least.
        assert!(base < 1.05 / (0.8 * options.run_share), "{runs_max} in bursts of {burst}: {base}");
        // Fewer runs of a job are folded in more steps.
        let folds_max = if runs_max < 12 { 4.0 } else { 2.5 };
        assert!(all - base < folds_max, "{runs_max} in bursts of {burst}: {all} with {base}");
    }
}

/// A tree with the newest version of each key in each file. Keys are hashes that differ in two bytes.
struct Model {
    rng: Rng,
    tree: Runs,
    options: keep::Options,
    files: HashMap<u64, BTreeMap<u16, u64>>,
    newest: BTreeMap<u16, u64>,
}

impl Model {
    fn piece(&mut self, content: BTreeMap<u16, u64>, level: u8) -> Piece {
        let (first, last) = (*content.keys().next().unwrap(), *content.keys().last().unwrap());
        let bytes = content.len() as u64 * 100;
        let piece = self.tree.table(bytes, level, &stored_key(first), Some(&key_after(last)));
        self.files.insert(piece.file.id.0, content);
        piece
    }

    fn flush(&mut self) {
        let count = 1 + self.rng.below(200);
        let content: BTreeMap<u16, u64> =
            (0..count).map(|_| (self.rng.next_u64() as u16, self.tree.next)).collect();
        self.newest.extend(content.iter().map(|(key, version)| (*key, *version)));
        let mut piece = self.piece(content, 0);
        piece.damaged = self.rng.one_in(60);
        let run = self.tree.next + 1;
        self.tree.insert(run, piece);
    }

    fn install(&mut self, job: &Merge) {
        let mut merged = BTreeMap::new();
        for piece in job.inputs.iter().flat_map(|(_, pieces)| pieces) {
            for (key, version) in &self.files[&piece.file.id.0] {
                if holds(piece, *key) {
                    merged.entry(*key).or_insert(*version);
                }
            }
        }
        self.tree.cut(job);
        if !merged.is_empty() {
            let piece = self.piece(merged, job.level);
            self.tree.insert(job.into.0, piece);
        }
    }

    fn summary(&mut self) -> Summary {
        let manual = self.rng.one_in(6).then(|| ManualRange {
            first: Bytes::copy_from_slice(&[self.rng.next_u64() as u8]),
            end: None,
            newest: RunId(self.rng.below(self.tree.next + 1)),
        });
        Summary { manual, ..self.tree.summary(10_000) }
    }

    /// Reads find versions newest first, and the newest is there.
    fn check_order(&self) {
        for (key, newest) in &self.newest {
            let pieces = self.tree.runs.values().rev().flatten().filter(|it| holds(it, *key));
            let versions: Vec<_> =
                pieces.filter_map(|piece| self.files[&piece.file.id.0].get(key)).collect();
            assert!(versions.is_sorted_by(|a, b| a > b), "key {key}: {versions:?}");
            assert_eq!(versions.first(), Some(&newest), "key {key}");
        }
    }
}

fn holds(piece: &Piece, key: u16) -> bool {
    meets(piece, &stored_key(key), Some(&key_after(key)))
}

/// The key with the first bytes `key`, as long as a hash: the planner takes no shorter ones.
fn stored_key(key: u16) -> [u8; 8] {
    (u64::from(key) << 48).to_be_bytes()
}

fn key_after(key: u16) -> Vec<u8> {
    [&stored_key(key)[..], &[0]].concat()
}

/// Random trees with concurrent jobs, damaged tables and manual compactions: merges take whole rectangles,
/// the newest version is always found first, planning ends, and it depends on nothing but the summary.
#[test]
fn random_trees_of_keep_hold_their_order_and_settle() {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..10 {
        println!("TERRACE_SEED={seed}, round {round}");
        let options = keep::Options {
            run_share: 0.1 + rng.unit() * 0.5,
            base_filter_bits: rng.below(11) as u8,
            runs_max: 8 + rng.below(60) as usize,
            slice_bytes_min: 500,
            slice_bytes_max: 6000 + rng.below(20_000),
            ..keep::Options::default()
        };
        let (rng, tree) = (Rng::new(rng.next_u64()), Runs { next: 1, ..Runs::default() });
        let (files, newest) = Default::default();
        let mut model = Model { rng, tree, options, files, newest };
        for _ in 0..30 {
            model.flush();
            while model.tree.running.len() < 3 {
                let summary = model.summary();
                let planned = keep::plan(&summary, &model.options);
                assert_eq!(planned, keep::plan(&summary, &model.options));
                let Some(Plan::Merge(job)) = planned else { break };
                model.tree.check(&job);
                assert!(job.inputs.len() <= model.options.runs_max);
                model.tree.running.push(job);
            }
            while model.rng.one_in(2) && !model.tree.running.is_empty() {
                let number = model.rng.below(model.tree.running.len() as u64) as usize;
                let job = model.tree.running.remove(number);
                model.install(&job);
            }
            model.check_order();
        }
        let mut steps = 0;
        loop {
            while let Some(job) = model.tree.running.pop() {
                model.install(&job);
            }
            let summary = Summary { manual: None, ..model.summary() };
            let Some(Plan::Merge(job)) = keep::plan(&summary, &model.options) else {
                assert_eq!(keep::debt(&summary, &model.options).bytes, 0);
                break;
            };
            model.tree.check(&job);
            model.install(&job);
            steps += 1;
            assert!(steps < 20_000, "it does not end");
        }
        model.check_order();
    }
}

/// A job never needs more space than there is, and a manual compaction leaves no runs.
#[test]
fn keep_respects_free_space_and_compacts_on_demand() {
    let options = keep::Options { slice_bytes_min: 1000, ..keep::Options::default() };
    let mut tree = Runs { next: 1, ..Runs::default() };
    for _ in 0..3 {
        let piece = tree.table(64_000, 0, b"", None);
        let run = tree.next + 1;
        tree.insert(run, piece);
    }
    let summary = tree.summary(64_000);
    assert_eq!(keep::plan(&summary, &options), None, "three of four runs");
    let newest = RunId(tree.next + 1);
    let manual = Some(ManualRange { first: Bytes::new(), end: None, newest });
    let asked = Summary { manual: manual.clone(), ..summary.clone() };
    let full = Summary { free_bytes: Some(2000), ..asked.clone() };
    assert_eq!(keep::plan(&full, &options), None, "a slice has 3000 bytes");
    assert_eq!(keep::debt(&asked, &options).manual_bytes / 1000, 192);
    let mut merges = 0;
    while let Some(Plan::Merge(merge)) =
        keep::plan(&Summary { manual: manual.clone(), ..tree.summary(64_000) }, &options)
    {
        tree.check(&merge);
        tree.cut(&merge);
        let piece = tree.table(merge.bytes, 1, &merge.first, merge.end.as_deref());
        tree.insert(merge.into.0, piece);
        merges += 1;
        assert!(merges <= 128, "a slice is merged again and again");
    }
    assert!((64..=128).contains(&merges), "{merges}");
    assert!(tree.runs.values().flatten().all(|piece| piece.level == 1));
}

/// One write of a key: its version, and whether it is a tombstone.
type Write = (u64, bool);

/// A window of runs with their content, newest last.
struct Window {
    rng: Rng,
    options: window::Options,
    runs: BTreeMap<u64, (Piece, BTreeMap<u8, Write>)>,
    newest: BTreeMap<u8, Write>,
    next: u64,
}

const ENTRY_BYTES: u64 = 10;

impl Window {
    fn add(&mut self, run: u64, content: BTreeMap<u8, Write>, level: u8) {
        self.next += 1;
        let bytes = content.len() as u64 * ENTRY_BYTES;
        let deletes = content.values().filter(|(_, is_deleted)| *is_deleted).count() as u64;
        let (id, entries) = (TableId(self.next), content.len() as u64);
        let file = FileSummary { id, bytes, entries, deletes, ..FileSummary::default() };
        let piece =
            Piece { file: Arc::new(file), level, first: Bytes::new(), end: None, damaged: false };
        assert!(self.runs.insert(run, (piece, content)).is_none());
    }

    fn flush(&mut self) {
        let mut content = BTreeMap::new();
        for _ in 0..20 + self.rng.below(60) {
            self.next += 1;
            content.insert(self.rng.next_u64() as u8, (self.next, self.rng.one_in(5)));
        }
        self.newest.extend(content.iter().map(|(key, write)| (*key, *write)));
        self.next += 1;
        self.add(self.next, content, 0);
    }

    fn summary(&self) -> Summary {
        let runs = self.runs.iter().rev();
        let run = |(id, (piece, _)): (&u64, &(Piece, _))| RunSummary {
            id: RunId(*id),
            pieces: vec![Piece::clone(piece)],
        };
        Summary { runs: runs.map(run).collect(), unit_bytes: 500, ..Summary::default() }
    }

    fn evict(&mut self, eviction: window::Eviction) {
        let discard = match eviction {
            window::Eviction::Drop(pieces) => {
                for (run, _) in pieces {
                    assert_eq!(self.runs.first_key_value().map(|(id, _)| *id), Some(run.0));
                    self.runs.remove(&run.0);
                }
                return;
            }
            window::Eviction::Merge(merge) => return self.merge(&merge),
            window::Eviction::Discard(discard) => discard,
        };
        assert_eq!(discard.kept, self.options.kept);
        assert!(discard.merge.oldest && discard.kept_bytes_max == self.options.bytes / 4);
        let mut merged: BTreeMap<u8, Write> = BTreeMap::new();
        for (run, _) in &discard.merge.inputs {
            let (_, content) = self.runs.remove(&run.0).unwrap();
            content.into_iter().for_each(|(key, write)| _ = merged.entry(key).or_insert(write));
        }
        // The newest of both runs is kept or discarded; a tombstone has nothing below it to hide.
        merged.retain(|_, (_, is_deleted)| !*is_deleted && self.rng.one_in(2));
        while merged.len() as u64 * ENTRY_BYTES > discard.kept_bytes_max {
            merged.pop_first();
        }
        if !merged.is_empty() {
            self.add(discard.merge.into.0, merged, discard.merge.level);
        }
    }

    /// Merges adjacent runs into the oldest of them. Tombstones stay if something lies below.
    fn merge(&mut self, merge: &Merge) {
        let ids: Vec<u64> = self.runs.keys().rev().copied().collect();
        let at = ids.iter().position(|id| *id == merge.newest().0).unwrap();
        let inputs: Vec<u64> = merge.inputs.iter().map(|(run, _)| run.0).collect();
        assert_eq!(ids[at..at + inputs.len()], inputs, "merged runs are adjacent");
        assert_eq!((merge.into.0, merge.level), (*inputs.last().unwrap(), 0));
        let is_oldest = ids.last() == inputs.last();
        assert_eq!(merge.oldest, is_oldest);
        let mut merged: BTreeMap<u8, Write> = BTreeMap::new();
        for run in inputs {
            let (_, content) = self.runs.remove(&run).unwrap();
            content.into_iter().for_each(|(key, write)| _ = merged.entry(key).or_insert(write));
        }
        merged.retain(|_, (_, is_deleted)| !is_oldest || !*is_deleted);
        self.add(merge.into.0, merged, 0);
    }

    /// A lookup finds the newest write of the key, or nothing; never an older one.
    fn check(&self) -> usize {
        let mut found = 0;
        for (key, newest) in &self.newest {
            let seen = self.runs.values().rev().find_map(|(_, content)| content.get(key));
            assert!(seen.is_none_or(|seen| seen == newest), "key {key}: {seen:?}, {newest:?}");
            found += usize::from(seen.is_some());
        }
        found
    }

    fn bytes(&self) -> u64 {
        self.runs.values().map(|(piece, _)| piece.file.bytes).sum()
    }
}

#[test]
fn a_window_without_memory_for_its_filters_is_shorter() {
    let options = window::Options::new(1 << 30, window::Kept::None);
    let (runs, newest) = (BTreeMap::new(), BTreeMap::new());
    let mut window = Window { rng: Rng::new(1), options, runs, newest, next: 0 };
    (0..8).for_each(|_| window.flush());
    let (summary, stored) = (window.summary(), window.bytes());
    let within = |excess| window.options.clone().within_memory(&summary, 1000, excess).bytes;
    assert_eq!(within(0), 1 << 30);
    assert_eq!((within(250), within(1000), within(5000)), (stored * 3 / 4, 0, 0));
    let short = window::Options { bytes: 1, ..window.options.clone() };
    assert_eq!(short.within_memory(&summary, 1000, 250).bytes, 1, "never longer");
    let shorter = window.options.clone().within_memory(&summary, 1000, 250);
    let Some(window::Eviction::Drop(pieces)) = window::plan(&summary, &shorter) else {
        panic!("nothing is evicted");
    };
    assert!((1..=4).contains(&pieces.len()), "{pieces:?}");
}

/// Overwrites and tombstones in every run, with and without entries that are kept: no old version comes back,
/// the window is filled and never exceeded, and every planning ends.
#[test]
fn a_window_evicts_the_oldest_and_never_brings_back_an_old_version() {
    let (mut rng, seed) = Rng::from_env();
    let mut merges = 0;
    for round in 0..60 {
        println!("TERRACE_SEED={seed}, round {round}");
        let kept = match round % 3 {
            0 => window::Kept::None,
            1 => window::Kept::Read,
            _ => window::Kept::Named("important".to_owned()),
        };
        let runs_max = if rng.one_in(2) { 8 } else { 128 };
        let options =
            window::Options { runs_max, ..window::Options::new(3000 + rng.below(3000), kept) };
        let (runs, newest) = Default::default();
        let rng = Rng::new(rng.next_u64());
        let mut window = Window { rng, options, runs, newest, next: 0 };
        for flush in 0..60 {
            window.flush();
            let mut steps = 0;
            while let Some(eviction) = window::plan(&window.summary(), &window.options) {
                let fresh = |runs: &BTreeMap<u64, (Piece, _)>| {
                    runs.values().filter(|(piece, _)| piece.level == 0).count()
                };
                let before = fresh(&window.runs);
                merges += usize::from(matches!(eviction, window::Eviction::Merge(_)));
                window.evict(eviction);
                assert!(fresh(&window.runs) < before, "an eviction takes a flushed run");
                window.check();
                steps += 1;
                assert!(steps < 100, "it does not end");
            }
            assert!(window.runs.len() <= window.options.runs_max);
            assert!(window.bytes() <= window.options.bytes);
            // With few runs a merge makes one of most of the window, which then goes as a whole.
            if flush > 20 && runs_max == 128 {
                assert!(window.bytes() * 2 > window.options.bytes, "{}", window.bytes());
                assert!(window.check() > 50);
            }
            let retained = window.runs.values().filter(|(piece, _)| piece.level > 0);
            assert!(
                retained.map(|(piece, _)| piece.file.bytes).sum::<u64>()
                    <= window.options.bytes / 4
            );
        }
    }
    assert!(merges > 0, "no window has too many runs");
}

/// Runs below a range delete, and the oldest ones whose entries all expired, go at once; not while a read is
/// older than the delete.
#[test]
fn dead_runs_are_dropped_whatever_the_length() {
    let options = window::Options::new(1 << 30, window::Kept::None);
    let (runs, newest) = Default::default();
    let mut window = Window { rng: Rng::new(1), options, runs, newest, next: 0 };
    (0..4).for_each(|_| window.flush());
    let with = |at: usize, change: &dyn Fn(&mut FileSummary)| {
        let mut summary = Summary { now_ms: 1000, ..window.summary() };
        let piece = &mut summary.runs[at].pieces[0];
        change(Arc::make_mut(&mut piece.file));
        summary
    };
    let dropped = |summary: &Summary| match window::plan(summary, &window.options) {
        Some(window::Eviction::Drop(pieces)) => {
            let ids: Vec<_> = summary.runs.iter().rev().map(|run| run.id).collect();
            assert!(pieces.iter().map(|(run, _)| *run).eq(ids[..pieces.len()].iter().copied()));
            pieces.len()
        }
        other => {
            assert_eq!(other, None);
            0
        }
    };
    assert_eq!(dropped(&window.summary()), 0);
    let deleted = with(1, &|file| (file.range_deletes, file.seqno_max) = (1, Seqno::new(9)));
    assert_eq!(dropped(&deleted), 2);
    let readers = Horizon::new(vec![Seqno::new(8), Seqno::new(20)]);
    assert_eq!(dropped(&Summary { readers, ..deleted }), 0);
    assert_eq!(dropped(&with(3, &|file| file.latest_expiry = 1000)), 1);
    assert_eq!(dropped(&with(3, &|file| file.latest_expiry = 1001)), 0);
    assert_eq!(dropped(&with(2, &|file| file.latest_expiry = 1000)), 0, "not the oldest");
}

#[test]
fn a_busy_or_damaged_run_is_not_rewritten() {
    let options = window::Options::new(1000, window::Kept::Read);
    let (runs, newest) = Default::default();
    let mut window = Window { rng: Rng::new(1), options, runs, newest, next: 0 };
    (0..4).for_each(|_| window.flush());
    let summary = window.summary();
    let Some(window::Eviction::Discard(first)) = window::plan(&summary, &window.options) else {
        panic!("nothing is evicted")
    };
    let oldest = summary.runs.last().unwrap().id;
    assert_eq!((first.merge.inputs.len(), first.merge.into), (1, oldest));
    let area = Area { newest: oldest, oldest, first: Bytes::new(), end: None, bytes: 1 };
    let busy = Summary { busy: vec![area], ..summary.clone() };
    assert_eq!(window::plan(&busy, &window.options), None);
    // The run that discards left is not dropped because a job works on the run above it.
    let mut above = summary.clone();
    above.runs.last_mut().unwrap().pieces[0].level = 1;
    let next = above.runs[above.runs.len() - 2].id;
    above.busy =
        vec![Area { newest: next, oldest: next, first: Bytes::new(), end: None, bytes: 1 }];
    assert_eq!(window::plan(&above, &window.options), None);
    let fifo = window::Options { kept: window::Kept::None, ..window.options.clone() };
    assert!(matches!(window::plan(&above, &fifo), Some(window::Eviction::Drop(_))));
    let mut damaged = summary.clone();
    damaged.runs.last_mut().unwrap().pieces[0].damaged = true;
    let Some(window::Eviction::Drop(dropped)) = window::plan(&damaged, &window.options) else {
        panic!("nothing is dropped")
    };
    assert_eq!(dropped[0].0, oldest);
    // Without space for a rewrite, as much as the window is too long goes unread.
    let full = Summary { free_bytes: Some(10), ..summary };
    let Some(window::Eviction::Drop(dropped)) = window::plan(&full, &window.options) else {
        panic!("nothing is dropped")
    };
    assert_eq!(dropped[0].0, oldest);
    assert_eq!(window.options.flush_filter_bits(31), 12, "32 runs");
}

/// A discard takes runs of a sixteenth of the window, but never the newest, and collects their value files.
#[test]
fn a_discard_takes_a_part_of_the_window_and_its_value_files() {
    let options =
        window::Options { inputs_max: 64, ..window::Options::new(16_000, window::Kept::Read) };
    let (runs, newest) = Default::default();
    let mut window = Window { rng: Rng::new(1), options, runs, newest, next: 0 };
    while window.bytes() <= 16_000 {
        window.flush();
    }
    let mut summary = window.summary();
    let count = summary.runs.len();
    for (run, values) in
        [(count - 1, vec![(TableId(7), 3), (TableId(5), 1)]), (count - 2, vec![(TableId(5), 1)])]
    {
        Arc::make_mut(&mut summary.runs[run].pieces[0].file).values = values;
    }
    let excluded = ValueFileSummary { id: TableId(7), bytes: 3, excluded: true };
    summary.values = vec![excluded];
    let planned = |summary: &Summary, options: &window::Options| {
        let Some(window::Eviction::Discard(discard)) = window::plan(summary, options) else {
            panic!("no discard")
        };
        discard.merge
    };
    let merge = planned(&summary, &window.options);
    let bytes: u64 = merge.inputs.iter().map(|(_, pieces)| pieces[0].file.bytes).sum();
    let least = merge.inputs[1..].iter().map(|(_, pieces)| pieces[0].file.bytes).sum::<u64>();
    assert!(bytes >= 1000 && least < 1000, "{bytes} {least}");
    assert_eq!(merge.collect, [TableId(5)]);
    assert_eq!(merge.into, summary.runs[count - 1].id);
    let few = window::Options { inputs_max: 2, ..window.options.clone() };
    assert_eq!(planned(&summary, &few).inputs.len(), 2);
    // One run beside the newest, though both are far longer than the window.
    let two = Summary { runs: summary.runs[..2].to_vec(), ..summary };
    let small = window::Options { bytes: 100, ..window.options.clone() };
    assert_eq!(planned(&two, &small).inputs.len(), 1);
    let debt = window::debt(&two, &small);
    assert!(debt.bytes > 0 && debt.space_fullness > 1.0, "{debt:?}");
}
