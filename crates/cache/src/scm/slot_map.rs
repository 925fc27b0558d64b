//! Which page lies in which slot: sets of sixteen slots, each slot with the hash of its page.
//!
//! A page has one set; where in it, the hashes tell. So there is no pointer to a slot and nothing to
//! rehash: 8 B of DRAM a slot for the hash, 2 for its heat and the page's tag, a sixteenth for the set's
//! hand. A hash is 64 bits beside the set's number, which come from other bits of it; a page whose bytes are
//! not known to be those of its hash is verified before it is used (I8). Its tag is for that: a store and a
//! copy of it that went on apart may have pages of one number in tables of one id, which pass for one
//! another but for what their checksums are.
//!
//! Of a full set a page goes that was found when the tier was opened and that nobody asked for since;
//! otherwise it is CLOCK's choice: a hand passes the slots, takes the first that nobody
//! asked for since it came by, and cools the others.
//!
//! Concurrency: any number of readers, one writer (the tier's background work) that takes and places.
//! Readers clear only what they found damaged. Every word is atomic and stands for itself; that a slot's
//! bytes belong to its hash is what pins are for ([`super::backing`]).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64};

use crate::PageKind;

/// Slots of a set.
pub(crate) const WAYS: usize = 16;

/// The hash of a slot that holds nothing.
const EMPTY: u64 = 0;
/// The hash of a slot that is being written, or holds rows.
const CLAIMED: u64 = u64::MAX;

/// A slot's state: how often its page was asked for, up to three, and what is known of it.
const HEAT: u16 = 0b0011;
/// The heat of a page that was copied up.
const PROMOTED_HEAT: u16 = 2;
/// Its bytes were verified since they were written, or since the tier was opened.
const VERIFIED: u16 = 0b0100;
/// It is to be copied to DRAM.
const PROMOTING: u16 = 0b1000;
/// It was found when the tier was opened, and nobody asked for it since: it may be of a file that is gone.
const RESTORED: u16 = 0b1_0000;
/// Above these bits: the page's tag, of as many as are left.
const TAG_SHIFT: u32 = 5;
const TAG: u16 = u16::MAX >> TAG_SHIFT;

/// What a slot takes here, bytes, in sixteenths.
pub(crate) const SLOT_SIXTEENTHS: u64 = 16 * (8 + 2) + 1;

/// What survives a restart of a slot: the hash of its page, 0 for none, and the page's tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotEntry {
    pub(crate) hash: u64,
    pub(crate) tag: u16,
}

/// The first 11 bits of a page, which are of its checksum.
pub(crate) fn tag_of(page: &[u8]) -> u16 {
    page.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes) & TAG)
}

/// The pages of all slots.
#[derive(Debug)]
pub(crate) struct SlotMap {
    hashes: Box<[AtomicU64]>,
    states: Box<[AtomicU16]>,
    hands: Box<[AtomicU8]>,
}

/// What was known of a page that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotUse {
    /// How often it was asked for lately, this time included.
    pub(crate) heat: u8,
    /// Whether its bytes are known to be its own.
    pub(crate) is_verified: bool,
    /// Whether it is to be copied to DRAM already.
    pub(crate) is_promoting: bool,
}

/// A slot's hash of a page's hash: never [`EMPTY`] or [`CLAIMED`].
const fn fingerprint(hash: u64) -> u64 {
    match hash {
        EMPTY => 1,
        CLAIMED => CLAIMED - 1,
        hash => hash,
    }
}

impl SlotMap {
    /// Of `sets` sets, all of them empty.
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

    /// The first slot of the page's set.
    fn set_start(&self, hash: u64) -> usize {
        let mixed = hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
        ((mixed * self.sets() as u64) >> 32) as usize * WAYS
    }

    /// The slot of the page with this hash.
    pub(crate) fn find(&self, hash: u64) -> Option<usize> {
        let first = self.set_start(hash);
        let set = self.hashes.get(first..first + WAYS)?;
        let way = set.iter().position(|word| word.load(Acquire) == fingerprint(hash))?;
        Some(first + way)
    }

    /// Whether the page with this hash would push out no other.
    pub(crate) fn has_room(&self, hash: u64) -> bool {
        let first = self.set_start(hash);
        let set = self.hashes.get(first..first + WAYS).unwrap_or_default();
        set.iter().any(|word| word.load(Relaxed) == EMPTY)
    }

    /// Whether the bytes of `slot`, pinned by the caller, are known to be its page's.
    pub(crate) fn is_verified(&self, slot: usize) -> bool {
        self.states.get(slot).is_some_and(|state| state.load(Relaxed) & VERIFIED > 0)
    }

    /// Whether `slot` holds the page with this hash.
    pub(crate) fn holds(&self, slot: usize, hash: u64) -> bool {
        self.hashes.get(slot).is_some_and(|word| word.load(Acquire) == fingerprint(hash))
    }

    /// The tag of the page of `slot`, which the caller pinned.
    pub(crate) fn tag(&self, slot: usize) -> u16 {
        self.states.get(slot).map_or(0, |state| state.load(Relaxed) >> TAG_SHIFT)
    }

