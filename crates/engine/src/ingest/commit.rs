//! How ingested tables become part of a keyspace: one sequence number, one manifest record, one
//! view.
//!
//! Their entries count as written at a number Q, so for every key of their range (I4): what is
//! older than Q must be in tables already, below them, and what is newer in memtables, above them.
//! So memtables that hold keys of the range are flushed first, outside every lock. Q is then taken
//! as a record of the log with no operations, by a conditional append that is refused where someone
//! wrote to the range after the memtables were looked at; `RecentWrites` tells, as it does for
//! transactions (crates/engine/src/transaction/commit.rs has the argument). Writers that never
//! let up are outlasted: after some rounds the memtable is sealed at Q itself and flushed while Q,
//! and with it everything later, stays invisible. They wait for one flush.
//!
//! A keyspace's ingests go one after the other, so that they lie in the order of their numbers, and
//! none waits for anything to become visible while it holds the keyspace's shape: what is to become
//! visible may be the ingest of another keyspace, which waits for a flush that waits for the shape.
//!
//! Q is published last, when the manifest record is durable and the tables are in the view that
//! readers get: whoever reads at Q or later sees them (`Tree::read_view`), whoever reads below Q, as a
//! snapshot made before, does not, since every entry reads as Q. Between taking and publishing Q
//! other writers wait to become visible: two syncs at most.
//!
//! A table is never named before its file is durable (I3), and the log is durable up to Q before
//! the manifest names it: an ingest never outlives a write before it. Where the power goes after Q
//! was logged and before the manifest has the tables, the record means nothing: no keyspace needs
//! it. Where any step fails, Q is published all the same, with nothing to see at it.

use std::sync::Arc;

use arena::PublishRing;
use base::{Error, ErrorKind, KeyspaceId, Result, Seqno};
use media::Medium;
use table::{Summary, Table, file_name};
use wal::Batch;

use crate::store::Store;
use crate::transaction::{KeySet, KeySpan};
use base::KeyRange;
use manifest::{Edit, TableEntry};
use tree::{TableFile, Tree, VersionEditGuard};

/// Tables that were written and are nobody's yet: their files go with it.
pub(super) struct Built {
    medium: Arc<dyn Medium>,
    summaries: Vec<Summary>,
    tables: Vec<Arc<Table>>,
}

impl Built {
    pub(super) fn new(medium: Arc<dyn Medium>) -> Self {
        let (summaries, tables) = Default::default();
        Self { medium, summaries, tables }
    }

    pub(super) fn add(&mut self, summary: Summary) {
        self.summaries.push(summary);
    }

    pub(super) fn opened(&mut self, table: Arc<Table>) {
        self.tables.push(table);
    }

    pub(super) fn len(&self) -> usize {
        self.summaries.len()
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.summaries.iter().map(|summary| summary.file_bytes).sum()
    }

    /// Makes the files' names durable (I3).
    pub(super) fn sync_names(&self) -> Result<()> {
        let names: Vec<String> = self.summaries.iter().map(|it| file_name(it.table)).collect();
        self.medium.sync_names(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The keys from the first to the last.
    fn range(&self) -> KeyRange {
        let ranges = self.summaries.iter().map(|it| manifest::range_of(&it.properties));
        ranges.reduce(|all, next| all.hull(&next)).unwrap_or_else(KeyRange::all)
    }

    /// The files are another's now.
    fn hand_over(&mut self) {
        self.summaries.clear();
        self.tables.clear();
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        for summary in &self.summaries {
            // One that cannot be removed goes at the next open.
            let _ = self.medium.remove(&file_name(summary.table));
        }
    }
}

/// A sequence number that was taken: published when this is dropped, whatever became of it.
struct Unpublished<'a> {
    ring: &'a PublishRing,
    seqno: Seqno,
}

impl Drop for Unpublished<'_> {
    fn drop(&mut self) {
        self.ring.publish(self.seqno, 1);
    }
}

/// A record that takes a number and says nothing.
const RECORD: Batch<'static> = Batch { keyspaces: &[KeyspaceId::NONE], ops: 1, body: &[] };

