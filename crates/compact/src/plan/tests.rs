//! Random trees under random plans: every merge takes its whole rectangle, jobs do not overlap, planning
//! ends, and no key's newest version is ever below an older one (I4).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::{Rng, RunId, Seqno, TableId};
use bytes::Bytes;

use super::*;
use crate::Horizon;

/// A tree of one-byte keys. `files` holds the version of each key in each file.
struct Model {
    rng: Rng,
    options: Options,
    runs: BTreeMap<u64, Vec<Piece>>,
    files: HashMap<u64, BTreeMap<u8, u64>>,
    overhead_bytes: u64,
    running: Vec<Merge>,
    next: u64,
    newest: BTreeMap<u8, u64>,
}

fn key(key: u8) -> Bytes {
    Bytes::copy_from_slice(&[key])
}

fn meets(piece: &Piece, first: &[u8], end: Option<&[u8]>) -> bool {
    let before = |key: &[u8], end: Option<&[u8]>| end.is_none_or(|end| key < end);
    before(&piece.first, end) && before(first, piece.end.as_deref())
}

fn holds(piece: &Piece, at: u8) -> bool {
    meets(piece, &[at], Some(&[at, 0]))
}

impl Model {
    fn new(mut rng: Rng) -> Self {
        let options = Options {
            fanout: 2 + rng.below(5) as usize,
            settled_runs: 1 + rng.below(4) as usize,
            slice_bytes: 100 + rng.below(2000),
            runs_max: if rng.one_in(4) { 3 + rng.below(6) as usize } else { 64 },
            ..Options::default()
        };
        let (runs, files, running, newest) = Default::default();
        let overhead_bytes = if rng.one_in(2) { 0 } else { rng.below(300) };
        Self { rng, options, runs, files, overhead_bytes, running, next: 1, newest }
    }

    fn piece(&mut self, content: BTreeMap<u8, u64>, level: u8) -> Piece {
        self.next += 1;
        let (first, last) = (*content.keys().next().unwrap(), *content.keys().last().unwrap());
        let splits = content.keys().enumerate().skip(1).map(|(n, k)| (key(*k), n as u64 * 10));
        let file = Arc::new(FileSummary {
            id: TableId(self.next),
            bytes: content.len() as u64 * 10,
            entries: content.len() as u64,
            deletes: self.rng.below(content.len() as u64),
            range_deletes: u64::from(self.rng.one_in(10)),
            seqno_max: Seqno::new(self.next),
            splits: splits.collect(),
            // Some files are mostly pointers.
            values: vec![(TableId(0), self.rng.below(3) * 100 * content.len() as u64)],
            ..FileSummary::default()
        });
        self.files.insert(file.id.0, content);
        Piece { file, level, first: key(first), end: last.checked_add(1).map(key), damaged: false }
    }

    fn flush(&mut self) {
        let (from, span) = (self.rng.below(200) as u8, 1 + self.rng.below(255));
        let mut content = BTreeMap::new();
        for _ in 0..=self.rng.below(30) {
            let at = from.saturating_add(self.rng.below(span) as u8);
            content.insert(at, self.next);
            self.newest.insert(at, self.next);
        }
        let mut piece = self.piece(content, 0);
        piece.damaged = self.rng.one_in(40);
        if self.rng.one_in(4) {
            let file = Arc::make_mut(&mut piece.file);
            let (bytes, by) = (1 + self.rng.below(file.bytes), Seqno::new(1));
            file.superseded = Superseded { bytes, oldest: Seqno::ZERO, by };
        }
        let overlapping = |pieces: &[Piece]| {
            pieces.iter().any(|other| meets(other, &piece.first, piece.end.as_deref()))
        };
        let blocked =
            self.runs.iter().rev().find(|(_, pieces)| overlapping(pieces)).map(|(id, _)| *id);
        let above =
            self.runs.keys().find(|id| blocked.is_none_or(|blocked| **id > blocked)).copied();
        let busy =
            |id: u64| self.running.iter().any(|job| job.into.0 <= id && id <= job.newest().0);
        let run = above.filter(|id| !busy(*id)).unwrap_or(self.next);
        self.insert(run, piece);
    }

