//! A slot of a shard: one cached page, its queue, and the tag by which its frame names the slot.

use arena::Frame;

use crate::page_queue::Links;
use crate::rows::policy::{GHOST_BYTES_MAX, Queue};
use crate::{PageKey, PageKind};

/// A cached page.
pub(super) struct Slot {
    pub(super) kind: PageKind,
    pub(super) queue: Queue,
    pub(super) links: Links,
    pub(super) frame: Frame,
}

impl Slot {
    pub(super) fn key(&self) -> Option<PageKey> {
        self.frame.name().map(PageKey::from)
    }
}

/// The links of a used slot, for [`crate::page_queue::PageQueue`].
pub(super) fn links_of(slot: &mut Option<Slot>) -> Option<&mut Links> {
    slot.as_mut().map(|slot| &mut slot.links)
}

/// DRAM per used slot beside its frame, bytes: the slot and its entry in the free list.
pub(crate) const SLOT_BYTES: usize = size_of::<Option<Slot>>() + 4;

/// DRAM per slot before it is used, bytes: its share of the longest ghost list. The index charges its own
/// entries.
pub(crate) const UNUSED_SLOT_BYTES: usize = GHOST_BYTES_MAX;

/// Low bits of a tag: the slot. The bits above: the shard.
const SLOT_BITS: u32 = 26;

/// Most slots of a shard: one less than the bits can name, because a tag of all ones means none.
pub(crate) const SLOTS_MAX: usize = (1 << SLOT_BITS) - 1;

/// The tag of a frame in slot `number` of shard `shard`.
pub(super) const fn tag_of(shard: usize, number: u32) -> u32 {
    (shard as u32) << SLOT_BITS | number
}

/// The shard and the slot that a tag names.
pub(crate) const fn slot_of_tag(tag: u32) -> (usize, u32) {
    ((tag >> SLOT_BITS) as usize, tag & SLOTS_MAX as u32)
}
