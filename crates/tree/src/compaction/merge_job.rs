//! A merge of one rectangle: made of a plan, run in steps, verified, installed.
//!
//! Why a merge is safe whatever happens beside it:
//!
//! - The rectangle is reserved: no other job works in it, and no new table is put below what it may
//!   write ([`crate::VersionEditGuard`]), so that its inputs are there until it is installed and its
//!   outputs keep the order of age (I4). Tables come and go above and beside it.
//! - The horizon was taken after the version whose tables it merges, so every version in them was
//!   visible by then. A snapshot made later reads at a number that is not below the horizon's
//!   newest, sees whatever the newest reader of the horizon sees, and misses nothing that was left
//!   out. Iterators read the version they began with.
//! - What older tables outside the rectangle may hold is said by `below`. Nothing older than the
//!   job's inputs can appear there later: what is flushed or ingested meanwhile is newer, and goes
//!   above the rectangle where it may share a key with it. So a delete that was dropped hid nothing
//!   (I5).

use std::sync::Arc;
use std::time::Duration;

use base::limits::VALUE_APART_BYTES;
use base::{Codec, Error, Result, RunId, TableId};
use compact::job::{Input, InputRun, Output, ValueRules};
use compact::plan::{Merge, Reason};
use compact::{HotPage, Job, Outcome, Run, Verification};
use table::Table;

use super::counters::Merged;
use super::memory::CompactionMemory;
use super::summary::weight_within;
use super::warm_outputs::WarmOutputs;
use crate::events::Event;
use crate::{Change, Piece, Rectangle, Tree, TreeContext, ValueFile, Version, VersionEditGuard};
use base::KeyRange;
use base::Problem;
use manifest::{Edit, TableEntry, ValuesEntry};

/// Ids beyond those that outputs of the planned length need.
const SPARE_IDS: u64 = 4;

/// What the writer of a table and what else a job has beside its inputs take, about: with zstd, more.
pub(super) const fn writer_bytes(codec: Codec) -> usize {
    match codec {
        Codec::Zstd => 4 << 20,
        Codec::None | Codec::Lz4 => 3 << 20,
    }
}

/// What the writer of a value file takes, about. It does without zstd where memory is short.
const fn values_writer_bytes(codec: Codec) -> usize {
    match codec {
        Codec::Zstd => 9 << 18,
        Codec::None | Codec::Lz4 => 1 << 18,
    }
}

/// A merge in progress. Holds its rectangle until it is dropped; unfinished outputs go with it.
#[derive(Debug)]
pub struct MergeJob {
    tree: Arc<Tree>,
    rectangle: Rectangle,
    level: u8,
    reason: Reason,
    /// The pieces merged, and their runs.
    inputs: Vec<(RunId, Arc<Piece>)>,
    /// What inputs above the oldest run hold, and in it, bytes; where nothing older lies below.
    turnover: Option<(u64, u64)>,
    /// When its first step was due.
    began: Duration,
    job: Job,
    compact: compact::Env,
    /// Where there is a tier to carry something over to.
    warm_outputs: Option<WarmOutputs>,
    stage: Stage,
    /// Given back when the stage, which charges it, is gone.
    memory: CompactionMemory,
}

#[derive(Debug)]
enum Stage {
    /// What is to be carried over is still to be surveyed: not by who made the job, under the lock of the
    /// tree's shape.
    Planned(Box<Run>),
    Running(Box<Run>),
    /// The outcome, the half of it that verification does not keep.
    Verifying(Box<Verification>, Outcome),
    /// The outputs are the version's, or no longer known to be nobody's.
    Over,
}

