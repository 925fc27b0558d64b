//! One ordered keyspace's data at every moment: memtables and a version of its tables.
//!
//! Readers load a [`View`] and keep it for as long as they read. Writers of the view hold
//! `change`, and install a new view whole; a reader sees the one before or the one after.
//!
//! A batch finds its memtable by its sequence number: memtables divide the numbers between them,
//! and one is sealed while no batch is between taking its numbers and the view that names the next
//! (the log's barrier). A sealed memtable is flushed once everything below the next one's first
//! number is visible: then no writer is still filling it.
//!
//! Who changes which tables there are holds the tree's [`VersionEditGuard`] from the moment it decides where
//! they go until the version that has them is in force: a flush, an ingest and a merge never take
//! the same place. Lock order: `shape`, the manifest, `change`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use base::limits::PAGE_BYTES;
use base::{Account, Error, KeyspaceId, Result, RunId, Seqno};
use cache::RowOwner;
use parking_lot::{Mutex, MutexGuard};
use table::Table;

use crate::{Change, Memtable, Piece, ReadContext, Rectangle, TableFile, Version};
use base::KeyRange;

/// What one keyspace holds at one moment. Immutable but for the active memtable, which grows.
#[derive(Debug)]
pub struct View {
    /// Takes the writes.
    pub active: Arc<Memtable>,
    /// Waiting to be flushed, newest first.
    pub sealed: Vec<Arc<Memtable>>,
    /// For no key newer than a memtable.
    pub version: Arc<Version>,
    /// What the versions in all of them mean.
    pub read_context: Arc<ReadContext>,
    /// The number of the newest ingest it holds.
    pub ingested: Seqno,
}

impl View {
    /// The memtables, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// Whether a memtable has a version of `key`, or a range delete over it, above `seqno`, visible or
    /// not.
    pub fn holds_newer(&self, key: &[u8], seqno: Seqno) -> bool {
        self.memtables().any(|memtable| memtable.holds_newer(key, seqno))
    }

    /// The memtable that takes the write with this sequence number.
    ///
    /// There is always one: a sealed memtable stays until all its numbers are visible.
    pub fn memtable_for(&self, seqno: Seqno) -> &Arc<Memtable> {
        self.memtables().find(|table| table.first() <= seqno).unwrap_or(&self.active)
    }
}

/// An ordered keyspace.
#[derive(Debug)]
pub struct Tree {
    id: KeyspaceId,
    name: String,
    view: ArcSwap<View>,
    /// What merges work on.
    reserved: Mutex<Vec<Rectangle>>,
    /// Held while a new view is made from the one in force. True once it was discarded.
    change: Mutex<bool>,
    dropped: AtomicBool,
    /// Memtables that were flushed and that readers may still hold.
    flushed: Mutex<Vec<Weak<Memtable>>>,
    /// What the dictionary in use gained when it was last judged: the bits of an `f64`.
    dictionary_gain: AtomicU64,
    /// Held by an ingest while it becomes part of the keyspace.
    ingesting: Mutex<()>,
    /// The number of the newest ingest. Raised after the view that holds it is in force and before
    /// it is visible: `Release`.
    ingested: AtomicU64,
    /// Whose the rows of the keyspace are.
    rows: Arc<RowOwner>,
}

impl Tree {
    /// A keyspace with these tables, whose first write will be `first` or later.
    pub fn new(
        id: KeyspaceId,
        name: String,
        version: Version,
        read_context: Arc<ReadContext>,
        account: &Account,
        first: Seqno,
    ) -> Result<Arc<Self>> {
        let active = Memtable::new(account, first)?;
        let rows = Arc::clone(read_context.rows());
        let (sealed, version, ingested) = (Vec::new(), Arc::new(version), Seqno::ZERO);
        let view = View { active, sealed, version, read_context, ingested };
        Ok(Arc::new(Self {
            id,
            name,
            view: ArcSwap::from_pointee(view),
            reserved: Mutex::default(),
            change: Mutex::new(false),
            dropped: AtomicBool::new(false),
            flushed: Mutex::default(),
            dictionary_gain: AtomicU64::new(f64::NAN.to_bits()),
            ingesting: Mutex::new(()),
            ingested: AtomicU64::new(0),
            rows,
        }))
    }

