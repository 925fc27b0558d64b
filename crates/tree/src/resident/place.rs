//! The place of an operation in the log, in 45 bits: the number of its segment among those in use, and an
//! offset there.

/// Bits of an offset: a segment has at most 256 MiB, twice the longest record.
const OFFSET_BITS: u32 = 28;

/// Bits of the number of a segment.
const SEGMENT_BITS: u32 = 16;

/// The bits of a place.
pub(super) const BITS: u32 = 1 + SEGMENT_BITS + OFFSET_BITS;

/// Most segments in use at once.
pub(super) const SEGMENTS_MAX: usize = 1 << SEGMENT_BITS;

/// The record of one operation, or an operation of a longer record. Never 0: a segment begins with its
/// header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    /// The place in the segment with the number `segment`. `is_record`: the offset is that of a record of one
    /// operation. `None` if it is too far.
    pub(super) fn new(segment: u16, offset: u64, is_record: bool) -> Option<Self> {
        let segment = u64::from(segment) << OFFSET_BITS;
        let record = u64::from(is_record) << (OFFSET_BITS + SEGMENT_BITS);
        (offset > 0 && offset < 1 << OFFSET_BITS).then_some(Self(record | segment | offset))
    }

    pub(super) const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    pub(super) const fn segment(self) -> u16 {
        (self.0 >> OFFSET_BITS) as u16
    }

    pub(super) const fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }

    /// Whether the offset is that of a record of one operation.
    pub(super) const fn is_record(self) -> bool {
        self.0 >> (OFFSET_BITS + SEGMENT_BITS) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_round_trip() {
        for (segment, offset, is_record) in
            [(0, 4096, true), (u16::MAX, (1 << 28) - 1, true), (7, 5000, false)]
        {
            let place = Place::new(segment, offset, is_record).unwrap();
            assert!(place.bits() > 0 && place.bits() < 1 << BITS);
            let again = Place::of_bits(place.bits());
            assert_eq!(
                (again.segment(), again.offset(), again.is_record()),
                (segment, offset, is_record)
            );
        }
        assert!(Place::new(0, 1 << 28, false).is_none() && Place::new(0, 0, true).is_none());
    }
}
