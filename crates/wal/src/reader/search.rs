//! The search for the next record of a lane after damage.
//!
//! A record's checksum is seeded by store, lane and segment (I8), its lane sequence follows its
//! predecessors', and seqnos only grow. Bytes that pass all three tests are a record of this segment,
//! stored after the record read last. The search first trusts the damaged record's length: if the record
//! with the next lane sequence follows there, no byte of a body is taken for a record. Otherwise the
//! search tries every offset.
//!
//! Cost: linear. Each offset is examined once, in nanoseconds. Checksums are computed only over
//! candidates, of at most [`CHECKED`] times the segment's bytes.

use base::limits::PAGE_BYTES;
use base::{ErrorKind, Result, invariant};

use super::{LocatedContent, LocatedRecord, PAGE, SegmentReader};
use crate::record::{BEGIN_BYTES, FIXED_BYTES, GAP_BYTES, MARK_BYTES, record_bytes};

/// Bytes of checksums that searches of a segment compute, as a multiple of its length.
const CHECKED: u64 = 4;

/// Most lane sequences that damage can plausibly have taken: for a record at any offset, and for one at
/// an offset at which records typically begin.
const REACH: u32 = 1 << 24;
const REACH_LIKELY: u32 = 1 << 31;

/// Most seqnos that damage can plausibly have taken.
const REACH_SEQNOS: u64 = 1 << 44;

/// The range in which the next record must lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Its lane sequence is at least this, and below `limit`.
    pub(crate) sequence: u64,
    pub(crate) limit: u64,
    /// Its seqno is at least this.
    pub(crate) seqno: u64,
}

/// Bytes that may be a record.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    at: u64,
    bytes: u64,
    sequence: u64,
}

impl Wanted {
    /// The record that may begin with `bytes` at `at`, in a segment with groups at multiples of `unit` that
    /// ends at `end`.
    fn admits(&self, at: u64, bytes: &[u8], unit: u64, end: u64) -> Option<Candidate> {
        let fixed = bytes.first_chunk::<FIXED_BYTES>()?;
        let [_, _, _, _, _, _, _, kind, low @ .., _, _, _, _, _, _, _, _] = *fixed;
        if !matches!(kind >> 4, 1..=4) {
            return None;
        }
        let whole = record_bytes(fixed)?;
        let starts_unit = at.is_multiple_of(unit);
        let is_shaped = match kind >> 4 {
            1 => whole > FIXED_BYTES,
            2 => starts_unit && whole == MARK_BYTES,
            4 => whole == GAP_BYTES,
            _ => starts_unit && whole == BEGIN_BYTES,
        };
        let is_likely = starts_unit || at == PAGE + BEGIN_BYTES as u64;
        let ahead = u32::from_le_bytes(low).wrapping_sub(self.sequence as u32);
        let sequence = self.sequence.checked_add(u64::from(ahead))?;
        let [.., a, b, c, d, e, f, g, h] = *fixed;
        let seqnos = u64::from_le_bytes([a, b, c, d, e, f, g, h]).checked_sub(self.seqno)?;
        let is_near = ahead < if is_likely { REACH_LIKELY } else { REACH };
        let fits = whole as u64 <= end - at;
        (is_shaped && fits && is_near && sequence < self.limit && seqnos < REACH_SEQNOS)
            .then_some(Candidate { at, bytes: whole as u64, sequence })
    }
}

impl SegmentReader {
    /// The first `wanted` record from the current offset on; moves past it. `None` leaves the offset as
    /// it is. Pages that the device cannot read are skipped.
    ///
    /// # Errors
    /// `Retry` if memory is short.
    pub(crate) fn search(&mut self, wanted: &Wanted) -> Result<Option<LocatedRecord>> {
        let found = match self.behind_damaged(wanted)? {
            Some(found) => Some(found),
            None => self.anywhere(wanted)?,
        };
        if let Some(found) = &found {
            invariant!(
                (wanted.sequence..wanted.limit).contains(&found.sequence)
                    && wanted.seqno <= found.seqno,
                "a search finds a record in the range that it was given"
            );
            self.move_past(found);
        }
        Ok(found)
    }

