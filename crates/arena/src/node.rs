//! Nodes of an ordered map's tree: sorted slots under a sequence lock.
//!
//! A slot refers to an entry and holds the *head* of its key: the eight bytes that tell the keys of this node
//! apart. A search compares heads, and reads keys only if heads are equal. All keys of a node share the bytes
//! before the head, because the node's bounds share them; the search skips those bytes.
//!
//! Invariants: slots `0..count` are in the order of [`Position`], and all lie in `low..high`. `low`, `level`
//! and `first_child` never change; `high` only decreases; a node is never freed before its region. In an
//! inner node, child `i` starts at the entry of slot `i - 1`, and the first child starts at the node's `low`.
//!
//! Concurrency: a writer makes `version` odd, changes the node, and makes `version` even again. A reader
//! reads without a lock and then checks that `version` is still the even number that it saw first; otherwise
//! it discards the result. All fields are atomic, so a torn read is a wrong answer that is discarded and not
//! undefined behaviour. References to entries and nodes are stored with `Release` and loaded with `Acquire`,
//! so even a torn read yields only references to complete entries and nodes.

mod lock;

use base::{broken_invariant, invariant};

pub(crate) use lock::{NewNode, NodeLock};

use crate::entry::{EntryRef, Position};
use crate::prefetch::{self, LINE_BYTES};
use crate::region::{Region, RegionOffset};
use crate::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use crate::sync::{spin_loop, yield_now};

/// Slots of a node. A leaf with 40 has 8 cache lines. Fewer slots make the tree deeper; more make inserts
/// move more bytes. Few under Miri and shuttle, in which tests cannot afford many entries.
pub(crate) const SLOTS: usize =
    if cfg!(any(miri, all(test, feature = "shuttle"))) { 4 } else { 40 };

/// Checks of a locked node before the reader yields its core to the writer.
const SPINS: u32 = 100;

#[repr(C, align(64))]
struct Fields {
    version: AtomicU32,
    count: AtomicU32,
    skip: AtomicU32,
    /// 0 for a leaf.
    level: u32,
    /// Offset of the entry at the inclusive lower bound; 0 in the first node of a level, which has no bound.
    low: u32,
    /// Offset of the entry at the exclusive upper bound; 0 in the last node of a level, which has no bound.
    high: AtomicU32,
    /// The right neighbour; 0 in the last node of a level.
    next: AtomicU32,
    first_child: u32,
    heads: [AtomicU64; SLOTS],
    entries: [AtomicU32; SLOTS],
}

/// An inner node.
#[repr(C)]
struct InnerFields {
    fields: Fields,
    /// Child `i + 1`, which starts at the entry of slot `i`.
    children: [AtomicU32; SLOTS],
}

// A leaf fills whole cache lines.
const _: () = assert!(SLOTS != 40 || size_of::<Fields>() == 8 * LINE_BYTES);

/// The most bytes of a leaf, with its alignment.
pub(crate) const LEAF_BYTES: usize = size_of::<Fields>() + align_of::<Fields>();
/// The most bytes of an inner node, with its alignment.
pub(crate) const INNER_BYTES: usize = size_of::<InnerFields>() + align_of::<InnerFields>();

/// The entries that a search for a position passes over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The entries before the position.
    Before,
    /// The entries before the position, and the entry at it.
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

/// A reference to a node, as an offset in its region. The node is complete before a reference exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeRef(RegionOffset);

impl NodeRef {
    /// The number to store for this reference; never 0.
    pub(crate) const fn number(self) -> u32 {
        RegionOffset::number(Some(self.0))
    }

    /// The reference of a stored number; `None` for 0.
    pub(crate) fn of(number: u32) -> Option<Self> {
        RegionOffset::of(number).map(Self)
    }

    /// The node.
    #[inline]
    pub(crate) fn get(self, region: &Region) -> Node<'_> {
        // SAFETY: `Node::make` stored a node here before it returned this reference, and the region keeps it.
        // The node is changed only through atomics.
        let fields = unsafe { region.address(self.0).cast::<Fields>().as_ref() };
        Node { at: self, region, fields }
    }

    /// Prefetches a whole leaf, or the same part of an inner node.
    #[inline]
    pub(crate) fn prefetch(self, region: &Region) {
        prefetch::lines(region.address(self.0), size_of::<Fields>());
    }
}

