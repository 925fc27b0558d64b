//! Manifest edits: the changes that the manifest records. Byte format: docs/format/manifest.md.

use std::sync::Arc;

use base::limits::{KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX, OPERATOR_NAME_BYTES_MAX};
use base::{
    Cursor, DictionaryId, Error, KeyRange, KeyspaceId, LaneId, LineageId, Result, RunId, SegmentId,
    Seqno, TableId, put_bytes, put_u64, put_u128, put_varint,
};
use bytes::Bytes;

use crate::header::VERSION_OPENED;
use crate::{KeyspaceKind, TableEntry, TableOptions, ValuesEntry};

/// Longest stored form of a table's fields, bytes: two bounds, and its value files.
const TABLE_BYTES_MAX: usize = 1 << 21;

/// Longest stored form of a value file's fields, bytes, those of later versions included.
const VALUES_BYTES_MAX: usize = 1 << 12;

/// One change of a store. A record holds several; they take effect together.
#[expect(missing_docs, reason = "each variant's text explains its fields")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A keyspace was created.
    KeyspaceCreated { keyspace: KeyspaceId, kind: KeyspaceKind, name: String },
    /// A keyspace was dropped with all its tables; its id is never used again.
    KeyspaceDropped { keyspace: KeyspaceId },
    /// A table was added to its keyspace. Its file is durable (I3).
    TableAdded { keyspace: KeyspaceId, table: Arc<TableEntry> },
    /// A value file was added. It exists while tables of the keyspace point into it; the first of them follow
    /// in the same record. The file is durable (I3).
    ValuesAdded { keyspace: KeyspaceId, values: ValuesEntry },
    /// A table was removed from its keyspace.
    TableRemoved { keyspace: KeyspaceId, table: TableId },
    /// The keys in `range` were cut out of a table: other tables hold them, or they were dropped. A table
    /// left without keys is removed from its keyspace.
    TableCut { keyspace: KeyspaceId, table: TableId, range: KeyRange },
    /// The pieces of a table within `range` changed to another run and level by a trivial move: no data was
    /// copied.
    TableMoved { keyspace: KeyspaceId, table: TableId, range: KeyRange, run: RunId, level: u8 },
    /// Every write to the keyspace with a sequence number below `below` is in its tables.
    Flushed { keyspace: KeyspaceId, below: Seqno },
    /// Table ids below `below` may have been used; ids are never reused.
    TableIdsReserved { below: TableId },
    /// New tables of the keyspace use this dictionary. Its file is durable (I3).
    DictionaryAdded { keyspace: KeyspaceId, dictionary: DictionaryId },
    /// Dictionary ids up to `last` were used; ids are never reused.
    DictionaryIdsUsed { last: DictionaryId },
    /// The store's clock was read as `unix_ms`, Unix milliseconds; it never runs backwards from there.
    ClockReached { unix_ms: u64 },
    /// The merge operator of the keyspace has this name. It never changes.
    KeyspaceOperator { keyspace: KeyspaceId, name: String },
    /// New tables of the keyspace are written so from now on.
    KeyspaceTables { keyspace: KeyspaceId, options: TableOptions },
    /// No ingest of the keyspace has a sequence number above `last`. The ingested tables state it too, but
    /// only until they are merged.
    Ingested { keyspace: KeyspaceId, last: Seqno },
    /// The content of a table is the file `file` of the object store, durable there, and no local file.
    TableCold { keyspace: KeyspaceId, table: TableId, file: Arc<str> },
    /// A damaged table was quarantined: it is left out of merges and still read.
    TableDamaged { keyspace: KeyspaceId, table: TableId },
    /// The scrub reached this position.
    Scrubbed(ScrubPosition),
    /// Segments of the lane before `segment` are not needed: they are removed, and ignored if they reappear.
    LogBegins { lane: LaneId, segment: SegmentId },
    /// The log was durable up to this point: one that ends earlier has lost records.
    LogReached { reached: wal::Reached },
    /// The log is at `place` from now on: records of lanes elsewhere are dead.
    LogPlaced { place: wal::LogPlace },
    /// The store was about to use its prefix of the object store for the time `number`: docs/object-store.md.
    ColdOpened { number: u64 },
    /// The store is a copy that began this lineage. Only in the first record of a manifest of version 2.
    LineageBegan { lineage: LineageId },
}

