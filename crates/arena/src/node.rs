//! Nodes of the map's tree: sorted slots under a sequence lock.
//!
//! A slot names an entry and holds the eight bytes of its key that tell the node's keys apart, its
//! *head*: the search of a node reads the node and no key, unless heads are equal. All keys of a
//! node share the bytes before the head, since they share the bytes in which the node's bounds
//! agree; those bytes are skipped.
//!
//! Invariants: slots `0..count` are in the order of [`Position`], all in `low..high`. `low`, `level`
//! and `first_child` never change; `high` only falls; a node never goes away. An inner node's child
//! `i` starts at the entry of slot `i - 1`; its first child at the node's own `low`.
//!
//! Concurrency: a writer makes `version` odd, changes the node, and makes it even again. A reader
//! reads whatever is there, then checks that the version is the even one it saw first; if not, it
//! forgets what it read. All fields are atomic, so a torn read is a wrong answer that is thrown
//! away, not undefined behaviour; entry and node places are stored with `Release` and loaded with
//! `Acquire`, so that even a torn read names only entries and nodes that are whole.

mod lock;

pub(crate) use lock::NodeLock;

use crate::entry::{EntryRef, Position};
use crate::prefetch;
use crate::region::{Region, RegionOffset};
use crate::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use crate::sync::{spin_loop, yield_now};

/// Slots of a node. With 40 a leaf is 8 cache lines; fewer make the tree deeper, more make inserts
/// move more. Small in the tests that cannot afford many entries.
pub(crate) const SLOTS: usize =
    if cfg!(any(miri, all(test, feature = "shuttle"))) { 4 } else { 40 };

/// Looks at a locked node before the reader gives its core to the writer.
const SPINS: u32 = 100;

#[repr(C, align(64))]
struct Fields {
    version: AtomicU32,
    count: AtomicU32,
    skip: AtomicU32,
    /// 0 for a leaf.
    level: u32,
    /// The first entry at or after which keys belong here; none in the first node of a level.
    low: u32,
    /// The entry from which on keys belong further right; none in the last node of a level.
    high: AtomicU32,
    /// The node to the right.
    next: AtomicU32,
    first_child: u32,
    heads: [AtomicU64; SLOTS],
    entries: [AtomicU32; SLOTS],
}

/// A node above the leaves.
#[repr(C)]
struct InnerFields {
    fields: Fields,
    /// Child `i + 1`, which starts at the entry of slot `i`.
    children: [AtomicU32; SLOTS],
}

/// The most bytes a node takes, with its alignment.
pub(crate) const LEAF_BYTES: usize = size_of::<Fields>() + align_of::<Fields>();
/// As [`LEAF_BYTES`], for a node above the leaves.
pub(crate) const INNER_BYTES: usize = size_of::<InnerFields>() + align_of::<InnerFields>();

/// Which entries a search passes over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Those before the position.
    Before,
    /// Those before the position, and the one at it.
    Through,
}

impl Bound {
    fn passes(self, entry: Position<'_>, position: Position<'_>) -> bool {
        match self {
            Self::Before => entry < position,
            Self::Through => entry <= position,
        }
    }
}

/// The place of a node: it was made whole before the place was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeRef(RegionOffset);

impl NodeRef {
    /// The number that is stored.
    pub(crate) const fn number(self) -> u32 {
        RegionOffset::number(Some(self.0))
    }

    /// The node of a stored number.
    pub(crate) fn of(number: u32) -> Option<Self> {
        RegionOffset::of(number).map(Self)
    }

    /// The node.
    #[inline]
    pub(crate) fn get(self, region: &Region) -> Node<'_> {
        // SAFETY: `Node::make` put a node here before anybody had this place, and the region
        // keeps it. It is only changed through atomics.
        let fields = unsafe { region.address(self.0).cast::<Fields>().as_ref() };
        Node { at: self, region, fields }
    }

    /// Asks the processor for the whole leaf, or the same part of an inner node.
    #[inline]
    pub(crate) fn prefetch(self, region: &Region) {
        prefetch::lines(region.address(self.0), size_of::<Fields>());
    }
}

/// A version a reader saw; what was read since is good if the node still has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version(u32);

/// A node of a region.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    at: NodeRef,
    region: &'a Region,
    fields: &'a Fields,
}

impl<'a> Node<'a> {
    /// Makes an empty node in fresh memory of `region`.
    pub(crate) fn make(
        region: &Region,
        level: u32,
        low: Option<EntryRef>,
        first_child: Option<NodeRef>,
    ) -> NodeRef {
        let fields = Fields {
            version: AtomicU32::new(0),
            count: AtomicU32::new(0),
            skip: AtomicU32::new(0),
            level,
            low: EntryRef::number(low),
            high: AtomicU32::new(0),
            next: AtomicU32::new(0),
            first_child: first_child.map_or(0, NodeRef::number),
            heads: std::array::from_fn(|_| AtomicU64::new(0)),
            entries: std::array::from_fn(|_| AtomicU32::new(0)),
        };
        if level == 0 {
            let place = region.alloc_aligned(size_of::<Fields>(), align_of::<Fields>());
            // SAFETY: the allocation is a leaf's size and alignment, and nobody else's.
            unsafe { region.address(place).cast::<Fields>().write(fields) };
            return NodeRef(place);
        }
        let children = std::array::from_fn(|_| AtomicU32::new(0));
        let place = region.alloc_aligned(size_of::<InnerFields>(), align_of::<InnerFields>());
        let inner = InnerFields { fields, children };
        // SAFETY: as above, for an inner node.
        unsafe { region.address(place).cast::<InnerFields>().write(inner) };
        NodeRef(place)
    }