impl MergeJob {
    /// A job for `merge`, its rectangle reserved; none where another job works in a part of it.
    ///
    /// # Errors
    /// `Retry` where memory is short; the manifest's, where it gives no ids.
    pub(super) fn new(
        env: &TreeContext,
        compact: &compact::Env,
        tree: &Arc<Tree>,
        guard: &mut VersionEditGuard<'_>,
        merge: &Merge,
        (id, now_ms): (u64, u64),
        memory: CompactionMemory,
    ) -> Result<Option<Self>> {
        let version = guard.version();
        let rectangle = Rectangle {
            oldest: merge.into,
            newest: merge.newest(),
            range: KeyRange { first: merge.first.clone(), end: merge.end.clone() },
            bytes: merge.bytes,
        };
        let Some((runs, inputs)) = inputs_of(&version, &rectangle)? else { return Ok(None) };
        if !guard.reserve(&rectangle) {
            return Ok(None);
        }
        let made = Self::start(env, compact, tree, merge, &version, &rectangle, runs, (id, now_ms));
        let (job, run) = made.inspect_err(|_| guard.release(&rectangle))?;
        let (mut newer, mut oldest) = (0, 0);
        for (run, piece) in &inputs {
            *(if *run == rectangle.oldest { &mut oldest } else { &mut newer }) +=
                weight_within(piece, &rectangle.range, &job.horizon);
        }
        Ok(Some(Self {
            tree: Arc::clone(tree),
            rectangle,
            level: merge.level,
            reason: merge.reason,
            inputs,
            turnover: merge.oldest.then_some((newer, oldest)),
            began: Duration::ZERO,
            job,
            compact: compact.clone(),
            warm_outputs: None,
            stage: Stage::Planned(Box::new(run)),
            memory,
        }))
    }

    #[expect(clippy::too_many_arguments, reason = "what a job is made of, once")]
    fn start(
        env: &TreeContext,
        compact: &compact::Env,
        tree: &Tree,
        merge: &Merge,
        version: &Version,
        rectangle: &Rectangle,
        inputs: Vec<InputRun>,
        (id, now_ms): (u64, u64),
    ) -> Result<(Job, Run)> {
        // After the version: see the module.
        let horizon = env.snapshots.horizon(&env.ring);
        let tables = merge.bytes / merge.table_bytes.max(1) * 2 + SPARE_IDS;
        let settings = env.options.load();
        let dictionary = match settings.codec {
            Codec::Zstd => env.manifest.dictionary(tree.id()).0,
            _ => None,
        };
        let ids = env.manifest.reserve_tables(tables + 1)?;
        let values = TableId(ids.end.0 - 1);
        let job = Job {
            id,
            epoch: 0,
            part: 0,
            store: env.store,
            keyspace: tree.id(),
            inputs,
            bounds: rectangle.range.clone(),
            horizon,
            now_ms,
            older: below(version, rectangle),
            output: Output {
                codec: settings.codec,
                zstd_level: settings.zstd_level,
                dictionary,
                filter_bits: merge.filter_bits.round().clamp(0.0, 255.0) as u8,
                table_bytes_max: merge.table_bytes.max(compact::job::TABLE_BYTES_MIN),
                ids: ids.start..values,
            },
            // Without it, operands stay as they are.
            operator: tree.view().read_context.operator().ok().map(|it| it.name().to_owned()),
            hot: Vec::new(),
            values: ValueRules {
                bytes_min: VALUE_APART_BYTES as u64,
                ids: values..ids.end,
                collect: merge.collect.clone(),
            },
        };
        let run = Run::new(job.clone(), compact)?;
        Ok((job, run))
    }

    /// Its first step is due at `now`; tells of it.
    pub(super) fn begin(&mut self, now: Duration) -> Event {
        self.began = now;
        let (keyspace, bytes) = (self.tree.name().to_owned(), self.rectangle.bytes);
        let (reason, inputs) = (self.reason.name(), self.input_ids());
        Event::CompactionBegan { keyspace, reason, inputs, bytes }
    }

    /// It ended at `now`; tells how.
    pub(super) fn ended(&self, now: Duration, ended: Result<&Merged, &Error>) -> Event {
        let (merged, error) = (ended.ok(), ended.err().cloned());
        Event::CompactionEnded {
            keyspace: self.tree.name().to_owned(),
            reason: self.reason.name(),
            inputs: self.input_ids(),
            outputs: merged.map(|merged| merged.outputs.clone()).unwrap_or_default(),
            bytes_read: merged.map_or(0, |merged| merged.bytes_read),
            bytes_written: merged.map_or(0, |merged| merged.bytes_written),
            took: now.saturating_sub(self.began),
            error,
        }
    }

    fn input_ids(&self) -> Vec<TableId> {
        self.inputs.iter().map(|(_, piece)| piece.entry().id).collect()
    }