/// Position of a scrub pass. A pass visits tables in the order of their ids, up to the last id that existed
/// when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubPosition {
    /// When the pass began, Unix milliseconds; 0 if there was no pass.
    pub began_ms: u64,
    /// The pass continues at the first table with this id or a higher one.
    pub next: TableId,
    /// Tables with this id or a higher one are not part of the pass.
    pub end: TableId,
}

const KEYSPACE_CREATED: u8 = 1;
const KEYSPACE_DROPPED: u8 = 2;
/// The form of `TABLE_ADDED` before tables had fields. Read only.
const TABLE_ADDED_FIRST_FORM: u8 = 3;
const TABLE_REMOVED: u8 = 4;
const FLUSHED: u8 = 5;
const TABLE_IDS_RESERVED: u8 = 6;
const DICTIONARY_ADDED: u8 = 7;
const DICTIONARY_IDS_USED: u8 = 8;
const TABLE_ADDED: u8 = 9;
const TABLE_CUT: u8 = 10;
const CLOCK_REACHED: u8 = 11;
const KEYSPACE_OPERATOR: u8 = 12;
const TABLE_MOVED: u8 = 13;
const INGESTED: u8 = 15;
const VALUES_ADDED: u8 = 16;
const TABLE_DAMAGED: u8 = 20;
const SCRUBBED: u8 = 21;
const LOG_BEGINS: u8 = 22;
const LINEAGE_BEGAN: u8 = 23;
const LOG_REACHED: u8 = 24;
const LOG_PLACED: u8 = 26;
const KEYSPACE_TABLES: u8 = 27;
const TABLE_COLD: u8 = 28;
const COLD_OPENED: u8 = 29;

/// Longest name of a file in the object store, bytes.
const COLD_FILE_BYTES_MAX: usize = 128;

