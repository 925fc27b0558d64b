//! The commit of an ingest: one sequence number, one manifest record, one version edit.
//!
//! All entries of the ingested tables get one seqno Q. Hence, for every key of their range (I4), all writes
//! below Q must be in tables already, which become older, and all writes above Q in memtables, which are
//! newer. So memtables that hold keys of the range are flushed first, outside every lock. Then Q is taken by
//! appending a record without operations to the log. The append is conditional: it is refused if a write to
//! the range was logged after the memtables were checked. `RecentWrites` detects that, as it does for
//! transactions (crates/engine/src/transaction/commit.rs has the argument). If writers do not stop, the
//! memtable is sealed at Q itself after some rounds, and flushed while Q, and with it every later write,
//! stays invisible: writers wait for one flush.
//!
//! Ingests of one keyspace commit one after the other, so their tables are in the order of their seqnos. No
//! ingest waits for visibility while it holds the keyspace's [`VersionEditGuard`]: visibility may depend on
//! the ingest of another keyspace, which waits for a flush, which waits for the guard.
//!
//! Q is published last, when the manifest record is durable and the tables are in the version that readers
//! get. A reader at Q or above sees them (`Tree::read_view`); a reader below Q, e.g. of an older snapshot,
//! does not, because every entry has seqno Q. Between taking and publishing Q other writers wait to become
//! visible: for two syncs at most.
//!
//! No table is named before its file is durable (I3). The log is durable up to Q before the manifest names
//! the tables, so an ingest never survives a crash that an earlier write does not. If the power fails after
//! Q was logged and before the manifest names the tables, the record is without effect: it is of no
//! keyspace. If a step fails, Q is published all the same, without tables.

use std::sync::Arc;

use arena::PublishRing;
use base::{Error, ErrorKind, KeyRange, KeyspaceId, Result, Seqno, broken_invariant, invariant};
use manifest::{Edit, TableEntry, ValuesEntry};
use table::Table;
use tree::{TableFile, Tree, VersionEditGuard};
use wal::Batch;

use super::built::Built;
use crate::store::Store;
use crate::transaction::{KeySet, KeySpan};

/// A seqno that was taken. Dropping it publishes it, with or without tables.
struct Unpublished<'a> {
    ring: &'a PublishRing,
    seqno: Seqno,
}

impl Drop for Unpublished<'_> {
    fn drop(&mut self) {
        self.ring.publish(self.seqno, 1);
    }
}

/// A log record that takes one seqno and has no operation.
const RECORD: Batch<'static> = Batch { keyspaces: &[KeyspaceId::NONE], ops: 1, body: &[] };

/// Makes the `built` tables part of `tree`. Makes way for other writers at most `rounds` times.
///
/// # Errors
/// See `Ingest::finish`.
pub(super) fn commit(
    store: &Store,
    tree: &Arc<Tree>,
    built: &mut Built,
    rounds: usize,
) -> Result<()> {
    store.buffers.check_tables()?;
    let range = built.range()?;
    // Dropped last, after the seqno was published.
    let _ingesting = tree.ingesting();
    // The record of the seqno is dead at once: replay does not need it.
    store.log.forget(KeyspaceId::NONE);
    let (number, guard) = take_seqno(store, tree, &range, rounds)?;
    let seqno = number.seqno;
    tree.rows().raise_floor(seqno);
    if store.log.durable() < seqno {
        store.log.sync(seqno)?;
    }
    debug_assert!(
        guard.version().pieces().all(|piece| piece.entry().seqno_max < seqno),
        "an ingest is newer than every table"
    );
    let entries = new_entries(built, &guard, &range, seqno);
    let tables = built.take_tables();
    invariant!(tables.len() == entries.len(), "an ingest has an open table for each entry");
    let files = tables.into_iter().zip(&entries);
    let files = files.map(|(table, entry)| table_file(store, table, entry, seqno));
    let files = files.collect::<Result<Vec<_>>>()?;
    name_tables(store, tree, &entries, built)?;
    debug_assert!(
        entries.is_sorted_by(|one, next| one.range.end.as_ref() <= Some(&next.range.first)),
        "the tables of an ingest do not overlap (I4)"
    );
    guard.install_ingested(files, seqno);
    debug_assert!(
        store.compactor.env().is_as_recorded(tree),
        "the tables of a keyspace are those that the manifest names (I3)"
    );
    Ok(())
}

