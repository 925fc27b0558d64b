//! The header: the first page of a segment, with its store, lane and number.
//!
//! It is written and durable before the first record, and never written again. The segment's position in
//! the lane is not in the header: the `Begin` record states it when the segment is put to use.
//! docs/format/log.md has the byte table.

use base::limits::PAGE_BYTES;
use base::{Cursor, Error, LaneId, Result, SegmentId, StoreId, crc32c};
use base::{put_u16, put_u32, put_u64, put_u128};

use crate::name::segment_name;

const MAGIC: u64 = u64::from_le_bytes(*b"TERRALOG");

/// The version of a segment without Gaps, and the first version of the format.
pub(crate) const VERSION_PLAIN: u32 = 1;

/// The version of a segment that may have Gaps. A reader that does not know Gaps would take them for damage,
/// so it must not read the segment.
pub(crate) const VERSION_GAPS: u32 = 2;

/// The version of a segment of a fenced lane, which may have Gaps, and the newest that this code reads. Each
/// group begins at a multiple of [`UNIT_BYTES`], with a Mark.
pub(crate) const VERSION_FENCED: u32 = 3;

/// Groups of a fenced lane begin at multiples of this, so that no group shares a write unit with another.
/// The value is the unit of Optane modules, bytes; on a medium with a smaller unit it wastes some space.
pub(crate) const UNIT_BYTES: u64 = 256;

/// Offset of the header's checksum in every version. It covers the bytes before it.
const CRC_AT: usize = PAGE_BYTES - 4;

/// The identity of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The version of the format: 1, or 2 if the segment may have Gaps, or 3 if its lane is fenced.
    pub version: u32,
    /// The store.
    pub store: StoreId,
    /// The lane.
    pub lane: LaneId,
    /// The segment within the lane. Never reused.
    pub segment: SegmentId,
    /// Length of the file, bytes. A segment is cut shorter only after the next one is durably begun, or
    /// if its last record is another Begin.
    pub capacity: u64,
}

impl SegmentHeader {
    /// Groups, and the records that follow a sync, begin at multiples of this, bytes.
    pub(crate) const fn unit(&self) -> u64 {
        if self.version >= VERSION_FENCED { UNIT_BYTES } else { PAGE_BYTES as u64 }
    }