impl Edit {
    /// Appends the stored form to `out`: the tag, the keyspace of an edit that changes one, and its fields.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        if let Some(keyspace) = self.keyspace() {
            put_varint(out, u64::from(keyspace.0));
        }
        self.encode_fields(out);
    }

    const fn tag(&self) -> u8 {
        match self {
            Self::KeyspaceCreated { .. } => KEYSPACE_CREATED,
            Self::KeyspaceDropped { .. } => KEYSPACE_DROPPED,
            Self::TableAdded { .. } => TABLE_ADDED,
            Self::ValuesAdded { .. } => VALUES_ADDED,
            Self::TableRemoved { .. } => TABLE_REMOVED,
            Self::TableCut { .. } => TABLE_CUT,
            Self::TableMoved { .. } => TABLE_MOVED,
            Self::Flushed { .. } => FLUSHED,
            Self::TableIdsReserved { .. } => TABLE_IDS_RESERVED,
            Self::DictionaryAdded { .. } => DICTIONARY_ADDED,
            Self::DictionaryIdsUsed { .. } => DICTIONARY_IDS_USED,
            Self::ClockReached { .. } => CLOCK_REACHED,
            Self::KeyspaceOperator { .. } => KEYSPACE_OPERATOR,
            Self::KeyspaceTables { .. } => KEYSPACE_TABLES,
            Self::Ingested { .. } => INGESTED,
            Self::TableCold { .. } => TABLE_COLD,
            Self::TableDamaged { .. } => TABLE_DAMAGED,
            Self::Scrubbed(_) => SCRUBBED,
            Self::LogBegins { .. } => LOG_BEGINS,
            Self::LogPlaced { .. } => LOG_PLACED,
            Self::ColdOpened { .. } => COLD_OPENED,
            Self::LineageBegan { .. } => LINEAGE_BEGAN,
            Self::LogReached { .. } => LOG_REACHED,
        }
    }

    /// The least format version of a manifest that may hold the edit.
    pub(crate) const fn format_version(&self) -> u32 {
        match self {
            Self::KeyspaceCreated { kind, .. } => kind.format_version(),
            Self::LineageBegan { .. } => 2,
            Self::LogReached { .. } => VERSION_OPENED,
            Self::LogPlaced { .. } => 6,
            Self::KeyspaceTables { .. } => 8,
            Self::TableCold { .. } | Self::ColdOpened { .. } => 9,
            _ => 1,
        }
    }

    /// The keyspace that the edit changes; `None` for an edit of the whole store.
    const fn keyspace(&self) -> Option<KeyspaceId> {
        match self {
            Self::KeyspaceCreated { keyspace, .. }
            | Self::KeyspaceDropped { keyspace }
            | Self::TableAdded { keyspace, .. }
            | Self::ValuesAdded { keyspace, .. }
            | Self::TableRemoved { keyspace, .. }
            | Self::TableCut { keyspace, .. }
            | Self::TableMoved { keyspace, .. }
            | Self::Flushed { keyspace, .. }
            | Self::DictionaryAdded { keyspace, .. }
            | Self::KeyspaceOperator { keyspace, .. }
            | Self::KeyspaceTables { keyspace, .. }
            | Self::Ingested { keyspace, .. }
            | Self::TableCold { keyspace, .. }
            | Self::TableDamaged { keyspace, .. } => Some(*keyspace),
            Self::TableIdsReserved { .. }
            | Self::DictionaryIdsUsed { .. }
            | Self::ClockReached { .. }
            | Self::Scrubbed(_)
            | Self::LogBegins { .. }
            | Self::LogReached { .. }
            | Self::LogPlaced { .. }
            | Self::ColdOpened { .. }
            | Self::LineageBegan { .. } => None,
        }
    }

    /// Appends every field except the keyspace.
    fn encode_fields(&self, out: &mut Vec<u8>) {
        match self {
            Self::KeyspaceCreated { kind, name, .. } => {
                out.push(kind.number());
                put_bytes(out, name.as_bytes());
                kind.encode_fields(out);
            }
            Self::KeyspaceDropped { .. } => {}
            Self::TableAdded { table, .. } => {
                let mut fields = Vec::new();
                table.encode(&mut fields);
                put_bytes(out, &fields);
            }
            Self::ValuesAdded { values, .. } => {
                let mut fields = Vec::new();
                values.encode(&mut fields);
                put_bytes(out, &fields);
            }
            Self::TableRemoved { table, .. } | Self::TableDamaged { table, .. } => {
                put_u64(out, table.0);
            }
            Self::TableCold { table, file, .. } => {
                put_u64(out, table.0);
                put_bytes(out, file.as_bytes());
            }
            Self::TableCut { table, range, .. } => {
                put_u64(out, table.0);
                put_range(out, range);
            }
            Self::TableMoved { table, range, run, level, .. } => {
                put_u64(out, table.0);
                put_range(out, range);
                put_varint(out, run.0);
                out.push(*level);
            }
            Self::Flushed { below, .. } => put_varint(out, below.get()),
            Self::TableIdsReserved { below } => put_u64(out, below.0),
            Self::DictionaryAdded { dictionary, .. } => put_varint(out, u64::from(dictionary.0)),
            Self::DictionaryIdsUsed { last } => put_varint(out, u64::from(last.0)),
            Self::ClockReached { unix_ms } => put_u64(out, *unix_ms),
            Self::KeyspaceOperator { name, .. } => put_bytes(out, name.as_bytes()),
            Self::KeyspaceTables { options, .. } => options.encode(out),
            Self::Ingested { last, .. } => put_varint(out, last.get()),
            Self::Scrubbed(ScrubPosition { began_ms, next, end }) => {
                put_u64(out, *began_ms);
                put_u64(out, next.0);
                put_u64(out, end.0);
            }
            Self::LogBegins { lane, segment } => {
                put_varint(out, u64::from(lane.0));
                put_u64(out, segment.0);
            }
            Self::LogReached { reached } => {
                put_varint(out, u64::from(reached.lane.0));
                put_u64(out, reached.segment.0);
                put_varint(out, reached.sequence);
                put_varint(out, reached.last.get());
            }
            Self::LogPlaced { place } => {
                debug_assert!(place.check().is_ok(), "a place that is written can be read back");
                put_varint(out, u64::from(place.lanes_each));
                put_varint(out, place.devices.len() as u64);
                for device in &place.devices {
                    put_u128(out, device.id);
                    put_bytes(out, device.place.as_bytes());
                }
            }
            Self::ColdOpened { number } => put_u64(out, *number),
            Self::LineageBegan { lineage } => put_u128(out, lineage.0),
        }
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self> {
        let at = cursor.position();
        let tag = cursor.u8()?;
        Ok(match tag {
            KEYSPACE_CREATED
            | KEYSPACE_DROPPED
            | TABLE_ADDED
            | TABLE_ADDED_FIRST_FORM
            | TABLE_REMOVED
            | TABLE_CUT
            | TABLE_MOVED
            | VALUES_ADDED
            | FLUSHED
            | DICTIONARY_ADDED
            | INGESTED
            | TABLE_COLD
            | TABLE_DAMAGED
            | KEYSPACE_OPERATOR
            | KEYSPACE_TABLES => {
                let keyspace = KeyspaceId(id_u32(cursor)?);
                Self::decode_fields(tag, keyspace, cursor)?
            }
            TABLE_IDS_RESERVED => Self::TableIdsReserved { below: TableId(cursor.u64()?) },
            DICTIONARY_IDS_USED => Self::DictionaryIdsUsed { last: DictionaryId(id_u32(cursor)?) },
            CLOCK_REACHED => Self::ClockReached { unix_ms: cursor.u64()? },
            SCRUBBED => Self::Scrubbed(ScrubPosition {
                began_ms: cursor.u64()?,
                next: TableId(cursor.u64()?),
                end: TableId(cursor.u64()?),
            }),
            LOG_BEGINS => Self::LogBegins {
                lane: LaneId(cursor.length(usize::from(u16::MAX))? as u16),
                segment: SegmentId(cursor.u64()?),
            },
            LOG_REACHED => Self::LogReached {
                reached: wal::Reached {
                    lane: LaneId(cursor.length(usize::from(u16::MAX))? as u16),
                    segment: SegmentId(cursor.u64()?),
                    sequence: cursor.varint()?,
                    last: Seqno::try_from(cursor.varint()?)?,
                },
            },
            LOG_PLACED => Self::LogPlaced { place: log_place(cursor)? },
            COLD_OPENED => Self::ColdOpened { number: cursor.u64()? },
            LINEAGE_BEGAN => Self::LineageBegan { lineage: LineageId(cursor.u128()?) },
            other => {
                return Err(Error::corrupt("manifest edit")
                    .at(format_args!("byte {at} of the record"))
                    .expected("a known number")
                    .got(other));
            }
        })
    }

    /// Decodes the fields behind the keyspace of an edit that changes one.
    fn decode_fields(tag: u8, keyspace: KeyspaceId, cursor: &mut Cursor<'_>) -> Result<Self> {
        Ok(match tag {
            KEYSPACE_CREATED => {
                let number = cursor.u8()?;
                let name = name(cursor, KEYSPACE_NAME_BYTES_MAX)?;
                let kind = KeyspaceKind::decode(number, cursor)?;
                Self::KeyspaceCreated { keyspace, kind, name }
            }
            KEYSPACE_DROPPED => Self::KeyspaceDropped { keyspace },
            TABLE_ADDED => {
                let table = TableEntry::decode(cursor.bytes(TABLE_BYTES_MAX)?)?;
                Self::TableAdded { keyspace, table: Arc::new(table) }
            }
            TABLE_ADDED_FIRST_FORM => {
                let table = TableEntry::decode_first_form(cursor)?;
                Self::TableAdded { keyspace, table: Arc::new(table) }
            }
            VALUES_ADDED => {
                let values = ValuesEntry::decode(cursor.bytes(VALUES_BYTES_MAX)?)?;
                Self::ValuesAdded { keyspace, values }
            }
            TABLE_REMOVED => Self::TableRemoved { keyspace, table: TableId(cursor.u64()?) },
            TABLE_COLD => {
                let table = TableId(cursor.u64()?);
                let file = name(cursor, COLD_FILE_BYTES_MAX)?.into();
                Self::TableCold { keyspace, table, file }
            }
            TABLE_CUT => {
                let table = TableId(cursor.u64()?);
                Self::TableCut { keyspace, table, range: range(cursor)? }
            }
            TABLE_MOVED => Self::TableMoved {
                keyspace,
                table: TableId(cursor.u64()?),
                range: range(cursor)?,
                run: RunId(cursor.varint()?),
                level: cursor.u8()?,
            },
            FLUSHED => Self::Flushed { keyspace, below: Seqno::try_from(cursor.varint()?)? },
            DICTIONARY_ADDED => {
                Self::DictionaryAdded { keyspace, dictionary: DictionaryId(id_u32(cursor)?) }
            }
            INGESTED => Self::Ingested { keyspace, last: Seqno::try_from(cursor.varint()?)? },
            TABLE_DAMAGED => Self::TableDamaged { keyspace, table: TableId(cursor.u64()?) },
            KEYSPACE_OPERATOR => {
                Self::KeyspaceOperator { keyspace, name: name(cursor, OPERATOR_NAME_BYTES_MAX)? }
            }
            KEYSPACE_TABLES => {
                Self::KeyspaceTables { keyspace, options: TableOptions::decode(cursor)? }
            }
            _ => return Err(base::broken_invariant!("a keyspace edit's tag has fields to decode")),
        })
    }

    /// Returns the edits that record the first needed segment of each lane.
    pub fn log_begins(start: &wal::Start) -> impl Iterator<Item = Self> {
        start.iter().map(|(lane, segment)| Self::LogBegins { lane, segment })
    }

    /// Decodes the edits of one record.
    ///
    /// # Errors
    /// `Corrupt` if a tag is unknown or a field is malformed.
    pub(crate) fn decode_all(body: &[u8]) -> Result<Vec<Self>> {
        let mut cursor = Cursor::new("manifest record", body);
        let mut edits = Vec::new();
        while !cursor.is_empty() {
            edits.push(Self::decode(&mut cursor)?);
        }
        Ok(edits)
    }
}

