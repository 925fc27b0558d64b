//! A cursor over an ordered map: seeks and steps both ways, while writers go on inserting.
//!
//! It stands on an entry or nowhere. Entries never go away, so it never loses its place; it sees an
//! entry inserted ahead of it, or not, and each at most once in one direction.
//!
//! It remembers the leaf and slot of its entry with the leaf's version: while that holds, a step is
//! one slot on. When a writer was there, the entry is looked for again, in that leaf or further
//! right. Stepping back over a leaf's start is a descent, since nodes know no left neighbour.

use std::fmt;
use std::sync::Arc;

use base::Trailer;

use crate::entry::{EntryRef, Position};
use crate::node::{Bound, Node, NodeRef, Version};
use crate::ordered_map::OrderedMap;

/// How many slots ahead an entry is asked for: enough steps to hide a cache miss.
const AHEAD: usize = 4;
/// How many slots ahead all of it is asked for: its first line is there by then.
const WHOLE_ENTRY_AHEAD: usize = 2;

/// A position in an [`OrderedMap`], which it keeps alive.
pub struct Cursor {
    map: Arc<OrderedMap>,
    at: Option<At>,
}

#[derive(Clone, Copy)]
struct At {
    entry: EntryRef,
    leaf: NodeRef,
    slot: usize,
    version: Version,
}

impl Cursor {
    pub(crate) fn new(map: Arc<OrderedMap>) -> Self {
        Self { map, at: None }
    }

    /// Whether the cursor stands on an entry.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.at.is_some()
    }

    /// The entry's key; empty where the cursor is not valid.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.position().map_or(&[], |position| position.key)
    }

    /// The entry's trailer; where the cursor is not valid, the smallest.
    #[must_use]
    pub fn trailer(&self) -> Trailer {
        self.position().map_or(Trailer::from_word(0), |position| position.trailer)
    }

    /// The entry's value; empty where the cursor is not valid.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.at.map_or(&[], |at| at.entry.value(self.map.region()))
    }

    fn position(&self) -> Option<Position<'_>> {
        Some(self.at?.entry.position(self.map.region()))
    }

    /// Moves to the first entry.
    pub fn seek_first(&mut self) {
        let leaf = self.map.first_leaf();
        self.at = loop {
            let version = leaf.begin();
            if let Some(at) = stand(leaf, version, 0) {
                break at;
            }
        };
    }

    /// Moves to the last entry.
    pub fn seek_last(&mut self) {
        let mut node = self.map.root().unwrap_or(self.map.first_leaf());
        self.at = loop {
            let version = node.begin();
            let to = node.next().or_else(|| node.child(node.count()).filter(|_| node.level() > 0));
            let last = to.is_none().then(|| node.count().checked_sub(1));
            match last {
                Some(Some(slot)) => {
                    if let Some(at) = stand(node, version, slot) {
                        break at;
                    }
                }
                Some(None) if node.unchanged(version) => break None,
                _ => {}
            }
            if let Some(to) = to.filter(|_| node.unchanged(version)) {
                node = to.get(self.map.region());
            }
        };
    }

    /// Moves to the first entry at or after (`key`, `at`): to the newest version of `key` whose
    /// trailer is at most `at`, or else to the next key.
    pub fn seek(&mut self, key: &[u8], at: Trailer) {
        let position = Position { key, trailer: at };
        self.at = loop {
            let (leaf, version) = self.map.descend(position, Bound::Through, 0);
            let slot = leaf.search(position, Bound::Before);
            if let Some(at) = stand(leaf, version, slot) {
                break at;
            }
        };
    }

    /// Moves to the last entry before (`key`, `at`).
    pub fn seek_before(&mut self, key: &[u8], at: Trailer) {
        self.at = before(&self.map, Position { key, trailer: at });
    }

    /// Moves to the next entry; no effect where the cursor is not valid.
    pub fn next(&mut self) {
        let Some(at) = self.at else { return };
        let region = self.map.region();
        let mut leaf = at.leaf.get(region);
        let mut version = leaf.begin();
        let mut slot = at.slot + 1;
        let position = at.entry.position(region);
        self.at = loop {
            if version != at.version || leaf.at() != at.leaf {
                // A split may have moved the entry to the right.
                while leaf.is_beyond(position, Bound::Through) {
                    if let Some(next) = leaf.next().filter(|_| leaf.unchanged(version)) {
                        leaf = next.get(region);
                    }
                    version = leaf.begin();
                }
                slot = leaf.search(position, Bound::Through);
            }
            if let Some(at) = stand(leaf, version, slot) {
                break at;
            }
            version = leaf.begin();
        };
    }

    /// Moves to the entry before; no effect where the cursor is not valid.
    pub fn prev(&mut self) {
        let Some(at) = self.at else { return };
        let region = self.map.region();
        let leaf = at.leaf.get(region);
        if let Some(slot) = at.slot.checked_sub(1)
            && let Some(entry) = leaf.entry(slot)
            && leaf.unchanged(at.version)
        {
            if let Some(ahead) = slot.checked_sub(AHEAD).and_then(|slot| leaf.entry(slot)) {
                ahead.prefetch(region);
            }
            self.at = Some(At { entry, slot, ..at });
            return;
        }
        self.at = before(&self.map, at.entry.position(region));
    }
}

