//! The LSM tree of one keyspace: its memtables and the version of its tables.
//!
//! Readers load a [`View`] and keep it while they read. A change builds a new view under the lock `change`
//! and installs it whole, so a reader sees either the view before the change or the one after it.
//!
//! Memtables divide the sequence numbers between them; a batch finds its memtable by its sequence number. The
//! active memtable is sealed inside the log's barrier, when no batch is between the assignment of its
//! sequence numbers and its view. A sealed memtable is flushed once every seqno below the next memtable's
//! first one is visible: then no writer adds to it any more.
//!
//! Flushes, ingests and compactions hold the tree's [`VersionEditGuard`] from the choice of a run for their
//! tables until the version with these tables is installed. So no two of them choose conflicting runs. Lock
//! order: `reserved`, the manifest, `change`.

mod version_edit;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use base::limits::PAGE_BYTES;
use base::{
    Account, Counter, Discard, Error, HashedPolicy, KeyForm, KeyRange, KeyspaceId, Owner, Result,
    Seqno, invariant,
};
use cache::RowOwner;
use compact::plan::hashed::{keep, window};
use manifest::{KeyspaceKind, TableOptions};
use parking_lot::{Mutex, MutexGuard};
use table::{FILTER_BITS_DEFAULT, Layout, Table};

use crate::options::{OptionSource, TreeOptions};
use crate::read_clock::ReadClock;
use crate::{Memtable, ReadContext, Rectangle, Version, WriteCounters};

pub use version_edit::VersionEditGuard;

/// The data of a keyspace at one instant (a read view). Immutable, except that the active memtable grows.
#[derive(Debug)]
pub struct View {
    /// Takes the writes.
    pub active: Arc<Memtable>,
    /// Memtables that wait to be flushed, newest first.
    pub sealed: Vec<Arc<Memtable>>,
    /// The tables. For each key they are older than the memtables (I4).
    pub version: Arc<Version>,
    /// How to interpret the stored versions: clock and merge operator.
    pub read_context: Arc<ReadContext>,
    /// The seqno of the newest ingest that is in `version`.
    pub ingested: Seqno,
}

impl View {
    /// The memtables, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// Whether a memtable has a version of `key`, or a range delete that covers it, with a seqno above
    /// `seqno`, visible or not.
    pub fn holds_newer(&self, key: &[u8], seqno: Seqno) -> bool {
        self.memtables().any(|memtable| memtable.holds_newer(key, seqno))
    }

    /// The memtable for a write at `seqno`.
    ///
    /// A sealed memtable stays in the view until all of its seqnos are visible, so the view has the memtable
    /// of every write that is not applied yet. The only exception is a dropped keyspace: [`Tree::discard`]
    /// removes its sealed memtables from the view. If there was no memory for an empty memtable then, late
    /// writes go to the active memtable, which nobody reads.
    pub fn memtable_for(&self, seqno: Seqno) -> &Arc<Memtable> {
        let found = self.memtables().find(|table| table.first() <= seqno);
        debug_assert!(
            found.is_some() || self.sealed.is_empty() && self.version.runs().is_empty(),
            "a write that is not visible is not flushed, so its memtable is there (I9)"
        );
        found.unwrap_or(&self.active)
    }
}

/// The LSM tree of one keyspace. Any thread may call.
#[derive(Debug)]
pub struct Tree {
    id: KeyspaceId,
    name: String,
    kind: KeyspaceKind,
    /// How the keys are stored: follows from the kind.
    key_form: KeyForm,
    /// How new tables are written, as far as the keyspace differs from the store.
    table_options: Mutex<TableOptions>,
    view: ArcSwap<View>,
    /// The rectangles that compaction jobs have reserved.
    reserved: Mutex<Vec<Rectangle>>,
    /// Held while a new view is built from the current one. True once the tree was discarded.
    change: Mutex<bool>,
    dropped: AtomicBool,
    /// Calls of another process fail before they take a lock, which a thread of the owner may hold for ever.
    owner: Owner,
    /// Flushed memtables that readers may still use.
    flushed: Mutex<Vec<Weak<Memtable>>>,
    /// Compression gain of the keyspace's dictionary when it was adopted or last compared with a candidate,
    /// as the bits of an `f64`. NaN: not measured since the store was opened.
    dictionary_gain: AtomicU64,
    /// Held by an ingest from its seqno until its tables are in the view.
    ingesting: Mutex<()>,
    /// The seqno of the newest ingest. Stored with `Release` after the view that has its tables is installed,
    /// and before the seqno is visible.
    ingested: AtomicU64,
    /// Identifies the keyspace's rows in the row cache.
    rows: Arc<RowOwner>,
    writes: WriteCounters,
    /// The highest seqno that an evicted table of a window had. Stored with `Release` before the view without
    /// the table is installed.
    evicted_up_to: AtomicU64,
    /// What a window evicted.
    pub evictions: EvictionCounters,
}

