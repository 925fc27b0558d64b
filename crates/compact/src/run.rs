//! Runs a job in bounded steps: merges its inputs into new tables.
//!
//! First [`input_check`] opens every input, checks that it is the file the job names, and collects range
//! deletes. Then a [`loser_tree`] merges the runs, one [`source`] each; [`Retention`] decides which versions
//! survive, and [`outputs`] writes them. Inputs are read in large reads that bypass the page cache.
//!
//! Inputs are only read. A run that fails or is dropped removes its outputs; the job can be run again (I9).
//! Memory does not grow with the inputs: read buffers and one open table per run, one table writer, and the
//! range deletes (I10).

mod block_passthrough;
mod env;
mod input_check;
mod loser_tree;
mod outputs;
mod read_ahead;
mod read_queue;
mod source;

pub use env::Env;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use base::{Charge, EntryKind, Error, Result, TableId, Trailer, broken_invariant, invariant};
use media::Purpose;
use table::{Bounds, Leave, RangeDeletes, RawBlock, Spec, ValuesSpec, run_pages};

use crate::{
    Job, KeyRange, MergeOperator, OlderRanges, Outcome, RetainedVersion, Retention, RetentionRules,
    Selection, ValueSeparator,
};
use block_passthrough::{BlockPassthrough, needs_no_decision};
use env::source_bytes;
use input_check::InputCheck;
use loser_tree::LoserTree;
use outputs::Outputs;
use read_queue::ReadQueue;
pub use source::OpenInput;
use source::{Reading, Source};

/// Most entries of one step: about a millisecond of work.
const STEP_ENTRIES: usize = 1024;

/// A step ends when its values have this many bytes.
const STEP_BYTES: usize = 512 << 10;

/// A job in progress.
pub struct Run {
    job: Job,
    reading: Reading,
    reads: ReadQueue,
    stage: Stage,
    sources: Vec<Source>,
    retention: Retention,
    /// The range deletes of all inputs, without those that no read of the horizon can tell from a newer one.
    range_deletes: RangeDeletes,
    outputs: Outputs,
    /// Chooses the entries that stay, in a partial discard of a window.
    selection: Option<Selection>,
    blame: Option<TableId>,
    bytes_read: u64,
    passthrough: BlockPassthrough,
    pages_passed: u64,
    charge: Charge,
}

/// The phase of a run.
enum Stage {
    /// Inputs remain to be checked.
    CheckInputs(Box<InputCheck>),
    /// Sources from this index on are not yet on their first entry.
    Start(usize),
    Merge(LoserTree),
    Over,
}

impl Run {
    /// A run of `job`.
    ///
    /// # Errors
    /// `Invalid` if this process lacks the job's operator, `Corrupt` if the job is malformed or its
    /// dictionary is missing, `Retry` if memory is short.
    pub fn new(mut job: Job, env: &Env) -> Result<Self> {
        job.check()?;
        let operator = find_operator(&job, env)?;
        let outputs = new_outputs(&job, env)?;
        let runs = job.inputs.len();
        let chunk_pages = env.chunk_pages(runs);
        let charge = env.account.charge((runs * source_bytes(chunk_pages)) as u64)?;
        let rules = RetentionRules {
            horizon: job.horizon.clone(),
            now_ms: job.now_ms,
            older: OlderRanges::new(job.older.clone()),
            value_bytes_max: env.value_bytes_max,
            operator,
        };
        let reading = Reading {
            open_inputs: Vec::new(),
            env: env.clone(),
            store: job.store,
            keyspace: job.keyspace,
            bounds: job.bounds.clone(),
            chunk_pages: chunk_pages as u32,
            common_prefix_bytes: 0,
        };
        let hot = std::mem::take(&mut job.hot);
        let mut retention = Retention::new(rules, &env.account)?;
        if env.sums_entries {
            retention.sum_entries();
        }
        let mut run = Self {
            retention,
            reads: ReadQueue::new(&*env.medium, runs),
            reading,
            stage: Stage::CheckInputs(Box::new(InputCheck::new(&job))),
            sources: job.inputs.iter().map(|run| Source::new(run.tables.clone())).collect(),
            job,
            range_deletes: RangeDeletes::default(),
            outputs,
            selection: None,
            blame: None,
            bytes_read: 0,
            passthrough: BlockPassthrough::new(),
            pages_passed: 0,
            charge,
        };
        run.set_hot(hot)?;
        Ok(run)
    }

    /// Supplies inputs that are open already, which need no memory then. Call it before the first step.
    pub fn set_open_inputs(&mut self, inputs: Vec<OpenInput>) {
        invariant!(
            matches!(self.stage, Stage::CheckInputs(_)),
            "open inputs are supplied before the merge begins"
        );
        self.reading.open_inputs = inputs;
    }

