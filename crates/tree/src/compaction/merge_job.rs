//! A merge of one rectangle: created from a plan, run in steps, verified, installed.
//!
//! Why a merge is correct whatever runs beside it:
//!
//! - The rectangle is reserved: no other job works in it, and no new table is placed below what it may write
//!   ([`crate::VersionEditGuard`]). So its inputs stay until it is installed, and its outputs keep the order
//!   of age (I4). Tables may come and go above and beside it.
//! - The horizon is taken after the version of the merged tables, so every version of a key in them was
//!   visible by then. A snapshot that is taken later reads at or above the newest seqno of the horizon; it
//!   sees what a reader at that seqno sees, and misses nothing that the merge left out. Iterators keep
//!   reading the version of the tree that they began with.
//! - `older` lists the keys that older tables outside the rectangle may contain. No key is added to it later:
//!   tables that are flushed or ingested meanwhile are newer, and go above the rectangle if they may share a
//!   key with it. So a tombstone that was dropped hid nothing (I5).

mod description;
mod estimate;
mod inputs;
mod offloaded;

use std::sync::Arc;
use std::time::Duration;

use base::limits::VALUE_APART_BYTES;
use base::{Codec, Error, KeyForm, KeyRange, Problem, Result, RunId, TableId, invariant};
use compact::job::{InputRun, Output, ValueRules};
use compact::offload::{JobShape, Placement, RemoteRun};
use compact::plan::{Merge, Reason};
use compact::{Job, Outcome, OutputPage, Run, Verification};
use manifest::{Edit, TableEntry, ValuesEntry};
use table::Table;

use super::counters::{Merged, TurnoverBytes};
use super::discarding::Discarding;
use super::memory::CompactionMemory;
use super::offloading::Offloading;
use super::warm_outputs::WarmOutputs;
use crate::events::Event;
use crate::{Change, Piece, Rectangle, Tree, TreeContext, ValueFile, Version, VersionEditGuard};
pub(crate) use estimate::{memory_for, writer_bytes};
use inputs::{below, inputs_of, open_inputs, prepare_cuts};
use offloaded::{Postponed, reserve_ids};

/// Table ids beyond those that outputs of the planned length need.
const SPARE_IDS: u64 = 4;

/// Of a job that was placed: the memory granted to it; the bytes that it needs to run in this process; the
/// workers, if it is offered to them; its shape and placement.
pub(super) type PlacedJob = (CompactionMemory, u64, Option<Arc<Offloading>>, (JobShape, Placement));

/// A merge in progress. Its rectangle is reserved until it is dropped; dropping it removes unfinished
/// outputs.
#[derive(Debug)]
pub struct MergeJob {
    tree: Arc<Tree>,
    rectangle: Rectangle,
    level: u8,
    reason: Reason,
    /// The input pieces and their runs.
    inputs: Vec<(RunId, Arc<Piece>)>,
    /// Whether no older tables lie below the inputs.
    is_to_oldest: bool,
    /// Bytes of the inputs in newer runs, and in the oldest run; see [`Merged::turnover`].
    turnover: (u64, u64),
    /// Set if the merge is a partial discard of a window.
    discarding: Option<Discarding>,
    /// Time at which the first step was due.
    began: Duration,
    job: Job,
    compact: compact::Env,
    /// Which output pages to cache, in DRAM and in SCM; `None` if none are.
    warm_outputs: Option<WarmOutputs>,
    /// The workers, if the job is offered to them.
    offloading: Option<Arc<Offloading>>,
    /// Attempts of workers that failed.
    attempts: u32,
    /// Memory that the job needs to run in this process, bytes.
    local_bytes: u64,
    /// The job's shape and placement.
    placed: (JobShape, Placement),
    /// Why the job did not begin in this process after workers failed.
    postponed: Option<Postponed>,
    stage: Stage,
    /// Declared last: it is returned after the stage, which charges it, is dropped.
    memory: CompactionMemory,
}

#[derive(Debug)]
enum Stage {
    /// The first step surveys the hot ranges, which takes too long under the version edit guard that creates
    /// the job. Then the run begins here; without a run, the job is offered to a worker.
    Planned(Option<Box<Run>>),
    Running(Box<Run>),
    /// A worker runs the job.
    Remote(Box<dyn RemoteRun>),
    /// A second worker verifies the outputs of the first.
    VerifiedElsewhere(Box<dyn RemoteRun>, Box<dyn RemoteRun>, Outcome),
    /// The outputs are being verified. The third field is set if a worker wrote them.
    Verifying(Box<Verification>, Outcome, Option<Box<dyn RemoteRun>>),
    /// The outputs are installed, or may be named by a manifest that failed.
    Over,
}

