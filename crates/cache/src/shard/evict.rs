//! Eviction from a shard: which page loses its slot and frame, and whether the lower tier gets it.
//!
//! The policy is [`crate::rows::policy`]. Runs under the shard's mutex. A page that the lower tier admits
//! leaves in its frame, without a copy, and a free frame replaces it.

use arena::{FrameMut, Heat};
use base::invariant;

use super::heat::{TURNS_MAX, least_heat};
use super::slot::{Slot, links_of};
use super::{Shard, Shared};
use crate::PageKind;
use crate::rows::policy::{self, Queue, Verdict};
use crate::scm::{EvictedPage, ScmTier};

impl Shard {
    /// Puts slot `number` at the end of `queue`.
    pub(super) fn enqueue(&mut self, number: u32, queue: Queue) {
        if let Some(Some(slot)) = self.slots.get_mut(number as usize) {
            slot.queue = queue;
        }
        let list = match queue {
            Queue::New => &mut self.new,
            Queue::Main => &mut self.main,
        };
        list.push(number, &mut self.slots, links_of);
    }

    /// Takes slot `number` out of its queue.
    fn dequeue(&mut self, number: u32) {
        let slot = self.slots.get(number as usize).and_then(Option::as_ref);
        let list = match slot.map(|slot| slot.queue) {
            Some(Queue::New) => &mut self.new,
            Some(Queue::Main) => &mut self.main,
            None => return,
        };
        list.remove(number, &mut self.slots, links_of);
    }

    /// Evicts a page for a new one; returns a slot and a frame. If the lower tier admits the evicted page,
    /// the page leaves in its frame and a free frame is returned. If no frame is free, a second page is
    /// evicted for its frame, as long as fewer frames than `reserve` wait to be written; beyond that the
    /// first page is lost.
    pub(super) fn make_room(
        &mut self,
        shared: Shared<'_>,
        lower: Option<&ScmTier>,
        reserve: usize,
    ) -> Option<(u32, FrameMut)> {
        let (number, frame, evicted) = self.evict(shared)?;
        let Some(tier) = lower.filter(|tier| tier.admit(evicted)) else {
            return Some((number, frame));
        };
        if let Some(spare) = shared.pool.alloc() {
            tier.stage(evicted, frame.freeze());
            return Some((number, spare));
        }
        if tier.staged() >= reserve {
            tier.note_late();
            return Some((number, frame));
        }
        tier.note_late_unasked();
        tier.stage(evicted, frame.freeze());
        self.free.push(number);
        self.evict(shared).map(|(number, frame, _)| (number, frame))
    }

    /// Evicts the page that the policy picks; returns its slot number, its frame and its name. `None` if
    /// every page is pinned.
    pub(super) fn evict(&mut self, shared: Shared<'_>) -> Option<(u32, FrameMut, EvictedPage)> {
        // Bounded: each turn evicts a page or takes one unit of heat from one.
        for _ in 0..self.slots.len() * TURNS_MAX {
            let queue = policy::victim(shared.rules, self.new.len() as u64, self.main.len() as u64);
            let oldest = match queue {
                Queue::New => self.new.oldest(),
                Queue::Main => self.main.oldest(),
            };
            let number = oldest?;
            let slot = self.slots.get(number as usize).and_then(Option::as_ref);
            invariant!(slot.is_some(), "a queue of a shard lists used slots");
            let slot = slot?;
            let heat = slot.frame.heat().min(u32::from(Heat::MAX)) as Heat;
            let verdict = match policy::verdict(queue, heat) {
                // A reader holds the frame: the page is in use.
                _ if !slot.frame.is_unique() => Verdict::Keep(heat),
                verdict => verdict,
            };
            self.admission.note_turn(queue, heat);
            match verdict {
                Verdict::Keep(cooler) => self.keep(number, queue, heat, cooler),
                Verdict::Evict { remember } => {
                    if let Some(evicted) = self.evict_slot(number, queue, remember, shared) {
                        return Some(evicted);
                    }
                }
            }
        }
        None
    }

    /// Gives the page of slot `number` another turn, in the main queue, with heat `cooler`. Its heat was
    /// `heat`.
    fn keep(&mut self, number: u32, queue: Queue, heat: Heat, cooler: Heat) {
        let Some(Some(slot)) = self.slots.get(number as usize) else { return };
        slot.frame.set_heat(u32::from(cooler));
        let kind = slot.kind;
        let was_used = kind == PageKind::Data || heat == least_heat(kind);
        self.reuse.of(kind).kept += u64::from(queue == Queue::Main && was_used);
        self.dequeue(number);
        self.enqueue(number, Queue::Main);
    }

    /// Evicts the page of slot `number`. `None` if a reader got the frame just now: the frame is freed with
    /// its last reader, and the slot is free.
    fn evict_slot(
        &mut self,
        number: u32,
        queue: Queue,
        remember: bool,
        shared: Shared<'_>,
    ) -> Option<(u32, FrameMut, EvictedPage)> {
        let slot = self.unlink(number, shared)?;
        invariant!(slot.queue == queue, "a slot is in the queue that it names");
        self.reuse.of(slot.kind).evicted += u64::from(queue == Queue::Main);
        self.counts(slot.kind).evicted += 1;
        let key = slot.key();
        invariant!(key.is_some(), "the frame of a used slot has a name");
        let key = key?;
        let hash = key.hash();
        self.shadow.remember(hash);
        if remember {
            self.ghost.remember(hash);
        }
        match self.thaw(slot.frame, shared) {
            Ok(frame) => {
                Some((number, frame, EvictedPage { key, kind: slot.kind, is_demoted: true }))
            }
            Err(_pinned) => {
                self.free.push(number);
                None
            }
        }
    }

    /// Takes the page of slot `number` out of its queue, the index and the slot. The caller frees the slot
    /// and thaws the frame.
    pub(super) fn unlink(&mut self, number: u32, shared: Shared<'_>) -> Option<Slot> {
        self.dequeue(number);
        let slot = self.slots.get_mut(number as usize)?.take()?;
        if let (Some(place), Some(key)) = (slot.frame.id(), slot.key()) {
            let was_indexed = shared.index.remove(self.number, key.hash(), place);
            invariant!(was_indexed, "the frame of a used slot is in the index");
        }
        let resident = &mut self.counts(slot.kind).resident;
        invariant!(*resident > 0, "resident pages are counted");
        *resident -= 1;
        // The slot that was taken is free once its frame is thawed.
        invariant!(
            self.data.resident + self.meta.resident == (self.new.len() + self.main.len()) as u64,
            "a page leaves its queue and its slot together"
        );
        Some(slot)
    }
}