/// What a window evicted since the store was opened.
#[derive(Debug, Default)]
pub struct EvictionCounters {
    /// Entries (versions) of runs that were dropped, or of the oldest run and not retained.
    pub entries: Counter,
    /// Their bytes in tables, with those of the separated values of dropped runs.
    pub bytes: Counter,
    /// Bytes of entries that partial discards retained.
    pub retained_bytes: Counter,
}

/// The planner's options for a window; `None` for another policy.
pub(crate) fn window_options(policy: &HashedPolicy) -> Option<window::Options> {
    let HashedPolicy::Window { bytes, discard } = policy else { return None };
    let kept = match discard {
        Discard::Fifo => window::Kept::None,
        Discard::Clock => window::Kept::Read,
        Discard::Priority(name) => window::Kept::Named(name.clone()),
    };
    Some(window::Options::new(*bytes, kept))
}

impl Tree {
    /// A tree with the tables of `version` and an empty memtable for writes at `first` or later.
    ///
    /// # Errors
    /// `Retry` if there is no memory for a memtable.
    pub fn new(
        id: KeyspaceId,
        kind: KeyspaceKind,
        name: String,
        version: Version,
        read_context: Arc<ReadContext>,
        account: &Account,
        first: Seqno,
    ) -> Result<Arc<Self>> {
        let active = Memtable::new(account, first)?;
        if kind.is_resident() {
            active.places().set_resident();
        }
        if let Some(HashedPolicy::Window { bytes, discard: Discard::Clock }) = kind.policy() {
            let clock = ReadClock::new(*bytes, read_context.account());
            clock.adapt(&version);
            read_context.set_clock(clock);
        }
        let rows = Arc::clone(read_context.rows());
        let (sealed, version, ingested) = (Vec::new(), Arc::new(version), Seqno::ZERO);
        let view = View { active, sealed, version, read_context, ingested };
        Ok(Arc::new(Self {
            id,
            name,
            key_form: kind.key_form(),
            table_options: Mutex::default(),
            kind,
            view: ArcSwap::from_pointee(view),
            reserved: Mutex::default(),
            change: Mutex::new(false),
            dropped: AtomicBool::new(false),
            owner: Owner::this(),
            flushed: Mutex::default(),
            dictionary_gain: AtomicU64::new(f64::NAN.to_bits()),
            ingesting: Mutex::new(()),
            ingested: AtomicU64::new(0),
            rows,
            evicted_up_to: AtomicU64::new(0),
            evictions: EvictionCounters::default(),
            writes: WriteCounters::default(),
        }))
    }

    /// Bytes written by the keyspace and for it since the store was opened.
    pub fn writes(&self) -> &WriteCounters {
        &self.writes
    }

    /// The keyspace's id.
    pub fn id(&self) -> KeyspaceId {
        self.id
    }

    /// The keyspace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The keyspace's kind.
    pub fn kind(&self) -> &KeyspaceKind {
        &self.kind
    }

    /// How the keyspace stores its keys. The public API turns user keys into stored keys; everything below
    /// it takes and returns stored keys.
    pub fn key_form(&self) -> &KeyForm {
        &self.key_form
    }

    /// How new tables are written, as far as the keyspace differs from the store.
    pub fn table_options(&self) -> TableOptions {
        *self.table_options.lock()
    }

    /// Sets how new tables are written. The manifest has the options.
    pub fn set_table_options(&self, options: TableOptions) {
        *self.table_options.lock() = options;
    }

    /// The options in force for a new table of this keyspace.
    pub fn options(&self, of_store: &dyn OptionSource) -> TreeOptions {
        let mut options = of_store.tree_options();
        let TableOptions { codec, level, filter_bits: _ } = self.table_options();
        if let Some(codec) = codec {
            options.codec = codec;
            options.level = level.map_or_else(|| of_store.level_of(codec), i32::from);
        }
        options
    }

    /// The layout of a table of this keyspace, given the bytes of entries that it and its neighbours of one
    /// run will hold within `range`.
    pub fn layout(&self, bytes: u64, range: &KeyRange) -> Layout {
        match self.key_form {
            KeyForm::Plain => Layout::Sorted,
            KeyForm::Hashed(_) => Layout::bins(bytes, &range.first, range.end.as_deref()),
        }
    }