    /// Makes the run a partial discard: of the surviving versions, only those stay that `selection` retains.
    /// Nothing may lie below the outputs. Call it before the first step.
    pub fn set_selection(&mut self, selection: Selection) {
        invariant!(
            matches!(self.stage, Stage::CheckInputs(_)) && self.job.older.is_empty(),
            "a partial discard has nothing below it and is set before the merge begins"
        );
        self.selection = Some(selection);
    }

    /// Replaces [`Job::hot`] by `hot`. Call it before the first step.
    ///
    /// # Errors
    /// `Retry` if memory is short: then there are no hot ranges.
    pub fn set_hot(&mut self, hot: Vec<KeyRange>) -> Result<()> {
        invariant!(
            matches!(self.stage, Stage::CheckInputs(_)),
            "hot ranges are set before the merge begins"
        );
        // Three copies: in this run, in the job's planner and in the job's verification.
        let bytes = hot.iter().map(|hot| hot.key_bytes() + 3 * size_of::<KeyRange>());
        self.charge.grow(bytes.sum::<usize>() as u64)?;
        self.outputs.set_hot(hot.iter().map(Bounds::from).collect());
        self.job.hot = hot;
        Ok(())
    }

    /// Does a bounded part of the work. The last step returns the outcome and leaves the output files to the
    /// caller.
    ///
    /// # Errors
    /// `Corrupt` if an input is damaged ([`Run::blame`] names it), `NoSpace`, `Retry` if memory is short,
    /// otherwise the error of the medium. After an error all outputs are removed and the run cannot go on.
    pub fn step(&mut self) -> Result<Option<Outcome>> {
        let stepped = self.advance();
        if !matches!(stepped, Ok(None)) {
            self.stage = Stage::Over;
            self.bytes_read = self.bytes_read();
            self.sources.clear();
            self.outputs.remove();
        }
        stepped
    }

    /// The job.
    #[must_use]
    pub const fn job(&self) -> &Job {
        &self.job
    }

    /// The input whose data made a step fail with `Corrupt`; `None` if the failure had another cause.
    #[must_use]
    pub const fn blame(&self) -> Option<TableId> {
        self.blame
    }