    /// The record with the next lane sequence, if it begins at the end of the damaged record, as given by the
    /// damaged record's length.
    fn behind_damaged(&mut self, wanted: &Wanted) -> Result<Option<LocatedRecord>> {
        let next = Wanted { sequence: wanted.sequence.saturating_add(1), ..*wanted };
        let unit = self.unit;
        for at in [self.at, self.at.next_multiple_of(unit)] {
            let Some(whole) = self.peek(at)?.and_then(|bytes| record_bytes(&bytes)) else {
                continue;
            };
            let end = at + whole as u64;
            for at in [end, end.next_multiple_of(unit)] {
                let Some(bytes) = self.peek(at)? else { continue };
                if let Some(candidate) = next.admits(at, &bytes, unit, self.end)
                    && candidate.sequence == next.sequence
                    && let Some(found) = self.verify(&next, &candidate)?
                {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    fn anywhere(&mut self, wanted: &Wanted) -> Result<Option<LocatedRecord>> {
        let (mut at, end, unit) = (self.at, self.end, self.unit);
        while at < end {
            let page = (at + 1).next_multiple_of(PAGE).min(end);
            // A record's fixed part may begin on this page and end on the next.
            let beyond = (page + FIXED_BYTES as u64 - 1).min(end);
            let len = if self.readable(at, beyond)? {
                beyond - at
            } else if self.readable(at, page)? {
                page - at
            } else {
                at = page;
                continue;
            };
            let bytes = self.bytes(at, len as usize)?;
            let mut places = (at..).zip(bytes.windows(FIXED_BYTES));
            let Some(candidate) =
                places.find_map(|(at, bytes)| wanted.admits(at, bytes, unit, end))
            else {
                at = page;
                continue;
            };
            if let Some(found) = self.verify(wanted, &candidate)? {
                return Ok(Some(found));
            }
            at = candidate.at + 1;
        }
        Ok(None)
    }

    /// The candidate as a record, if its checksum matches and its fields are plausible.
    fn verify(&mut self, wanted: &Wanted, candidate: &Candidate) -> Result<Option<LocatedRecord>> {
        let Candidate { at, bytes, sequence } = *candidate;
        let most = self.end.saturating_mul(CHECKED);
        if self.checked.saturating_add(bytes) > most || !self.readable(at, at + bytes)? {
            return Ok(None);
        }
        self.checked += bytes;
        let Ok(found) = self.parse(at, None)? else { return Ok(None) };
        // A Begin states its full lane sequence, at any distance.
        let sequence = match found.content {
            LocatedContent::Begin(begin) => begin.sequence,
            LocatedContent::Batch { .. }
            | LocatedContent::Mark { .. }
            | LocatedContent::Gap { .. } => sequence,
        };
        let is_possible = match found.content {
            LocatedContent::Begin(_) => (wanted.sequence..wanted.limit).contains(&sequence),
            LocatedContent::Mark { durable } => durable <= sequence,
            LocatedContent::Batch { .. } | LocatedContent::Gap { .. } => true,
        };
        Ok(is_possible.then_some(LocatedRecord { sequence, ..found }))
    }

    /// The fixed part of a record at `at`, if it lies in the file and the device can read it.
    fn peek(&mut self, at: u64) -> Result<Option<[u8; FIXED_BYTES]>> {
        let end = at.saturating_add(FIXED_BYTES as u64);
        if end > self.end || !self.readable(at, end)? {
            return Ok(None);
        }
        Ok(self.bytes(at, FIXED_BYTES)?.first_chunk().copied())
    }

    /// Whether the device can read these bytes.
    fn readable(&mut self, at: u64, end: u64) -> Result<bool> {
        match self.bytes(at, (end - at) as usize) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(false),
            Err(error) => Err(error),
        }
    }
}

const _: () = assert!(PAGE_BYTES > FIXED_BYTES);
