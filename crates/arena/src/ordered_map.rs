//! The ordered map of a memtable: versions by key, newest first, filled by many threads at once.
//!
//! It is a B-link tree (Lehman and Yao, 1981) over entries in one region. Every node knows the node
//! to its right and where that starts, so a node can be split and its parent told afterwards:
//! whoever comes to a node too far left moves right. A writer locks one node at a time; readers
//! lock none, they read and check (see [`crate::node`]). Nothing is removed before the whole map.
//!
//! Invariants: see [`crate::node`]. Entries never move or change, so what a reader was given stays
//! good as long as it has the map.
//!
//! Concurrency: any number of readers and writers. A reader waits only while a writer is inside
//! the very node it reads. Cost: docs/performance.md. An entry takes 16 B of header and its share of a
//! leaf, 13 B where leaves are full and twice that where they are half full.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use base::{Account, Result, Trailer};

use crate::cursor::Cursor;
use crate::entry::{EntryRef, Position};
use crate::node::{Bound, INNER_BYTES, LEAF_BYTES, Node, NodeRef, SLOTS, Version};
use crate::region::Region;
use crate::region_pool::RegionPool;
use crate::stripe::{STRIPES, own_stripe};
use crate::sync::CachePadded;
use crate::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// More levels than a region full of entries has.
const LEVELS_MAX: usize = 32;

/// What an empty map commits: the first leaf and, on every level, the one node that may be less
/// than half full.
const EMPTY_BYTES: u64 = (LEAF_BYTES + LEVELS_MAX * INNER_BYTES) as u64;

/// The fewest entries, or children, of a node that is not the last of its level.
const HALF: usize = SLOTS / 2;

/// The most bytes an entry takes beyond its key and value: its header, its part of a leaf that is
/// half full, and its part of the nodes above, of which each level has `HALF` times fewer.
const ENTRY_BYTES_MAX: u64 = (EntryRef::OVERHEAD_BYTES
    + LEAF_BYTES.div_ceil(HALF)
    + INNER_BYTES.div_ceil(HALF * (HALF - 1))) as u64;

/// An ordered concurrent map from (key, trailer) to value.
pub struct OrderedMap {
    region: Region,
    root: AtomicU32,
    /// The leftmost leaf: splits only make nodes to the right.
    first_leaf: NodeRef,
    counts: [CachePadded<Count>; STRIPES],
}

/// What the threads of one stripe inserted.
#[derive(Default)]
struct Count {
    entries: AtomicU64,
    data_bytes: AtomicU64,
}

impl OrderedMap {
    /// An empty map; charges its first 64 KiB.
    ///
    /// # Errors
    /// `Retry` where the budget does not hold them.
    pub fn new(account: &Account) -> Result<Arc<Self>> {
        Ok(Self::of(Region::new(account, EMPTY_BYTES)?))
    }

    /// As [`OrderedMap::new`], in memory that `pool` keeps, if there is some, and which the pool gets
    /// back. `likely` is how many bytes the map will probably charge.
    ///
    /// # Errors
    /// As [`OrderedMap::new`].
    pub fn pooled(pool: &Arc<RegionPool>, account: &Account, likely: u64) -> Result<Arc<Self>> {
        Ok(Self::of(Region::pooled(pool, account, likely, EMPTY_BYTES)?))
    }

    fn of(region: Region) -> Arc<Self> {
        let first_leaf = Node::make(&region, 0, None, None);
        let root = AtomicU32::new(first_leaf.number());
        Arc::new(Self { region, root, first_leaf, counts: Default::default() })
    }

    /// Charges for `entries` inserts of `bytes` of keys and values in all: after it, they cannot
    /// fail for want of memory. What is charged for inserts that never come stays charged until
    /// the map is dropped.
    ///
    /// # Errors
    /// `Retry` where the budget does not hold them; nothing is charged.
    pub fn reserve(&self, entries: usize, bytes: usize) -> Result<()> {
        self.region.commit(Self::reserved_bytes(entries, bytes))
    }

    /// What [`OrderedMap::reserve`] charges for, bytes.
    #[must_use]
    pub const fn reserved_bytes(entries: usize, bytes: usize) -> u64 {
        ENTRY_BYTES_MAX.saturating_mul(entries as u64).saturating_add(bytes as u64)
    }

