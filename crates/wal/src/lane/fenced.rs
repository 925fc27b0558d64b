//! Groups of a fenced lane: on storage-class memory, where a fence behind a group makes it durable.
//!
//! A group begins at a multiple of [`UNIT_BYTES`], so that no line of an earlier group is written again
//! (I11). Its first record is a Mark, which states that every record before the group was durable when the
//! group was stored: it was fenced before. Nothing vouches for the last group of a lane, whose lines a power
//! cut may have torn in any combination; its records are replayed up to the first one that is not whole.

use base::{Result, broken_invariant};
use media::Purpose;

use super::Lane;
use crate::header::UNIT_BYTES;
use crate::numbers::Taken;
use crate::record::mark;
use crate::shared::count_exclusive;

impl Lane {
    /// Stores the Mark that begins a group with the seqnos `taken`.
    pub(super) fn vouch(&mut self, taken: Taken) -> Result<()> {
        let Some(segment) = self.active.as_ref() else {
            return Err(broken_invariant!("a lane with room has a segment"));
        };
        let record = mark(segment.fresh.seed, self.sequence, taken.first_stored(), self.sequence);
        self.store(&record, &[])?;
        self.sequence += 1;
        count_exclusive(&self.shared.counters.marks, 1);
        Ok(())
    }

    /// Makes the group that was stored last durable. The next one begins a write unit.
    pub(super) fn fence(&mut self) -> Result<()> {
        let Some(segment) = self.active.as_mut() else {
            return Err(broken_invariant!("a stored group is in a segment"));
        };
        segment.fresh.file.sync(Purpose::Log)?;
        let unit = segment.tail.next_multiple_of(UNIT_BYTES);
        count_exclusive(&self.shared.counters.padding_bytes, unit - segment.tail);
        segment.tail = unit;
        segment.dirty = false;
        self.shared.set_active_bytes(unit);
        self.shared.set_durable_sequence(self.sequence);
        count_exclusive(&self.shared.counters.fences, 1);
        Ok(())
    }
}
