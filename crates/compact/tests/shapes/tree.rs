//! A simulated tree: tables are entry counts over a grid of keys, and merges compute with these counts.
//!
//! The keys of a grid cell are drawn evenly from its population. So the overlap of two tables follows from
//! their entry counts: of `n` keys, sets of `a` and `b` hold `a + b - a b / n` distinct keys together. The
//! planner gets the same inputs as from the engine, and every plan is checked.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use base::{RunId, Seqno, TableId};
use bytes::Bytes;
use terrace_compact::plan::{
    Area, FileSummary, Merge, Options, Piece, Plan, Reason, RunSummary, Summary, TreeLayout,
    Turnover,
};

/// Cells of the key grid.
pub(crate) const GRID: usize = 4096;
/// Stored bytes of an entry.
pub(crate) const ENTRY: f64 = 208.0;

pub(crate) fn key(cell: usize) -> Bytes {
    Bytes::copy_from_slice(&u32::try_from(cell).unwrap().to_be_bytes())
}

pub(crate) fn cell(key: &[u8]) -> usize {
    u32::from_be_bytes(key.try_into().unwrap()) as usize
}

/// A table's values and tombstones in each grid cell, from cell `start` on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(crate) start: usize,
    pub(crate) cells: Vec<(f64, f64)>,
}

impl Content {
    fn entries(&self, cells: Range<usize>) -> f64 {
        self.slice(&cells).iter().map(|(puts, deletes)| puts + deletes).sum()
    }

    fn slice(&self, cells: &Range<usize>) -> &[(f64, f64)] {
        let at = |cell: usize| cell.saturating_sub(self.start).min(self.cells.len());
        &self.cells[at(cells.start)..at(cells.end)]
    }

    fn within(&self, cells: &Range<usize>) -> Self {
        Self { start: self.start.max(cells.start), cells: self.slice(cells).to_vec() }
    }

    /// The range of cells that are not empty.
    fn used(&self) -> Range<usize> {
        let is_used = |cell: &(f64, f64)| cell.0 + cell.1 > 0.0;
        let first = self.cells.iter().position(is_used).unwrap();
        let last = self.cells.iter().rposition(is_used).unwrap();
        self.start + first..self.start + last + 1
    }

    /// Merges the older content of `cells` into this one, which begins at cell 0.
    fn over(&mut self, older: &Self, cells: &Range<usize>, population: f64) {
        let own = &mut self.cells[older.start.max(cells.start)..];
        for (newer, older) in own.iter_mut().zip(older.slice(cells)) {
            let kept = (older.0 - newer.1).max(0.0);
            newer.0 += kept - newer.0 * kept / population;
            newer.1 += older.1;
        }
    }

    fn blank() -> Self {
        Self { start: 0, cells: vec![(0.0, 0.0); GRID] }
    }
}

type Policy = dyn Fn(&Summary, &Options) -> Option<Plan>;

/// A simulated tree and its figures.
pub(crate) struct Tree {
    pub(crate) options: Options,
    /// Replaces the planner to measure another tree shape.
    pub(crate) policy: Option<Box<Policy>>,
    pub(crate) unit: f64,
    /// Distinct keys of one grid cell.
    pub(crate) population: f64,
    /// Bytes merged per byte flushed, shared by all jobs.
    pub(crate) merge_speed: f64,
    /// The part of `merge_speed` that filling and flushing a memtable take away.
    pub(crate) writing: f64,
    /// The fixed cost of a job, and the cost per input piece, in bytes merged.
    pub(crate) job_costs: (f64, f64),
    /// Whether writers are delayed by compaction debt, as in the engine.
    pub(crate) is_delayed: bool,
    pub(crate) jobs_max: usize,
    /// Parts into which split keys divide a file; 1: a file without split keys.
    pub(crate) parts: f64,
    pub(crate) runs: BTreeMap<u64, Vec<Piece>>,
    contents: BTreeMap<u64, (Arc<FileSummary>, Content)>,
    running: Vec<(Merge, f64)>,
    next: u64,
    pub(crate) turnover: Turnover,
    pub(crate) quiet: bool,
    /// Bytes of the device.
    pub(crate) capacity: Option<f64>,
    pub(crate) figures: Figures,
}

/// Measurements of a simulation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) flushed: f64,
    pub(crate) merged_in: f64,
    pub(crate) merged_out: f64,
    pub(crate) by_reason: BTreeMap<Reason, f64>,
    pub(crate) jobs: usize,
    pub(crate) largest_job: f64,
    pub(crate) depth_max: usize,
    depths: f64,
    spaces: f64,
    flushes: f64,
    /// Time in units of filling a memtable at full speed.
    time: f64,
    /// Highest ratio of stored bytes, outputs of running jobs included, to bytes of distinct keys.
    pub(crate) space_max: f64,
    /// Highest ratio of bytes outside all pieces, outputs of running jobs included, to the bytes of distinct
    /// keys.
    pub(crate) temporary_max: f64,
}

