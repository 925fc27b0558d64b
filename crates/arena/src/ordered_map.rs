//! The ordered map of a memtable: versions sorted by key, newest first, inserted by many threads at once.
//!
//! The map is a B-link tree (Lehman and Yao, 1981) over entries in one region. Every node links to its right
//! neighbour and knows the entry at which that starts. So a writer can split a node first and insert the new
//! node into the parent later: a thread that reaches a node too far left follows the links to the right. A
//! writer locks one node at a time. Readers take no lock; they read a node and then check its version (see
//! [`crate::node`]). Nothing is removed before the whole map is dropped.
//!
//! Invariants: see [`crate::node`]. Entries never move or change, so a reader may keep a value as long as it
//! keeps the map.
//!
//! Concurrency: any number of readers and writers. A reader waits only while a writer changes the node that
//! it reads. Cost: see docs/ledger.md. An entry takes a header of 16 B and its share of a leaf: 13 B in
//! full leaves, and twice that in half full ones.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use base::{Account, Result, Trailer, invariant};

use crate::cursor::Cursor;
use crate::entry::{EntryRef, Position};
use crate::node::{Bound, INNER_BYTES, LEAF_BYTES, NewNode, Node, NodeRef, SLOTS, Version};
use crate::region::{FIRST_STEP_BYTES, Region};
use crate::region_pool::RegionPool;
use crate::stripe::{STRIPES, own_stripe};
use crate::sync::CachePadded;
use crate::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// More levels than the tree of a full region has.
const LEVELS_MAX: u32 = 32;

/// The bytes that the first reservation commits besides its own: the first leaf, and the first node of the
/// level above.
const EMPTY_BYTES: u64 = (LEAF_BYTES + INNER_BYTES) as u64;

/// The fewest entries, or children, of a node that is not the last one of its level.
const HALF: usize = SLOTS / 2;

/// The most bytes of an entry besides its key and value: its header, its share of a half full leaf, and its
/// share of the inner nodes, of which each level has `HALF` times fewer than the one below. In each level,
/// one node may be less than half full. Level *k* has a node only if the level below has two, and so if there
/// are `2 * HALF.pow(k)` entries; these share it. The node of level 1 is in [`EMPTY_BYTES`].
const ENTRY_BYTES_MAX: u64 = (EntryRef::OVERHEAD_BYTES
    + LEAF_BYTES.div_ceil(HALF)
    + INNER_BYTES.div_ceil(HALF * (HALF - 1))
    + INNER_BYTES.div_ceil(2 * HALF * (HALF - 1))) as u64;

/// A concurrent ordered map from (key, trailer) to value.
pub struct OrderedMap {
    region: Region,
    /// 0 before the first insert.
    root: AtomicU32,
    /// The leftmost leaf; 0 before the first insert. It never changes after, because a split adds a node to
    /// the right. Stored before `root`.
    first_leaf: AtomicU32,
    counts: [CachePadded<Count>; STRIPES],
}

/// The entries and bytes that the threads of one stripe inserted.
#[derive(Default)]
struct Count {
    entries: AtomicU64,
    data_bytes: AtomicU64,
}

impl OrderedMap {
    /// An empty map, which charges nothing.
    ///
    /// # Errors
    /// `Retry` if the address space has no room.
    pub fn new(account: &Account) -> Result<Arc<Self>> {
        Ok(Self::of(Region::new(account, EMPTY_BYTES)?))
    }

    /// As [`OrderedMap::new`], with memory from `pool` if that has some; the pool gets the memory when the
    /// map is dropped. `likely` is the number of bytes that the map will probably charge.
    ///
    /// # Errors
    /// As [`OrderedMap::new`].
    pub fn pooled(pool: &Arc<RegionPool>, account: &Account, likely: u64) -> Result<Arc<Self>> {
        Ok(Self::of(Region::pooled(pool, account, likely, EMPTY_BYTES)?))
    }

    fn of(region: Region) -> Arc<Self> {
        let (root, first_leaf) = (AtomicU32::new(0), AtomicU32::new(0));
        Arc::new(Self { region, root, first_leaf, counts: Default::default() })
    }

    /// Charges memory for `entries` inserts with `bytes` bytes of keys and values in total, so that they
    /// cannot fail for lack of memory. Memory of inserts that do not follow stays charged until the map is
    /// dropped.
    ///
    /// # Errors
    /// `Retry` if the budget has no room; nothing is charged.
    pub fn reserve(&self, entries: usize, bytes: usize) -> Result<()> {
        self.region.commit(Self::reserved_bytes(entries, bytes))
    }