    /// Filter bits of a flushed table of about `bytes` bytes: those of a hashed keyspace follow from the
    /// number of such tables that its base will have above it, those of a window from the number in it.
    pub fn flush_filter_bits(&self, bytes: u64) -> u8 {
        match self.kind.policy() {
            None => return self.table_options().filter_bits.unwrap_or(FILTER_BITS_DEFAULT),
            Some(policy @ HashedPolicy::Window { .. }) => {
                let options = window_options(policy);
                return options.map_or(FILTER_BITS_DEFAULT, |it| it.flush_filter_bits(bytes));
            }
            Some(HashedPolicy::Keep | HashedPolicy::Resident) => {}
        }
        let view = self.view();
        let base = view.version.pieces().filter(|piece| piece.level() >= keep::BASE_LEVEL);
        let base_bytes = base.map(|piece| piece.entry().file_bytes).sum();
        keep::Options::default().flush_filter_bits(bytes, base_bytes)
    }

    /// The owner of the keyspace's rows in the row cache.
    pub fn rows(&self) -> &RowOwner {
        &self.rows
    }

    /// The current view, for the length of one operation. Cheap: it usually takes no reference count.
    pub fn view(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// The view to read and the read sequence number, which is taken from `visible` after the view. For a
    /// read of one key, and for a reader that uses the view alone.
    ///
    /// Everything that becomes visible after the view was loaded, and is not in it, is newer than everything
    /// in it. The exception is an ingest: its tables are in a later view before they are visible. So the pair
    /// is taken again if an ingest was installed in between.
    pub fn read_view(&self, visible: impl Fn() -> Seqno) -> (arc_swap::Guard<Arc<View>>, Seqno) {
        loop {
            let view = self.view();
            let at = visible();
            if self.ingested.load(Ordering::Acquire) <= view.ingested.get() {
                return (view, at);
            }
        }
    }

    /// As [`Tree::read_view`], for several keys that may also be read from the row cache: every write that is
    /// visible at the returned seqno is in the view.
    ///
    /// A row may be newer than the view. If one key were read from such a row and another from the view, the
    /// batch would see two different instants.
    pub fn batch_read_view(
        &self,
        visible: impl Fn() -> Seqno,
    ) -> (arc_swap::Guard<Arc<View>>, Seqno) {
        // Each repetition means that a memtable was sealed between the two loads.
        loop {
            let (view, at) = self.read_view(&visible);
            // Writes still go to this view's active memtable, so no visible write is in a later one.
            if Arc::ptr_eq(&view.active, &self.view().active) {
                return (view, at);
            }
        }
    }

    /// Notes that a table of a window with seqnos up to `seqno` is about to be evicted.
    pub(crate) fn note_evicted(&self, seqno: Seqno) {
        self.evicted_up_to.fetch_max(seqno.get(), Ordering::Release);
    }

    /// The highest seqno of the evicted tables: a view that was loaded before may lack writes up to it.
    pub fn evicted_up_to(&self) -> Seqno {
        Seqno::new(self.evicted_up_to.load(Ordering::Acquire))
    }

    /// The current view with a reference count of its own, for long use.
    pub fn view_owned(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Whether the keyspace was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Fails if the keyspace was dropped.
    ///
    /// # Errors
    /// `Closed` if the keyspace was dropped, or in a process forked from the one that opened it.
    pub fn usable(&self) -> Result<()> {
        self.owner.check()?;
        if self.is_dropped() {
            return Err(Error::closed("keyspace").at(format_args!("`{}`", self.name)));
        }
        Ok(())
    }

    /// Compression gain of the dictionary when it was adopted or last compared with a candidate; `None` if
    /// that did not happen since the store was opened.
    pub fn dictionary_gain(&self) -> Option<f64> {
        Some(f64::from_bits(self.dictionary_gain.load(Ordering::Relaxed))).filter(|g| !g.is_nan())
    }

    /// Sets [`Tree::dictionary_gain`].
    pub fn set_dictionary_gain(&self, gain: f64) {
        self.dictionary_gain.store(gain.to_bits(), Ordering::Relaxed);
    }

    /// Makes every later operation fail, or takes that back if dropping the keyspace failed.
    pub fn mark_dropped(&self, dropped: bool) {
        self.dropped.store(dropped, Ordering::Release);
    }

    /// Removes all data of a dropped keyspace from the view. No manifest names its files any more; each file
    /// is removed with its last reader, also the file of a flush that ends later.
    ///
    /// `blank`, if there is memory for it, takes the writes that are still being applied.
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
        // Without the lock: dropping the view may remove files.
        drop(old);
    }

    /// Seals the active memtable. `next` takes the writes from its first seqno on. To be called only inside
    /// the log's barrier.
    pub fn seal(&self, next: Arc<Memtable>) {
        let discarded = self.change.lock();
        if *discarded {
            return;
        }
        if self.kind.is_resident() {
            next.places().set_resident();
        }
        let old = self.view.load();
        invariant!(next.first() >= old.active.first(), "memtables are sealed in seqno order");
        let mut sealed = vec![Arc::clone(&old.active)];
        sealed.extend(old.sealed.iter().cloned());
        invariant!(
            sealed.is_sorted_by(|newer, older| newer.first() >= older.first()),
            "sealed memtables are in order, the newest first"
        );
        let (version, read_context) = (Arc::clone(&old.version), Arc::clone(&old.read_context));
        let (active, ingested) = (next, old.ingested);
        read_context.dead_spans().sealed(&active);
        self.view.store(Arc::new(View { active, sealed, version, read_context, ingested }));
    }

    /// The oldest sealed memtable and the first seqno of the memtable after it.
    pub fn oldest_sealed(&self) -> Option<(Arc<Memtable>, Seqno)> {
        let view = self.view();
        let oldest = view.sealed.last()?;
        let newer = view.sealed.iter().rev().nth(1).unwrap_or(&view.active);
        invariant!(oldest.first() <= newer.first(), "a sealed memtable ends at or after its begin");
        Some((Arc::clone(oldest), newer.first()))
    }

    /// Whether the active memtable has range deletes: the space of the keys that they cover comes back after
    /// its flush.
    pub fn has_waiting_range_deletes(&self) -> bool {
        !self.view().active.deleted().is_empty()
    }

    /// Whether a reader still uses a memtable that was flushed: its memory is not free yet.
    pub fn is_flushed_memtable_held(&self) -> bool {
        let mut flushed = self.flushed.lock();
        flushed.retain(|memtable| memtable.strong_count() > 0);
        !flushed.is_empty()
    }

    /// The lock that an ingest holds from the assignment of its seqno until its tables are in the view. It
    /// makes the order of ingested tables in the tree the order of their seqnos (I4).
    pub fn ingesting(&self) -> MutexGuard<'_, ()> {
        self.ingesting.lock()
    }

