//! A partial discard of a window: how its merge selects the entries that stay, and what becomes of the rest.
//!
//! The merge runs in this process, never at a worker: it needs the clock's counters or the user's function.

use std::sync::Arc;

use base::{KEY_HASH_BYTES, TableId, invariant};
use compact::plan::hashed::window::{Discard, Kept};
use compact::{Job, Operators, Outcome, PriorityFn, Selection};

use crate::events::Event;
use crate::read_clock::Counters;
use crate::{Piece, Tree, TreeContext};

/// A partial discard, from its plan to its installation.
#[derive(Debug)]
pub(super) struct Discarding {
    /// Taken when the merge begins.
    selection: Option<Selection>,
    bytes_max: u64,
    /// The clock's counters of the entries that were considered; decremented once the merge is installed.
    considered: Option<Arc<Counters>>,
}

impl Discarding {
    /// A discard by `planned` for `tree`.
    pub(super) fn new(tree: &Tree, planned: &Discard, operators: &Operators) -> Self {
        let bytes_max = planned.kept_bytes_max;
        let (priority, considered) = match &planned.kept {
            Kept::None => (none(), None),
            Kept::Read => read_lately(tree),
            Kept::Named(name) => (named(name, operators), None),
        };
        Self { selection: Some(Selection::new(bytes_max, priority)), bytes_max, considered }
    }

    /// Selects the entries; `None` if that was asked for before.
    pub(super) fn take_selection(&mut self) -> Option<Selection> {
        let selection = self.selection.take();
        invariant!(selection.is_some(), "a discard runs once");
        selection
    }

    /// `job`, whose inputs have `bytes` bytes; if it is a discard, with a layout for the entries that stay.
    pub(super) fn adapt(this: Option<&Self>, tree: &Tree, mut job: Job, bytes: u64) -> Job {
        if let Some(discarding) = this {
            job.output.layout = tree.layout(bytes.min(discarding.bytes_max), &job.bounds);
        }
        job
    }

    /// To be called before the outputs replace `inputs` in the view: reads may then miss what was evicted.
    pub(super) fn begin_installation<'a>(
        tree: &Tree,
        inputs: impl Iterator<Item = &'a Arc<Piece>>,
    ) {
        inputs.for_each(|piece| tree.note_evicted(piece.entry().seqno_max));
    }

    /// Counts what was evicted and retained, and ages the counters of the clock.
    pub(super) fn installed<'a>(
        &self,
        env: &TreeContext,
        tree: &Tree,
        inputs: impl Iterator<Item = &'a Arc<Piece>>,
        outcome: &Outcome,
    ) {
        if let Some(clock) = tree.view().read_context.clock()
            && let Some(considered) = &self.considered
        {
            clock.age(considered);
        }
        let (mut bytes, mut tables): (u64, Vec<TableId>) = (0, Vec::new());
        for piece in inputs {
            let file = piece.file().summary();
            bytes = bytes.saturating_add(file.bytes).saturating_add(file.value_bytes());
            tables.push(file.id);
        }
        let values = outcome.values.map_or(0, |values| values.value_bytes);
        let retained = outcome.bytes_written().saturating_add(values);
        let (entries, bytes) = (outcome.counts.evicted, bytes.saturating_sub(retained));
        tree.evictions.entries.add(entries);
        tree.evictions.bytes.add(bytes);
        tree.evictions.retained_bytes.add(retained);
        let keyspace = tree.name().to_owned();
        env.events.tell(|| Event::Evicted { keyspace, tables, entries, bytes });
    }
}

/// Keeps nothing.
fn none() -> PriorityFn {
    Box::new(|_, _| 0)
}

/// Keeps the entries that were read, those that were read last before others. Also returns the counters that
/// the discard considers.
fn read_lately(tree: &Tree) -> (PriorityFn, Option<Arc<Counters>>) {
    let view = tree.view();
    let Some(clock) = view.read_context.clock() else { return (none(), None) };
    let Some(counters) = clock.counters() else { return (none(), None) };
    // Without memory for them the counters stay, and entries may stay longer than they should.
    let considered = counters.same_size(clock.account()).map(Arc::new);
    let own = considered.clone();
    let priority = move |key: &[u8], _: Option<&[u8]>| {
        let count = counters.of(key);
        if count > 0 {
            own.iter().for_each(|own| own.set(key));
        }
        count
    };
    (Box::new(priority), considered)
}

/// Keeps what the user's function values. Planning needs the function, so it is registered.
fn named(name: &str, operators: &Operators) -> PriorityFn {
    let priority = operators.priority(name).cloned();
    invariant!(priority.is_some(), "a discard is planned only with its priority");
    Box::new(move |key, value| {
        let user = key.get(KEY_HASH_BYTES..).unwrap_or_default();
        priority.as_ref().map_or(u8::MAX, |priority| priority.priority(user, value))
    })
}