    /// Inserts a version. (key, trailer) must be new to the map, and reserved before.
    ///
    /// # Panics
    /// Where nothing was reserved for it and the map has reached the largest size of all.
    pub fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let entry = EntryRef::write(&self.region, Position { key, trailer }, value);
        let mut pending = self.put(0, entry, None);
        for level in 1.. {
            let Some((low, right)) = pending else { break };
            pending = self.put(level, low, Some(right));
        }
        if let Some(CachePadded(count)) = self.counts.get(own_stripe()) {
            count.entries.fetch_add(1, Relaxed);
            count.data_bytes.fetch_add((key.len() + value.len()) as u64, Relaxed);
        }
    }

    /// Puts `entry` (and the node that starts there) into its node of `level`; if that was split,
    /// returns what the level above must be told.
    fn put(
        &self,
        level: u32,
        entry: EntryRef,
        child: Option<NodeRef>,
    ) -> Option<(EntryRef, NodeRef)> {
        let position = entry.position(&self.region);
        loop {
            let (node, version) = self.descend(position, Bound::Through, level);
            let at = node.search(position, Bound::Through);
            // Refused where another writer changed the node first: then that one made progress.
            let Some(lock) = node.try_lock(version) else { continue };
            if !lock.is_full() {
                lock.insert(at, entry, child);
                return None;
            }
            let right = lock.split(at, entry, child);
            // Only whoever has the root locked replaces it.
            if self.root.load(Relaxed) == node.at().number() {
                self.root.store(Node::make_root(node, right).number(), Release);
                return None;
            }
            return Some(right);
        }
    }

    /// The newest version of `key` whose trailer is at most `at`.
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
        let position = Position { key, trailer: at };
        loop {
            let (leaf, version) = self.descend(position, Bound::Through, 0);
            let slot = leaf.search(position, Bound::Before);
            // Past the last slot, the next entry is the one the next leaf starts at.
            let entry = if slot < leaf.count() { leaf.entry(slot) } else { leaf.high() };
            if leaf.unchanged(version) {
                let entry = entry?;
                let found = entry.position(&self.region);
                return (found.key == key).then_some((found.trailer, entry));
            }
        }
    }

    /// A cursor, before the first entry.
    #[must_use]
    pub fn cursor(self: &Arc<Self>) -> Cursor {
        Cursor::new(Arc::clone(self))
    }

    /// Versions inserted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts.iter().map(|CachePadded(count)| count.entries.load(Relaxed)).sum()
    }

    /// Whether nothing was inserted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of keys and values inserted.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.counts.iter().map(|CachePadded(count)| count.data_bytes.load(Relaxed)).sum()
    }

    /// Bytes charged.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.region.charged()
    }

    /// Takes memory before inserts need it, up to `ahead` bytes in front of what is charged and `most`
    /// in all, where the map is pooled, no longer small, and the budget holds it. It is charged to
    /// the pool's account. For a task in the background.
    pub fn prefault(&self, ahead: u64, most: u64) {
        self.region.prefault(ahead, most);
    }

    /// Gives back what was taken and is not needed yet.
    pub fn release_prefaulted(&self) {
        self.region.release_prefaulted();
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn first_leaf(&self) -> Node<'_> {
        self.first_leaf.get(&self.region)
    }

    /// The topmost node; it may be on its way to being split.
    pub(crate) fn root(&self) -> Option<Node<'_>> {
        // Acquire: a new root is whole.
        Some(NodeRef::of(self.root.load(Acquire))?.get(&self.region))
    }

    /// The node of `level` in which entries end to be passed over by `bound`, and a version at
    /// which `position` lay within its bounds.
    pub(crate) fn descend(
        &self,
        position: Position<'_>,
        bound: Bound,
        level: u32,
    ) -> (Node<'_>, Version) {
        let mut node = self.root().unwrap_or(self.first_leaf());
        let mut version = node.begin();
        // Where the node ends as far as its parent knows; `position` lies before that. Mostly it is
        // where the node does end, and then no key need be read to know it.
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

/// A value of a map, which it keeps alive. No copy; cheap to clone.
#[derive(Clone)]
pub struct ValueRef {
    value: NonNull<[u8]>,
    _map: Arc<OrderedMap>,
}

// SAFETY: the value never changes, and the map, which is `Sync`, is kept alive.
unsafe impl Send for ValueRef {}
// SAFETY: as above.
unsafe impl Sync for ValueRef {}

impl Deref for ValueRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: entries never move or change while the map lives, and `_map` keeps it.
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
