//! The writer's side of a node: inserting into it and splitting it, while it is locked.

use super::{Node, NodeRef, SLOTS, head_of};
use crate::entry::EntryRef;
use crate::sync::atomic::Ordering::{Relaxed, Release};

/// Bytes that a node's bounds must newly agree in before its heads are made anew: until then at
/// least four bytes of each head tell keys apart.
const SKIP_STEP: usize = 4;

/// A node locked for writing; unlocked, with a new version, on drop.
pub(crate) struct NodeLock<'a> {
    pub(super) node: Node<'a>,
    /// The even version from before.
    pub(super) version: u32,
}

/// What a slot below a locked node's count holds. An insert that could not find it would be lost
/// after it was logged: the process ends instead.
#[expect(clippy::expect_used, reason = "slots below the count are filled before it is raised")]
fn present<T>(slot: Option<T>) -> T {
    slot.expect("a slot below the count is filled")
}

impl NodeLock<'_> {
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.node.count() == SLOTS
    }

    /// Puts `entry` (and the child that starts there) into slot `at`; the node is not full.
    #[inline]
    pub(crate) fn insert(&self, at: usize, entry: EntryRef, child: Option<NodeRef>) {
        let skip = self.node.fields.skip.load(Relaxed) as usize;
        let count = self.node.count();
        self.open(at, count);
        self.set(at, head_of(entry.position(self.node.region).key, skip), entry, child);
        self.node.fields.count.store(count as u32 + 1, Release);
    }

    /// Splits the full node in two and inserts `entry` where slot `at` was; returns the new right
    /// node and the entry it starts at.
    ///
    /// An insert at the very end of a level leaves the left node full, since what comes next is
    /// most likely behind it as well: a sequential load fills all its nodes.
    pub(crate) fn split(
        &self,
        at: usize,
        entry: EntryRef,
        child: Option<NodeRef>,
    ) -> (EntryRef, NodeRef) {
        let (node, count) = (self.node, self.node.count());
        let inner = node.fields.level > 0;
        let appended = at == count && node.high().is_none();
        let middle = if appended { count } else { count / 2 };
        let low = if appended { entry } else { present(node.entry(middle)) };
        // An inner node's middle entry moves up: its child becomes the first of the right node.
        let first_child = match (inner, appended) {
            (false, _) => None,
            (true, true) => child,
            (true, false) => Some(present(node.child(middle + 1))),
        };
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
                present(node.entry(from)),
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
            // Moved up itself, or the first of the right leaf.
            _ if appended && inner => {}
            Some(at) if at > 0 || appended || inner => right.insert(at, entry, child),
            _ => self.insert(at, entry, child),
        }
        (low, right_at)
    }

    /// Skips the bytes in which the node's bounds agree, if they are enough more to be worth it.
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
            if let Some(entry) = EntryRef::of(entry.load(Relaxed)) {
                head.store(head_of(entry.position(self.node.region).key, agree), Relaxed);
            }
        }
    }

    /// Moves the slots `at..count` up by one.
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
