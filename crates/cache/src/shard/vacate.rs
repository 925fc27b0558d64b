//! Getting a shard's pages out of a chunk of frames that is given back: the hot ones move to where colder
//! ones were.
//!
//! Somebody waits for the memory meanwhile. So what goes is not offered to the tier below, which would take a
//! frame for each page until it is written; that is told of it.

use arena::{Evacuation, Frame, FrameMut};

use super::{Shard, Shared};
use crate::rows::policy::Queue;
use crate::scm::ScmTier;

/// How many pages are pushed out, at most, to keep one that lies in the way. Most of them would go
/// anyway: where pages came in order, it is the turn of the chunk that is being emptied.
const MOVE_TRIES: usize = 64;

impl Shard {
    /// Takes the frame of slot `number` out of the chunk that is being emptied, where it lies there
    /// and is not pinned. A page that has heat takes the place of a colder one elsewhere.
    pub(crate) fn vacate(
        &mut self,
        number: u32,
        evacuation: &mut Evacuation<'_>,
        shared: Shared<'_>,
        below: Option<&ScmTier>,
    ) {
        let Some(Some(slot)) = self.slots.get(number as usize) else { return };
        // A tag is a hint: the frame may have gone to another page or another pool's owner since.
        if !evacuation.is_of(&slot.frame) || !slot.frame.is_unique() {
            return;
        }
        if (slot.frame.heat() > 0 || slot.queue == Queue::Main)
            && let Some(frame) = self.evict_elsewhere(number, evacuation, shared, below)
        {
            self.move_to(number, frame, evacuation, shared);
        } else if let Some(slot) = self.unlink(number, shared) {
            self.free.push(number);
            self.given_back += 1;
            self.counts(slot.kind).evicted += 1;
            if let Some(key) = slot.key() {
                self.shadow.remember(key.hash());
                below.inspect(|tier| tier.note_reclaimed(key));
            }
            self.give_frame(slot.frame, evacuation, shared);
        }
    }

    /// Evicts a colder page than that of slot `keep`, and takes its frame where that is not in the
    /// chunk that is being emptied.
    fn evict_elsewhere(
        &mut self,
        keep: u32,
        evacuation: &mut Evacuation<'_>,
        shared: Shared<'_>,
        below: Option<&ScmTier>,
    ) -> Option<FrameMut> {
        for _ in 0..MOVE_TRIES {
            // It may be the turn of the page itself.
            let slot = self.slots.get(keep as usize)?.as_ref()?;
            let pin = slot.frame.clone();
            let evicted = self.evict(shared);
            drop(pin);
            let (number, frame, left) = evicted?;
            below.inspect(|tier| tier.note_reclaimed(left.key));
            self.free.push(number);
            self.given_back += 1;
            // In the same chunk: one less to move from there.
            if let Err(frame) = evacuation.take(frame) {
                return Some(frame);
            }
        }
        None
    }

    /// Moves the page of slot `number` to `frame`, and hands its own over.
    fn move_to(
        &mut self,
        number: u32,
        mut frame: FrameMut,
        evacuation: &mut Evacuation<'_>,
        shared: Shared<'_>,
    ) {
        let tag = self.tag(number);
        let Some(Some(slot)) = self.slots.get_mut(number as usize) else { return };
        let (Some(page), Some(key)) = (slot.frame.first_chunk(), slot.key()) else { return };
        *frame = *page;
        frame.set_name(key.into());
        let frame = frame.freeze();
        frame.set_tag(tag);
        frame.set_heat(slot.frame.heat());
        if let (Some(from), Some(to)) = (slot.frame.place(), frame.place()) {
            shared.index.replace(self.part, key.hash(), from, to);
        }
        let old = std::mem::replace(&mut slot.frame, frame);
        self.moved += 1;
        self.give_frame(old, evacuation, shared);
    }

    /// Gives a frame of the chunk, which was taken out of its slot, to whoever empties it; where a reader
    /// found it just now the chunk stays.
    fn give_frame(&mut self, frame: Frame, evacuation: &mut Evacuation<'_>, shared: Shared<'_>) {
        if let Ok(frame) = self.thaw(frame, shared) {
            drop(evacuation.take(frame));
        }
    }
}
