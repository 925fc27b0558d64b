//! A lane on a device that is nearly full: shorter segments, and the cut of the last one.

use std::sync::atomic::Ordering;

use base::{Result, broken_invariant, invariant};
use media::Purpose;

use super::{Lane, PAGE, SegmentTail};
use crate::header::UNIT_BYTES;
use crate::name::parse_segment_name;
use crate::record::{BEGIN_BYTES, Begin, FIXED_BYTES, GAP_BYTES, MARK_BYTES, begin};

impl Lane {
    /// Makes room for a record of `bytes` that deletes on a full device: continues in a segment that may take
    /// space which other segments leave free.
    pub(crate) fn make_short_room(&mut self, bytes: u64) -> Result<()> {
        self.shared.check()?;
        let bytes = GAP_BYTES as u64 + FIXED_BYTES as u64 + bytes;
        if self.has_room(bytes) {
            return Ok(());
        }
        let needed = 3 * PAGE + (MARK_BYTES as u64 + bytes).next_multiple_of(PAGE);
        let fresh = self.supply.take_for_deletes(needed)?;
        self.begin_segment(fresh)?;
        self.shared.is_for_deletes.store(self.supply.leaves_for_deletes(), Ordering::Relaxed);
        invariant!(self.has_room(bytes), "a short segment has room for its record");
        Ok(())
    }

    /// Makes room for a moved record of `bytes`, if need be in a segment that is kept for such records.
    pub(crate) fn make_reserved_room(&mut self, bytes: u64) -> Result<()> {
        self.shared.check()?;
        let bytes = GAP_BYTES as u64 + bytes;
        if self.has_room(bytes) {
            return Ok(());
        }
        let fresh = self
            .supply
            .take_reserved(3 * PAGE + (MARK_BYTES as u64 + bytes).next_multiple_of(PAGE))?;
        self.begin_segment(fresh)?;
        // Matters in a log of one lane.
        self.shared.is_for_deletes.store(self.supply.is_full(), Ordering::Relaxed);
        invariant!(self.has_room(bytes), "a new segment has room for its record");
        Ok(())
    }

    /// Begins the first segment after an open; a shorter one if the device has no space for a whole one.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.shared.check()?;
        let fresh = self.supply.take_first(4 * PAGE)?;
        self.begin_segment(fresh).map(drop)
    }

    /// Cuts the segment in which replay ended to its used length, to free space for a new segment on a
    /// full device. Nothing may follow the used length. A Begin as its last record, durable before the
    /// cut, states that the segment was cut. Returns whether the cut freed space.
    pub(crate) fn shorten(&mut self, tail: &SegmentTail) -> Result<bool> {
        let SegmentTail { file, used } = tail;
        let begin_at = used.next_multiple_of(if self.is_fenced { UNIT_BYTES } else { PAGE });
        let end = (begin_at + BEGIN_BYTES as u64).next_multiple_of(PAGE);
        let Some((_, segment)) = parse_segment_name(file.name()) else {
            return Err(broken_invariant!("a replayed segment has the name of a segment"));
        };
        if file.size()? <= end {
            return Ok(false);
        }
        let last = Begin { sequence: self.sequence, durable: self.sequence, opened: true };
        let record = begin(self.supply.seed(segment), self.after, last);
        file.store(begin_at, &record, Purpose::Log)?;
        file.sync(Purpose::Log)?;
        self.sequence += 1;
        self.numbers().cover(self.after);
        self.shared.set_durable_sequence(self.sequence);
        file.set_len(end)?;
        Ok(true)
    }
}
