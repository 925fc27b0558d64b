//! A checkpoint of the indexes of a store's resident keyspaces: a file beside the manifest, by which an open
//! reads only the end of the log. Byte format: docs/format/index-checkpoint.md.
//!
//! It is fuzzy: shards are copied one after the other while flushes and moves go on. It states a seqno below
//! which every write was in the indexes when it was begun ([`Header::end`]). An open that has it replays the
//! segments that are not full of such writes, and applies an operation only if the index has no newer version
//! of its key. A slot that points into a segment that was freed since is dropped: the segment's live entries
//! were written again behind the checkpoint, or nothing needs them.
//!
//! A checkpoint only saves time. An open without one, or with a damaged one, reads the whole log.
//!
//! The file is a header and sections, each with a checksum. The header is written last: a file with a whole
//! header is whole.

use base::{
    Cursor, Error, KeyspaceId, LaneId, Result, SegmentId, Seqno, StoreId, crc32c, put_u16, put_u32,
    put_u64, put_u128,
};
use wal::SegmentSummary;

const MAGIC: u64 = u64::from_le_bytes(*b"TERRAIDX");

/// The version of the format that is written.
const VERSION: u32 = 2;

/// The version before: zero in place of the time.
const VERSION_WITHOUT_TIME: u32 = 1;

/// Length of the header, bytes.
pub const HEADER_BYTES: usize = 64;

/// Offset of the header's checksum, which covers the bytes before it.
const CRC_AT: usize = HEADER_BYTES - 4;

/// Length of a section before its body, bytes: kind, length of the body, checksum.
pub const SECTION_HEAD_BYTES: usize = 12;

/// The longest body of a section, bytes.
pub const BODY_BYTES_MAX: usize = 512 << 10;

/// The header of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// When the checkpoint was begun, Unix seconds; 0 if it is from before version 2.
    pub begun: u32,
    /// The store.
    pub store: StoreId,
    /// The number of the checkpoint.
    pub number: u64,
    /// Every write to a resident keyspace below it was in the indexes when the checkpoint was begun.
    pub end: Seqno,
    /// Length of the file, bytes.
    pub length: u64,
}

impl Header {
    /// The name of checkpoint `number`.
    #[must_use]
    pub fn file_name(number: u64) -> String {
        format!("index-{number}")
    }

    /// The number of a checkpoint with this name; `None` if it is not the name of one.
    #[must_use]
    pub fn parse_file_name(name: &str) -> Option<u64> {
        let number = name.strip_prefix("index-")?.parse().ok()?;
        // Signs and leading zeros parse as numbers too, but each file has exactly one name.
        (Self::file_name(number) == name).then_some(number)
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        put_u64(&mut bytes, MAGIC);
        put_u32(&mut bytes, VERSION);
        put_u32(&mut bytes, self.begun);
        put_u128(&mut bytes, self.store.0);
        put_u64(&mut bytes, self.number);
        put_u64(&mut bytes, self.end.get());
        put_u64(&mut bytes, self.length);
        bytes.resize(CRC_AT, 0);
        let crc = crc32c(&bytes);
        put_u32(&mut bytes, crc);
        bytes
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged, `Invalid` if a newer version wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("header of an index checkpoint", bytes);
        let covered = cursor.take(CRC_AT)?;
        let (stored, computed) = (cursor.u32()?, crc32c(covered));
        if stored != computed {
            return Err(Error::corrupt("checksum of an index checkpoint")
                .expected(format_args!("{computed:#010x}"))
                .got(format_args!("{stored:#010x}")));
        }
        let mut cursor = Cursor::new("header of an index checkpoint", covered);
        let magic = cursor.u64()?;
        if magic != MAGIC {
            return Err(Error::corrupt("magic of an index checkpoint")
                .expected(format_args!("{MAGIC:#018x}"))
                .got(format_args!("{magic:#018x}")));
        }
        let version = cursor.u32()?;
        if !matches!(version, VERSION_WITHOUT_TIME | VERSION) {
            return Err(Error::invalid("version of an index checkpoint")
                .expected(format_args!("at most {VERSION}"))
                .got(version));
        }
        let begun = cursor.u32()?;
        let zeros = if version == VERSION_WITHOUT_TIME { begun } else { 0 };
        let store = StoreId(cursor.u128()?);
        let number = cursor.u64()?;
        let end = Seqno::try_from(cursor.u64()?)?;
        let length = cursor.u64()?;
        if zeros != 0 || cursor.rest().iter().any(|byte| *byte != 0) {
            return Err(Error::corrupt("header of an index checkpoint").expected("zeros"));
        }
        Ok(Self { begun, store, number, end, length })
    }
}

