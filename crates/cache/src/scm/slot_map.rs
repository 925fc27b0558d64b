//! The slot map: which page each slot holds. Sets of sixteen slots; each slot stores the hash of its page.
//!
//! A page's hash picks its set, and a search of the set's hashes finds its slot. So there are no pointers to
//! slots and nothing to rehash: 8 B of DRAM per slot for the hash, 2 B for heat, state and tag, and 1/16 B
//! for the set's CLOCK hand. A hash is 64 bits; the set number comes from other bits of it. Content that is
//! not yet known to match the hash is verified before its first use (I8). The tag helps there: a store and a
//! diverged copy of it may have tables with the same id, whose pages with the same number verify as each
//! other; their checksums differ, and the tag is taken from the checksum.
//!
//! Eviction from a full set: first a page that was restored at open and not used since; otherwise CLOCK: a
//! hand walks the slots, takes the first one with heat 0, and takes one unit of heat from those it passes.
//!
//! Concurrency: any number of readers, and one writer (the tier's background work) that claims and publishes
//! slots. Readers clear only pages that they found damaged. Every word is atomic and valid by itself; pins
//! make sure that a slot's bytes belong to its hash ([`super::backing`]).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64};

use base::invariant;

use crate::PageKind;

/// Slots of a set.
pub(crate) const WAYS: usize = 16;

/// The hash of an empty slot.
const EMPTY: u64 = 0;
/// The hash of a claimed slot: it is being written, or holds rows.
const CLAIMED: u64 = u64::MAX;

/// Bits of a slot's state: the heat of its page, 0 to 3.
const HEAT: u16 = 0b0011;
/// Heat of a page after its promotion.
const PROMOTED_HEAT: u16 = 2;
/// State bit: the content was verified since it was written, or since the tier was opened.
const VERIFIED: u16 = 0b0100;
/// State bit: the page is queued for promotion.
const PROMOTING: u16 = 0b1000;
/// State bit: the page was restored at open and not used since; its file may be obsolete.
const RESTORED: u16 = 0b1_0000;
/// The bits above are the page's tag.
const TAG_SHIFT: u32 = 5;
const TAG: u16 = u16::MAX >> TAG_SHIFT;

/// DRAM per slot, in 1/16 bytes.
pub(crate) const SLOT_SIXTEENTHS: u64 = 16 * (8 + 2) + 1;

/// A slot's entry in the stored map: the hash of its page, 0 for none, and the page's tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotEntry {
    pub(crate) hash: u64,
    pub(crate) tag: u16,
}

/// The tag of a page: its first 11 bits, which belong to its checksum.
pub(crate) fn tag_of(page: &[u8]) -> u16 {
    page.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes) & TAG)
}

/// The map of all slots.
#[derive(Debug)]
pub(crate) struct SlotMap {
    hashes: Box<[AtomicU64]>,
    states: Box<[AtomicU16]>,
    hands: Box<[AtomicU8]>,
}

/// State of a page when it was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotUse {
    /// Heat, this use included.
    pub(crate) heat: u8,
    /// Whether its content was verified.
    pub(crate) is_verified: bool,
    /// Whether it was queued for promotion before.
    pub(crate) is_promoting: bool,
}

/// The hash as a slot stores it: never [`EMPTY`] or [`CLAIMED`].
const fn fingerprint(hash: u64) -> u64 {
    match hash {
        EMPTY => 1,
        CLAIMED => CLAIMED - 1,
        hash => hash,
    }
}