    fn insert(&mut self, run: u64, piece: Piece) {
        let pieces = self.runs.entry(run).or_default();
        let overlaps = pieces.iter().any(|other| meets(other, &piece.first, piece.end.as_deref()));
        assert!(!overlaps, "tables of a run overlap");
        pieces.push(piece);
        pieces.sort_by(|a, b| a.first.cmp(&b.first));
    }

    fn summary(&mut self, quiet: bool) -> Summary {
        let runs = self.runs.iter().rev();
        let area = |job: &Merge| Area {
            newest: job.newest(),
            oldest: job.into,
            first: job.first.clone(),
            end: job.end.clone(),
            bytes: job.bytes,
        };
        let manual = self.rng.one_in(5).then(|| ManualRange {
            first: key(self.rng.below(100) as u8),
            end: self.rng.one_in(2).then(|| key(150)),
            newest: RunId(self.rng.below(self.next + 1)),
        });
        Summary {
            runs: runs.map(|(id, p)| RunSummary { id: RunId(*id), pieces: p.clone() }).collect(),
            busy: self.running.iter().map(area).collect(),
            quiet,
            manual: manual.filter(|_| !quiet),
            unit_bytes: 100,
            overhead_bytes: self.overhead_bytes,
            superseding: self.rng.unit(),
            demand: Demand { seeks: (self.options.fanout % 2) as f64 * 5e3, ..Demand::default() },
            ..Summary::default()
        }
    }

    /// Every piece in the rectangle is an input, clipped to the bounds; none is damaged; no other job works
    /// there.
    fn check(&self, job: &Merge) {
        let end = job.end.as_deref();
        for (id, pieces) in self.runs.range(job.into.0..=job.newest().0) {
            let inside: Vec<_> = pieces.iter().filter(|p| meets(p, &job.first, end)).collect();
            let freed = job.inputs.iter().find(|(run, _)| run.0 == *id);
            let freed = freed.map_or(&[][..], |(_, pieces)| pieces);
            assert_eq!(inside.len(), freed.len(), "run {id} is not whole");
            for (piece, part) in inside.into_iter().zip(freed) {
                assert_eq!(piece.file.id, part.file.id);
                assert!(!piece.damaged, "a damaged table is merged");
                assert_eq!(part.first, (&piece.first).max(&job.first));
                assert!(part.end == piece.end || part.end == job.end);
                assert!(
                    part.first < *part.end.as_ref().unwrap_or(&Bytes::from_static(&[255, 255]))
                );
            }
        }
        assert!(job.inputs.is_sorted_by(|a, b| a.0 > b.0));
        assert!(job.inputs.len() <= self.options.runs_max, "more runs than there is memory for");
        let older = self.runs.range(..job.into.0).flat_map(|(_, pieces)| pieces);
        let below = older.filter(|piece| meets(piece, &job.first, end)).count();
        assert!(!job.oldest || below == 0, "something older lies below");
        for other in &self.running {
            let keys = other.end.as_ref().is_none_or(|end| job.first < end)
                && end.is_none_or(|end| *other.first < *end);
            let runs = other.into <= job.newest() && job.into <= other.newest();
            assert!(!(keys && runs), "two jobs meet");
        }
    }

    fn install(&mut self, job: &Merge) {
        let mut merged = BTreeMap::new();
        for (_, pieces) in &job.inputs {
            for piece in pieces {
                for (at, version) in &self.files[&piece.file.id.0] {
                    if holds(piece, *at) {
                        merged.entry(*at).or_insert(*version);
                    }
                }
            }
        }
        for (run, _) in &job.inputs {
            self.cut(run.0, &job.first, job.end.as_deref());
        }
        if !merged.is_empty() {
            let mut piece = self.piece(merged, job.level);
            let file = Arc::make_mut(&mut piece.file);
            if job.oldest {
                (file.deletes, file.range_deletes) = (0, 0);
            }
            self.insert(job.into.0, piece);
        }
    }