/// What is known of a segment with entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentPart {
    /// The number that places have.
    pub number: u16,
    /// Its lane and number there.
    pub id: (LaneId, SegmentId),
    /// Operations that were noted, and their length, bytes.
    pub noted: (u64, u64),
    /// Some of its records of several operations: offset, and bit 30 for moved ones. In order over all parts.
    pub records: Vec<u32>,
}

/// A section of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Section {
    /// Part of a shard of the index of a keyspace: tags above places.
    Slots {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The number of the shard.
        shard: u32,
        /// The slots, none of which is free.
        slots: Vec<u64>,
    },
    /// The number of tombstones in the index of a keyspace.
    Tombstones(KeyspaceId, u64),
    /// A part of what is known of a segment with entries.
    Segment(SegmentPart),
    /// A full segment of the log.
    Full(SegmentSummary),
}

impl Section {
    const SLOTS: u32 = 1;
    const TOMBSTONES: u32 = 2;
    const SEGMENT: u32 = 3;
    const FULL: u32 = 4;

    /// Appends the section.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let kind = match self {
            Self::Slots { .. } => Self::SLOTS,
            Self::Tombstones(..) => Self::TOMBSTONES,
            Self::Segment(_) => Self::SEGMENT,
            Self::Full(_) => Self::FULL,
        };
        put_u32(out, kind);
        put_u64(out, 0);
        match self {
            Self::Slots { keyspace, shard, slots } => {
                put_u32(out, keyspace.0);
                put_u32(out, *shard);
                slots.iter().for_each(|slot| put_u64(out, *slot));
            }
            Self::Tombstones(keyspace, count) => {
                put_u32(out, keyspace.0);
                put_u64(out, *count);
            }
            Self::Segment(part) => {
                put_u16(out, part.number);
                put_u16(out, part.id.0.0);
                put_u64(out, part.id.1.0);
                put_u64(out, part.noted.0);
                put_u64(out, part.noted.1);
                part.records.iter().for_each(|record| put_u32(out, *record));
            }
            Self::Full(full) => {
                put_u16(out, full.lane.0);
                put_u64(out, full.segment.0);
                put_u64(out, full.begin);
                put_u64(out, full.first.get());
                put_u64(out, full.bytes);
                for (keyspace, end) in &full.pins {
                    put_u32(out, keyspace.0);
                    put_u64(out, end.get());
                }
            }
        }
        let body = out.get(start + SECTION_HEAD_BYTES..).unwrap_or_default();
        base::invariant!(body.len() <= BODY_BYTES_MAX, "a section has a bounded length");
        let (length, crc) = (body.len() as u32, crc_of(kind, body));
        if let Some(head) = out.get_mut(start + 4..start + SECTION_HEAD_BYTES) {
            let (of_length, of_crc) = head.split_at_mut(4);
            of_length.copy_from_slice(&length.to_le_bytes());
            of_crc.copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// The length of the body behind `head`.
    ///
    /// # Errors
    /// `Corrupt` if it is too long.
    pub fn body_bytes(head: &[u8]) -> Result<usize> {
        let mut cursor = Cursor::new("section of an index checkpoint", head);
        let (_, length) = (cursor.u32()?, cursor.u32()? as usize);
        if length > BODY_BYTES_MAX {
            return Err(Error::corrupt("section of an index checkpoint")
                .expected(format_args!("at most {BODY_BYTES_MAX} bytes"))
                .got(length));
        }
        Ok(length)
    }

    /// Decodes the section with `head` and `body`.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged.
    pub fn decode(head: &[u8], body: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("section of an index checkpoint", head);
        let (kind, _, stored) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let computed = crc_of(kind, body);
        if stored != computed {
            return Err(Error::corrupt("checksum of a section of an index checkpoint")
                .expected(format_args!("{computed:#010x}"))
                .got(format_args!("{stored:#010x}")));
        }
        let mut cursor = Cursor::new("section of an index checkpoint", body);
        let section = match kind {
            Self::SLOTS => {
                let (keyspace, shard) = (KeyspaceId(cursor.u32()?), cursor.u32()?);
                let mut slots = Vec::with_capacity(cursor.rest().len() / size_of::<u64>());
                while !cursor.rest().is_empty() {
                    slots.push(cursor.u64()?);
                }
                Self::Slots { keyspace, shard, slots }
            }
            Self::TOMBSTONES => Self::Tombstones(KeyspaceId(cursor.u32()?), cursor.u64()?),
            Self::SEGMENT => {
                let number = cursor.u16()?;
                let id = (LaneId(cursor.u16()?), SegmentId(cursor.u64()?));
                let noted = (cursor.u64()?, cursor.u64()?);
                let mut records = Vec::with_capacity(cursor.rest().len() / size_of::<u32>());
                while !cursor.rest().is_empty() {
                    records.push(cursor.u32()?);
                }
                Self::Segment(SegmentPart { number, id, noted, records })
            }
            Self::FULL => {
                let (lane, segment) = (LaneId(cursor.u16()?), SegmentId(cursor.u64()?));
                let (begin, first) = (cursor.u64()?, Seqno::try_from(cursor.u64()?)?);
                let bytes = cursor.u64()?;
                let mut pins = Vec::new();
                while !cursor.rest().is_empty() {
                    pins.push((KeyspaceId(cursor.u32()?), Seqno::try_from(cursor.u64()?)?));
                }
                Self::Full(SegmentSummary { lane, segment, begin, first, bytes, pins })
            }
            _ => {
                return Err(Error::corrupt("kind of a section of an index checkpoint")
                    .expected("1 to 4")
                    .got(kind));
            }
        };
        match cursor.rest() {
            [] => Ok(section),
            rest => Err(Error::corrupt("section of an index checkpoint")
                .expected("its end")
                .got(format_args!("{} more bytes", rest.len()))),
        }
    }
}

