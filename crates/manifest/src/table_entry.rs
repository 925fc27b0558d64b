//! The manifest's entry of a table. Byte format: docs/format/manifest.md.
//!
//! An entry is stored as fields (number, length, bytes) in ascending order of their numbers. Numbers are
//! append-only: a reader skips those it does not know, and a field that is absent keeps its default.

use base::limits::KEY_BYTES_MAX;
use base::{
    AFTER_EVERY_KEY, Cursor, Error, KeyRange, Result, RunId, Seqno, TableId, put_bytes, put_u64,
    put_varint,
};
use bytes::Bytes;
use table::Properties;

/// Most value files that one table may point into.
const VALUE_FILES_MAX: usize = 1 << 16;

/// The manifest's entry of a table. The rest is in the table's own properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// The table's id.
    pub id: TableId,
    /// The run that the table belongs to; [`TableEntry::UNPLACED`] if it was written before runs had ids.
    pub run: RunId,
    /// The level of the run: 0 for the output of a flush, deeper for the outputs of merges. The planner and
    /// reports use it.
    pub level: u8,
    /// Length of the file, bytes.
    pub file_bytes: u64,
    /// Number of entries.
    pub entries: u64,
    /// Number of entries that are tombstones.
    pub deletes: u64,
    /// Number of range delete fragments.
    pub range_deletes: u64,
    /// The lowest sequence number of the entries.
    pub seqno_min: Seqno,
    /// The highest sequence number of the entries; at least `seqno_min`.
    pub seqno_max: Seqno,
    /// Covers every key of the table and every key that one of its range deletes covers.
    pub range: KeyRange,
    /// When the last entry expires, Unix milliseconds; 0 if some entry never expires.
    pub latest_expiry: u64,
    /// For an ingested table: the sequence number that every entry reads as.
    pub seqno: Option<Seqno>,
    /// The value files that the table points into, with the bytes that it uses of each.
    pub values: Vec<(TableId, u64)>,
    /// The table's digest: a hash over the checksums of its pages. `None` if the table was written before
    /// digests were recorded.
    pub digest: Option<u64>,
}

impl Default for TableEntry {
    fn default() -> Self {
        Self {
            id: TableId::default(),
            run: Self::UNPLACED,
            level: 0,
            file_bytes: 0,
            entries: 0,
            deletes: 0,
            range_deletes: 0,
            seqno_min: Seqno::ZERO,
            seqno_max: Seqno::ZERO,
            range: KeyRange::all(),
            latest_expiry: 0,
            seqno: None,
            values: Vec::new(),
            digest: None,
        }
    }
}

const ID: u64 = 1;
const RUN: u64 = 2;
const LEVEL: u64 = 3;
const FILE_BYTES: u64 = 4;
const ENTRIES: u64 = 5;
const DELETES: u64 = 6;
const RANGE_DELETES: u64 = 7;
const SEQNO_MIN: u64 = 8;
const SEQNO_MAX: u64 = 9;
const FIRST_KEY: u64 = 10;
/// Absent if the range has no end.
const END_KEY: u64 = 11;
const LATEST_EXPIRY: u64 = 12;
const SEQNO: u64 = 13;
const VALUES: u64 = 14;
const DIGEST: u64 = 15;

impl TableEntry {
    /// The run of a table that was written before runs had ids:
    /// [`KeyspaceEntry::place_newest`](crate::KeyspaceEntry::place_newest) places it.
    pub const UNPLACED: RunId = RunId(0);

    /// Whether the table points into the value file `id`.
    pub fn points_into(&self, id: TableId) -> bool {
        self.values.iter().any(|(file, _)| *file == id)
    }