    fn cut(&mut self, run: u64, first: &[u8], end: Option<&[u8]>) {
        let mut left = Vec::new();
        for piece in self.runs.remove(&run).unwrap() {
            if !meets(&piece, first, end) {
                left.push(piece);
                continue;
            }
            if &*piece.first < first {
                let end = Some(Bytes::copy_from_slice(first));
                left.push(Piece { end, ..piece.clone() });
            }
            if let Some(end) = end.filter(|end| piece.end.as_deref().is_none_or(|own| own > *end)) {
                left.push(Piece { first: Bytes::copy_from_slice(end), ..piece.clone() });
            }
        }
        if !left.is_empty() {
            self.runs.insert(run, left);
        }
    }

    /// For every key, reads find versions newest first.
    fn check_order(&self, lost: bool) {
        for (at, newest) in &self.newest {
            let pieces = self.runs.values().rev().flatten().filter(|piece| holds(piece, *at));
            let versions = pieces.filter_map(|piece| self.files[&piece.file.id.0].get(at));
            let versions: Vec<_> = versions.collect();
            assert!(versions.is_sorted_by(|a, b| a > b), "key {at}: {versions:?}");
            assert!(lost || versions.first() == Some(&newest), "key {at}: {versions:?}");
        }
    }

    /// Does one planned action. False if nothing is planned.
    fn step(&mut self, quiet: bool) -> bool {
        let summary = self.summary(quiet);
        match plan(&summary, &self.options) {
            None => return false,
            Some(Plan::Merge(job)) => {
                self.check(&job);
                self.running.push(job);
            }
            Some(Plan::Move(moves)) => {
                for Move { piece, from, into } in moves {
                    self.cut(from.0, &piece.first, piece.end.as_deref());
                    self.insert(into.0, piece);
                }
            }
            Some(Plan::Drop(_)) => panic!("nothing here is all deletes"),
        }
        true
    }

    fn finish_one(&mut self) {
        if !self.running.is_empty() {
            let number = self.rng.below(self.running.len() as u64) as usize;
            let job = self.running.remove(number);
            self.install(&job);
        }
    }
}

#[test] // I4
fn random_trees_keep_their_version_order_and_settle() {
    let (mut rng, seed) = Rng::from_env();
    let rounds = if std::env::var_os("TERRACE_LONG").is_some() { 2000 } else { 150 };
    for round in 0..rounds {
        println!("TERRACE_SEED={seed}, round {round}");
        let mut model = Model::new(Rng::new(rng.next_u64()));
        for _ in 0..60 {
            model.flush();
            while model.running.len() < 3 && model.step(false) {}
            while model.rng.one_in(2) && !model.running.is_empty() {
                model.finish_one();
            }
            model.check_order(false);
        }
        let mut steps = 0;
        while model.step(true) || !model.running.is_empty() {
            model.finish_one();
            model.check_order(false);
            steps += 1;
            assert!(steps < 10_000, "it does not end");
        }
        let summary = model.summary(true);
        assert_eq!(debt(&summary, &model.options).bytes, 0);
        if !summary.runs.iter().flat_map(|run| &run.pieces).any(|piece| piece.damaged) {
            assert!(debt(&summary, &model.options).runs <= model.options.settled_runs);
        }
    }
}

pub(super) fn table(id: u64, level: u8, first: &str, end: &str, bytes: u64) -> Piece {
    let file = FileSummary { id: TableId(id), bytes, entries: bytes, ..FileSummary::default() };
    let (first, end) =
        (Bytes::copy_from_slice(first.as_bytes()), Bytes::copy_from_slice(end.as_bytes()));
    Piece { file: Arc::new(file), level, first, end: Some(end), damaged: false }
}

pub(super) fn tree(runs: Vec<Vec<Piece>>) -> Summary {
    let ids = (1..=runs.len() as u64).rev();
    let runs = ids.zip(runs).map(|(id, mut pieces)| {
        pieces.sort_by(|a, b| a.first.cmp(&b.first));
        RunSummary { id: RunId(id), pieces }
    });
    Summary { runs: runs.collect(), unit_bytes: 10, ..Summary::default() }
}

