//! A cursor over an ordered map: seeks and steps in both directions while writers insert.
//!
//! A cursor is on an entry or on none. Entries are never removed, so it never loses its position. It may or
//! may not see an entry that is inserted ahead of it, and sees each entry at most once in one direction.
//!
//! A cursor remembers the leaf, the slot and the leaf's version. While the version is unchanged, a step goes
//! to the adjacent slot. Otherwise the cursor searches its entry again, in that leaf or further right. A step
//! back from the first entry of a leaf descends from the root, because nodes have no link to the left.
//!
//! Concurrency: one thread uses a cursor; it takes no lock.

use std::fmt;
use std::sync::Arc;

use base::{Trailer, invariant};

use crate::entry::{EntryRef, Position};
use crate::node::{Bound, Node, NodeRef, Version};
use crate::ordered_map::OrderedMap;

/// The distance, in slots, at which a step prefetches an entry: enough steps to hide a cache miss.
const AHEAD: usize = 4;
/// The distance, in slots, at which a step prefetches a whole entry, the first line of which is there by
/// then.
const WHOLE_ENTRY_AHEAD: usize = 2;

/// A cursor over an [`OrderedMap`], which it keeps alive.
pub struct Cursor {
    map: Arc<OrderedMap>,
    at: Option<CursorPosition>,
}

/// An entry, and its slot at a version of its leaf.
#[derive(Clone, Copy)]
struct CursorPosition {
    entry: EntryRef,
    leaf: NodeRef,
    slot: usize,
    version: Version,
}

/// The leaf changed while it was read: begin a new read of it.
struct LeafChanged;

impl Cursor {
    pub(crate) fn new(map: Arc<OrderedMap>) -> Self {
        Self { map, at: None }
    }

    /// Whether the cursor is on an entry.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.at.is_some()
    }

    /// The entry's key; empty if the cursor is not valid.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.position().map_or(&[], |position| position.key)
    }

    /// The entry's trailer; the smallest trailer if the cursor is not valid.
    #[must_use]
    pub fn trailer(&self) -> Trailer {
        self.position().map_or(Trailer::from_word(0), |position| position.trailer)
    }

    /// The entry's value; empty if the cursor is not valid.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.at.map_or(&[], |at| at.entry.value(self.map.region()))
    }

    fn position(&self) -> Option<Position<'_>> {
        Some(self.at?.entry.position(self.map.region()))
    }

    /// Moves to the first entry.
    pub fn seek_first(&mut self) {
        let Some(leaf) = self.map.first_leaf() else {
            self.at = None;
            return;
        };
        self.at = loop {
            let version = leaf.begin();
            if let Ok(at) = position_at(leaf, version, 0) {
                break at;
            }
        };
    }

    /// Moves to the last entry.
    pub fn seek_last(&mut self) {
        if !self.map.has_root() {
            self.at = None;
            return;
        }
        let mut node = self.map.root();
        self.at = loop {
            let version = node.begin();
            let last_child = || node.child(node.count()).filter(|_| node.level() > 0);
            if let Some(to) = node.next().or_else(last_child) {
                if node.unchanged(version) {
                    node = to.get(self.map.region());
                }
                continue;
            }
            match node.count().checked_sub(1) {
                Some(slot) => {
                    if let Ok(at) = position_at(node, version, slot) {
                        break at;
                    }
                }
                None if node.unchanged(version) => break None,
                None => {}
            }
        };
    }

    /// Moves to the first entry at or after (`key`, `at`): the newest version of `key` with a trailer of at
    /// most `at`, or else the next key.
    pub fn seek(&mut self, key: &[u8], at: Trailer) {
        if !self.map.has_root() {
            self.at = None;
            return;
        }
        let position = Position { key, trailer: at };
        self.at = loop {
            let (leaf, version) = self.map.descend(position, Bound::Through, 0);
            let slot = leaf.search(position, Bound::Before);
            if let Ok(at) = position_at(leaf, version, slot) {
                break at;
            }
        };
        debug_assert!(
            self.position().is_none_or(|found| found >= position),
            "a seek finds no entry before its target"
        );
    }

    /// Moves to the last entry before (`key`, `at`).
    pub fn seek_before(&mut self, key: &[u8], at: Trailer) {
        self.at = last_before(&self.map, Position { key, trailer: at });
    }

    /// Moves to the next entry. Does nothing if the cursor is not valid.
    pub fn next(&mut self) {
        let Some(at) = self.at else { return };
        let leaf = at.leaf.get(self.map.region());
        let version = leaf.begin();
        if version == at.version
            && let Ok(next) = position_at(leaf, version, at.slot + 1)
        {
            self.at = next;
        } else {
            self.at = self.search_next(at);
        }
        debug_assert!(
            self.position().is_none_or(|next| next > at.entry.position(self.map.region())),
            "a cursor moves forward in order"
        );
    }

    /// The entry after `at`, the leaf of which has changed: a split may have moved the entry to the right.
    #[cold]
    fn search_next(&self, at: CursorPosition) -> Option<CursorPosition> {
        let region = self.map.region();
        let position = at.entry.position(region);
        let mut leaf = at.leaf.get(region);
        loop {
            let version = leaf.begin();
            if leaf.is_beyond(position, Bound::Through) {
                if let Some(next) = leaf.next().filter(|_| leaf.unchanged(version)) {
                    leaf = next.get(region);
                }
                continue;
            }
            let slot = leaf.search(position, Bound::Through);
            if let Ok(next) = position_at(leaf, version, slot) {
                return next;
            }
        }
    }

    /// Moves to the previous entry. Does nothing if the cursor is not valid.
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
            debug_assert!(
                entry.position(region) < at.entry.position(region),
                "a cursor moves backward in order"
            );
            self.at = Some(CursorPosition { entry, slot, ..at });
            return;
        }
        self.at = last_before(&self.map, at.entry.position(region));
    }
}

