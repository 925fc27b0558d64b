//! A slot of a bucket: one word.
//!
//! Bits from the lowest: the place (32), the tag (29), whether the entry is stale, the heat (2). Zero: none.

use std::num::NonZeroU32;

/// The place of an entry: any number but zero and the highest.
pub type Position = NonZeroU32;

/// The place of an entry that is expected: no other has it.
const NOWHERE: Position = NonZeroU32::MAX;

/// How warm an entry is: 0 to `HEAT_MAX`.
pub type Heat = u8;

/// The warmest.
pub(super) const HEAT_MAX: Heat = 3;

const TAG_BITS: u32 = 29;
const TAG_AT: u32 = 32;
/// Set where the entry is stale.
const STALE: u64 = 1 << (TAG_AT + TAG_BITS);
const HEAT_AT: u32 = 62;

/// An entry at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagEntry {
    /// How warm it is.
    pub heat: Heat,
    /// Whether it was forgotten.
    pub is_stale: bool,
}

/// What a tag waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Another version of an entry that was forgotten.
    Version,
    /// An entry that was expected, and asked for as many times since.
    Expected(Heat),
}

/// What of a hash an entry keeps: its bits above the lowest `level`.
pub(super) const fn tag_of(hash: u64, level: u32) -> u64 {
    hash >> level & ((1 << TAG_BITS) - 1)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u64);

impl Slot {
    pub(super) fn new(place: Position, tag: u64, heat: Heat) -> Self {
        let heat = u64::from(heat.min(HEAT_MAX));
        Self(u64::from(place.get()) | tag << TAG_AT | heat << HEAT_AT)
    }

    pub(super) const fn position(self) -> Option<Position> {
        NonZeroU32::new(self.0 as u32)
    }

    pub(super) const fn tag(self) -> u64 {
        self.0 >> TAG_AT & ((1 << TAG_BITS) - 1)
    }

    pub(super) const fn heat(self) -> Heat {
        (self.0 >> HEAT_AT) as Heat
    }

    /// The same a step warmer; `None` where it is as warm as can be.
    pub(super) fn warmer(self) -> Option<Self> {
        (self.heat() < HEAT_MAX).then(|| Self(self.0 + (1 << HEAT_AT)))
    }

    /// The same, stale.
    pub(super) const fn stale(self) -> Self {
        Self(self.0 | STALE)
    }

    /// Of an entry that is expected, at no place.
    pub(super) fn expected(tag: u64) -> Self {
        Self::new(NOWHERE, tag, 0).stale()
    }

    pub(super) fn is_expected(self) -> bool {
        self.position() == Some(NOWHERE)
    }

    pub(super) const fn is_stale(self) -> bool {
        self.0 & STALE != 0
    }

    /// The place, where it is an entry of this tag that is found.
    pub(super) fn valid_position(self, tag: u64) -> Option<Position> {
        // A stale one differs in the bit above the tag: one comparison for both.
        let tag_and_stale = self.0 >> TAG_AT & ((1 << (TAG_BITS + 1)) - 1);
        if tag_and_stale == tag { self.position() } else { None }
    }

    /// Whether it is a stale entry of this tag.
    pub(super) const fn is_stale_with_tag(self, tag: u64) -> bool {
        self.is_stale() && self.tag() == tag
    }
}