pub(super) fn merge(summary: &Summary, options: &Options) -> Merge {
    match plan(summary, options) {
        Some(Plan::Merge(merge)) => merge,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_level_is_merged_into_the_next() {
    let options = Options { fanout: 4, ..Options::default() };
    let flushed = |id| vec![table(id, 0, "a", "z", 10)];
    let mut runs = vec![flushed(9), flushed(8), flushed(7), vec![table(1, 2, "a", "z", 1000)]];
    assert_eq!(plan(&tree(runs.clone()), &options), None);
    runs.insert(0, flushed(10));
    let job = merge(&tree(runs), &options);
    assert_eq!(
        (job.reason, job.newest(), job.into, job.level),
        (Reason::Runs, RunId(5), RunId(2), 1)
    );
    assert_eq!((job.oldest, job.bytes), (false, 40));
}

#[test]
fn the_columns_with_most_garbage_are_merged_first() {
    let upper = vec![table(5, 1, "a", "c", 10), table(6, 1, "m", "p", 60)];
    let oldest = vec![table(1, 2, "a", "c", 60), table(2, 2, "m", "p", 60)];
    let summary = tree(vec![upper, oldest]);
    let job = merge(&summary, &Options { slice_bytes: 40, ..Options::default() });
    assert_eq!((job.reason, &*job.first, job.oldest), (Reason::Space, &b"m"[..], true));
    // A tree that is small compared with a slice is merged at once.
    assert_eq!(&*merge(&summary, &Options::default()).first, b"a");
    // New keys are no garbage.
    let fresh = Summary { superseding: 0.0, ..summary };
    assert_eq!(plan(&fresh, &Options::default()), None);
}

#[test]
fn tombstones_are_merged_down_once_no_read_is_older() {
    let deletes = |seqno| {
        let mut piece = table(5, 0, "a", "z", 10);
        let file = Arc::make_mut(&mut piece.file);
        (file.entries, file.deletes, file.seqno_max) = (50, 40, Seqno::new(seqno));
        piece
    };
    let mut summary = tree(vec![vec![deletes(7)], vec![table(1, 1, "a", "z", 60)]]);
    summary.readers = Horizon::new(vec![Seqno::new(6)]);
    assert_eq!(plan(&summary, &Options::default()), None);
    summary.readers = Horizon::new(vec![Seqno::new(7)]);
    assert_eq!(merge(&summary, &Options::default()).reason, Reason::Deletes);
}

/// One table; `bytes` of it are versions from seqno 9 on that seqno 12 supersedes.
fn superseded_table(bytes: u64, readers: &[u64]) -> Summary {
    let mut piece = table(5, 1, "a", "z", 100);
    let file = Arc::make_mut(&mut piece.file);
    file.superseded = Superseded { bytes, oldest: Seqno::new(9), by: Seqno::new(12) };
    let readers = Horizon::new(readers.iter().map(|seqno| Seqno::new(*seqno)).collect());
    Summary { readers, ..tree(vec![vec![piece]]) }
}

#[test]
fn versions_kept_for_a_snapshot_are_garbage_after_it() {
    let options = Options::default();
    // Only a read at 9, 10 or 11 needs the superseded versions.
    for (readers, is_needed) in [
        (&[9, 20][..], true),
        (&[11, 20], true),
        (&[8, 12, 20], false),
        (&[20], false),
        // The horizon ends at 8: a later read may be at 9.
        (&[8], true),
    ] {
        let summary = superseded_table(60, readers);
        let debt = debt(&summary, &options);
        if is_needed {
            assert_eq!((plan(&summary, &options), debt.bytes, debt.space), (None, 0, 1.0));
            continue;
        }
        let job = merge(&summary, &options);
        assert_eq!((job.reason, job.bytes, job.oldest), (Reason::Space, 100, true), "{readers:?}");
        assert!(debt.bytes > 0 && debt.space == 2.5, "{debt:?}");
    }
}

/// A manual compaction frees any garbage; otherwise a table is rewritten only if it frees enough.
#[test]
fn a_manual_compaction_frees_even_a_little_garbage() {
    let options = Options::default();
    for (readers, is_due) in [(&[20][..], true), (&[10, 20], false)] {
        let mut summary = superseded_table(1, readers);
        summary.quiet = true;
        assert_eq!(plan(&summary, &options), None);
        summary.manual = Some(ManualRange { first: "b".into(), end: None, newest: RunId(9) });
        match is_due {
            true => assert_eq!(merge(&summary, &options).reason, Reason::Manual),
            false => assert_eq!(plan(&summary, &options), None),
        }
        assert_eq!(debt(&summary, &options).manual_bytes > 0, is_due);
    }
}

/// Writers are not slowed down when a snapshot ends.
#[test]
fn versions_kept_for_a_snapshot_do_not_delay_writers() {
    let mut summary = superseded_table(60, &[20]);
    summary.unit_bytes = 1;
    let debt = debt(&summary, &Options::default());
    assert!(debt.space == 2.5 && debt.space_fullness < 1.0, "{debt:?}");
}

#[test]
fn an_expired_table_is_dropped_if_nothing_older_lies_below() {
    let mut expired = table(5, 0, "d", "f", 10);
    Arc::make_mut(&mut expired.file).latest_expiry = 1000;
    let mut summary = tree(vec![vec![expired.clone()], vec![table(1, 1, "k", "z", 60)]]);
    summary.now_ms = 999;
    assert_eq!(plan(&summary, &Options::default()), None);
    summary.now_ms = 1000;
    let dropped = Plan::Drop(vec![(RunId(2), expired.clone())]);
    assert_eq!(plan(&summary, &Options::default()), Some(dropped));
    let mut above = tree(vec![vec![expired], vec![table(1, 1, "a", "z", 40)]]);
    above.now_ms = 1000;
    let job = merge(&above, &Options::default());
    assert_eq!((job.reason, job.oldest), (Reason::Deletes, true));
}

/// A piece that a newer range delete hides is dropped, whatever lies below it and however full the device
/// is, unless a read still sees it.
#[test]
fn a_hidden_piece_is_dropped_unread() {
    let hidden = table(2, 1, "c", "k", 60);
    let runs = vec![
        vec![table(3, 0, "a", "z", 1)],
        vec![table(1, 1, "a", "b", 60), hidden.clone()],
        vec![table(4, 2, "a", "z", 500)],
    ];
    let mut summary = tree(runs);
    summary.free_bytes = Some(0);
    summary.hidden =
        vec![Hidden { run: RunId(2), piece: 1, oldest: Seqno::new(5), by: Seqno::new(30) }];
    let options = Options::default();
    summary.readers = Horizon::new(vec![Seqno::new(30)]);
    assert_eq!(plan(&summary, &options), Some(Plan::Drop(vec![(RunId(2), hidden)])));
    for reader in [5, 29] {
        summary.readers = Horizon::new(vec![Seqno::new(reader), Seqno::new(30)]);
        assert!(!matches!(plan(&summary, &options), Some(Plan::Drop(_))), "{reader}");
    }
    summary.readers = Horizon::new(vec![Seqno::new(30)]);
    let (first, end) = ("d".into(), Some("e".into()));
    summary.busy = vec![Area { newest: RunId(2), oldest: RunId(1), first, end, bytes: 0 }];
    assert!(!matches!(plan(&summary, &options), Some(Plan::Drop(_))), "a job works on it");
}

#[test]
fn a_job_fits_into_the_free_space() {
    let mut summary =
        tree(vec![vec![table(2, 0, "a", "z", 500)], vec![table(1, 0, "a", "z", 500)]]);
    assert!(plan(&summary, &Options::default()).is_some());
    summary.free_bytes = Some(900);
    assert_eq!(plan(&summary, &Options::default()), None, "1000 bytes to write and 40 for flushes");
    summary.free_bytes = Some(1100);
    assert!(plan(&summary, &Options::default()).is_some());
}

/// A table that points at `used` bytes of each of these value files.
fn pointing(mut piece: Piece, files: &[u64], used: u64) -> Piece {
    let values = files.iter().map(|file| (TableId(*file), used)).collect();
    Arc::make_mut(&mut piece.file).values = values;
    piece
}

fn value_file(id: u64, bytes: u64) -> ValueFileSummary {
    ValueFileSummary { id: TableId(id), bytes, excluded: false }
}

#[test]
fn separated_values_count_as_bytes_of_their_table() {
    // Few table bytes, but half of all value bytes.
    let upper = pointing(table(5, 1, "a", "z", 10), &[50], 1000);
    let oldest = pointing(table(1, 2, "a", "z", 100), &[51], 1000);
    let mut summary = tree(vec![vec![upper.clone()], vec![oldest.clone()]]);
    summary.values = vec![value_file(50, 1000), value_file(51, 1000)];
    let job = merge(&summary, &Options::default());
    assert_eq!((job.reason, job.oldest, job.bytes), (Reason::Space, true, 110));
    assert!(job.collect.is_empty(), "nothing of a file is dead yet");
    let fresh = Summary { superseding: 0.1, ..summary };
    assert_eq!(plan(&fresh, &Options::default()), None, "new keys are no garbage");
    let light = tree(vec![vec![table(5, 1, "a", "z", 10)], vec![oldest]]);
    assert_eq!(plan(&light, &Options::default()), None);
}

#[test]
fn tables_of_pointers_are_merged_whole() {
    // The columns are a-h, h-k and k-z; only the middle one has two cells.
    let runs = |used| {
        let upper = pointing(table(5, 1, "h", "k", 100), &[50], used);
        vec![vec![upper], vec![pointing(table(1, 2, "a", "z", 100), &[51], used)]]
    };
    let job = merge(&tree(runs(1000)), &Options::default());
    assert_eq!((&*job.first, job.end.as_deref()), (&b"a"[..], Some(&b"z"[..])));
    let job = merge(&tree(runs(10)), &Options::default());
    assert_eq!((&*job.first, job.end.as_deref()), (&b"h"[..], Some(&b"k"[..])));
}

#[test]
fn a_value_file_is_collected_once_it_is_mostly_dead() {
    let of = |live: u64| {
        let runs = vec![vec![pointing(table(1, 2, "a", "k", 100), &[50, 51], live)]];
        let mut summary = tree(runs);
        summary.values = vec![value_file(50, 1000), value_file(51, live)];
        summary
    };
    assert_eq!(plan(&of(600), &Options::default()), None, "four tenths are dead, and no more");
    let job = merge(&of(599), &Options::default());
    assert_eq!((job.reason, &job.collect[..]), (Reason::Values, &[TableId(50)][..]));
    assert_eq!((&*job.first, job.end.as_deref()), (&b"a"[..], Some(&b"k"[..])));
    assert!(debt(&of(599), &Options::default()).bytes > 0);
    // A damaged value file is not collected; without room for the copies, collection waits.
    let mut excluded = of(599);
    excluded.values[0].excluded = true;
    assert_eq!(plan(&excluded, &Options::default()), None);
    let full = Summary { free_bytes: Some(400), ..of(599) };
    assert_eq!(plan(&full, &Options::default()), None);
    let room = Summary { free_bytes: Some(800), ..of(599) };
    assert!(plan(&room, &Options::default()).is_some());
}

#[test]
fn a_table_without_overlap_moves_to_an_older_run() {
    let runs = vec![vec![table(3, 0, "a", "c", 10)], vec![table(2, 0, "k", "m", 10)]];
    let mut summary = tree(runs);
    assert_eq!(plan(&summary, &Options::default()), None, "two runs do not slow writes");
    summary.quiet = true;
    let Some(Plan::Move(moves)) = plan(&summary, &Options::default()) else { panic!() };
    assert_eq!((moves[0].from, moves[0].into), (RunId(2), RunId(1)));
}