/// The position in `slot` of `leaf`, or at the start of the next leaf if `slot` is after the last one; `None`
/// at the end of the map. `version` is from before `slot` was determined.
fn position_at(
    leaf: Node<'_>,
    version: Version,
    slot: usize,
) -> Result<Option<CursorPosition>, LeafChanged> {
    if slot < leaf.count() {
        let entry = leaf.entry(slot).ok_or(LeafChanged)?;
        prefetch_ahead(leaf, slot);
        let at = CursorPosition { entry, leaf: leaf.at(), slot, version };
        return if leaf.unchanged(version) { Ok(Some(at)) } else { Err(LeafChanged) };
    }
    let next = leaf.next();
    if !leaf.unchanged(version) {
        return Err(LeafChanged);
    }
    let Some(next) = next else { return Ok(None) };
    next.prefetch(leaf.region());
    let next = next.get(leaf.region());
    // The entry at which a leaf starts always stays its first one.
    position_at(next, next.begin(), 0)
}

/// Prefetches the entries after `slot` that the next steps read, and the next leaf before it is needed.
#[inline]
fn prefetch_ahead(leaf: Node<'_>, slot: usize) {
    let region = leaf.region();
    if slot == 0 {
        let first = (1..AHEAD).filter_map(|slot| leaf.entry(slot));
        first.for_each(|entry| entry.prefetch(region));
    }
    if let Some(entry) = entry_ahead(leaf, slot + AHEAD) {
        entry.prefetch(region);
    }
    if let Some(entry) = entry_ahead(leaf, slot + WHOLE_ENTRY_AHEAD) {
        entry.prefetch_rest(region);
    }
    if slot + 2 * AHEAD == leaf.count()
        && let Some(next) = leaf.next()
    {
        next.prefetch(region);
    }
}

/// The entry in `slot` of `leaf`, or of the next leaf if `slot` is after the last one. A hint if writers
/// change the leaves meanwhile.
fn entry_ahead(leaf: Node<'_>, slot: usize) -> Option<EntryRef> {
    match slot.checked_sub(leaf.count()) {
        None => leaf.entry(slot),
        Some(slot) => leaf.next()?.get(leaf.region()).entry(slot),
    }
}

/// The position of the last entry before `position`.
fn last_before(map: &OrderedMap, position: Position<'_>) -> Option<CursorPosition> {
    if !map.has_root() {
        return None;
    }
    loop {
        let (leaf, version) = map.descend(position, Bound::Before, 0);
        let slot = leaf.search(position, Bound::Before).checked_sub(1);
        let entry = slot.and_then(|slot| leaf.entry(slot));
        if leaf.unchanged(version) {
            // No slot: `leaf` is the first one, because every other leaf starts before the position.
            invariant!(slot.is_some() == entry.is_some(), "a slot below the count is filled");
            let (slot, entry) = (slot?, entry?);
            debug_assert!(
                entry.position(map.region()) < position,
                "a leaf is searched for a position within its bounds"
            );
            return Some(CursorPosition { entry, leaf: leaf.at(), slot, version });
        }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({:?})", self.position().map(|position| position.trailer))
    }
}