    /// How often the page of `slot` was asked for lately.
    pub(crate) fn heat(&self, slot: usize) -> u8 {
        self.states.get(slot).map_or(0, |state| (state.load(Relaxed) & HEAT) as u8)
    }

    /// Counts that the page of `slot` was asked for.
    pub(crate) fn record_use(&self, slot: usize) -> SlotUse {
        let Some(state) = self.states.get(slot) else {
            return SlotUse { heat: 0, is_verified: false, is_promoting: true };
        };
        let mut now = state.load(Relaxed);
        // Of readers that count at once, one may go uncounted; the bits above stay what they are.
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

    /// Notes that the bytes of `slot`, pinned by the caller, are its page's.
    pub(crate) fn set_verified(&self, slot: usize) {
        self.mark(slot, VERIFIED);
    }

    /// Notes that the page of `slot` is to be copied to DRAM; whether it was not noted before.
    pub(crate) fn set_promoting(&self, slot: usize) -> bool {
        self.mark(slot, PROMOTING)
    }

    /// Forgets that it is: it cannot be now.
    pub(crate) fn clear_promoting(&self, slot: usize) {
        if let Some(state) = self.states.get(slot) {
            state.fetch_and(!PROMOTING, Relaxed);
        }
    }

    /// It was, and stays here for two turns: it is among what is asked for most, and is written anew
    /// otherwise when it leaves DRAM.
    pub(crate) fn set_promoted(&self, slot: usize) {
        if let Some(state) = self.states.get(slot) {
            state.fetch_and(!(PROMOTING | HEAT), Relaxed);
            state.fetch_or(PROMOTED_HEAT, Relaxed);
        }
    }

    /// DRAM has it no more: it counts as asked for once.
    pub(crate) fn ensure_heat(&self, slot: usize) {
        if let Some(state) = self.states.get(slot)
            && state.load(Relaxed) & HEAT == 0
        {
            state.fetch_or(1, Relaxed);
        }
    }

    fn mark(&self, slot: usize, bit: u16) -> bool {
        self.states.get(slot).is_some_and(|state| state.fetch_or(bit, Relaxed) & bit == 0)
    }

    /// The slot to put the page with this hash into: an empty one of its set, or that of the page that
    /// is to go; none where all are being written. For the one writer.
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
            return Some(first + way);
        }
        let mut way = usize::from(hand.load(Relaxed)) % WAYS;
        // Each turn cools every page it passes; the fourth finds one.
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
                // A count that is lost to a reader's is one turn.
                let _ = state.compare_exchange(now, now - 1, Relaxed, Relaxed);
            }
            way = next;
        }
        None
    }

    /// Takes `slot` for a page that is being written, or for rows; the hash of the page that it held.
    pub(crate) fn claim(&self, slot: usize) -> Option<u64> {
        if let Some(state) = self.states.get(slot) {
            state.store(0, Relaxed);
        }
        let hash = self.hashes.get(slot)?.swap(CLAIMED, Relaxed);
        (hash != EMPTY && hash != CLAIMED).then_some(hash)
    }

    /// Empties `slot`, taken until now.
    pub(crate) fn release(&self, slot: usize) {
        if let Some(word) = self.hashes.get(slot) {
            word.store(EMPTY, Release);
        }
    }

    /// Empties `slot` if it holds the page with this hash; whether it did.
    pub(crate) fn clear_if(&self, slot: usize, hash: u64) -> bool {
        self.hashes.get(slot).is_some_and(|word| {
            word.compare_exchange(fingerprint(hash), EMPTY, Relaxed, Relaxed).is_ok()
        })
    }

    /// Has `slot`, taken until now, hold the page with this hash and tag, as warm as that.
    pub(crate) fn publish(&self, slot: usize, SlotEntry { hash, tag }: SlotEntry, kind: PageKind) {
        if let (Some(state), Some(word)) = (self.states.get(slot), self.hashes.get(slot)) {
            let heat = match kind {
                PageKind::Data => 0,
                // It serves a hundred data pages.
                PageKind::Meta => HEAT,
            };
            state.store(heat | tag << TAG_SHIFT, Relaxed);
            // Release: whoever finds the hash finds the state that goes with it.
            word.store(fingerprint(hash), Release);
        }
    }

    /// The entries of the slots from `first` on; as many as `into` has room for. For the one writer.
    pub(crate) fn entries(&self, first: usize, into: &mut [SlotEntry]) {
        let from = self.hashes.get(first..).unwrap_or_default();
        for (slot, (entry, word)) in (first..).zip(into.iter_mut().zip(from)) {
            *entry = match word.load(Relaxed) {
                EMPTY | CLAIMED => SlotEntry::default(),
                hash => SlotEntry { hash, tag: self.tag(slot) },
            };
        }
    }

    /// Takes back what [`SlotMap::entries`] gave, where a hash lies in a set that it may lie in; how many
    /// pages it is.
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
