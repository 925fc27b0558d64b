//! A slot of a bucket: one word.
//!
//! Bits from the lowest on: the position (32), the tag (29), whether the entry is stale (1), the heat (2).
//! The word is 0 if the slot is empty.

use std::num::NonZeroU32;

use base::invariant;

/// The position of an entry's data: any number but 0 and the highest.
pub type Position = NonZeroU32;

/// The position in a miss note; no entry has it.
const NO_POSITION: Position = NonZeroU32::MAX;

/// The heat of an entry: 0 to `HEAT_MAX`.
pub type Heat = u8;

/// The greatest heat.
pub(super) const HEAT_MAX: Heat = 3;

pub(super) const TAG_BITS: u32 = 29;
const TAG_AT: u32 = 32;
/// Set if the entry is stale.
const STALE: u64 = 1 << (TAG_AT + TAG_BITS);
const HEAT_AT: u32 = 62;

// The four fields fill the word.
const _: () =
    assert!(TAG_AT + TAG_BITS + 1 == HEAT_AT && HEAT_AT + HEAT_MAX.count_ones() == u64::BITS);

/// The state of an entry at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagEntry {
    /// The heat.
    pub heat: Heat,
    /// Whether the entry was invalidated.
    pub is_stale: bool,
}

/// The entry that a stale slot waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// A new version of an entry that was invalidated.
    Version,
    /// The first entry of a key with a miss note, and the lookups that missed it since, at most `HEAT_MAX`.
    Expected(Heat),
}

/// The tag of a hash: the bits above the lowest `level`.
pub(super) const fn tag_of(hash: u64, level: u32) -> u64 {
    hash >> level & ((1 << TAG_BITS) - 1)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u64);

impl Slot {
    /// A valid entry.
    pub(super) fn new(position: Position, tag: u64, heat: Heat) -> Self {
        invariant!(position != NO_POSITION, "the highest position means a miss note");
        Self::pack(position, tag, heat)
    }

    fn pack(position: Position, tag: u64, heat: Heat) -> Self {
        debug_assert!(
            tag < 1 << TAG_BITS,
            "a tag leaves the bits of the stale flag and the heat alone"
        );
        let heat = u64::from(heat.min(HEAT_MAX));
        Self(u64::from(position.get()) | tag << TAG_AT | heat << HEAT_AT)
    }

    /// The position; `None` if the slot is empty.
    pub(super) const fn position(self) -> Option<Position> {
        NonZeroU32::new(self.0 as u32)
    }

    pub(super) const fn tag(self) -> u64 {
        self.0 >> TAG_AT & ((1 << TAG_BITS) - 1)
    }

    pub(super) const fn heat(self) -> Heat {
        (self.0 >> HEAT_AT) as Heat
    }

    /// The same slot with its heat raised by one; `None` at the greatest heat.
    pub(super) fn warmer(self) -> Option<Self> {
        (self.heat() < HEAT_MAX).then(|| Self(self.0 + (1 << HEAT_AT)))
    }

    /// The same slot, stale.
    pub(super) const fn stale(self) -> Self {
        Self(self.0 | STALE)
    }

    /// A miss note.
    pub(super) fn miss_note(tag: u64) -> Self {
        Self::pack(NO_POSITION, tag, 0).stale()
    }

    pub(super) fn is_miss_note(self) -> bool {
        self.position() == Some(NO_POSITION)
    }

    pub(super) const fn is_stale(self) -> bool {
        self.0 & STALE != 0
    }

    /// The position, if the entry is valid and has this tag.
    pub(super) fn valid_position(self, tag: u64) -> Option<Position> {
        // A stale entry differs in the bit above the tag, so one comparison checks both.
        let tag_and_stale = self.0 >> TAG_AT & ((1 << (TAG_BITS + 1)) - 1);
        if tag_and_stale == tag { self.position() } else { None }
    }

    /// Whether this is a stale entry with this tag.
    pub(super) const fn is_stale_with_tag(self, tag: u64) -> bool {
        self.is_stale() && self.tag() == tag
    }
}