    /// The guard for a change of the tree's tables. Waits for the current holder.
    pub fn version_edit(&self) -> VersionEditGuard<'_> {
        VersionEditGuard { tree: self, reserved: self.reserved.lock() }
    }
}

/// Bytes of the filters and separators of a tree's tables, whether pinned or read through the page cache, and
/// of a window's clock.
#[must_use]
pub fn metadata_bytes(tree: &Tree) -> u64 {
    let of = |table: &Arc<Table>| {
        let paged = match table.layout() {
            Layout::Sorted => table.properties().meta_pages.saturating_mul(PAGE_BYTES as u64),
            // Pinned.
            Layout::Bins(_) => 0,
        };
        table.pinned_bytes().saturating_add(paged)
    };
    let view = tree.view_owned();
    let clock = view.read_context.clock().and_then(ReadClock::counters);
    let clock_bytes = clock.map_or(0, |counters| counters.memory_bytes());
    let tables = view.version.files().iter().map(|file| file.table().map_or(0, of)).sum::<u64>();
    tables.saturating_add(clock_bytes)
}

#[cfg(test)]
mod tests {
    use base::ManualClock;

    use super::*;
    use crate::timekeeper::Timekeeper;

    /// The keyspace is dropped while a write to a sealed memtable is on its way, and there is no memory for
    /// an empty memtable.
    #[test]
    fn a_late_write_to_a_dropped_keyspace_goes_to_a_memtable_that_is_left() {
        let account = Account::unlimited("test");
        let timekeeper = Arc::new(Timekeeper::new(Arc::new(ManualClock::at(1)), 0));
        let rows = cache::RowCache::new(&account, 1 << 20).unwrap().owner();
        let context = ReadContext::new(timekeeper, account.clone(), 1 << 20, rows);
        let (kind, name) = (KeyspaceKind::Ordered, "fruit".to_owned());
        let (version, first) = (Version::default(), Seqno::new(1));
        let tree = Tree::new(KeyspaceId(1), kind, name, version, context, &account, first).unwrap();
        tree.seal(Memtable::new(&account, Seqno::new(9)).unwrap());
        tree.discard(None);
        let view = tree.view();
        assert!(Arc::ptr_eq(view.memtable_for(Seqno::new(5)), &view.active));
    }
}
