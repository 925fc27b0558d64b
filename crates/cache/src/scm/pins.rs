//! Pins on the slots of a device tier: shared for readers, exclusive for the writer. `media::scm::Slots` does
//! the same for a tier of memory.
//!
//! One byte per slot: free, pinned by 1 to 254 readers, or pinned by the writer. Nobody waits for a pin.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use base::invariant;

const FREE: u8 = 0;
const WRITING: u8 = u8::MAX;
const READERS_MAX: u8 = WRITING - 1;

/// The pin counts of all slots.
pub(crate) struct Pins(Box<[AtomicU8]>);

impl Pins {
    pub(crate) fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self((0..slots).map(|_| AtomicU8::new(FREE)).collect()))
    }

    /// Pins `slot` for a reader; `None` while it is being written, or if it has 254 readers.
    pub(crate) fn read(self: &Arc<Self>, slot: usize) -> Option<ReadPin> {
        let more = |readers| (readers < READERS_MAX).then(|| readers + 1);
        self.0.get(slot)?.fetch_update(Acquire, Relaxed, more).ok()?;
        Some(ReadPin { pins: Arc::clone(self), slot })
    }

    /// Pins `slot` for the writer; `None` while anyone else has a pin on it.
    pub(crate) fn write(self: &Arc<Self>, slot: usize) -> Option<WritePin> {
        self.0.get(slot)?.compare_exchange(FREE, WRITING, Acquire, Relaxed).ok()?;
        Some(WritePin { pins: Arc::clone(self), slot })
    }
}

/// A reader's pin: while it exists, the slot is not written.
pub(crate) struct ReadPin {
    pins: Arc<Pins>,
    slot: usize,
}

impl Drop for ReadPin {
    fn drop(&mut self) {
        if let Some(state) = self.pins.0.get(self.slot) {
            let before = state.fetch_sub(1, Release);
            invariant!(
                (1..=READERS_MAX).contains(&before),
                "a reader's pin is counted until it is dropped"
            );
        }
    }
}

impl fmt::Debug for ReadPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadPin({})", self.slot)
    }
}

/// The writer's pin: while it exists, no other thread uses the slot.
pub(crate) struct WritePin {
    pins: Arc<Pins>,
    slot: usize,
}

impl Drop for WritePin {
    fn drop(&mut self) {
        if let Some(state) = self.pins.0.get(self.slot) {
            let before = state.swap(FREE, Release);
            invariant!(before == WRITING, "nobody pins a slot beside its writer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_a_slot_and_a_writer_has_it_alone() {
        let pins = Pins::new(2);
        let readers: Vec<_> = (0..300).map_while(|_| pins.read(1)).collect();
        assert_eq!(readers.len(), usize::from(READERS_MAX));
        assert!(pins.write(1).is_none() && pins.write(2).is_none() && pins.read(2).is_none());
        drop(readers);
        let writing = pins.write(1).unwrap();
        assert!(pins.read(1).is_none() && pins.write(1).is_none() && pins.read(0).is_some());
        drop(writing);
        assert!(pins.read(1).is_some());
    }
}