/// Makes `built` part of `tree`.
pub(super) fn commit(
    store: &Store,
    tree: &Arc<Tree>,
    built: &mut Built,
    rounds: usize,
) -> Result<()> {
    let range = built.range();
    // Let go of last, when the number is published.
    let _ingesting = tree.ingesting();
    // What is logged for it is dead from the start.
    store.log.forget(KeyspaceId::NONE);
    let (number, shape) = take_number(store, tree, &range, rounds)?;
    let seqno = number.seqno;
    tree.rows().raise_floor(seqno);
    if store.log.durable() < seqno {
        store.log.sync(seqno)?;
    }
    let run = shape.place_newest(&range);
    // As deep as what they lie beside.
    let level = shape
        .version()
        .run(run)
        .and_then(|run| run.pieces().iter().map(|piece| piece.level()).max());
    let entries = built.summaries.iter().map(|summary| {
        let entry = TableEntry::of(summary, run, level.unwrap_or(0));
        Arc::new(TableEntry { seqno_min: seqno, seqno_max: seqno, seqno: Some(seqno), ..entry })
    });
    let entries: Vec<_> = entries.collect();
    let tables = std::mem::take(&mut built.tables).into_iter().zip(&entries);
    let files = tables.map(|(table, entry)| file(store, table, entry));
    let files = files.collect::<Result<Vec<_>>>()?;
    let added = |entry: &Arc<TableEntry>| Edit::TableAdded {
        keyspace: tree.id(),
        table: Arc::clone(entry),
    };
    let named = store.manifest.append(entries.iter().map(added).collect());
    if named.is_ok() || store.manifest.poisoned().is_some() {
        // A manifest that failed may name them all the same (I3).
        built.hand_over();
    }
    named.map_err(|error| match store.manifest.poisoned() {
        _ if tree.is_dropped() => tree.usable().err().unwrap_or(error),
        // Whoever is told so knows that all of it may be there.
        Some(_) if error.kind() != ErrorKind::Poisoned => Error::poisoned_by("manifest", &error),
        _ => error,
    })?;
    shape.install_ingested(files, seqno);
    Ok(())
}

/// An ingested table, as its keyspace has it.
fn file(store: &Store, table: Arc<Table>, entry: &Arc<TableEntry>) -> Result<Arc<TableFile>> {
    let table = Arc::into_inner(table).zip(entry.seqno).ok_or_else(|| {
        Error::invalid("table to ingest").expected("one that nobody reads yet, and its number")
    });
    let table = table.and_then(|(table, seqno)| table.as_of(seqno)).map(Arc::new)?;
    Ok(store.compactor.env().table_file(Ok(table), Arc::clone(entry)))
}

/// Takes a number such that everything before it in `range` is in tables and stays so: nobody else
/// changes which tables there are meanwhile.
fn take_number<'a>(
    store: &'a Store,
    tree: &'a Arc<Tree>,
    range: &KeyRange,
    rounds: usize,
) -> Result<(Unpublished<'a>, VersionEditGuard<'a>)> {
    let taken = |seqno| Unpublished { ring: &store.ring, seqno };
    let mut keys = KeySet::default();
    keys.insert(KeySpan { start: &range.first, end: range.end.as_deref() });
    let keys = [(Arc::clone(tree), keys)];
    for _ in 0..rounds {
        if is_buffered(tree, range) {
            store.flush(std::slice::from_ref(tree))?;
        }
        tree.usable()?;
        // So that little is left to be synced once others wait.
        store.log.sync(store.log.last())?;
        let watch = store.transactions.recent().watch(&store.log)?;
        store.ring.wait_until_visible(watch.first().before());
        // Not before: what becomes visible may wait for a flush of this very keyspace.
        let shape = tree.version_edit();
        if is_buffered(tree, range) {
            continue;
        }
        if let Some(seqno) = watch.append_unless_written(RECORD, &keys)? {
            return Ok((taken(seqno), shape));
        }
    }
    let number = taken(store.buffers.append_sealing(tree, RECORD)?);
    store.buffers.wait_until_flushed_below(tree, number.seqno)?;
    Ok((number, tree.version_edit()))
}

/// Whether a memtable holds a key of `range`.
fn is_buffered(tree: &Tree, range: &KeyRange) -> bool {
    let view = tree.view();
    view.memtables().any(|memtable| memtable.holds_any(&range.first, range.end.as_deref()))
}