    pub fn id(&self) -> KeyspaceId {
        self.id
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn rows(&self) -> &RowOwner {
        &self.rows
    }

    /// The view in force, cheaply, for the length of one operation.
    pub fn view(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// The view to read, with the moment to read it at.
    ///
    /// The view comes first: what is visible later and not in it is newer than all of it, but for an
    /// ingest, whose tables are in the next view before they are visible. For one key, or who reads the view
    /// alone.
    pub fn read_view(&self, visible: impl Fn() -> Seqno) -> (arc_swap::Guard<Arc<View>>, Seqno) {
        loop {
            let view = self.view();
            let at = visible();
            if self.ingested.load(Ordering::Acquire) <= view.ingested.get() {
                return (view, at);
            }
        }
    }

    /// As [`Tree::read_view`], for several keys whose rows are looked at, too: all that is visible then is in
    /// the view. A row may be newer than a view, and where one key's is and another has none, they would be
    /// of two moments.
    pub fn batch_read_view(
        &self,
        visible: impl Fn() -> Seqno,
    ) -> (arc_swap::Guard<Arc<View>>, Seqno) {
        // Each turn a memtable was sealed between two loads.
        loop {
            let (view, at) = self.read_view(&visible);
            // Writes still go to its memtable: none that is visible went to a later one.
            if Arc::ptr_eq(&view.active, &self.view().active) {
                return (view, at);
            }
        }
    }

    /// The view in force, to keep.
    pub fn view_owned(&self) -> Arc<View> {
        self.view.load_full()
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// # Errors
    /// `Closed` where it was dropped.
    pub fn usable(&self) -> Result<()> {
        if self.is_dropped() {
            return Err(Error::closed("keyspace").at(format_args!("`{}`", self.name)));
        }
        Ok(())
    }

    /// What the dictionary gained when it was last judged, since the store was opened.
    pub fn dictionary_gain(&self) -> Option<f64> {
        Some(f64::from_bits(self.dictionary_gain.load(Ordering::Relaxed))).filter(|g| !g.is_nan())
    }

    pub fn set_dictionary_gain(&self, gain: f64) {
        self.dictionary_gain.store(gain.to_bits(), Ordering::Relaxed);
    }

    /// Refuses every later operation, or takes that back.
    pub fn mark_dropped(&self, dropped: bool) {
        self.dropped.store(dropped, Ordering::Release);
    }

    /// Gives up the tables' files, also those of a flush that ends later: no manifest names them.
    /// Files and memory go with the last who reads them, whoever has a handle of the keyspace.
    /// `blank`, where there is memory for it, takes what writers still apply.
    pub fn discard(&self, blank: Option<Arc<Memtable>>) {
        let mut discarded = self.change.lock();
        *discarded = true;
        let old = self.view_owned();
        for file in old.version.files() {
            file.mark_obsolete();
        }
        let active = blank.unwrap_or_else(|| Arc::clone(&old.active));
        let (sealed, version, read_context) =
            (Vec::new(), Arc::default(), Arc::clone(&old.read_context));
        let ingested = old.ingested;
        self.view.store(Arc::new(View { active, sealed, version, read_context, ingested }));
        drop(discarded);
        // Files are removed without the lock.
        drop(old);
    }

    /// Seals the active memtable; `next` takes the writes from its first number on.
    ///
    /// Only within the log's barrier.
    pub fn seal(&self, next: Arc<Memtable>) {
        let discarded = self.change.lock();
        if *discarded {
            return;
        }
        let old = self.view.load();
        let mut sealed = vec![Arc::clone(&old.active)];
        sealed.extend(old.sealed.iter().cloned());
        let (version, read_context) = (Arc::clone(&old.version), Arc::clone(&old.read_context));
        let (active, ingested) = (next, old.ingested);
        self.view.store(Arc::new(View { active, sealed, version, read_context, ingested }));
    }

    /// The oldest sealed memtable and the first number past it, if there is one.
    pub fn oldest_sealed(&self) -> Option<(Arc<Memtable>, Seqno)> {
        let view = self.view();
        let oldest = view.sealed.last()?;
        let newer = view.sealed.iter().rev().nth(1).unwrap_or(&view.active);
        Some((Arc::clone(oldest), newer.first()))
    }

    /// Whether a reader still holds a memtable that was flushed.
    pub fn is_flushed_memtable_held(&self) -> bool {
        let mut flushed = self.flushed.lock();
        flushed.retain(|memtable| memtable.strong_count() > 0);
        !flushed.is_empty()
    }

    /// The right to ingest: from before a number is taken until its tables are in the view, so that
    /// ingests lie one above the other in the order of their numbers (I4).
    pub fn ingesting(&self) -> MutexGuard<'_, ()> {
        self.ingesting.lock()
    }

    /// The right to change which tables there are.
    pub fn version_edit(&self) -> VersionEditGuard<'_> {
        VersionEditGuard { tree: self, reserved: self.reserved.lock() }
    }
}

/// A tree's tables, held so that nobody else changes which there are.
#[derive(Debug)]
pub struct VersionEditGuard<'a> {
    tree: &'a Tree,
    reserved: MutexGuard<'a, Vec<Rectangle>>,
}