/// Reads the place of the log.
fn log_place(cursor: &mut Cursor<'_>) -> Result<wal::LogPlace> {
    let lanes_each = cursor.length(usize::from(wal::DEVICE_LANES_MAX))? as u16;
    let count = cursor.length(wal::DEVICES_MAX)?;
    let mut devices = Vec::with_capacity(count);
    for _ in 0..count {
        let id = cursor.u128()?;
        devices.push(wal::LogDevice { id, place: name(cursor, wal::PLACE_BYTES_MAX)? });
    }
    let place = wal::LogPlace { devices, lanes_each };
    let corrupt = |error| Error::corrupt("place of the log").caused_by(error);
    place.check().map_err(corrupt)?;
    Ok(place)
}

/// Reads a 32-bit id, stored as a varint.
fn id_u32(cursor: &mut Cursor<'_>) -> Result<u32> {
    cursor.length(u32::MAX as usize).map(|id| id as u32)
}

pub(crate) fn name(cursor: &mut Cursor<'_>, bytes_max: usize) -> Result<String> {
    String::from_utf8(cursor.bytes(bytes_max)?.to_vec())
        .map_err(|error| Error::corrupt("name in a manifest").expected("UTF-8").caused_by(error))
}

/// Reads a bound of a range: a key, the least key after the longest one, or no bytes, which lie before every
/// key.
fn bound(cursor: &mut Cursor<'_>) -> Result<Bytes> {
    cursor.bytes(KEY_BYTES_MAX + 1).map(Bytes::copy_from_slice)
}

fn put_range(out: &mut Vec<u8>, range: &KeyRange) {
    put_bytes(out, &range.first);
    out.push(u8::from(range.end.is_some()));
    if let Some(end) = &range.end {
        put_bytes(out, end);
    }
}

fn range(cursor: &mut Cursor<'_>) -> Result<KeyRange> {
    let first = bound(cursor)?;
    let end = match cursor.u8()? {
        0 => None,
        1 => Some(bound(cursor)?),
        other => {
            return Err(Error::corrupt("flag of a range's end").expected("0 or 1").got(other));
        }
    };
    Ok(KeyRange { first, end })
}