impl MergeJob {
    /// A job for `merge`, its rectangle reserved; `None` if another job works in a part of the rectangle. The
    /// job is offered to the workers of `offloading`; without them it runs here, with `local_bytes` of
    /// memory.
    ///
    /// # Errors
    /// `Retry` if memory is short, `Corrupt` if an input is damaged, or the manifest's error if it reserves
    /// no ids.
    pub(super) fn new(
        env: &TreeContext,
        compact: &compact::Env,
        tree: &Arc<Tree>,
        guard: &mut VersionEditGuard<'_>,
        (merge, mut discarding): (&Merge, Option<Discarding>),
        (id, now_ms): (u64, u64),
        (memory, local_bytes, offloading, placed): PlacedJob,
    ) -> Result<Option<Self>> {
        let version = guard.version();
        let rectangle = Rectangle {
            oldest: merge.into,
            newest: merge.newest(),
            range: KeyRange { first: merge.first.clone(), end: merge.end.clone() },
            bytes: merge.bytes,
        };
        let Some((runs, inputs)) = inputs_of(&version, &rectangle)? else { return Ok(None) };
        let open = open_inputs(&inputs)?;
        if !guard.reserve(&rectangle) {
            return Ok(None);
        }
        let epoch = offloading.as_ref().map_or(0, |it| it.first_epoch());
        let ids = (id, epoch, now_ms);
        let made = Self::describe_job(env, tree, merge, &version, &rectangle, runs, ids);
        let made =
            made.map(|job| Discarding::adapt(discarding.as_ref(), tree, job, rectangle.bytes));
        let run = |job: &Job| {
            if offloading.is_some() {
                return Ok(None);
            }
            let mut run = Run::new(job.clone(), compact)?;
            run.set_open_inputs(open);
            if let Some(selection) = discarding.as_mut().and_then(Discarding::take_selection) {
                run.set_selection(selection);
            }
            Ok(Some(Box::new(run)))
        };
        let made = made.and_then(|job| Ok((run(&job)?, job)));
        let (run, job) = made.inspect_err(|_| guard.release(&rectangle))?;
        Ok(Some(Self {
            tree: Arc::clone(tree),
            rectangle,
            level: merge.level,
            reason: merge.reason,
            inputs,
            is_to_oldest: merge.oldest,
            turnover: (0, 0),
            discarding,
            began: Duration::ZERO,
            job,
            compact: compact.clone(),
            warm_outputs: None,
            offloading,
            attempts: 0,
            local_bytes,
            placed,
            postponed: None,
            stage: Stage::Planned(run),
            memory,
        }))
    }

    /// Creates the job's description.
    fn describe_job(
        env: &TreeContext,
        tree: &Tree,
        merge: &Merge,
        version: &Version,
        rectangle: &Rectangle,
        inputs: Vec<InputRun>,
        (id, epoch, now_ms): (u64, u64, u64),
    ) -> Result<Job> {
        // After the version: see the module's header.
        let horizon = env.snapshots.horizon(&env.ring);
        let tables = merge.bytes / merge.table_bytes.max(1) * 2 + SPARE_IDS;
        let options = tree.options(&*env.options);
        let bits = merge.filter_bits.round().clamp(0.0, 255.0) as u8;
        let dictionary = match options.codec {
            Codec::Zstd => env.manifest.dictionary(tree.id()).0,
            _ => None,
        };
        let (ids, values) = reserve_ids(env, tables)?;
        Ok(Job {
            id,
            epoch,
            part: 0,
            store: env.store,
            keyspace: tree.id(),
            inputs,
            bounds: rectangle.range.clone(),
            horizon,
            now_ms,
            older: below(version, rectangle),
            output: Output {
                codec: options.codec,
                level: options.level,
                dictionary,
                filter_bits: tree.table_options().filter_bits.unwrap_or(bits),
                layout: tree.layout(rectangle.bytes, &rectangle.range),
                table_bytes_max: merge.table_bytes.max(compact::job::TABLE_BYTES_MIN),
                ids,
            },
            // Without the operator, merge operands are copied unchanged.
            operator: tree.view().read_context.operator().ok().map(|it| it.name().to_owned()),
            hot: Vec::new(),
            values: ValueRules {
                bytes_min: VALUE_APART_BYTES as u64,
                ids: values,
                collect: merge.collect.clone(),
            },
        })
    }

