//! Manifest edits: what changed about which keyspaces and tables exist. Bytes: docs/format/manifest.md.

use std::sync::Arc;

use base::limits::{KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX, OPERATOR_NAME_BYTES_MAX};
use base::{
    Cursor, DictionaryId, Error, KeyRange, KeyspaceId, LaneId, Result, RunId, SegmentId, Seqno,
    TableId, put_bytes, put_u64, put_varint,
};
use bytes::Bytes;

use crate::{TableEntry, ValuesEntry};

/// A table's fields take at most this, bytes: two bounds, and its value files.
const TABLE_BYTES_MAX: usize = 1 << 21;

/// A value file's numbers take at most this, bytes, those of later versions included.
const VALUES_BYTES_MAX: usize = 1 << 12;

/// One change. A record holds several; they take effect together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A keyspace exists.
    KeyspaceCreated { keyspace: KeyspaceId, kind: KeyspaceKind, name: String },
    /// A keyspace and all its tables are gone; the id is never used again.
    KeyspaceDropped { keyspace: KeyspaceId },
    /// A table is part of its keyspace. Its file is durable (I3).
    TableAdded { keyspace: KeyspaceId, table: Arc<TableEntry> },
    /// A value file exists, for as long as tables of the keyspace point into it: the first of them
    /// follow in the same record. The file is durable (I3).
    ValuesAdded { keyspace: KeyspaceId, values: ValuesEntry },
    /// A table is no longer part of its keyspace.
    TableRemoved { keyspace: KeyspaceId, table: TableId },
    /// A table no longer holds the keys in `range`: others do, or they are gone. A table left
    /// without keys is no longer part of its keyspace.
    TableCut { keyspace: KeyspaceId, table: TableId, range: KeyRange },
    /// The pieces of a table within `range` belong to another run, where no data moved.
    TableMoved { keyspace: KeyspaceId, table: TableId, range: KeyRange, run: RunId, level: u8 },
    /// Every write to the keyspace below this sequence number is in its tables.
    Flushed { keyspace: KeyspaceId, below: Seqno },
    /// Table ids below this one may have been used (ids are never reused).
    TableIdsReserved { below: TableId },
    /// The keyspace's new tables use this dictionary. Its file is durable (I3).
    DictionaryAdded { keyspace: KeyspaceId, dictionary: DictionaryId },
    /// Dictionary ids up to this one were used (ids are never reused).
    DictionaryIdsUsed { last: DictionaryId },
    /// Someone was told that it is this late: it is never earlier again. Unix milliseconds.
    ClockReached { unix_ms: u64 },
    /// The operator of this name merges the keyspace's operands; it stays the same for good.
    KeyspaceOperator { keyspace: KeyspaceId, name: String },
    /// No ingest of the keyspace has a higher number. Said by its tables until they are merged.
    Ingested { keyspace: KeyspaceId, last: Seqno },
    /// Damage was met in a table: it is kept out of merges, and is still read.
    TableDamaged { keyspace: KeyspaceId, table: TableId },
    /// How far scrubbing is.
    Scrubbed(ScrubPosition),
    /// No segment of a lane of the log before this one is needed: they are removed, and are not
    /// read where they come back.
    LogBegins { lane: LaneId, segment: SegmentId },
}

/// Where a pass over the tables is: it goes by id, to the last there was when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubPosition {
    /// When the pass began, Unix milliseconds; 0: there was none.
    pub began_ms: u64,
    /// The next table has this id or a higher one.
    pub next: TableId,
    /// Tables from this id on are no part of the pass.
    pub end: TableId,
}

/// What a keyspace can do. The number is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyspaceKind {
    /// An LSM tree: point reads, range scans, snapshots.
    Ordered = 1,
}

impl KeyspaceKind {
    fn decode(byte: u8) -> Result<Self> {
        match byte {
            1 => Ok(Self::Ordered),
            other => Err(Error::corrupt("keyspace kind").expected("1 (ordered)").got(other)),
        }
    }
}

const KEYSPACE_CREATED: u8 = 1;
const KEYSPACE_DROPPED: u8 = 2;
/// Written before tables had fields; read only.
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

