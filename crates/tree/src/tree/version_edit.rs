//! The right to change which tables a tree has.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{KeyRange, RunId, Seqno, invariant};
use parking_lot::MutexGuard;

use super::{Tree, View};
use crate::trim_tables::trim_tables;
use crate::{Change, Memtable, Piece, Rectangle, TableFile, Version};

/// The exclusive right to change which tables a tree has, and to reserve rectangles for compaction jobs.
#[derive(Debug)]
pub struct VersionEditGuard<'a> {
    pub(crate) tree: &'a Tree,
    pub(super) reserved: MutexGuard<'a, Vec<Rectangle>>,
}

impl VersionEditGuard<'_> {
    /// The current version.
    pub fn version(&self) -> Arc<Version> {
        Arc::clone(&self.tree.view().version)
    }

    /// The rectangles that compaction jobs have reserved.
    pub fn reserved(&self) -> &[Rectangle] {
        &self.reserved
    }

    /// Reserves `rectangle` for a job, to be released with [`VersionEditGuard::release`]. Returns false and
    /// reserves nothing if a reserved rectangle overlaps it.
    pub fn reserve(&mut self, rectangle: &Rectangle) -> bool {
        if self.reserved.iter().any(|other| other.overlaps(rectangle)) {
            return false;
        }
        invariant!(
            rectangle.oldest <= rectangle.newest && !rectangle.range.is_empty(),
            "a reserved rectangle has runs and keys"
        );
        self.reserved.push(rectangle.clone());
        true
    }

    /// Releases a rectangle that a job reserved.
    pub fn release(&mut self, rectangle: &Rectangle) {
        let at = self.reserved.iter().position(|other| other == rectangle);
        invariant!(at.is_some(), "a job releases a rectangle that it reserved");
        if let Some(at) = at {
            self.reserved.swap_remove(at);
        }
    }

    /// The run for a table over `range` that is newer than all other tables. In a window it is a new one,
    /// because entries are evicted by run, oldest first.
    pub fn place_newest(&self, range: &KeyRange) -> RunId {
        debug_assert!(!range.is_empty(), "a table that is placed has keys");
        let all = KeyRange::all();
        let range = if self.tree.kind.is_window() { &all } else { range };
        self.tree.view().version.place_newest(range, &self.reserved)
    }

    /// Replaces `flushed`, the oldest sealed memtable, by `table`; by nothing if no version of the memtable
    /// was worth keeping.
    pub fn install_flushed(&self, flushed: &Arc<Memtable>, table: Option<Arc<TableFile>>) {
        let discarded = self.tree.change.lock();
        if *discarded {
            table.inspect(|table| table.mark_obsolete());
            return;
        }
        let mut held = self.tree.flushed.lock();
        held.retain(|memtable| memtable.strong_count() > 0);
        held.push(Arc::downgrade(flushed));
        drop(held);
        let old = self.tree.view.load();
        invariant!(
            old.sealed.last().is_some_and(|oldest| Arc::ptr_eq(oldest, flushed)),
            "memtables are flushed oldest first (I4)"
        );
        let sealed =
            old.sealed.iter().filter(|kept| !Arc::ptr_eq(kept, flushed)).cloned().collect();
        debug_assert!(
            table.as_ref().is_none_or(|table| {
                let entry = table.entry();
                entry.seqno_min >= flushed.first() && old.active.first() > entry.seqno_max
            }),
            "a flushed table holds the sequence numbers of its memtable"
        );
        let version = match table {
            Some(table) => {
                let run = table.entry().run;
                Arc::new(old.version.with_piece(run, Piece::whole(table)))
            }
            None => Arc::clone(&old.version),
        };
        let (active, read_context) = (Arc::clone(&old.active), Arc::clone(&old.read_context));
        let ingested = old.ingested;
        let clock = Arc::clone(&read_context);
        let flushed = Arc::clone(&version);
        self.tree.view.store(Arc::new(View { active, sealed, version, read_context, ingested }));
        drop(discarded);
        if let Some(clock) = clock.clock() {
            clock.adapt(&flushed);
        }
    }

    /// Adds `tables`, which contain the writes of the ingest at `seqno`. They must not be visible yet.
    pub fn install_ingested(&self, tables: Vec<Arc<TableFile>>, seqno: Seqno) {
        let discarded = self.tree.change.lock();
        if *discarded {
            tables.iter().for_each(|table| table.mark_obsolete());
            return;
        }
        let old = self.tree.view.load();
        invariant!(seqno > old.ingested, "ingests are installed in seqno order (I4)");
        debug_assert!(
            tables.iter().all(|table| table.entry().seqno == Some(seqno)),
            "the tables of an ingest read at its sequence number"
        );
        let mut version = Version::clone(&old.version);
        for table in tables {
            version = version.with_piece(table.entry().run, Piece::whole(table));
        }
        old.read_context.dead_spans().ingested(seqno);
        self.tree.view.store(Arc::new(View {
            active: Arc::clone(&old.active),
            sealed: old.sealed.clone(),
            version: Arc::new(version),
            read_context: Arc::clone(&old.read_context),
            ingested: seqno,
        }));
        self.tree.ingested.store(seqno.get(), Ordering::Release);
    }

    /// Replaces the inputs of `change` by its outputs. A file without any remaining piece is removed with its
    /// last reader.
    pub fn install_changed(&self, change: &Change) {
        let discarded = self.tree.change.lock();
        if *discarded {
            return mark_outputs_obsolete(change);
        }
        let old = self.tree.view_owned();
        // Without the lock, on which every writer may wait: trimming copies pages.
        drop(discarded);
        let version = Arc::new(old.version.with_change(change));
        // Before the version is read: a run keeps the filters that its tables have when it is first read.
        trim_tables(&version, &change.inputs);
        let discarded = self.tree.change.lock();
        if *discarded {
            return mark_outputs_obsolete(change);
        }
        // Memtables may have been sealed meanwhile; the version changes only with this guard.
        let before = old;
        let old = self.tree.view_owned();
        invariant!(
            Arc::ptr_eq(&before.version, &old.version),
            "the guard alone changes the version of a tree"
        );
        let left = version.files();
        for file in old.version.files() {
            if left.binary_search_by_key(&file.entry().id, |file| file.entry().id).is_err() {
                file.mark_obsolete();
            }
        }
        self.tree.view.store(Arc::new(View {
            active: Arc::clone(&old.active),
            sealed: old.sealed.clone(),
            version: Arc::clone(&version),
            read_context: Arc::clone(&old.read_context),
            ingested: old.ingested,
        }));
        drop(discarded);
        if let Some(clock) = old.read_context.clock() {
            clock.adapt(&version);
        }
        // Without the lock: dropping the views may remove files.
        drop((before, old));
    }
}

/// Marks the outputs of `change`, which came too late, as obsolete.
fn mark_outputs_obsolete(change: &Change) {
    for (_, piece) in &change.outputs {
        piece.file().mark_obsolete();
    }
}