/// Manifest entries of the built tables: in the newest run that has room for `range`, at the level of the
/// run's tables.
fn new_entries(
    built: &Built,
    guard: &VersionEditGuard<'_>,
    range: &KeyRange,
    seqno: Seqno,
) -> Vec<Arc<TableEntry>> {
    let run = guard.place_newest(range);
    // A run without tables yet is at level 0.
    let version = guard.version();
    let pieces = version.run(run).map(|run| run.pieces()).unwrap_or_default();
    let level = pieces.iter().map(|piece| piece.level()).max().unwrap_or(0);
    let entries = built.summaries().iter().map(|summary| {
        let entry = TableEntry::of(summary, run, level);
        Arc::new(TableEntry { seqno_min: seqno, seqno_max: seqno, seqno: Some(seqno), ..entry })
    });
    entries.collect()
}

/// Records the tables in the manifest. From then on, or if the manifest may have recorded them, `built`
/// keeps their files.
fn name_tables(
    store: &Store,
    tree: &Tree,
    entries: &[Arc<TableEntry>],
    built: &mut Built,
) -> Result<()> {
    let added = |entry: &Arc<TableEntry>| Edit::TableAdded {
        keyspace: tree.id(),
        table: Arc::clone(entry),
    };
    // The value file first: the tables point into it.
    let values = built.values().map(ValuesEntry::from);
    let values = values.map(|values| Edit::ValuesAdded { keyspace: tree.id(), values });
    let named =
        store.manifest.append(values.into_iter().chain(entries.iter().map(added)).collect());
    if named.is_ok() || store.manifest.poisoned().is_some() {
        // A manifest that was poisoned by this append may name the files (I3).
        built.keep_files();
    }
    named.map_err(|error| match store.manifest.poisoned() {
        _ if tree.is_dropped() => tree.usable().err().unwrap_or(error),
        // `Poisoned` tells the caller that the ingest may be there at the next open.
        Some(_) if error.kind() != ErrorKind::Poisoned => Error::poisoned_by("manifest", &error),
        _ => error,
    })
}

/// An ingested table as part of its keyspace: all its entries read as `seqno`.
fn table_file(
    store: &Store,
    table: Arc<Table>,
    entry: &Arc<TableEntry>,
    seqno: Seqno,
) -> Result<Arc<TableFile>> {
    let table = Arc::into_inner(table)
        .ok_or_else(|| broken_invariant!("no reader has a table that is not committed"))?;
    let table = table.as_of(seqno).map(Arc::new)?;
    Ok(store.compactor.env().table_file(Ok(table), Arc::clone(entry)))
}

/// Takes a seqno such that every earlier write to `range` is in tables. The returned guard keeps the set of
/// tables as it is.
fn take_seqno<'a>(
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
        // Now, so that little is left to sync while other writers wait.
        store.log.sync(store.log.last())?;
        let watch = store.transactions.recent().watch(&store.log)?;
        let upto = watch.first().before();
        // A record that is lost never becomes visible.
        store.log.wait_until_stored(upto)?;
        store.ring.wait_until_visible(upto);
        // Not earlier: visibility may depend on a flush of this very keyspace, which takes the guard.
        let guard = tree.version_edit();
        if is_buffered(tree, range) {
            continue;
        }
        if let Some(seqno) = watch.append_unless_written(RECORD, &keys)? {
            return Ok((taken(seqno), guard));
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