    /// About the bytes that it may write.
    pub(super) const fn bytes(&self) -> u64 {
        self.rectangle.bytes
    }

    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Does one bounded step; what the merge did with the last.
    ///
    /// # Errors
    /// As [`Run::step`]: nothing happened, and the job is to be dropped.
    pub fn step(&mut self, env: &TreeContext) -> Result<Option<Merged>> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Planned(mut run) => {
                self.survey(env, &mut run);
                self.stage = Stage::Running(run);
                Ok(None)
            }
            Stage::Running(mut run) => {
                let stepped =
                    run.step().inspect_err(|error| self.blame(env, run.blame(), error))?;
                self.stage = match stepped {
                    None => Stage::Running(run),
                    Some(outcome) => {
                        let (job, compact) = (&self.job, &self.compact);
                        let started =
                            Verification::new(job, outcome.clone(), compact, &env.accounts);
                        let started = started.inspect_err(|_| self.discard(env))?;
                        Stage::Verifying(Box::new(started), outcome)
                    }
                };
                Ok(None)
            }
            Stage::Verifying(mut verification, outcome) => {
                let warm_outputs = &mut self.warm_outputs;
                let mut offer = |page: HotPage<'_>| {
                    warm_outputs.iter_mut().for_each(|warm_outputs| warm_outputs.offer(page))
                };
                match verification.step(&mut offer).inspect_err(|_| self.discard(env))? {
                    Some(tables) => return self.install(env, &outcome, tables).map(Some),
                    None => self.stage = Stage::Verifying(verification, outcome),
                }
                Ok(None)
            }
            Stage::Over => Err(Error::invalid("step of a merge").expected("one not over")),
        }
    }

    /// Finds what is to be carried over. Where memory for it is short, nothing is.
    fn survey(&mut self, env: &TreeContext, run: &mut Run) {
        let surveyed = WarmOutputs::survey(&env.cache, &self.inputs, &self.rectangle.range);
        if let Some((warm_outputs, hot)) = surveyed
            && run.set_hot(hot.clone()).is_ok()
        {
            self.job.hot = hot;
            self.warm_outputs = Some(warm_outputs);
        }
    }

    /// Keeps the input in which damage was met out of later jobs.
    fn blame(&self, env: &TreeContext, table: Option<TableId>, error: &Error) {
        let mut inputs = self.inputs.iter().map(|(_, piece)| piece);
        if let Some(blamed) = inputs.find(|piece| Some(piece.entry().id) == table) {
            let file = table::file_name(blamed.entry().id);
            let problem = Problem::of(&file, error.clone()).in_keyspace(self.tree.name());
            env.quarantine.add(&self.tree, blamed.file(), problem);
        }
    }

    /// Puts the outputs in the place of the inputs.
    fn install(
        &self,
        env: &TreeContext,
        outcome: &Outcome,
        tables: Vec<Arc<Table>>,
    ) -> Result<Merged> {
        let id = self.tree.id();
        let Rectangle { oldest, range, .. } = &self.rectangle;
        let mut edits = Vec::with_capacity(self.inputs.len() + tables.len() + 1);
        let values = outcome.values.map(ValuesEntry::from);
        edits.extend(values.map(|values| Edit::ValuesAdded { keyspace: id, values }));
        let mut outputs = Vec::with_capacity(tables.len());
        for (summary, table) in outcome.tables.iter().zip(tables) {
            let entry = Arc::new(TableEntry::of(summary, *oldest, self.level));
            edits.push(Edit::TableAdded { keyspace: id, table: Arc::clone(&entry) });
            outputs.push((*oldest, Piece::whole(env.table_file(Ok(table), entry))));
        }
        // After the outputs: value files that both point into are not without a table in between.
        for (_, piece) in &self.inputs {
            let range = piece.range().intersection(range);
            edits.push(Edit::TableCut { keyspace: id, table: piece.entry().id, range });
        }
        let has_expiries =
            |piece: &Piece| piece.table().is_ok_and(|table| table.properties().expiring > 0);
        if self.inputs.iter().any(|(_, piece)| has_expiries(piece)) {
            edits.extend(env.timekeeper.advance_to(self.job.now_ms));
        }
        let guard = self.tree.version_edit();
        env.append(edits).inspect_err(|_| {
            // A manifest that failed may name them all the same (I3).
            if env.manifest.poisoned().is_none() {
                self.discard(env);
            }
        })?;
        // What could not be copied stays, and would not be the next time either.
        for (_, output) in &outputs {
            let collected = |file: &&Arc<ValueFile>| self.job.values.collect.contains(&file.id());
            output.file().values().iter().filter(collected).for_each(|file| file.exclude());
        }
        let pointed = outputs.iter().map(|(_, output)| output.file().summary().value_bytes());
        let held = outcome.bytes_written() + pointed.sum::<u64>();
        let inputs = self.inputs.iter().map(|(_, piece)| piece.entry().id).collect();
        let change = Change { rectangle: self.rectangle.clone(), inputs, outputs };
        guard.install_changed(&change);
        self.warm_outputs.iter().for_each(WarmOutputs::installed);
        Ok(Merged {
            reason: self.reason,
            outputs: outcome.tables.iter().map(|table| table.table).collect(),
            bytes_read: outcome.bytes_read,
            bytes_written: outcome.bytes_written(),
            values_bytes: outcome.values.map_or(0, |values| values.file_bytes),
            counts: outcome.counts,
            pages_passed: outcome.pages_passed,
            turnover: self.turnover.map(|(newer, oldest)| (newer, oldest, held)),
        })
    }

    /// Removes outputs that nobody names.
    fn discard(&self, env: &TreeContext) {
        self.warm_outputs.iter().for_each(WarmOutputs::discarded);
        // What stays behind goes at the next open.
        let _ = self.job.discard_outputs(&*env.medium);
    }

    /// Gives the job up.
    pub(super) fn cancel(self, env: &TreeContext) {
        if matches!(self.stage, Stage::Verifying(..)) {
            self.discard(env);
        }
    }

    /// The memory that every job may take, bytes.
    pub(super) const MEMORY_MIN: u64 =
        (writer_bytes(Codec::None) + 2 * compact::Env::RUN_BYTES_MIN) as u64;

    /// About the memory that a job of `merge` may take, bytes.
    pub(super) fn memory_for(merge: &Merge, env: &compact::Env, codec: Codec) -> u64 {
        let values = if merge.collect.is_empty() { 0 } else { values_writer_bytes(codec) };
        let inputs = merge.inputs.len() * compact::Env::RUN_BYTES_MIN + env.read_bytes;
        (inputs + writer_bytes(codec) + values) as u64
    }

    /// Whether it was promised more memory than there is now for all merges: it may begin again with
    /// less.
    pub(super) fn is_curtailed(&self) -> bool {
        self.memory.is_curtailed()
    }

    /// Whether damage was met in an input, which is out of all later jobs now.
    pub(super) fn has_damaged_input(&self) -> bool {
        self.inputs.iter().any(|(_, piece)| piece.file().is_damaged())
    }

    /// What it merges, for messages.
    pub(super) fn describe(&self) -> String {
        let Rectangle { oldest, newest, range, .. } = &self.rectangle;
        format!("merge of runs {oldest} to {newest} of `{}`, keys {range}", self.tree.name())
    }
}