impl Figures {
    pub(crate) fn rewrites(&self) -> f64 {
        self.merged_out / self.flushed
    }

    /// Writing speed as a share of full speed.
    pub(crate) fn throughput(&self) -> f64 {
        self.flushes / self.time
    }

    pub(crate) fn space_mean(&self) -> f64 {
        self.spaces / self.flushes
    }

    pub(crate) fn depth_mean(&self) -> f64 {
        self.depths / self.flushes
    }
}

impl Tree {
    pub(crate) fn new(unit: f64, population: f64) -> Self {
        Self {
            options: Options::default(),
            policy: None,
            unit,
            population: population / GRID as f64,
            merge_speed: 6.0,
            writing: 0.0,
            job_costs: (0.0, 0.0),
            is_delayed: false,
            jobs_max: 2,
            parts: 64.0,
            runs: BTreeMap::new(),
            contents: BTreeMap::new(),
            running: Vec::new(),
            next: 1000,
            turnover: Turnover::default(),
            quiet: false,
            capacity: None,
            figures: Figures::default(),
        }
    }

    fn file(&mut self, content: Content) -> Arc<FileSummary> {
        self.next += 1;
        let Range { start: first, end } = content.used();
        let entries = content.entries(first..end);
        let mut splits = Vec::new();
        let (mut before, mut last) = (0.0, 0.0);
        for cell in first + 1..end {
            before += content.entries(cell - 1..cell);
            if before - last >= entries / self.parts {
                splits.push((key(cell), (before * ENTRY) as u64));
                last = before;
            }
        }
        let file = Arc::new(FileSummary {
            id: TableId(self.next),
            bytes: (entries * ENTRY) as u64,
            entries: entries as u64,
            deletes: content.cells.iter().map(|(_, deletes)| deletes).sum::<f64>() as u64,
            seqno_max: Seqno::new(self.next),
            splits,
            ..FileSummary::default()
        });
        self.contents.insert(file.id.0, (Arc::clone(&file), content));
        file
    }

    fn piece(&mut self, content: Content, level: u8) -> Piece {
        let Range { start, end } = content.used();
        let (first, end) = (key(start), Some(key(end)));
        Piece { file: self.file(content), level, first, end, damaged: false }
    }

    /// Flushes one memtable with `content`, then merges for as long as the next memtable takes to fill.
    pub(crate) fn flush(&mut self, content: Content) {
        let piece = self.piece(content, 0);
        let bytes = piece.file.bytes as f64;
        let overlaps = |pieces: &[Piece]| pieces.iter().any(|other| meets(other, &piece));
        // As in the engine: the table joins the oldest possible run, unless a job works there.
        let blocked =
            self.runs.iter().rev().find(|(_, pieces)| overlaps(pieces)).map(|(id, _)| *id);
        let above =
            self.runs.keys().find(|id| blocked.is_none_or(|blocked| **id > blocked)).copied();
        let is_busy =
            |id: u64| self.running.iter().any(|(job, _)| job.into.0 <= id && id <= job.newest().0);
        let run = above.filter(|id| !is_busy(*id)).unwrap_or(self.next);
        let pieces = self.runs.entry(run).or_default();
        pieces.push(piece);
        pieces.sort_by(|a, b| a.first.cmp(&b.first));
        self.figures.flushed += bytes;
        self.turnover.flushed(bytes as u64, self.stored() as u64);
        let time = if self.is_delayed { self.delayed() } else { 1.0 };
        self.figures.time += time;
        self.work(bytes * (self.merge_speed * time - self.writing));
        self.figures.flushes += 1.0;
        self.figures.depths += self.depth() as f64;
        self.figures.spaces += self.stored() / self.measure();
    }

    /// How many times longer a memtable takes to fill, by the rule of the engine's `pace`.
    fn delayed(&self) -> f64 {
        let way = |value: f64, from: f64, to: f64| ((value - from) / (to - from)).clamp(0.0, 0.98);
        let debt = TreeLayout::new(&self.summary(), &self.options).debt();
        let way = way(debt.fullness, 2.0, 6.0).max(way(debt.space_fullness, 1.11, 1.56));
        1.0 + way / (1.0 - way)
    }