    /// Appends the stored form to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut field = Vec::new();
        let mut put = |number: u64, write: &dyn Fn(&mut Vec<u8>)| {
            field.clear();
            write(&mut field);
            put_varint(out, number);
            put_bytes(out, &field);
        };
        put(ID, &|out| put_u64(out, self.id.0));
        put(RUN, &|out| put_varint(out, self.run.0));
        put(LEVEL, &|out| out.push(self.level));
        put(FILE_BYTES, &|out| put_varint(out, self.file_bytes));
        put(ENTRIES, &|out| put_varint(out, self.entries));
        put(DELETES, &|out| put_varint(out, self.deletes));
        put(RANGE_DELETES, &|out| put_varint(out, self.range_deletes));
        put(SEQNO_MIN, &|out| put_varint(out, self.seqno_min.get()));
        put(SEQNO_MAX, &|out| put_varint(out, self.seqno_max.get()));
        put(FIRST_KEY, &|out| out.extend_from_slice(&self.range.first));
        if let Some(end) = &self.range.end {
            put(END_KEY, &|out| out.extend_from_slice(end));
        }
        put(LATEST_EXPIRY, &|out| put_varint(out, self.latest_expiry));
        if let Some(seqno) = self.seqno {
            put(SEQNO, &|out| put_varint(out, seqno.get()));
        }
        if !self.values.is_empty() {
            put(VALUES, &|out| {
                for (file, bytes) in &self.values {
                    put_u64(out, file.0);
                    put_varint(out, *bytes);
                }
            });
        }
        if let Some(digest) = self.digest {
            put(DIGEST, &|out| put_u64(out, digest));
        }
    }

    /// Decodes the stored form.
    ///
    /// # Errors
    /// `Corrupt` if the fields are out of order, too long or malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("manifest table", bytes);
        let mut entry = Self::default();
        let mut last = 0;
        while !cursor.is_empty() {
            let number = cursor.varint()?;
            if number <= last {
                return Err(Error::corrupt("manifest table field")
                    .expected(format_args!("over {last}"))
                    .got(number));
            }
            last = number;
            let length = cursor.length(bytes.len())?;
            let mut field = Cursor::new("manifest table field", cursor.take(length)?);
            match number {
                ID => entry.id = TableId(field.u64()?),
                RUN => entry.run = RunId(field.varint()?),
                LEVEL => entry.level = field.u8()?,
                FILE_BYTES => entry.file_bytes = field.varint()?,
                ENTRIES => entry.entries = field.varint()?,
                DELETES => entry.deletes = field.varint()?,
                RANGE_DELETES => entry.range_deletes = field.varint()?,
                SEQNO_MIN => entry.seqno_min = Seqno::try_from(field.varint()?)?,
                SEQNO_MAX => entry.seqno_max = Seqno::try_from(field.varint()?)?,
                FIRST_KEY => entry.range.first = key(&mut field)?,
                END_KEY => entry.range.end = Some(key(&mut field)?),
                LATEST_EXPIRY => entry.latest_expiry = field.varint()?,
                SEQNO => entry.seqno = Some(Seqno::try_from(field.varint()?)?),
                VALUES => {
                    while !field.is_empty() {
                        if entry.values.len() == VALUE_FILES_MAX {
                            return Err(Error::corrupt("value files of a table")
                                .expected(format_args!("at most {VALUE_FILES_MAX}")));
                        }
                        entry.values.push((TableId(field.u64()?), field.varint()?));
                    }
                }
                DIGEST => entry.digest = Some(field.u64()?),
                // A field of a later version.
                _ => continue,
            }
            field.finish()?;
        }
        Ok(entry)
    }

    /// Decodes the form that manifests used before tables had fields: it has no run, and its last key gives
    /// the end of the range.
    ///
    /// # Errors
    /// `Corrupt` if the bytes end early or a number is too large.
    pub(crate) fn decode_first_form(cursor: &mut Cursor<'_>) -> Result<Self> {
        let mut entry = Self {
            id: TableId(cursor.u64()?),
            level: cursor.u8()?,
            file_bytes: cursor.varint()?,
            entries: cursor.varint()?,
            seqno_min: Seqno::try_from(cursor.varint()?)?,
            seqno_max: Seqno::try_from(cursor.varint()?)?,
            ..Self::default()
        };
        let first = cursor.bytes(KEY_BYTES_MAX)?;
        entry.range = KeyRange::through(first, cursor.bytes(KEY_BYTES_MAX)?);
        Ok(entry)
    }

    /// Builds the entry of a table that was just written, from the writer's summary.
    pub fn of(summary: &table::Summary, run: RunId, level: u8) -> Self {
        let properties = &summary.properties;
        base::invariant!(
            properties.seqno_min <= properties.seqno_max,
            "the lowest sequence number of a table is not above the highest"
        );
        base::invariant!(
            properties.entries > 0 || properties.range_deletes > 0,
            "a table that was written holds a version or a range delete"
        );
        Self {
            id: summary.table,
            run,
            level,
            file_bytes: summary.file_bytes,
            entries: properties.entries,
            deletes: properties.deletes,
            range_deletes: properties.range_deletes,
            seqno_min: properties.seqno_min,
            seqno_max: properties.seqno_max,
            range: range_of(properties),
            latest_expiry: properties.latest_expiry,
            values: properties.values.clone(),
            digest: Some(summary.digest),
            ..Self::default()
        }
    }
}

/// Returns the range that covers the keys and range deletes of a table, from its properties.
pub fn range_of(properties: &Properties) -> KeyRange {
    let first = Bytes::copy_from_slice(&properties.first_key);
    let end = properties.end_key();
    // The table has a range delete without an end.
    let end = (end != AFTER_EVERY_KEY).then(|| end.into());
    KeyRange { first, end }
}

/// Reads a bound of a range: a key, or the least key after the longest one.
fn key(field: &mut Cursor<'_>) -> Result<Bytes> {
    let bytes = field.rest();
    if bytes.len() > KEY_BYTES_MAX + 1 {
        return Err(Error::corrupt("length of a bound, bytes")
            .expected(format_args!("at most {}", KEY_BYTES_MAX + 1))
            .got(bytes.len()));
    }
    field.take(bytes.len()).map(Bytes::copy_from_slice)
}