impl Edit {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::KeyspaceCreated { keyspace, kind, name } => {
                out.push(KEYSPACE_CREATED);
                put_varint(out, u64::from(keyspace.0));
                out.push(*kind as u8);
                put_bytes(out, name.as_bytes());
            }
            Self::KeyspaceDropped { keyspace } => {
                out.push(KEYSPACE_DROPPED);
                put_varint(out, u64::from(keyspace.0));
            }
            Self::TableAdded { keyspace, table } => {
                out.push(TABLE_ADDED);
                put_varint(out, u64::from(keyspace.0));
                let mut fields = Vec::new();
                table.encode(&mut fields);
                put_bytes(out, &fields);
            }
            Self::ValuesAdded { keyspace, values } => {
                out.push(VALUES_ADDED);
                put_varint(out, u64::from(keyspace.0));
                let mut fields = Vec::new();
                values.encode(&mut fields);
                put_bytes(out, &fields);
            }
            Self::TableRemoved { keyspace, table } => {
                out.push(TABLE_REMOVED);
                put_varint(out, u64::from(keyspace.0));
                put_u64(out, table.0);
            }
            Self::TableCut { keyspace, table, range } => {
                out.push(TABLE_CUT);
                put_varint(out, u64::from(keyspace.0));
                put_u64(out, table.0);
                put_range(out, range);
            }
            Self::TableMoved { keyspace, table, range, run, level } => {
                out.push(TABLE_MOVED);
                put_varint(out, u64::from(keyspace.0));
                put_u64(out, table.0);
                put_range(out, range);
                put_varint(out, run.0);
                out.push(*level);
            }
            Self::Flushed { keyspace, below } => {
                out.push(FLUSHED);
                put_varint(out, u64::from(keyspace.0));
                put_varint(out, below.get());
            }
            Self::TableIdsReserved { below } => {
                out.push(TABLE_IDS_RESERVED);
                put_u64(out, below.0);
            }
            Self::DictionaryIdsUsed { last } => {
                out.push(DICTIONARY_IDS_USED);
                put_varint(out, u64::from(last.0));
            }
            Self::ClockReached { unix_ms } => {
                out.push(CLOCK_REACHED);
                put_u64(out, *unix_ms);
            }
            Self::Ingested { keyspace, last } => {
                out.push(INGESTED);
                put_varint(out, u64::from(keyspace.0));
                put_varint(out, last.get());
            }
            Self::TableDamaged { keyspace, table } => {
                out.push(TABLE_DAMAGED);
                put_varint(out, u64::from(keyspace.0));
                put_u64(out, table.0);
            }
            Self::Scrubbed(ScrubPosition { began_ms, next, end }) => {
                out.push(SCRUBBED);
                put_u64(out, *began_ms);
                put_u64(out, next.0);
                put_u64(out, end.0);
            }
            Self::LogBegins { lane, segment } => {
                out.push(LOG_BEGINS);
                put_varint(out, u64::from(lane.0));
                put_u64(out, segment.0);
            }
            Self::KeyspaceOperator { keyspace, name } => {
                out.push(KEYSPACE_OPERATOR);
                put_varint(out, u64::from(keyspace.0));
                put_bytes(out, name.as_bytes());
            }
            Self::DictionaryAdded { keyspace, dictionary } => {
                out.push(DICTIONARY_ADDED);
                put_varint(out, u64::from(keyspace.0));
                put_varint(out, u64::from(dictionary.0));
            }
        }
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self> {
        let at = cursor.position();
        let tag = cursor.u8()?;
        let keyspace = |cursor: &mut Cursor<'_>| {
            cursor.length(u32::MAX as usize).map(|id| KeyspaceId(id as u32))
        };
        let name = |cursor: &mut Cursor<'_>, max| {
            String::from_utf8(cursor.bytes(max)?.to_vec())
                .map_err(|e| Error::corrupt("name in a manifest").expected("UTF-8").caused_by(e))
        };
        Ok(match tag {
            KEYSPACE_CREATED => {
                let keyspace = keyspace(cursor)?;
                let kind = KeyspaceKind::decode(cursor.u8()?)?;
                let name = name(cursor, KEYSPACE_NAME_BYTES_MAX)?;
                Self::KeyspaceCreated { keyspace, kind, name }
            }
            KEYSPACE_DROPPED => Self::KeyspaceDropped { keyspace: keyspace(cursor)? },
            TABLE_ADDED => {
                let keyspace = keyspace(cursor)?;
                let table = TableEntry::decode(cursor.bytes(TABLE_BYTES_MAX)?)?;
                Self::TableAdded { keyspace, table: Arc::new(table) }
            }
            TABLE_ADDED_FIRST_FORM => {
                let keyspace = keyspace(cursor)?;
                let table = TableEntry::decode_first_form(cursor)?;
                Self::TableAdded { keyspace, table: Arc::new(table) }
            }
            VALUES_ADDED => {
                let keyspace = keyspace(cursor)?;
                let values = ValuesEntry::decode(cursor.bytes(VALUES_BYTES_MAX)?)?;
                Self::ValuesAdded { keyspace, values }
            }
            TABLE_CUT => {
                let (keyspace, table) = (keyspace(cursor)?, TableId(cursor.u64()?));
                Self::TableCut { keyspace, table, range: range(cursor)? }
            }
            TABLE_MOVED => Self::TableMoved {
                keyspace: keyspace(cursor)?,
                table: TableId(cursor.u64()?),
                range: range(cursor)?,
                run: RunId(cursor.varint()?),
                level: cursor.u8()?,
            },
            TABLE_REMOVED => {
                Self::TableRemoved { keyspace: keyspace(cursor)?, table: TableId(cursor.u64()?) }
            }
            FLUSHED => Self::Flushed {
                keyspace: keyspace(cursor)?,
                below: Seqno::try_from(cursor.varint()?)?,
            },
            TABLE_IDS_RESERVED => Self::TableIdsReserved { below: TableId(cursor.u64()?) },
            DICTIONARY_IDS_USED => Self::DictionaryIdsUsed {
                last: DictionaryId(cursor.length(u32::MAX as usize)? as u32),
            },
            DICTIONARY_ADDED => Self::DictionaryAdded {
                keyspace: keyspace(cursor)?,
                dictionary: DictionaryId(cursor.length(u32::MAX as usize)? as u32),
            },
            CLOCK_REACHED => Self::ClockReached { unix_ms: cursor.u64()? },
            INGESTED => Self::Ingested {
                keyspace: keyspace(cursor)?,
                last: Seqno::try_from(cursor.varint()?)?,
            },
            TABLE_DAMAGED => {
                Self::TableDamaged { keyspace: keyspace(cursor)?, table: TableId(cursor.u64()?) }
            }
            SCRUBBED => Self::Scrubbed(ScrubPosition {
                began_ms: cursor.u64()?,
                next: TableId(cursor.u64()?),
                end: TableId(cursor.u64()?),
            }),
            LOG_BEGINS => Self::LogBegins {
                lane: LaneId(cursor.length(usize::from(u16::MAX))? as u16),
                segment: SegmentId(cursor.u64()?),
            },
            KEYSPACE_OPERATOR => Self::KeyspaceOperator {
                keyspace: keyspace(cursor)?,
                name: name(cursor, OPERATOR_NAME_BYTES_MAX)?,
            },
            other => {
                return Err(Error::corrupt("manifest edit")
                    .at(format_args!("byte {at} of the record"))
                    .expected("a known number")
                    .got(other));
            }
        })
    }

    /// Where the lanes of a log begin.
    pub fn log_begins(start: &wal::Start) -> impl Iterator<Item = Self> {
        start.iter().map(|(lane, segment)| Self::LogBegins { lane, segment })
    }

    /// Reads a record's edits.
    pub fn decode_all(body: &[u8]) -> Result<Vec<Self>> {
        let mut cursor = Cursor::new("manifest record", body);
        let mut edits = Vec::new();
        while !cursor.is_empty() {
            edits.push(Self::decode(&mut cursor)?);
        }
        Ok(edits)
    }
}

/// A bound: a key, the least key after the longest, or nothing: before the first key.
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
            return Err(Error::corrupt("mark of a range's end").expected("0 or 1").got(other));
        }
    };
    Ok(KeyRange { first, end })
}