    /// A root over `left` and the node to its right, which starts at `low`.
    pub(crate) fn make_root(left: Node<'_>, (low, right): (EntryRef, NodeRef)) -> NodeRef {
        let root = Self::make(left.region, left.level() + 1, None, Some(left.at));
        let node = root.get(left.region);
        // Nobody else knows the root yet, so the lock is had at once.
        if let Some(lock) = node.try_lock(node.begin()) {
            lock.insert(0, low, Some(right));
        }
        root
    }

    /// The node's place.
    #[inline]
    pub(crate) fn at(self) -> NodeRef {
        self.at
    }

    /// The region the node lies in.
    #[inline]
    pub(crate) fn region(self) -> &'a Region {
        self.region
    }

    /// Waits until no writer is at work and returns the version.
    #[inline]
    pub(crate) fn begin(self) -> Version {
        let mut spins = 0;
        loop {
            // Acquire: what the last writer left is seen.
            let version = self.fields.version.load(Acquire);
            if version.is_multiple_of(2) {
                return Version(version);
            }
            spins += 1;
            if spins < SPINS { spin_loop() } else { yield_now() }
        }
    }

    /// Whether nothing changed since `version` was begun.
    #[inline]
    pub(crate) fn unchanged(self, version: Version) -> bool {
        // The fence keeps the reads before it, and pairs with the one in `try_lock`: a reader that
        // saw any of a writer's stores sees its odd version, or a later one.
        fence(Acquire);
        self.fields.version.load(Relaxed) == version.0
    }

    /// Locks the node for writing if nothing changed since `version` was begun.
    #[inline]
    pub(crate) fn try_lock(self, Version(version): Version) -> Option<NodeLock<'a>> {
        let odd = version.wrapping_add(1);
        self.fields.version.compare_exchange(version, odd, Acquire, Relaxed).ok()?;
        fence(Release);
        Some(NodeLock { node: self, version })
    }

    #[inline]
    pub(crate) fn level(self) -> u32 {
        self.fields.level
    }

    #[inline]
    pub(crate) fn count(self) -> usize {
        // Acquire: every slot below a count that was stored once names an entry.
        (self.fields.count.load(Acquire) as usize).min(SLOTS)
    }

    #[inline]
    pub(crate) fn high(self) -> Option<EntryRef> {
        EntryRef::of(self.fields.high.load(Acquire))
    }

    #[inline]
    pub(crate) fn next(self) -> Option<NodeRef> {
        NodeRef::of(self.fields.next.load(Acquire))
    }

    /// The entry of slot `at`.
    #[inline]
    pub(crate) fn entry(self, at: usize) -> Option<EntryRef> {
        EntryRef::of(self.fields.entries.get(at)?.load(Acquire))
    }

    /// Child `at`, of `count + 1`.
    #[inline]
    pub(crate) fn child(self, at: usize) -> Option<NodeRef> {
        match at.checked_sub(1) {
            None => NodeRef::of(self.fields.first_child),
            Some(at) => NodeRef::of(self.children().get(at)?.load(Acquire)),
        }
    }

    #[inline]
    fn children(self) -> &'a [AtomicU32] {
        if self.fields.level == 0 {
            return &[];
        }
        // SAFETY: `make` put an `InnerFields` at the place of every node above the leaves.
        let inner = unsafe { self.region.address(self.at.0).cast::<InnerFields>().as_ref() };
        &inner.children
    }

    /// How many of the node's slots `bound` passes over. `position` lies within the node's bounds.
    #[inline]
    pub(crate) fn search(self, position: Position<'_>, bound: Bound) -> usize {
        let count = self.count();
        let head = head_of(position.key, self.fields.skip.load(Relaxed) as usize);
        let from = partition_point(0, count, |at| self.head(at) < head);
        if from == count || self.head(from) != head {
            return from;
        }
        // Equal heads: the keys decide.
        let to = partition_point(from, count, |at| self.head(at) == head);
        partition_point(from, to, |at| {
            self.entry(at).is_some_and(|entry| bound.passes(entry.position(self.region), position))
        })
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a slot is below a count, which is at most SLOTS")]
    fn head(self, at: usize) -> u64 {
        self.fields.heads[at].load(Relaxed)
    }

    /// Whether the position lies at or after the node's upper bound.
    #[inline]
    pub(crate) fn is_beyond(self, position: Position<'_>, bound: Bound) -> bool {
        self.high().is_some_and(|high| match bound {
            // The last entry before a position may be in this node though the next starts there.
            Bound::Before => high.position(self.region) < position,
            Bound::Through => high.position(self.region) <= position,
        })
    }
}

/// The bytes of `key` after `skip`, as a number that sorts like them; zeros where it ends.
#[inline]
fn head_of(key: &[u8], skip: usize) -> u64 {
    let Some(rest) = key.get(skip..) else { return 0 };
    if let Some(head) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    for (to, from) in head.iter_mut().zip(rest) {
        *to = *from;
    }
    u64::from_be_bytes(head)
}

/// The first of `from..to` that does not pass, where those that pass come first. Branch-free.
#[inline]
fn partition_point(from: usize, to: usize, passes: impl Fn(usize) -> bool) -> usize {
    let (mut base, mut length) = (from, to - from);
    while length > 0 {
        let half = length.div_ceil(2);
        base = if passes(base + half - 1) { base + half } else { base };
        length -= half;
    }
    base
}