    /// Updates the highest figures; returns the bytes of distinct keys.
    fn measure(&mut self) -> f64 {
        self.figures.depth_max = self.figures.depth_max.max(self.depth());
        let written = |(job, left): &(Merge, f64)| (job.bytes as f64 - left).max(0.0);
        let running: f64 = self.running.iter().map(written).sum();
        let stored = self.stored() + running;
        let distinct = self.distinct();
        // In a young tree every byte is temporary.
        if distinct > self.unit * 100.0 {
            let figures = &mut self.figures;
            figures.space_max = figures.space_max.max(stored / distinct);
            let temporary = stored - self.live();
            self.figures.temporary_max = self.figures.temporary_max.max(temporary / distinct);
        }
        distinct
    }

    /// Bytes of all files.
    pub(crate) fn stored(&self) -> f64 {
        self.contents.values().map(|(file, _)| file.bytes as f64).sum()
    }

    pub(crate) fn files(&self) -> usize {
        self.contents.len()
    }

    fn live(&self) -> f64 {
        let pieces = self.runs.values().flatten();
        pieces.map(|piece| self.bytes(piece)).sum()
    }

    pub(crate) fn bytes(&self, piece: &Piece) -> f64 {
        let (content, cells) = self.content(piece);
        content.entries(cells) * ENTRY
    }

    fn content(&self, piece: &Piece) -> (&Content, Range<usize>) {
        (&self.contents[&piece.file.id.0].1, cell(&piece.first)..cell(piece.end.as_ref().unwrap()))
    }

    /// Bytes after merging everything.
    pub(crate) fn distinct(&self) -> f64 {
        let mut all = Content::blank();
        for piece in self.runs.values().rev().flatten() {
            let (content, cells) = self.content(piece);
            all.over(content, &cells, self.population);
        }
        all.cells.iter().map(|(puts, _)| puts).sum::<f64>() * ENTRY
    }

    /// Most pieces over one cell.
    pub(crate) fn depth(&self) -> usize {
        let mut depths = vec![0; GRID];
        for piece in self.runs.values().flatten() {
            for depth in &mut depths[cell(&piece.first)..cell(piece.end.as_ref().unwrap())] {
                *depth += 1;
            }
        }
        depths.into_iter().max().unwrap()
    }

    pub(crate) fn summary(&self) -> Summary {
        let runs = self.runs.iter().rev();
        let busy = self.running.iter().map(|(job, left)| Area {
            newest: job.newest(),
            oldest: job.into,
            first: job.first.clone(),
            end: job.end.clone(),
            bytes: *left as u64,
        });
        Summary {
            runs: runs
                .map(|(id, pieces)| RunSummary { id: RunId(*id), pieces: pieces.clone() })
                .collect(),
            busy: busy.collect(),
            quiet: self.quiet,
            free_bytes: self.capacity.map(|capacity| (capacity - self.stored()).max(0.0) as u64),
            unit_bytes: self.unit as u64,
            superseding: self.turnover.superseding(),
            ..Summary::default()
        }
    }

    /// Starts a planned merge, or does the planned moves or drops.
    pub(crate) fn start(&mut self, plan: Plan) {
        match plan {
            Plan::Merge(job) => {
                for (other, _) in &self.running {
                    let keys = other.end.as_ref().is_none_or(|end| job.first < *end)
                        && job.end.as_ref().is_none_or(|end| other.first < *end);
                    let runs = other.into <= job.newest() && job.into <= other.newest();
                    assert!(!(keys && runs), "two jobs meet");
                }
                let pieces = job.inputs.iter().map(|(_, pieces)| pieces.len()).sum::<usize>();
                let (once, each) = self.job_costs;
                let cost = job.bytes.max(1) as f64 + once + each * pieces as f64;
                self.running.push((job, cost));
            }
            Plan::Drop(pieces) => {
                for (run, piece) in pieces {
                    let is_input = |(job, _): &(Merge, f64)| {
                        job.inputs.iter().any(|(_, inputs)| {
                            inputs
                                .iter()
                                .any(|input| input.file.id == piece.file.id && meets(input, &piece))
                        })
                    };
                    assert!(!self.running.iter().any(is_input), "an input is dropped");
                    self.cut(run.0, &piece.first, piece.end.as_deref());
                }
            }
            Plan::Move(moves) => {
                for moved in moves {
                    let from = self.runs.get_mut(&moved.from.0).unwrap();
                    from.retain(|piece| *piece != moved.piece);
                    let into = self.runs.entry(moved.into.0).or_default();
                    assert!(!into.iter().any(|other| meets(other, &moved.piece)));
                    into.push(moved.piece);
                    into.sort_by(|a, b| a.first.cmp(&b.first));
                    self.runs.retain(|_, pieces| !pieces.is_empty());
                }
            }
        }
    }

