//! A queue of cached pages: a doubly linked list through the slots of a shard, oldest first.
//!
//! A slot is in one queue at most. Cost: two slot numbers per slot. Owned by a shard.

use base::invariant;

/// Stands for no slot.
const NONE: u32 = u32::MAX;

/// The neighbours of a slot in its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    older: u32,
    newer: u32,
}

impl Links {
    pub(crate) const NONE: Self = Self { older: NONE, newer: NONE };
}

/// A queue of slot numbers.
#[derive(Debug)]
pub(crate) struct PageQueue {
    oldest: u32,
    newest: u32,
    len: usize,
}

impl Default for PageQueue {
    fn default() -> Self {
        Self { oldest: NONE, newest: NONE, len: 0 }
    }
}

impl PageQueue {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn oldest(&self) -> Option<u32> {
        if self.oldest == NONE { None } else { Some(self.oldest) }
    }

    /// Appends slot `number`; `links` returns the links of a used slot.
    pub(crate) fn push<'a, T: 'a>(
        &mut self,
        number: u32,
        slots: &'a mut [T],
        links: impl Fn(&mut T) -> Option<&mut Links>,
    ) {
        let last = std::mem::replace(&mut self.newest, number);
        let own = slots.get_mut(number as usize).and_then(&links);
        invariant!(own.is_some(), "a slot that enters a queue is used");
        if let Some(links) = own {
            invariant!(
                links.older == NONE && links.newer == NONE && last != number,
                "a slot enters a queue when it is in none"
            );
            *links = Links { older: last, newer: NONE };
        }
        match slots.get_mut(last as usize).and_then(&links) {
            Some(links) => links.newer = number,
            None => self.oldest = number,
        }
        self.len += 1;
    }

    /// Removes slot `number`, which is in this queue.
    pub(crate) fn remove<'a, T: 'a>(
        &mut self,
        number: u32,
        slots: &'a mut [T],
        links: impl Fn(&mut T) -> Option<&mut Links>,
    ) {
        let links_of_slot = slots.get_mut(number as usize).and_then(&links);
        let Some(Links { older, newer }) =
            links_of_slot.map(|own| std::mem::replace(own, Links::NONE))
        else {
            invariant!(false, "a slot in a queue is used");
            return;
        };
        invariant!(self.len > 0, "the length of a queue counts its slots");
        invariant!(
            (older == NONE) == (self.oldest == number),
            "only the oldest slot of a queue has no older one"
        );
        invariant!(
            (newer == NONE) == (self.newest == number),
            "only the newest slot of a queue has no newer one"
        );
        match slots.get_mut(older as usize).and_then(&links) {
            Some(links) => links.newer = newer,
            None => self.oldest = newer,
        }
        match slots.get_mut(newer as usize).and_then(&links) {
            Some(links) => links.older = older,
            None => self.newest = older,
        }
        self.len -= 1;
        invariant!(
            (self.len == 0) == (self.oldest == NONE),
            "a queue without slots has no oldest one"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(links: &mut Links) -> Option<&mut Links> {
        Some(links)
    }

    fn drain(queue: &mut PageQueue, slots: &mut [Links]) -> Vec<u32> {
        let mut drained = Vec::new();
        while let Some(oldest) = queue.oldest() {
            queue.remove(oldest, slots, links);
            drained.push(oldest);
        }
        drained
    }

    #[test]
    fn slots_leave_in_fifo_order_and_can_be_removed() {
        let (mut queue, mut slots) = (PageQueue::default(), vec![Links::NONE; 10]);
        for number in [3, 1, 4, 0, 5, 9] {
            queue.push(number, &mut slots, links);
        }
        for removed in [3, 0, 9] {
            queue.remove(removed, &mut slots, links);
        }
        assert_eq!(queue.len(), 3);
        queue.push(3, &mut slots, links);
        assert_eq!(drain(&mut queue, &mut slots), [1, 4, 5, 3]);
        queue.push(7, &mut slots, links);
        assert_eq!((drain(&mut queue, &mut slots), queue.len()), (vec![7], 0));
    }
}
