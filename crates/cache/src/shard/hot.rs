//! The pages of a shard that a restart is to find in the cache again.

use super::Shard;
use super::heat::least_heat;
use super::slot::Slot;
use crate::PageKey;
use crate::rows::policy::Queue;

impl Shard {
    /// Adds at most `most` pages for which `is_wanted` to `found`: first those that were used since they came
    /// or that the main queue keeps, then the others.
    pub(crate) fn hot_pages(
        &self,
        most: usize,
        is_wanted: &impl Fn(&PageKey) -> bool,
        found: &mut Vec<PageKey>,
    ) {
        let is_hot = |slot: &Slot| {
            slot.queue == Queue::Main || slot.frame.heat() > u32::from(least_heat(slot.kind))
        };
        let end = found.len().saturating_add(most);
        for wants_hot in [true, false] {
            let slots = self.slots.iter().flatten().filter(|slot| is_hot(slot) == wants_hot);
            let pages = slots.filter_map(Slot::key).filter(is_wanted);
            found.extend(pages.take(end.saturating_sub(found.len())));
        }
    }
}