impl SlotMap {
    /// A map of `sets` empty sets.
    pub(crate) fn new(sets: usize) -> Self {
        let slots = sets * WAYS;
        Self {
            hashes: (0..slots).map(|_| AtomicU64::new(EMPTY)).collect(),
            states: (0..slots).map(|_| AtomicU16::new(0)).collect(),
            hands: (0..sets).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    pub(crate) fn sets(&self) -> usize {
        self.hands.len()
    }

    pub(crate) fn slots(&self) -> usize {
        self.hashes.len()
    }

    /// First slot of the page's set.
    fn set_start(&self, hash: u64) -> usize {
        let mixed = hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
        ((mixed * self.sets() as u64) >> 32) as usize * WAYS
    }

    fn state(&self, slot: usize) -> Option<&AtomicU16> {
        let state = self.states.get(slot);
        invariant!(state.is_some(), "the map has a state for every slot");
        state
    }

    /// The slot that holds the page with this hash.
    pub(crate) fn find(&self, hash: u64) -> Option<usize> {
        let first = self.set_start(hash);
        let set = self.hashes.get(first..first + WAYS)?;
        let way = set.iter().position(|word| word.load(Acquire) == fingerprint(hash))?;
        Some(first + way)
    }

    /// Whether the page's set has an empty slot, so that the page would evict no other.
    pub(crate) fn has_room(&self, hash: u64) -> bool {
        let first = self.set_start(hash);
        let set = self.hashes.get(first..first + WAYS);
        invariant!(set.is_some(), "every hash has a set of slots");
        let set = set.unwrap_or_default();
        set.iter().any(|word| word.load(Relaxed) == EMPTY)
    }

    /// Whether the content of `slot`, pinned by the caller, was verified.
    pub(crate) fn is_verified(&self, slot: usize) -> bool {
        self.state(slot).is_some_and(|state| state.load(Relaxed) & VERIFIED > 0)
    }

    /// Whether `slot` holds the page with this hash.
    pub(crate) fn holds(&self, slot: usize, hash: u64) -> bool {
        self.hashes.get(slot).is_some_and(|word| word.load(Acquire) == fingerprint(hash))
    }

    /// The tag of the page in `slot`, pinned by the caller.
    pub(crate) fn tag(&self, slot: usize) -> u16 {
        self.state(slot).map_or(0, |state| state.load(Relaxed) >> TAG_SHIFT)
    }

    /// The heat of the page in `slot`.
    pub(crate) fn heat(&self, slot: usize) -> u8 {
        self.state(slot).map_or(0, |state| (state.load(Relaxed) & HEAT) as u8)
    }

    /// Counts a use of the page in `slot`.
    pub(crate) fn record_use(&self, slot: usize) -> SlotUse {
        let Some(state) = self.state(slot) else {
            return SlotUse { heat: 0, is_verified: false, is_promoting: true };
        };
        let mut now = state.load(Relaxed);
        // If several readers count at once, uses may be lost; the other bits are not changed.
        let more = (now & !RESTORED) + u16::from(now & HEAT < HEAT);
        if more != now && state.compare_exchange(now, more, Relaxed, Relaxed).is_ok() {
            now = more;
        }
        SlotUse {
            heat: (now & HEAT) as u8,
            is_verified: now & VERIFIED > 0,
            is_promoting: now & PROMOTING > 0,
        }
    }

    /// Marks the content of `slot`, pinned by the caller, as verified.
    pub(crate) fn set_verified(&self, slot: usize) {
        self.mark(slot, VERIFIED);
    }

    /// Marks the page in `slot` as queued for promotion; false if it was before.
    pub(crate) fn set_promoting(&self, slot: usize) -> bool {
        self.mark(slot, PROMOTING)
    }

    /// Clears that mark: the page could not be promoted.
    pub(crate) fn clear_promoting(&self, slot: usize) {
        if let Some(state) = self.state(slot) {
            state.fetch_and(!PROMOTING, Relaxed);
        }
    }

    /// Records that the page in `slot` was promoted. It keeps its slot for two turns of the hand: it is among
    /// the hottest pages, and would have to be written again when DRAM evicts it.
    pub(crate) fn set_promoted(&self, slot: usize) {
        if let Some(state) = self.state(slot) {
            state.fetch_and(!(PROMOTING | HEAT), Relaxed);
            state.fetch_or(PROMOTED_HEAT, Relaxed);
        }
    }

    /// Gives the page in `slot` heat 1 if it has none: DRAM evicted its copy.
    pub(crate) fn ensure_heat(&self, slot: usize) {
        if let Some(state) = self.state(slot)
            && state.load(Relaxed) & HEAT == 0
        {
            state.fetch_or(1, Relaxed);
        }
    }

    fn mark(&self, slot: usize, bit: u16) -> bool {
        self.state(slot).is_some_and(|state| state.fetch_or(bit, Relaxed) & bit == 0)
    }

    /// The slot for the page with this hash: an empty one of its set, or that of the page to evict. `None` if
    /// all slots are claimed. For the one writer.
    pub(crate) fn choose_slot(&self, hash: u64) -> Option<usize> {
        let first = self.set_start(hash);
        let set = self.hashes.get(first..first + WAYS)?;
        if let Some(way) = set.iter().position(|word| word.load(Relaxed) == EMPTY) {
            return Some(first + way);
        }
        let hand = self.hands.get(first / WAYS)?;
        let states = self.states.get(first..first + WAYS)?;
        let is_restored = |state: &AtomicU16| state.load(Relaxed) & RESTORED > 0;
        if let Some(way) = states.iter().position(is_restored) {
            invariant!(
                set.get(way).is_some_and(|word| word.load(Relaxed) != CLAIMED),
                "a claimed slot is not restored"
            );
            return Some(first + way);
        }
        let mut way = usize::from(hand.load(Relaxed)) % WAYS;
        // Bounded: each turn of the hand takes a unit of heat from every page, so the fourth finds one
        // without.
        for _ in 0..=WAYS * usize::from(HEAT) {
            let state = states.get(way)?;
            let now = state.load(Relaxed);
            let next = (way + 1) % WAYS;
            let is_claimed = set.get(way).is_none_or(|word| word.load(Relaxed) == CLAIMED);
            if !is_claimed && now & HEAT == 0 {
                hand.store(next as u8, Relaxed);
                return Some(first + way);
            }
            if now & HEAT > 0 {
                // If a reader counts a use at the same time, the page keeps its heat for this turn.
                let _ = state.compare_exchange(now, now - 1, Relaxed, Relaxed);
            }
            way = next;
        }
        None
    }

    /// Claims `slot`, for a page that will be written or for rows; returns the hash of the page that it held.
    pub(crate) fn claim(&self, slot: usize) -> Option<u64> {
        if let Some(state) = self.state(slot) {
            state.store(0, Relaxed);
        }
        let hash = self.hashes.get(slot)?.swap(CLAIMED, Relaxed);
        (hash != EMPTY && hash != CLAIMED).then_some(hash)
    }

    /// Makes a claimed slot empty.
    pub(crate) fn release(&self, slot: usize) {
        if let Some(word) = self.hashes.get(slot) {
            let before = word.swap(EMPTY, Release);
            invariant!(before == CLAIMED, "only a claimed slot is released");
        }
    }

    /// Makes `slot` empty if it holds the page with this hash; returns whether it did.
    pub(crate) fn clear_if(&self, slot: usize, hash: u64) -> bool {
        self.hashes.get(slot).is_some_and(|word| {
            word.compare_exchange(fingerprint(hash), EMPTY, Relaxed, Relaxed).is_ok()
        })
    }

    /// Publishes the page with this hash and tag, just written, in the claimed `slot`.
    pub(crate) fn publish(&self, slot: usize, SlotEntry { hash, tag }: SlotEntry, kind: PageKind) {
        if let (Some(state), Some(word)) = (self.state(slot), self.hashes.get(slot)) {
            invariant!(
                matches!(word.load(Relaxed), EMPTY | CLAIMED),
                "a page is published in a slot that holds none"
            );
            invariant!(tag <= TAG, "a tag leaves the other bits of a state free");
            debug_assert!(
                self.set_start(hash) == slot / WAYS * WAYS,
                "a page is published in its own set"
            );
            let heat = match kind {
                PageKind::Data => 0,
                // A metadata page serves a hundred data pages.
                PageKind::Meta => HEAT,
            };
            state.store(heat | tag << TAG_SHIFT, Relaxed);
            // Release: a reader that finds the hash also sees the state stored before it.
            word.store(fingerprint(hash), Release);
        }
    }

    /// Copies the entries of the slots from `first` on to `into`. For the one writer.
    pub(crate) fn entries(&self, first: usize, into: &mut [SlotEntry]) {
        let from = self.hashes.get(first..).unwrap_or_default();
        for (slot, (entry, word)) in (first..).zip(into.iter_mut().zip(from)) {
            *entry = match word.load(Relaxed) {
                EMPTY | CLAIMED => SlotEntry::default(),
                hash => SlotEntry { hash, tag: self.tag(slot) },
            };
        }
    }

    /// Restores entries that [`SlotMap::entries`] gave. Ignores a hash that lies in another set than its own.
    /// Returns the number of restored pages.
    pub(crate) fn restore(&self, first: usize, entries: &[SlotEntry]) -> usize {
        let mut placed = 0;
        for (slot, entry) in (first..self.slots()).zip(entries) {
            let is_one = entry.hash != EMPTY && entry.hash != CLAIMED;
            if is_one && self.set_start(entry.hash) == slot / WAYS * WAYS {
                self.publish(slot, *entry, PageKind::Data);
                self.mark(slot, RESTORED);
                placed += 1;
            }
        }
        placed
    }
}

#[cfg(test)]
#[path = "slot_map_tests.rs"]
mod tests;