    /// Encodes the header page.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE_BYTES);
        put_u64(&mut page, MAGIC);
        put_u32(&mut page, self.version);
        put_u16(&mut page, self.lane.0);
        put_u16(&mut page, 0);
        put_u128(&mut page, self.store.0);
        put_u64(&mut page, self.segment.0);
        put_u64(&mut page, self.capacity);
        page.resize(CRC_AT, 0);
        let crc = crc32c(&page);
        put_u32(&mut page, crc);
        page
    }

    /// Decodes a header page.
    ///
    /// # Errors
    /// `Corrupt` if the page is damaged, `Invalid` if a newer version wrote it.
    pub fn decode(page: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("log segment header", page);
        let covered = cursor.take(CRC_AT)?;
        let (stored, computed) = (cursor.u32()?, crc32c(covered));
        if stored != computed {
            return Err(Error::corrupt("log segment header checksum")
                .expected(format_args!("{computed:#010x}"))
                .got(format_args!("{stored:#010x}")));
        }
        let mut cursor = Cursor::new("log segment header", covered);
        let magic = cursor.u64()?;
        if magic != MAGIC {
            return Err(Error::corrupt("log segment magic")
                .expected(format_args!("{MAGIC:#018x}"))
                .got(format_args!("{magic:#018x}")));
        }
        let version = cursor.u32()?;
        if !(VERSION_PLAIN..=VERSION_FENCED).contains(&version) {
            return Err(Error::invalid("log format version")
                .expected(format_args!("at most {VERSION_FENCED}"))
                .got(version));
        }
        let lane = LaneId(cursor.u16()?);
        let reserved = cursor.u16()?;
        let (store, segment) = (StoreId(cursor.u128()?), SegmentId(cursor.u64()?));
        let capacity = cursor.u64()?;
        if reserved != 0 || cursor.rest().iter().any(|byte| *byte != 0) {
            return Err(Error::corrupt("log segment header").expected("zeros in reserved bytes"));
        }
        Ok(Self { version, store, lane, segment, capacity })
    }

    /// Checks that the header is that of `lane` and `segment` and, if given, of `store`.
    ///
    /// # Errors
    /// `Invalid` for another store's header, `Corrupt` for another segment's.
    pub fn check(&self, store: Option<StoreId>, lane: LaneId, segment: SegmentId) -> Result<()> {
        if let Some(store) = store.filter(|store| *store != self.store) {
            return Err(Error::invalid("log segment of another store")
                .expected(format_args!("store {store}"))
                .got(format_args!("store {}", self.store)));
        }
        if (self.lane, self.segment) != (lane, segment) {
            return Err(Error::corrupt("log segment header of another segment")
                .expected(segment_name(lane, segment))
                .got(segment_name(self.lane, self.segment)));
        }
        Ok(())
    }

    /// The seed: the checksums of the segment's records are XORed with it, so that a record of another
    /// segment, lane or store fails its checksum here (I8).
    #[must_use]
    pub fn seed(&self) -> u32 {
        Self::seed_of(self.store, self.lane, self.segment)
    }

    /// As [`SegmentHeader::seed`], of the segment with this identity.
    pub(crate) fn seed_of(store: StoreId, lane: LaneId, segment: SegmentId) -> u32 {
        let mut identity = Vec::with_capacity(26);
        put_u128(&mut identity, store.0);
        put_u16(&mut identity, lane.0);
        put_u64(&mut identity, segment.0);
        crc32c(&identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        version: VERSION_PLAIN,
        store: StoreId(7),
        lane: LaneId(1),
        segment: SegmentId(9),
        capacity: 1 << 20,
    };

    /// `page` with a valid checksum.
    fn sealed(mut page: Vec<u8>) -> Vec<u8> {
        page.truncate(CRC_AT);
        let crc = crc32c(&page);
        put_u32(&mut page, crc);
        page
    }

    #[test]
    fn a_header_round_trips_and_every_bit_flip_is_refused() {
        let page = HEADER.encode();
        assert_eq!(page.len(), PAGE_BYTES);
        assert_eq!(SegmentHeader::decode(&page).unwrap(), HEADER);
        for at in 0..PAGE_BYTES {
            let mut bad = page.clone();
            bad[at] ^= 1;
            assert!(SegmentHeader::decode(&bad).is_err(), "byte {at}");
            assert!(SegmentHeader::decode(&page[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_newer_version_and_nonzero_reserved_bytes_are_refused() {
        let mut page = HEADER.encode();
        for version in [0, VERSION_FENCED as u8 + 1] {
            page[8] = version;
            let error = SegmentHeader::decode(&sealed(page.clone())).unwrap_err();
            assert_eq!(error.kind(), base::ErrorKind::Invalid, "{error}");
        }
        for version in [VERSION_GAPS, VERSION_FENCED] {
            page[8] = version as u8;
            assert_eq!(SegmentHeader::decode(&sealed(page.clone())).unwrap().version, version);
        }
        for at in [14, 48, CRC_AT - 1] {
            let mut page = HEADER.encode();
            page[at] = 1;
            assert!(SegmentHeader::decode(&sealed(page)).is_err(), "byte {at}");
        }
    }

    #[test] // I8
    fn a_header_of_another_store_lane_or_segment_is_refused() {
        HEADER.check(Some(StoreId(7)), LaneId(1), SegmentId(9)).unwrap();
        HEADER.check(None, LaneId(1), SegmentId(9)).unwrap();
        let foreign = HEADER.check(Some(StoreId(8)), LaneId(1), SegmentId(9)).unwrap_err();
        assert_eq!(foreign.kind(), base::ErrorKind::Invalid, "{foreign}");
        let moved = HEADER.check(None, LaneId(1), SegmentId(8)).unwrap_err();
        assert!(moved.to_string().contains("log-1-0000000009"), "{moved}");
        assert!(HEADER.check(None, LaneId(0), SegmentId(9)).is_err());
    }
}