/// The entry in `slot` of `leaf`, or of the next one if the slot is past the last; where writers are, a
/// guess.
fn ahead(leaf: Node<'_>, slot: usize) -> Option<EntryRef> {
    match slot.checked_sub(leaf.count()) {
        None => leaf.entry(slot),
        Some(slot) => leaf.next()?.get(leaf.region()).entry(slot),
    }
}

/// Where a cursor stands in `slot` of `leaf`, or at the start of the next leaf if the slot is past
/// the last; `None` inside where nothing follows, outside where the leaf changed.
fn stand(leaf: Node<'_>, version: Version, slot: usize) -> Option<Option<At>> {
    if slot < leaf.count() {
        let entry = leaf.entry(slot)?;
        if slot == 0 {
            (1..AHEAD)
                .filter_map(|slot| leaf.entry(slot))
                .for_each(|ahead| ahead.prefetch(leaf.region()));
        }
        if let Some(ahead) = ahead(leaf, slot + AHEAD) {
            ahead.prefetch(leaf.region());
        }
        if let Some(ahead) = ahead(leaf, slot + WHOLE_ENTRY_AHEAD) {
            ahead.prefetch_rest(leaf.region());
        }
        if slot + 2 * AHEAD == leaf.count()
            && let Some(next) = leaf.next()
        {
            next.prefetch(leaf.region());
        }
        return leaf.unchanged(version).then_some(Some(At {
            entry,
            leaf: leaf.at(),
            slot,
            version,
        }));
    }
    let next = leaf.next();
    if !leaf.unchanged(version) {
        return None;
    }
    let Some(next) = next else { return Some(None) };
    next.prefetch(leaf.region());
    let next = next.get(leaf.region());
    // What a leaf starts at stays its first entry.
    stand(next, next.begin(), 0)
}

/// Where a cursor stands on the last entry before `position`.
fn before(map: &OrderedMap, position: Position<'_>) -> Option<At> {
    loop {
        let (leaf, version) = map.descend(position, Bound::Before, 0);
        let slot = leaf.search(position, Bound::Before).checked_sub(1);
        let entry = slot.and_then(|slot| leaf.entry(slot));
        if leaf.unchanged(version) {
            // Every leaf but the first starts at an entry before the position.
            let (slot, entry) = (slot?, entry?);
            return Some(At { entry, leaf: leaf.at(), slot, version });
        }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({:?})", self.position().map(|position| position.trailer))
    }
}