    /// Records that the first step is due at `now`. Returns the event for it.
    pub(super) fn begin(&mut self, now: Duration) -> Event {
        self.began = now;
        let (keyspace, bytes) = (self.tree.name().to_owned(), self.rectangle.bytes);
        let (reason, inputs) = (self.reason.name(), self.input_ids());
        Event::CompactionBegan { keyspace, reason, inputs, bytes }
    }

    /// The event for the job's end at `now`.
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

    /// Estimate of the bytes that the job may write.
    pub(super) const fn bytes(&self) -> u64 {
        self.rectangle.bytes
    }

    /// Counts the merge, which was installed, in the counters of its keyspace.
    pub(super) fn count(&self, merged: &Merged) {
        let bytes = merged.bytes_written + merged.values_bytes;
        let base = self.is_to_oldest.then_some(&self.rectangle.range);
        self.tree.writes().merged(bytes, merged.counts.dropped(), base);
    }

    /// The tree of the merged tables.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Does one bounded step. Returns the result with the last one.
    ///
    /// # Errors
    /// As [`Run::step`]: nothing was changed, and the job is to be dropped.
    pub fn step(&mut self, env: &TreeContext) -> Result<Option<Merged>> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Planned(mut run) => {
                self.survey(env, run.as_deref_mut());
                self.turnover = prepare_cuts(&self.inputs, &self.rectangle, &self.job.horizon);
                self.stage = match run {
                    Some(run) => Stage::Running(run),
                    None => self.offer()?,
                };
                Ok(None)
            }
            Stage::Remote(mut remote) => {
                self.stage = match remote.poll() {
                    Ok(None) => Stage::Remote(remote),
                    Ok(Some(outcome)) => self.begin_verification(env, remote, outcome)?,
                    Err(error) => self.give_up(env, remote, error)?,
                };
                Ok(None)
            }
            Stage::VerifiedElsewhere(remote, mut verifier, outcome) => {
                self.stage = match verifier.poll() {
                    Ok(None) => Stage::VerifiedElsewhere(remote, verifier, outcome),
                    ended => {
                        let (runs, ended) = ((remote, verifier), ended.map(drop));
                        self.end_verification_elsewhere(env, runs, outcome, ended)?
                    }
                };
                Ok(None)
            }
            Stage::Running(mut run) => {
                let stepped =
                    run.step().inspect_err(|error| self.blame(env, run.blame(), error))?;
                self.stage = match stepped {
                    None => Stage::Running(run),
                    Some(outcome) => {
                        let started = self.verification(env, &outcome, None);
                        let started = started.inspect_err(|_| self.discard(env))?;
                        Stage::Verifying(Box::new(started), outcome, None)
                    }
                };
                Ok(None)
            }
            Stage::Verifying(mut verification, outcome, remote) => {
                let warm_outputs = &mut self.warm_outputs;
                let mut offer = |page: OutputPage<'_>| {
                    warm_outputs.iter_mut().for_each(|warm_outputs| warm_outputs.offer(page))
                };
                match (verification.step(&mut offer), remote) {
                    (Ok(Some(tables)), remote) => {
                        let mut merged = self.install(env, &outcome, tables)?;
                        merged.remote = remote.is_some();
                        if merged.remote {
                            merged.verified_bytes = verification.bytes_read();
                        }
                        remote.into_iter().for_each(|mut remote| remote.judged(Ok(())));
                        return Ok(Some(merged));
                    }
                    (Ok(None), remote) => {
                        self.stage = Stage::Verifying(verification, outcome, remote);
                    }
                    (Err(error), Some(remote)) => self.stage = self.give_up(env, remote, error)?,
                    (Err(error), None) => {
                        self.discard(env);
                        return Err(error);
                    }
                }
                Ok(None)
            }
            Stage::Over => Err(Error::invalid("step of a merge").expected("one not over")),
        }
    }

    /// Finds the hot ranges of the inputs. If memory is short, no output counts as hot.
    fn survey(&mut self, env: &TreeContext, run: Option<&mut Run>) {
        if self.warm_outputs.is_some() {
            // An earlier attempt made the survey.
            return;
        }
        let write_through = env.options.tree_options().write_through;
        let range = &self.rectangle.range;
        let surveyed = WarmOutputs::survey(&env.cache, &self.inputs, range, write_through);
        let Some((warm_outputs, hot)) = surveyed else { return };
        if run.is_none_or(|run| run.set_hot(hot.clone()).is_ok()) {
            self.job.hot = hot;
        }
        self.warm_outputs = Some(warm_outputs);
    }

    /// Puts the input in which damage was found into quarantine.
    fn blame(&self, env: &TreeContext, table: Option<TableId>, error: &Error) {
        let mut inputs = self.inputs.iter().map(|(_, piece)| piece);
        if let Some(blamed) = inputs.find(|piece| Some(piece.entry().id) == table) {
            let file = table::file_name(blamed.entry().id);
            let problem = Problem::of(&file, error.clone()).in_keyspace(self.tree.name());
            env.quarantine.add(&self.tree, blamed.file(), problem);
        }
    }

    /// Replaces the inputs by the outputs, in the manifest and in the tree.
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
        invariant!(outcome.tables.len() == tables.len(), "verification opens every output");
        for (summary, table) in outcome.tables.iter().zip(tables) {
            let entry = Arc::new(TableEntry::of(summary, *oldest, self.level));
            invariant!(range.covers(&entry.range), "a merge writes within its rectangle (I4)");
            edits.push(Edit::TableAdded { keyspace: id, table: Arc::clone(&entry) });
            outputs.push((*oldest, Piece::whole(env.table_file(Ok(table), entry))));
        }
        // After the outputs, so that a value file that both point into always belongs to a table.
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
            // The record may be on the device although the append failed (I3).
            if env.manifest.poisoned().is_none() {
                self.discard(env);
            }
        })?;
        // Values that could not be copied stay in their file; a further collection would not copy them
        // either.
        for (_, output) in &outputs {
            let collected = |file: &&Arc<ValueFile>| self.job.values.collect.contains(&file.id());
            output.file().values().iter().filter(collected).for_each(|file| file.exclude());
        }
        let pointed = outputs.iter().map(|(_, output)| output.file().summary().value_bytes());
        let held = outcome.bytes_written() + pointed.sum::<u64>();
        let overhead = outputs.len() as u64 * table::OVERHEAD_BYTES_MIN;
        let (newer, oldest) = self.turnover;
        let inputs = self.inputs.iter().map(|(_, piece)| piece.entry().id).collect();
        let change = Change { rectangle: self.rectangle.clone(), inputs, outputs };
        let pieces = || self.inputs.iter().map(|(_, piece)| piece);
        self.discarding.iter().for_each(|_| Discarding::begin_installation(&self.tree, pieces()));
        guard.install_changed(&change);
        self.discarding.iter().for_each(|it| it.installed(env, &self.tree, pieces(), outcome));
        debug_assert!(env.is_as_recorded(&self.tree), "tables are those that are recorded (I3)");
        self.warm_outputs.iter().for_each(WarmOutputs::installed);
        Ok(Merged {
            reason: self.reason,
            outputs: outcome.tables.iter().map(|table| table.table).collect(),
            bytes_read: outcome.bytes_read,
            bytes_written: outcome.bytes_written(),
            values_bytes: outcome.values.map_or(0, |values| values.file_bytes),
            counts: outcome.counts,
            pages_passed: outcome.pages_passed,
            remote: false,
            verified_bytes: 0,
            turnover: self.is_to_oldest.then_some(TurnoverBytes {
                newer,
                oldest,
                outputs: held.saturating_sub(overhead),
            }),
        })
    }

    /// Removes outputs that no manifest names.
    fn discard(&self, env: &TreeContext) {
        self.warm_outputs.iter().for_each(WarmOutputs::discarded);
        // Files that cannot be removed are removed by the next open.
        let _ = self.job.discard_outputs(&*env.medium);
    }

    /// Ends the job without a result.
    pub(super) fn cancel(mut self, env: &TreeContext) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Remote(remote)
            | Stage::VerifiedElsewhere(remote, ..)
            | Stage::Verifying(_, _, Some(remote)) => self.abandon(env, remote),
            Stage::Verifying(_, _, None) => self.discard(env),
            Stage::Planned(_) | Stage::Running(_) | Stage::Over => {}
        }
    }

    /// The memory of the smallest job, bytes.
    pub(super) const MEMORY_MIN: u64 =
        (writer_bytes(Codec::None, &KeyForm::Plain) + 2 * compact::Env::RUN_BYTES_MIN) as u64;

    /// Whether the memory of all merges was reduced since the job got its grant: it may succeed with less if
    /// it begins again.
    pub(super) fn is_curtailed(&self) -> bool {
        self.postponed.is_some() || self.memory.is_curtailed()
    }

    /// Whether an input is damaged. Later jobs leave it out.
    pub(super) fn has_damaged_input(&self) -> bool {
        self.inputs.iter().any(|(_, piece)| piece.file().is_damaged())
    }

    /// The job's shape and placement.
    pub(super) const fn placed(&self) -> (JobShape, Placement) {
        self.placed
    }
}

impl Drop for MergeJob {
    fn drop(&mut self) {
        self.tree.version_edit().release(&self.rectangle);
    }
}