impl Drop for MergeJob {
    fn drop(&mut self) {
        self.tree.version_edit().release(&self.rectangle);
    }
}

type Inputs = (Vec<InputRun>, Vec<(RunId, Arc<Piece>)>);

/// All that `version` holds within `rectangle`, newest run first; none where that is nothing.
///
/// # Errors
/// `Corrupt` where a part of it is damaged.
fn inputs_of(version: &Version, rectangle: &Rectangle) -> Result<Option<Inputs>> {
    let mut runs = Vec::new();
    let mut pieces = Vec::new();
    for run in version.runs().iter().filter(|run| rectangle.holds(run.id())) {
        let mut tables = Vec::new();
        for piece in run.overlapping(&rectangle.range) {
            if piece.file().is_damaged() {
                let error = Error::corrupt("table of a merge").at(piece.entry().id);
                return Err(error.expected("one without damage"));
            }
            let entry = piece.entry();
            tables.push(Input {
                id: entry.id,
                file_bytes: entry.file_bytes,
                digest: piece.table()?.footer().digest,
                bounds: piece.range().intersection(&rectangle.range),
                seqno: entry.seqno,
            });
            pieces.push((run.id(), Arc::clone(piece)));
        }
        if !tables.is_empty() {
            runs.push(InputRun { tables });
        }
    }
    Ok((!runs.is_empty()).then_some((runs, pieces)))
}

/// The keys within `rectangle` that older tables may hold.
fn below(version: &Version, rectangle: &Rectangle) -> Vec<KeyRange> {
    let older = version.runs().iter().filter(|run| run.id() < rectangle.oldest);
    let pieces = older.flat_map(|run| run.overlapping(&rectangle.range));
    pieces.map(|piece| piece.range().intersection(&rectangle.range)).collect()
}
