//! Vacating a chunk of frames that is given back: its hot pages move to frames of colder pages elsewhere.
//!
//! A caller waits for the memory. So the evicted pages are not offered to the lower tier, which would hold a
//! frame for each until it is written; the tier only records that they were evicted.

use arena::{Evacuation, Frame, FrameMut};
use base::invariant;

use super::{Shard, Shared};
use crate::rows::policy::Queue;
use crate::scm::ScmTier;

/// Most pages evicted to keep one hot page of the chunk. Most of them would be evicted anyway: if pages came
/// in order, the oldest are in the chunk that is being vacated.
const MOVE_TRIES: usize = 64;

impl Shard {
    /// Takes the frame of slot `number` out of the chunk that is being vacated, if the frame is there and not
    /// pinned. A page with heat moves to the frame of a colder page elsewhere; a page without heat is
    /// evicted.
    pub(crate) fn vacate(
        &mut self,
        number: u32,
        evacuation: &mut Evacuation<'_>,
        shared: Shared<'_>,
        lower: Option<&ScmTier>,
    ) {
        let Some(Some(slot)) = self.slots.get(number as usize) else { return };
        // The tag is a hint: the frame may hold another page since, or belong to another owner of the pool.
        if !evacuation.contains(&slot.frame) || !slot.frame.is_unique() {
            return;
        }
        if (slot.frame.heat() > 0 || slot.queue == Queue::Main)
            && let Some(frame) = self.evict_elsewhere(number, evacuation, shared, lower)
        {
            self.move_to(number, frame, evacuation, shared);
        } else if let Some(slot) = self.unlink(number, shared) {
            self.free.push(number);
            self.given_back += 1;
            self.counts(slot.kind).evicted += 1;
            let key = slot.key();
            invariant!(key.is_some(), "the frame of a used slot has a name");
            if let Some(key) = key {
                self.shadow.remember(key.hash());
                lower.inspect(|tier| tier.note_reclaimed(key));
            }
            self.give_frame(slot.frame, evacuation, shared);
        }
    }

    /// Evicts pages other than that of slot `keep` until one leaves a frame outside the chunk; returns that
    /// frame.
    fn evict_elsewhere(
        &mut self,
        keep: u32,
        evacuation: &mut Evacuation<'_>,
        shared: Shared<'_>,
        lower: Option<&ScmTier>,
    ) -> Option<FrameMut> {
        for _ in 0..MOVE_TRIES {
            // The page itself may be the oldest: the extra handle keeps it from being evicted.
            let slot = self.slots.get(keep as usize)?.as_ref()?;
            let pin = slot.frame.clone();
            let evicted = self.evict(shared);
            drop(pin);
            let (number, frame, evicted) = evicted?;
            lower.inspect(|tier| tier.note_reclaimed(evicted.key));
            self.free.push(number);
            self.given_back += 1;
            // A frame in the chunk is one page less to vacate.
            if let Err(frame) = evacuation.take(frame) {
                return Some(frame);
            }
        }
        None
    }

    /// Moves the page of slot `number` to `frame`, and gives its old frame to the evacuation.
    fn move_to(
        &mut self,
        number: u32,
        mut frame: FrameMut,
        evacuation: &mut Evacuation<'_>,
        shared: Shared<'_>,
    ) {
        let tag = self.tag(number);
        let slot = self.slots.get_mut(number as usize).and_then(Option::as_mut);
        invariant!(slot.is_some(), "a page that moves stays in its slot");
        let Some(slot) = slot else { return };
        let (Some(page), Some(key)) = (slot.frame.first_chunk(), slot.key()) else { return };
        *frame = *page;
        frame.set_name(key.into());
        let frame = frame.freeze();
        frame.set_tag(tag);
        frame.set_heat(slot.frame.heat());
        if let (Some(from), Some(to)) = (slot.frame.id(), frame.id()) {
            let was_indexed = shared.index.replace(self.number, key.hash(), from, to);
            invariant!(was_indexed, "the frame of a used slot is in the index");
        }
        let old = std::mem::replace(&mut slot.frame, frame);
        self.moved += 1;
        self.give_frame(old, evacuation, shared);
    }

    /// Gives a frame of the chunk, taken out of its slot, to the evacuation. If a reader got the frame just
    /// now, the chunk is not given back this time.
    fn give_frame(&mut self, frame: Frame, evacuation: &mut Evacuation<'_>, shared: Shared<'_>) {
        if let Ok(frame) = self.thaw(frame, shared) {
            drop(evacuation.take(frame));
        }
    }
}