/// A version of a node. Reads since it was taken are consistent if the node still has it.
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
    /// Makes an empty node in newly allocated memory of `region`.
    pub(crate) fn make(
        region: &Region,
        level: u32,
        low: Option<EntryRef>,
        first_child: Option<NodeRef>,
    ) -> NodeRef {
        invariant!((level > 0) == first_child.is_some(), "an inner node has a first child");
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
            let offset = region.alloc_aligned(size_of::<Fields>(), align_of::<Fields>());
            // SAFETY: the allocation has a leaf's size and alignment, and no other thread has its offset.
            unsafe { region.address(offset).cast::<Fields>().write(fields) };
            return NodeRef(offset);
        }
        let children = std::array::from_fn(|_| AtomicU32::new(0));
        let offset = region.alloc_aligned(size_of::<InnerFields>(), align_of::<InnerFields>());
        let inner = InnerFields { fields, children };
        // SAFETY: as above, for an inner node.
        unsafe { region.address(offset).cast::<InnerFields>().write(inner) };
        NodeRef(offset)
    }

    /// A root over `left` and its new right neighbour.
    pub(crate) fn make_root(left: Node<'_>, right: NewNode) -> NodeRef {
        let root = Self::make(left.region, left.level() + 1, None, Some(left.at));
        let node = root.get(left.region);
        match node.try_lock(node.begin()) {
            Some(lock) => lock.insert(0, right.low, Some(right.node)),
            None => {
                broken_invariant!("no other thread locks a new root");
            }
        }
        root
    }

    /// The reference to this node.
    #[inline]
    pub(crate) fn at(self) -> NodeRef {
        self.at
    }

    /// The region of the node.
    #[inline]
    pub(crate) fn region(self) -> &'a Region {
        self.region
    }

    /// Waits until no writer has the node locked, and returns its version.
    #[inline]
    pub(crate) fn begin(self) -> Version {
        let mut spins = 0;
        loop {
            // Acquire: the reader sees the changes of the last writer.
            let version = self.fields.version.load(Acquire);
            if version.is_multiple_of(2) {
                return Version(version);
            }
            spins += 1;
            if spins < SPINS { spin_loop() } else { yield_now() }
        }
    }

    /// Whether the node has not changed since [`Node::begin`] returned `version`.
    #[inline]
    pub(crate) fn unchanged(self, version: Version) -> bool {
        // The fence orders the reader's loads before the load of the version. It pairs with the fence in
        // `try_lock`: a reader that saw any of a writer's stores sees its odd version or a later one.
        fence(Acquire);
        self.fields.version.load(Relaxed) == version.0
    }

    /// Locks the node for writing if it has not changed since [`Node::begin`] returned `version`.
    #[inline]
    pub(crate) fn try_lock(self, Version(version): Version) -> Option<NodeLock<'a>> {
        debug_assert!(version.is_multiple_of(2), "a reader begins while no writer has the node");
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
        // Acquire: every slot below a count that was ever stored refers to an entry.
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

    /// The entry of slot `at`; `None` if the slot was never filled.
    #[inline]
    pub(crate) fn entry(self, at: usize) -> Option<EntryRef> {
        EntryRef::of(self.fields.entries.get(at)?.load(Acquire))
    }

    /// Child `at` of the `count + 1` children; `None` in a leaf.
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
        // SAFETY: `make` stored an `InnerFields` for every node above level 0.
        let inner = unsafe { self.region.address(self.at.0).cast::<InnerFields>().as_ref() };
        &inner.children
    }

    /// The number of slots that a search for `position` passes over. `position` lies within the node's
    /// bounds.
    #[inline]
    pub(crate) fn search(self, position: Position<'_>, bound: Bound) -> usize {
        let count = self.count();
        let head = head_of(position.key, self.fields.skip.load(Relaxed) as usize);
        let from = partition_point(0, count, |at| self.head(at) < head);
        if from == count || self.head(from) != head {
            return from;
        }
        // For equal heads, compare the keys.
        let to = partition_point(from, count, |at| self.head(at) == head);
        partition_point(from, to, |at| {
            self.entry(at).is_some_and(|entry| bound.passes(entry.position(self.region), position))
        })
    }

    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "a slot is below the count, which is at most SLOTS"
    )]
    fn head(self, at: usize) -> u64 {
        self.fields.heads[at].load(Relaxed)
    }

    /// Whether the search for `position` must continue in the right neighbour.
    #[inline]
    pub(crate) fn is_beyond(self, position: Position<'_>, bound: Bound) -> bool {
        self.high().is_some_and(|high| match bound {
            // If the right neighbour starts at `position`, the last entry before it is in this node.
            Bound::Before => high.position(self.region) < position,
            Bound::Through => high.position(self.region) <= position,
        })
    }
}

/// The eight bytes of `key` after the first `skip`, as a number that sorts like them. Zeros pad a short key.
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

/// The first slot in `from..to` for which `passes` is false; it is true for all slots before. Branch-free.
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