    /// The bytes that an empty map charges for a first [`OrderedMap::reserve`], up to the size of a step.
    #[must_use]
    pub const fn first_reserved_bytes(entries: usize, bytes: usize) -> u64 {
        Self::reserved_bytes(entries, bytes).saturating_add(EMPTY_BYTES + FIRST_STEP_BYTES)
    }

    /// The bytes that [`OrderedMap::reserve`] commits.
    #[must_use]
    pub const fn reserved_bytes(entries: usize, bytes: usize) -> u64 {
        ENTRY_BYTES_MAX.saturating_mul(entries as u64).saturating_add(bytes as u64)
    }

    /// Inserts a version. The map does not contain (`key`, `trailer`) yet, and the caller reserved the
    /// memory.
    ///
    /// # Panics
    /// If no memory was reserved for it and the region is full.
    pub fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let entry = EntryRef::write(&self.region, Position { key, trailer }, value);
        let mut pending = self.put(0, entry, None);
        for level in 1.. {
            let Some(right) = pending else { break };
            invariant!(
                level < LEVELS_MAX,
                "a tree has fewer levels than the tree of a full region"
            );
            pending = self.put(level, right.low, Some(right.node));
        }
        let count = self.own_count();
        count.entries.fetch_add(1, Relaxed);
        count.data_bytes.fetch_add((key.len() + value.len()) as u64, Relaxed);
    }

    #[expect(clippy::indexing_slicing, reason = "a stripe is a remainder modulo the length")]
    fn own_count(&self) -> &Count {
        &self.counts[own_stripe()].0
    }

    /// Inserts `entry`, and the child that starts there, into its node of `level`. If that splits a node
    /// which is not the root, returns the new node, to be inserted into the level above.
    fn put(&self, level: u32, entry: EntryRef, child: Option<NodeRef>) -> Option<NewNode> {
        let position = entry.position(&self.region);
        loop {
            let (node, version) = self.descend(position, Bound::Through, level);
            let at = node.search(position, Bound::Through);
            // Fails if another writer changed the node first, which thereby made progress.
            let Some(lock) = node.try_lock(version) else { continue };
            if !lock.is_full() {
                lock.insert(at, entry, child);
                return None;
            }
            let right = lock.split(at, entry, child);
            // Only the thread that has the root locked replaces it.
            if self.root.load(Relaxed) == node.at().number() {
                self.root.store(Node::make_root(node, right).number(), Release);
                return None;
            }
            return Some(right);
        }
    }

    /// The newest version of `key` with a trailer of at most `at`.
    #[must_use]
    pub fn get(&self, key: &[u8], at: Trailer) -> Option<(Trailer, &[u8])> {
        let (trailer, entry) = self.find(key, at)?;
        Some((trailer, entry.value(&self.region)))
    }

    /// As [`OrderedMap::get`]; the value keeps the map alive.
    #[must_use]
    pub fn get_shared(self: &Arc<Self>, key: &[u8], at: Trailer) -> Option<(Trailer, ValueRef)> {
        let (trailer, value) = self.get(key, at)?;
        Some((trailer, ValueRef { value: NonNull::from(value), _map: Arc::clone(self) }))
    }

    fn find(&self, key: &[u8], at: Trailer) -> Option<(Trailer, EntryRef)> {
        if !self.has_root() {
            return None;
        }
        let position = Position { key, trailer: at };
        loop {
            let (leaf, version) = self.descend(position, Bound::Through, 0);
            let slot = leaf.search(position, Bound::Before);
            // After the last slot, the next entry is the one at which the right neighbour starts.
            let is_past_last = slot >= leaf.count();
            let entry = if is_past_last { leaf.high() } else { leaf.entry(slot) };
            if leaf.unchanged(version) {
                invariant!(is_past_last || entry.is_some(), "a slot below the count is filled");
                let entry = entry?;
                let found = entry.position(&self.region);
                debug_assert!(found >= position, "a get finds no entry before its target");
                return (found.key == key).then_some((found.trailer, entry));
            }
        }
    }

    /// A cursor that is not on an entry yet.
    #[must_use]
    pub fn cursor(self: &Arc<Self>) -> Cursor {
        Cursor::new(Arc::clone(self))
    }

    /// The number of versions inserted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts.iter().map(|CachePadded(count)| count.entries.load(Relaxed)).sum()
    }

    /// Whether no version was inserted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of all keys and values inserted.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.counts.iter().map(|CachePadded(count)| count.data_bytes.load(Relaxed)).sum()
    }

    /// The bytes charged for the map.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.region.charged()
    }

    /// Prefaults memory before inserts need it: up to `ahead` bytes behind the charged ones and up to `most`
    /// in all, as far as the budget has room. It is charged to the pool's account. Does nothing if the map
    /// has no pool or has charged less than 2 MiB. For a background task.
    pub fn prefault(&self, ahead: u64, most: u64) {
        self.region.prefault(ahead, most);
    }

    /// Gives back prefaulted memory that inserts have not reached.
    pub fn release_prefaulted(&self) {
        self.region.release_prefaulted();
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// The leftmost leaf; `None` before the first insert.
    pub(crate) fn first_leaf(&self) -> Option<Node<'_>> {
        // Acquire: the leaf is complete.
        Some(NodeRef::of(self.first_leaf.load(Acquire))?.get(&self.region))
    }

    /// Whether there was an insert. Readers ask before they search, so that a read of an empty map makes no
    /// root.
    pub(crate) fn has_root(&self) -> bool {
        self.root.load(Relaxed) != 0
    }

    /// The root. Another thread may have split it and not yet replaced it. The first call makes it.
    pub(crate) fn root(&self) -> Node<'_> {
        // Acquire: the root is complete.
        let root = NodeRef::of(self.root.load(Acquire)).unwrap_or_else(|| self.make_first_leaf());
        root.get(&self.region)
    }

    /// Makes the first leaf the root. Of several threads that call this at once, one makes the leaf, and the
    /// memory of the others' is lost until the map is dropped.
    #[cold]
    fn make_first_leaf(&self) -> NodeRef {
        let own = Node::make(&self.region, 0, None, None);
        let first = self.first_leaf.compare_exchange(0, own.number(), AcqRel, Acquire);
        let first = first.err().and_then(NodeRef::of).unwrap_or(own);
        // Fails if another thread stored it, and perhaps split it since.
        let root = self.root.compare_exchange(0, first.number(), AcqRel, Acquire);
        root.err().and_then(NodeRef::of).unwrap_or(first)
    }

    /// The node of `level` in which the search for `position` ends, and a version at which `position` lay
    /// within the node's bounds.
    pub(crate) fn descend(
        &self,
        position: Position<'_>,
        bound: Bound,
        level: u32,
    ) -> (Node<'_>, Version) {
        let mut node = self.root();
        debug_assert!(node.level() >= level, "a split of the root adds the level above");
        let mut version = node.begin();
        // The upper bound of the node according to its parent; `position` is before it. Usually it equals the
        // node's own upper bound, and then the search need not read that key.
        let mut upper = None;
        loop {
            let high = node.high();
            let (to, to_upper) = if high != upper && node.is_beyond(position, bound) {
                (node.next(), upper)
            } else if node.level() == level {
                return (node, version);
            } else {
                let at = node.search(position, bound);
                let to_upper = if at < node.count() { node.entry(at) } else { high };
                (node.child(at), to_upper)
            };
            if let Some(to) = to.filter(|_| node.unchanged(version)) {
                to.prefetch(&self.region);
                (node, upper) = (to.get(&self.region), to_upper);
            }
            version = node.begin();
        }
    }
}

impl fmt::Debug for OrderedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OrderedMap({} entries, {} B charged)", self.len(), self.bytes())
    }
}

/// A value in a map, not copied. It keeps the map alive; cheap to clone.
#[derive(Clone)]
pub struct ValueRef {
    value: NonNull<[u8]>,
    _map: Arc<OrderedMap>,
}

// SAFETY: the value never changes, and `_map`, which is `Sync`, keeps its memory.
unsafe impl Send for ValueRef {}
// SAFETY: as above.
unsafe impl Sync for ValueRef {}

impl Deref for ValueRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: entries never move or change while the map exists, and `_map` keeps it.
        unsafe { self.value.as_ref() }
    }
}

impl AsRef<[u8]> for ValueRef {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for ValueRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueRef({} B)", self.len())
    }
}

#[cfg(test)]
mod tests;
