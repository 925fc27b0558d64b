//! A node locked for writing: inserting an entry and splitting the node.
//!
//! Readers may read the node at any time: each store keeps it readable, and the version tells them to retry.

use super::{Node, NodeRef, SLOTS, head_of};
use base::invariant;

use crate::entry::EntryRef;
use crate::sync::atomic::Ordering::{Relaxed, Release};

/// The increase of the common prefix of a node's bounds from which its heads are computed anew. With less, at
/// least four bytes of each head still tell keys apart.
const SKIP_STEP: usize = 4;

/// Whether to check the order of slots at each insert. Not under shuttle, for which every load is a step.
const CHECK_ORDER: bool = !cfg!(all(test, feature = "shuttle"));

/// A node locked for writing. Dropping it unlocks the node, with a new version.
pub(crate) struct NodeLock<'a> {
    pub(super) node: Node<'a>,
    /// The even version before the lock.
    pub(super) version: u32,
}

/// The node that a split adds to the right of a node.
pub(crate) struct NewNode {
    pub(crate) node: NodeRef,
    /// The entry at which the node starts.
    pub(crate) low: EntryRef,
}

/// The content of a slot below the count of a locked node. If the slot were empty, the insert could not go on
/// although its record is in the log, so the thread panics in release builds, too.
#[expect(clippy::expect_used, reason = "slots below the count are filled before it is raised")]
fn filled<T>(slot: Option<T>) -> T {
    slot.expect("a slot below the count is filled")
}

impl NodeLock<'_> {
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.node.count() == SLOTS
    }

    /// Inserts `entry` at slot `at`; in an inner node with `child`, whose first entry it is. The node is not
    /// full.
    #[inline]
    pub(crate) fn insert(&self, at: usize, entry: EntryRef, child: Option<NodeRef>) {
        let skip = self.node.fields.skip.load(Relaxed) as usize;
        let count = self.node.count();
        invariant!(count < SLOTS, "a full node is split before an insert");
        debug_assert!(
            child.is_some() == (self.node.fields.level > 0),
            "each slot of an inner node has a child"
        );
        debug_assert!(
            !CHECK_ORDER || self.is_in_order(at, count, entry),
            "slots are sorted, and an entry is inserted once"
        );
        self.open(at, count);
        self.set(at, head_of(entry.position(self.node.region).key, skip), entry, child);
        self.node.fields.count.store(count as u32 + 1, Release);
    }

    /// Whether `entry` sorts after the slots below `at` and before the slots from `at` on.
    fn is_in_order(&self, at: usize, count: usize, entry: EntryRef) -> bool {
        let position = |entry: EntryRef| entry.position(self.node.region);
        let previous = at.checked_sub(1).and_then(|slot| self.node.entry(slot));
        let next = if at < count { self.node.entry(at) } else { None };
        previous.is_none_or(|previous| position(previous) < position(entry))
            && next.is_none_or(|next| position(entry) < position(next))
    }

    /// Whether `low` is before the node's upper bound.
    fn lowers_high(&self, low: EntryRef) -> bool {
        let region = self.node.region;
        self.node.high().is_none_or(|high| low.position(region) < high.position(region))
    }

    /// Splits the full node in two and inserts `entry`, with its child, which a search put at slot `at`.
    /// Returns the new right node.
    ///
    /// An insert at the end of a level leaves the left node full, because the next insert is probably behind
    /// it, too: so a sequential load fills all nodes.
    pub(crate) fn split(&self, at: usize, entry: EntryRef, child: Option<NodeRef>) -> NewNode {
        let (node, count) = (self.node, self.node.count());
        invariant!(count == SLOTS, "only a full node is split");
        let inner = node.fields.level > 0;
        let appended = at == count && node.high().is_none();
        let middle = if appended { count } else { count / 2 };
        let low = if appended { entry } else { filled(node.entry(middle)) };
        // The middle entry of an inner node moves up; its child becomes the first child of the right node.
        let first_child = match (inner, appended) {
            (false, _) => None,
            (true, true) => child,
            (true, false) => Some(filled(node.child(middle + 1))),
        };
        debug_assert!(
            !CHECK_ORDER || self.lowers_high(low),
            "the upper bound of a node only decreases"
        );
        let from = middle + usize::from(inner);
        let right_at = Node::make(node.region, node.fields.level, Some(low), first_child);
        let right = NodeLock { node: right_at.get(node.region), version: 0 };
        right.node.fields.high.store(node.fields.high.load(Relaxed), Release);
        right.node.fields.next.store(node.fields.next.load(Relaxed), Release);
        right.node.fields.skip.store(node.fields.skip.load(Relaxed), Relaxed);
        for (to, from) in (from..count).enumerate() {
            right.set(
                to,
                node.head(from),
                filled(node.entry(from)),
                node.child(from + 1).filter(|_| inner),
            );
        }
        right.node.fields.count.store(count.saturating_sub(from) as u32, Release);
        node.fields.count.store(middle as u32, Release);
        node.fields.high.store(EntryRef::number(Some(low)), Release);
        node.fields.next.store(right_at.number(), Release);
        self.raise_skip();
        right.raise_skip();
        match at.checked_sub(from) {
            // The entry itself moved up.
            _ if appended && inner => {}
            Some(at) if at > 0 || appended || inner => right.insert(at, entry, child),
            _ => self.insert(at, entry, child),
        }
        NewNode { node: right_at, low }
    }

    /// Computes the heads anew if the node's bounds share at least [`SKIP_STEP`] more bytes than the heads
    /// skip.
    fn raise_skip(&self) {
        let (Some(low), Some(high)) = (EntryRef::of(self.node.fields.low), self.node.high()) else {
            return;
        };
        let (low, high) = (low.position(self.node.region).key, high.position(self.node.region).key);
        let agree = low.iter().zip(high).take_while(|(low, high)| low == high).count();
        if agree < self.node.fields.skip.load(Relaxed) as usize + SKIP_STEP {
            return;
        }
        self.node.fields.skip.store(agree as u32, Relaxed);
        for (head, entry) in
            self.node.fields.heads.iter().zip(&self.node.fields.entries).take(self.node.count())
        {
            let entry = filled(EntryRef::of(entry.load(Relaxed)));
            head.store(head_of(entry.position(self.node.region).key, agree), Relaxed);
        }
    }

    /// Moves the slots `at..count` one up, from the last on.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "at <= count < SLOTS: the node is not full")]
    fn open(&self, at: usize, count: usize) {
        let node = self.node;
        for from in (at..count).rev() {
            node.fields.heads[from + 1].store(node.fields.heads[from].load(Relaxed), Relaxed);
            node.fields.entries[from + 1].store(node.fields.entries[from].load(Relaxed), Release);
        }
        for from in (at..count).rev().take_while(|_| node.fields.level > 0) {
            let children = node.children();
            children[from + 1].store(children[from].load(Relaxed), Release);
        }
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "at < SLOTS: the node was not full")]
    fn set(&self, at: usize, head: u64, entry: EntryRef, child: Option<NodeRef>) {
        self.node.fields.heads[at].store(head, Relaxed);
        self.node.fields.entries[at].store(EntryRef::number(Some(entry)), Release);
        if let Some(child) = child {
            self.node.children()[at].store(child.number(), Release);
        }
    }
}

impl Drop for NodeLock<'_> {
    #[inline]
    fn drop(&mut self) {
        self.node.fields.version.store(self.version.wrapping_add(2), Release);
    }
}