impl VersionEditGuard<'_> {
    /// The version in force.
    pub fn version(&self) -> Arc<Version> {
        Arc::clone(&self.tree.view().version)
    }

    /// What jobs work on now.
    pub fn reserved(&self) -> &[Rectangle] {
        &self.reserved
    }

    /// Takes `rectangle` for a job, unless another works on a part of it. To be released.
    pub fn reserve(&mut self, rectangle: &Rectangle) -> bool {
        if self.reserved.iter().any(|other| other.overlaps(rectangle)) {
            return false;
        }
        self.reserved.push(rectangle.clone());
        true
    }

    /// Gives a job's rectangle back.
    pub fn release(&mut self, rectangle: &Rectangle) {
        if let Some(at) = self.reserved.iter().position(|other| other == rectangle) {
            self.reserved.swap_remove(at);
        }
    }

    /// The run for a table over `range` that is newer than all others.
    pub fn place_newest(&self, range: &KeyRange) -> RunId {
        self.tree.view().version.place_newest(range, &self.reserved)
    }

    /// Puts `table`, made of the oldest sealed memtable, in its place (no table where the
    /// memtable held nothing worth keeping).
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
        let sealed =
            old.sealed.iter().filter(|kept| !Arc::ptr_eq(kept, flushed)).cloned().collect();
        let version = match table {
            Some(table) => {
                let run = table.entry().run;
                Arc::new(old.version.with_piece(run, Piece::whole(table)))
            }
            None => Arc::clone(&old.version),
        };
        let (active, read_context) = (Arc::clone(&old.active), Arc::clone(&old.read_context));
        let ingested = old.ingested;
        self.tree.view.store(Arc::new(View { active, sealed, version, read_context, ingested }));
    }

    /// Adds `tables`, which hold the writes with the number `seqno`, none of them visible yet.
    pub fn install_ingested(&self, tables: Vec<Arc<TableFile>>, seqno: Seqno) {
        let discarded = self.tree.change.lock();
        if *discarded {
            tables.iter().for_each(|table| table.mark_obsolete());
            return;
        }
        let old = self.tree.view.load();
        let mut version = Version::clone(&old.version);
        for table in tables {
            version = version.with_piece(table.entry().run, Piece::whole(table));
        }
        self.tree.view.store(Arc::new(View {
            active: Arc::clone(&old.active),
            sealed: old.sealed.clone(),
            version: Arc::new(version),
            read_context: Arc::clone(&old.read_context),
            ingested: seqno,
        }));
        self.tree.ingested.store(seqno.get(), Ordering::Release);
    }

    /// Puts the outputs of `change` in the place of its inputs. Files that no piece is left of are
    /// removed with their last reader.
    pub fn install_changed(&self, change: &Change) {
        let discarded = self.tree.change.lock();
        if *discarded {
            for (_, piece) in &change.outputs {
                piece.file().mark_obsolete();
            }
            return;
        }
        let old = self.tree.view_owned();
        let version = old.version.with_change(change);
        let left = version.files();
        for file in old.version.files() {
            if left.binary_search_by_key(&file.entry().id, |file| file.entry().id).is_err() {
                file.mark_obsolete();
            }
        }
        self.tree.view.store(Arc::new(View {
            active: Arc::clone(&old.active),
            sealed: old.sealed.clone(),
            version: Arc::new(version),
            read_context: Arc::clone(&old.read_context),
            ingested: old.ingested,
        }));
        drop(discarded);
        // Files are removed without the lock.
        drop(old);
    }
}

/// Bytes of the filters and separators of a tree's tables, pinned or read through the page cache.
#[must_use]
pub fn metadata_bytes(tree: &Tree) -> u64 {
    let of = |table: &Arc<Table>| {
        let paged = table.properties().meta_pages.saturating_mul(PAGE_BYTES as u64);
        table.pinned_bytes().saturating_add(paged)
    };
    let version = Arc::clone(&tree.view().version);
    version.files().iter().map(|file| file.table().map_or(0, of)).sum()
}