fn crc_of(kind: u32, body: &[u8]) -> u32 {
    base::crc32c_append(crc32c(&kind.to_le_bytes()), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections() -> Vec<Section> {
        let id = (LaneId(2), SegmentId(300));
        let pins = vec![(KeyspaceId(1), Seqno::new(900)), (KeyspaceId(7), Seqno::new(901))];
        vec![
            Section::Slots { keyspace: KeyspaceId(7), shard: 1023, slots: vec![1 << 45 | 4096, 9] },
            Section::Tombstones(KeyspaceId(7), 5),
            Section::Segment(SegmentPart {
                number: 3,
                id,
                noted: (4, 400),
                records: vec![4096, 1 << 30 | 8192],
            }),
            Section::Full(SegmentSummary {
                lane: id.0,
                segment: id.1,
                begin: 44,
                first: Seqno::new(500),
                bytes: 1 << 20,
                pins,
            }),
        ]
    }

    fn header() -> Header {
        let (store, end) = (StoreId(0x0102_0304), Seqno::new(1000));
        Header { begun: 1_700_000_000, store, number: 12, end, length: 4096 }
    }

    fn golden(hex: &str) -> Vec<u8> {
        let digits: Vec<_> = hex
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default())
            .flat_map(|line| line.chars().filter(char::is_ascii_hexdigit))
            .filter_map(|digit| digit.to_digit(16))
            .collect();
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    }

    #[test]
    fn golden_bytes_of_a_checkpoint() {
        let mut bytes = header().encode();
        sections().iter().for_each(|section| section.encode(&mut bytes));
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = golden(include_str!("../../golden/index_checkpoint.hex"));
        assert!(bytes == expected, "{hex}");
    }

    #[test]
    fn a_header_of_version_1_has_no_time() {
        let mut bytes = golden(include_str!("../../golden/index_checkpoint_1.hex"));
        assert_eq!(Header::decode(&bytes).unwrap(), Header { begun: 0, ..header() });
        // No field of that version was here.
        bytes[12] = 1;
        let crc = crc32c(&bytes[..CRC_AT]).to_le_bytes();
        bytes[CRC_AT..].copy_from_slice(&crc);
        assert!(Header::decode(&bytes).is_err());
        bytes[8] = 3;
        let crc = crc32c(&bytes[..CRC_AT]).to_le_bytes();
        bytes[CRC_AT..].copy_from_slice(&crc);
        assert_eq!(Header::decode(&bytes).unwrap_err().kind(), base::ErrorKind::Invalid);
    }

    #[test]
    fn headers_and_sections_round_trip_and_damage_is_found() {
        let bytes = header().encode();
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(Header::decode(&bytes).unwrap(), header());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(Header::decode(&damaged).is_err(), "byte {at}");
        }
        for section in sections() {
            let mut bytes = Vec::new();
            section.encode(&mut bytes);
            let (head, body) = bytes.split_at(SECTION_HEAD_BYTES);
            assert_eq!(Section::body_bytes(head).unwrap(), body.len());
            assert_eq!(Section::decode(head, body).unwrap(), section);
            for at in (0..4).chain(8..bytes.len()) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 4;
                let (head, body) = damaged.split_at(SECTION_HEAD_BYTES);
                assert!(Section::decode(head, body).is_err(), "byte {at} of {section:?}");
            }
        }
        assert!(Section::body_bytes(&[0xff; SECTION_HEAD_BYTES]).is_err());
    }

    #[test]
    fn each_checkpoint_has_one_name() {
        assert_eq!(Header::parse_file_name(&Header::file_name(7)), Some(7));
        for other in ["index-07", "index-", "index-+7", "index", "log-0-0000000001"] {
            assert_eq!(Header::parse_file_name(other), None, "{other}");
        }
    }
}