    /// Installs the running merges.
    pub(crate) fn finish(&mut self) {
        for (job, _) in std::mem::take(&mut self.running) {
            self.install(&job);
        }
    }

    /// Runs the planned actions until `budget` bytes are merged or nothing is planned.
    fn work(&mut self, mut budget: f64) {
        loop {
            while self.running.len() < self.jobs_max {
                let summary = self.summary();
                let plan = match &self.policy {
                    Some(policy) => policy(&summary, &self.options),
                    None => TreeLayout::new(&summary, &self.options).plan(),
                };
                let Some(plan) = plan else { break };
                self.start(plan);
            }
            let Some(least) = self.running.iter().map(|(_, left)| *left).reduce(f64::min) else {
                return;
            };
            let share = least.min(budget / self.running.len() as f64);
            budget -= share * self.running.len() as f64;
            for (_, left) in &mut self.running {
                *left -= share;
            }
            if self.figures.jobs.is_multiple_of(8) {
                self.measure();
            }
            while let Some(done) = self.running.iter().position(|(_, left)| *left < 1.0) {
                let (job, _) = self.running.remove(done);
                self.install(&job);
            }
            if budget < 1.0 {
                return;
            }
        }
    }

    /// Runs all planned actions of a tree without writes.
    pub(crate) fn settle(&mut self) {
        self.quiet = true;
        self.work(f64::INFINITY);
        self.quiet = false;
    }

    fn cut(&mut self, run: u64, first: &[u8], end: Option<&[u8]>) {
        let pieces = self.runs.remove(&run).unwrap_or_default();
        let mut left = Vec::new();
        for piece in pieces {
            let is_after = end.is_some_and(|end| &*piece.first >= end);
            if &**piece.end.as_ref().unwrap() <= first || is_after {
                left.push(piece);
                continue;
            }
            if &*piece.first < first {
                let end = Some(Bytes::copy_from_slice(first));
                left.push(Piece { end, ..piece.clone() });
            }
            if let Some(end) = end.filter(|end| **piece.end.as_ref().unwrap() > **end) {
                left.push(Piece { first: Bytes::copy_from_slice(end), ..piece.clone() });
            }
        }
        if !left.is_empty() {
            self.runs.insert(run, left);
        }
        let named: HashSet<_> = self.runs.values().flatten().map(|piece| piece.file.id.0).collect();
        self.contents.retain(|id, _| named.contains(id));
    }

    fn install(&mut self, job: &Merge) {
        let mut merged = Content::blank();
        let (mut newer, mut oldest) = (0.0, 0.0);
        for (number, (_, pieces)) in job.inputs.iter().enumerate() {
            for piece in pieces {
                let bytes = self.bytes(piece);
                if number + 1 == job.inputs.len() {
                    oldest += bytes
                } else {
                    newer += bytes
                }
                let (content, cells) = self.content(piece);
                merged.over(content, &cells, self.population);
            }
        }
        for (run, _) in &job.inputs {
            self.cut(run.0, &job.first, job.end.as_deref());
        }
        if job.oldest {
            merged.cells.iter_mut().for_each(|cell| cell.1 = 0.0);
        }
        let out = merged.entries(0..GRID) * ENTRY;
        if job.oldest && self.policy.is_none() {
            self.turnover.merged(newer as u64, oldest as u64, out as u64);
        }
        let mut cuts = vec![0];
        let mut bytes = 0.0;
        for cell in 0..GRID {
            let more = merged.entries(cell..cell + 1) * ENTRY;
            if bytes > 0.0 && bytes + more > job.table_bytes as f64 {
                cuts.push(cell);
                bytes = 0.0;
            }
            bytes += more;
        }
        cuts.push(GRID);
        for cut in cuts.windows(2) {
            let output = merged.within(&(cut[0]..cut[1]));
            if output.entries(0..GRID) == 0.0 {
                continue;
            }
            let piece = self.piece(output, job.level);
            let run = self.runs.entry(job.into.0).or_default();
            assert!(!run.iter().any(|other| meets(other, &piece)), "a run overlaps itself");
            run.push(piece);
            run.sort_by(|a, b| a.first.cmp(&b.first));
        }
        let figures = &mut self.figures;
        figures.jobs += 1;
        figures.merged_in += newer + oldest;
        figures.merged_out += out;
        *figures.by_reason.entry(job.reason).or_default() += out;
        figures.largest_job = figures.largest_job.max(newer + oldest);
    }
}

fn meets(a: &Piece, b: &Piece) -> bool {
    a.first < *b.end.as_ref().unwrap() && b.first < *a.end.as_ref().unwrap()
}