    /// Bytes read from the inputs so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read + self.sources.iter().map(Source::bytes_read).sum::<u64>()
    }

    fn advance(&mut self) -> Result<Option<Outcome>> {
        match &mut self.stage {
            Stage::CheckInputs(check) => {
                if check.step(&self.reading).inspect_err(|_| self.blame = check.blame())? {
                    return Ok(None);
                }
                self.reading.common_prefix_bytes = check.common_prefix_bytes();
                let (all, kept) = check.range_deletes(&mut self.retention, &mut self.charge)?;
                self.range_deletes = all;
                self.outputs.set_range_deletes(kept);
                self.outputs.set_kind(*check.key_form(), check.window());
                for (number, source) in self.sources.iter_mut().enumerate() {
                    source.set_opened(check.take_opened(number));
                }
                self.stage = Stage::Start(0);
            }
            Stage::Start(number) => match self.sources.get_mut(*number) {
                Some(source) => {
                    let moved = source.advance(&self.reading, &mut self.reads);
                    moved.inspect_err(|error| self.blame = source.blame(error))?;
                    *number += 1;
                }
                None => {
                    let sources = &self.sources;
                    let head = |source| sources.get(source).map_or(u64::MAX, Source::head);
                    let order = |a, b| order(sources, a, b);
                    self.stage = Stage::Merge(LoserTree::new(sources.len(), head, &order));
                }
            },
            Stage::Merge(_) => return self.merge(),
            Stage::Over => {
                return Err(Error::invalid("step of a run").expected("a run that has not ended"));
            }
        }
        Ok(None)
    }

    fn merge(&mut self) -> Result<Option<Outcome>> {
        let mut bytes = 0;
        for _ in 0..STEP_ENTRIES {
            let Stage::Merge(loser_tree) = &mut self.stage else {
                return Err(broken_invariant!("a run merges only once its loser tree is built"));
            };
            let winner = loser_tree.winner();
            if let Some(before) = self.passthrough.set_winner(winner)
                && let Some(source) = self.sources.get_mut(before)
            {
                source.keep_stored(false);
            }
            let source = self
                .sources
                .get_mut(winner)
                .ok_or_else(|| broken_invariant!("the winner of a merge is one of its sources"))?;
            // A partial discard decides about each entry.
            if source.is_at_block_start() && self.selection.is_none() {
                self.passthrough.note_block_start();
                source.keep_stored(self.passthrough.keeps_stored());
                if self.passthrough.keeps_stored()
                    && let Some(passed) = self.pass_block(winner)?
                {
                    bytes += passed;
                    if bytes >= STEP_BYTES {
                        break;
                    }
                    continue;
                }
            }
            let Some(value) = self.take_entry(winner)? else { return self.finish().map(Some) };
            bytes += value;
            if bytes >= STEP_BYTES {
                break;
            }
        }
        Ok(None)
    }

    /// Passes the winner's entry to retention and advances the winner. Returns the length of the entry's
    /// value, `None` if all sources are at their end.
    #[inline]
    fn take_entry(&mut self, winner: usize) -> Result<Option<usize>> {
        let (sources, outputs) = (&mut self.sources, &mut self.outputs);
        let selection = &mut self.selection;
        let Stage::Merge(loser_tree) = &mut self.stage else {
            return Err(broken_invariant!("a run merges only once its loser tree is built"));
        };
        let mut is_writing = false;
        let mut base = None;
        if let Some((key, trailer, value)) = sources.get(winner).and_then(Source::entry)
            && matches!(trailer.kind(), Ok(EntryKind::PutPointer))
            && self.retention.has_pending_operands(key)
        {
            base = outputs.operand_base(key, value)?;
        }
        let mut keep = |kept: RetainedVersion<'_>| {
            if let Some(selection) = selection
                && !selection.retains(&kept)?
            {
                return Ok(());
            }
            outputs.add(kept).inspect_err(|_| is_writing = true)
        };
        let source = sources
            .get_mut(winner)
            .ok_or_else(|| broken_invariant!("the winner of a merge is one of its sources"))?;
        let Some((key, trailer, value)) = source.entry() else {
            self.retention.end_key(&mut keep)?;
            return Ok(None);
        };
        let covering = match self.range_deletes.is_empty() {
            true => None,
            false => self.range_deletes.fragment_at(key),
        };
        let covering = covering.map_or(&[][..], |fragment| fragment.seqnos);
        // The base value was fetched, so the pointer is merged like a put.
        let (trailer, value) = match &base {
            Some(fetched) => {
                let put = Trailer::new(trailer.seqno(), EntryKind::Put);
                if let Some(sums) = self.retention.sums() {
                    // Retention counts the put as read.
                    sums.fetched(key, (trailer, value), (put, fetched));
                }
                (put, &**fetched)
            }
            None => (trailer, value),
        };
        let bytes = value.len();
        if let Err(error) = self.retention.version(key, covering, trailer, value, &mut keep) {
            self.blame = if is_writing { None } else { source.blame(&error) };
            return Err(error);
        }
        let moved = source.advance(&self.reading, &mut self.reads);
        moved.inspect_err(|error| self.blame = source.blame(error))?;
        let head = source.head();
        loser_tree.replay(head, &|a, b| order(sources, a, b));
        Ok(Some(bytes))
    }

    /// Copies the block at whose first entry the winner stands to the output without decoding it. Returns its
    /// bytes, `None` if the block cannot be copied.
    fn pass_block(&mut self, winner: usize) -> Result<Option<usize>> {
        let Stage::Merge(loser_tree) = &mut self.stage else {
            return Err(broken_invariant!("a run merges only once its loser tree is built"));
        };
        let sources = &mut self.sources;
        let next = loser_tree.runner_up(&|a, b| order(sources, a, b));
        let next = next.and_then(|next| sources.get(next)?.entry()).map(|(key, ..)| key.to_vec());
        let source = sources
            .get_mut(winner)
            .ok_or_else(|| broken_invariant!("the winner of a merge is one of its sources"))?;
        let block = match source.block() {
            Ok(block) => block,
            Err(error) => {
                self.blame = source.blame(&error);
                return Err(error);
            }
        };
        let plain = |block: &&RawBlock| {
            self.retention.is_new_key(block.first().0)
                && needs_no_decision(block, next.as_deref(), &self.range_deletes, self.job.now_ms)
        };
        let Some(block) = block.filter(plain) else {
            self.passthrough.interrupt();
            return Ok(None);
        };
        // The pending versions of the previous key come first in the output.
        let outputs = &mut self.outputs;
        self.retention.end_key(&mut |kept| outputs.add(kept))?;
        if !outputs.add_block(block, self.passthrough.may_pad())? {
            return Ok(None);
        }
        let (entries, bytes) = ((block.entries(), block.entry_sum()), block.raw_bytes());
        self.pages_passed += run_pages(block.payload().len()) as u64;
        let (last, trailer) = block.last();
        self.retention.note_passed_block(entries, last, trailer.seqno());
        let moved = source.pass_block(entries.0, &self.reading, &mut self.reads);
        moved.inspect_err(|error| self.blame = source.blame(error))?;
        let head = source.head();
        loser_tree.replay(head, &|a, b| order(sources, a, b));
        Ok(Some(bytes))
    }

    fn finish(&mut self) -> Result<Outcome> {
        invariant!(
            self.sources.iter().all(|source| source.entry().is_none()),
            "a merge ends once every source is at its end"
        );
        let mut counts = *self.retention.counts();
        counts.evicted = self.selection.as_ref().map_or(0, Selection::evicted);
        invariant!(counts.evicted <= counts.kept, "a discard evicts versions that retention kept");
        counts.kept = counts.kept.saturating_sub(counts.evicted);
        invariant!(counts.is_balanced(), "every version read is either kept or dropped");
        let (tables, values) = self.outputs.finish()?;
        let mut sums = self.retention.sums().copied();
        if let Some(sums) = &mut sums {
            self.outputs.add_moved(sums);
        }
        // A partial discard leaves entries out that are not summed; no worker runs one.
        let sums = sums.filter(|_| self.selection.is_none());
        let entries = tables.iter().map(|table| table.properties.entries).sum::<u64>();
        invariant!(entries == counts.kept, "every version kept is written");
        invariant!(
            tables.iter().all(|table| self.job.output.ids.contains(&table.table)),
            "every output has an id reserved for the job"
        );
        let pages = tables.iter().map(|table| table.properties.data_pages).sum::<u64>();
        invariant!(self.pages_passed <= pages, "pages passed through are a part of the outputs");
        Ok(Outcome {
            job: self.job.id,
            epoch: self.job.epoch,
            part: self.job.part,
            tables,
            values,
            counts,
            sums,
            bytes_read: self.bytes_read(),
            pages_passed: self.pages_passed,
        })
    }
}

/// The job's merge operator.
///
/// # Errors
/// `Invalid` if this process lacks it.
fn find_operator(job: &Job, env: &Env) -> Result<Option<Arc<dyn MergeOperator>>> {
    let Some(name) = &job.operator else { return Ok(None) };
    let operator = env.operators.get(name).cloned().ok_or_else(|| {
        Error::invalid("merge operator")
            .at(format_args!("job {}", job.id))
            .expected(format_args!("`{name}`"))
            .got("a process without it")
    })?;
    Ok(Some(operator))
}

/// The writers of the job's outputs.
///
/// # Errors
/// `Corrupt` if the dictionary is missing.
fn new_outputs(job: &Job, env: &Env) -> Result<Outputs> {
    let dictionary = job.output.dictionary.map(|id| env.dictionaries.get(id)).transpose()?;
    let spec = Spec {
        store: job.store,
        table: job.output.ids.start,
        keyspace: job.keyspace,
        codec: job.output.codec,
        level: job.output.level,
        dictionary,
        filter_bits: job.output.filter_bits,
        layout: job.output.layout,
        purpose: Purpose::Compaction,
        leave: Leave::HalfForDeletes,
    };
    let values = (!job.values.ids.is_empty()).then_some(ValuesSpec {
        store: job.store,
        file: job.values.ids.start,
        keyspace: job.keyspace,
        codec: job.output.codec,
        level: job.output.level,
        purpose: Purpose::Compaction,
        leave: Leave::HalfForDeletes,
    });
    let (bytes_min, collect) = (job.values.bytes_min, job.values.collect.clone());
    let separator = ValueSeparator::new(&env.medium, values, bytes_min, collect, &env.account);
    let (ids, table_bytes_max) = (job.output.ids.clone(), job.output.table_bytes_max);
    Ok(Outputs::new(env, spec, ids, table_bytes_max, separator))
}

/// Orders two sources whose abbreviated keys are equal. If all else is equal, the newer run comes first.
fn order(sources: &[Source], a: usize, b: usize) -> Ordering {
    debug_assert!(a < sources.len() && b < sources.len(), "sources {a} and {b} exist");
    match (sources.get(a), sources.get(b)) {
        (Some(one), Some(other)) => one.order(other).then_with(|| a.cmp(&b)),
        _ => a.cmp(&b),
    }
}

/// Runs a job to its end.
///
/// # Errors
/// The errors of [`Run::new`] and [`Run::step`].
pub fn run(job: Job, env: &Env) -> Result<Outcome> {
    let mut run = Run::new(job, env)?;
    loop {
        if let Some(outcome) = run.step()? {
            return Ok(outcome);
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Run(job {}, {} bytes read)", self.job.id, self.bytes_read())
    }
}
