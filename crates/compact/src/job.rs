//! A job: everything a merge needs, by value.
//!
//! A job takes, over one range of keys, the content of consecutive runs and writes it anew. It can
//! be run in this process or any other that reaches the files ([`crate::Run`]); it can be lost,
//! repeated or late, and the store is the same (I9): inputs are only read, outputs bear reserved
//! ids, and nothing counts before the manifest's record. docs/format/job.md has the bytes.

#[cfg(test)]
mod tests;

use std::ops::Range;

use base::{
    Codec, Cursor, DictionaryId, Error, KeyspaceId, Result, Seqno, StoreId, TableId, put_bytes,
    put_u32, put_u64, put_u128, put_varint,
};
use media::Medium;

use crate::message::{MessageKind, list, put_range, range};
use crate::{Horizon, KeyRange, OPERATOR_NAME_BYTES_MAX};

/// The most pieces of tables one job merges.
pub const INPUTS_MAX: usize = 1 << 16;

/// The most ranges a job lists of each sort.
const RANGES_MAX: usize = 1 << 16;

/// The most readers in a job's horizon.
const READERS_MAX: usize = 1 << 20;

/// The smallest limit for the length of an output, bytes.
pub const TABLE_BYTES_MIN: u64 = 16 << 10;

const KIND: MessageKind = MessageKind { name: "job", magic: *b"TERRAJOB", version: 2 };

/// What to merge, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Tells this job from all others of the store.
    pub id: u64,
    /// Tells this attempt from others: an outcome of another one is refused.
    pub epoch: u64,
    /// Which part it is of a job that several workers share, each a range of its keys; 0 where it is
    /// whole, as all are that the engine makes.
    pub part: u32,
    /// The store.
    pub store: StoreId,
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The runs, newest first. For one key, an earlier one holds newer data (I4).
    pub inputs: Vec<InputRun>,
    /// The keys that are merged; others of the inputs are left alone.
    pub bounds: KeyRange,
    /// Who reads.
    pub horizon: Horizon,
    /// The time, Unix milliseconds. No read to come may have an earlier one.
    pub now_ms: u64,
    /// The keys that older tables outside the job may hold.
    pub older: Vec<KeyRange>,
    /// What to write.
    pub output: Output,
    /// The keyspace's merge operator, where it shall be used.
    pub operator: Option<String>,
    /// The keys that were read much: for whoever puts outputs into caches.
    pub hot: Vec<KeyRange>,
    /// What becomes of long values.
    pub values: ValueRules,
}

/// What a job does with long values. By default it leaves them where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueRules {
    /// Values of this many bytes or more leave the tree.
    pub bytes_min: u64,
    /// Ids reserved for value files, of which a job writes one at most; none: values stay.
    pub ids: Range<TableId>,
    /// The files whose live values are copied, so that they can go; ascending.
    pub collect: Vec<TableId>,
}

/// Tables, or pieces of tables, that do not overlap, ascending by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputRun {
    /// The pieces.
    pub tables: Vec<Input>,
}

/// A piece of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The table.
    pub id: TableId,
    /// The length of its file.
    pub file_bytes: u64,
    /// The hash of its pages' checksums.
    pub digest: u64,
    /// The keys of it that count.
    pub bounds: KeyRange,
    /// The sequence number that all its entries are read as, where it was ingested.
    pub seqno: Option<Seqno>,
}

/// How outputs are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// How blocks are compressed.
    pub codec: Codec,
    /// The level of zstd.
    pub zstd_level: i32,
    /// The dictionary; zstd only.
    pub dictionary: Option<DictionaryId>,
    /// The bits of filters, as [`table::Spec`] has them.
    pub filter_bits: u8,
    /// A table is ended before the next key once its file is as long as this, in bytes.
    pub table_bytes_max: u64,
    /// Ids reserved for the outputs. The last one takes all that is left.
    pub ids: Range<TableId>,
}

impl Job {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let has_values = self.values != ValueRules::default();
        // A job without any is one of the first version.
        let mut out = KIND.start(if has_values { 2 } else { 1 });
        put_u64(&mut out, self.id);
        put_u64(&mut out, self.epoch);
        put_u32(&mut out, self.part);
        put_u128(&mut out, self.store.0);
        put_u32(&mut out, self.keyspace.0);
        put_u64(&mut out, self.now_ms);
        put_range(&mut out, &self.bounds);
        put_varint(&mut out, self.inputs.len() as u64);
        for run in &self.inputs {
            put_varint(&mut out, run.tables.len() as u64);
            for table in &run.tables {
                table.put(&mut out);
            }
        }
        put_varint(&mut out, self.horizon.seqnos().len() as u64);
        let mut before = 0;
        for seqno in self.horizon.seqnos() {
            put_varint(&mut out, seqno.get() - before);
            before = seqno.get();
        }
        self.output.put(&mut out);
        put_bytes(&mut out, self.operator.as_deref().unwrap_or_default().as_bytes());
        for ranges in [&self.older, &self.hot] {
            put_varint(&mut out, ranges.len() as u64);
            ranges.iter().for_each(|range| put_range(&mut out, range));
        }
        if has_values {
            self.values.put(&mut out);
        }
        MessageKind::seal(out)
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// `Corrupt` where it is damaged or makes no sense, `Invalid` where it is of another version.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (version, mut cursor) = KIND.open(message)?;
        let (id, epoch, part) = (cursor.u64()?, cursor.u64()?, cursor.u32()?);
        let (store, keyspace) = (StoreId(cursor.u128()?), KeyspaceId(cursor.u32()?));
        let (now_ms, bounds) = (cursor.u64()?, range(&mut cursor)?);
        let run = |cursor: &mut Cursor<'_>| {
            Ok(InputRun { tables: list(cursor, INPUTS_MAX, Input::BYTES_MIN, Input::get)? })
        };
        let inputs = list(&mut cursor, INPUTS_MAX, 1, run)?;
        let mut before = 0u64;
        let reader = |cursor: &mut Cursor<'_>| {
            before = before.saturating_add(cursor.varint()?);
            Seqno::try_from(before)
        };
        let horizon = Horizon::ascending(list(&mut cursor, READERS_MAX, 1, reader)?)?;
        let output = Output::get(&mut cursor)?;
        let operator = String::from_utf8(cursor.bytes(OPERATOR_NAME_BYTES_MAX)?.to_vec())
            .map_err(|e| Error::corrupt("merge operator's name").expected("UTF-8").caused_by(e))?;
        let operator = (!operator.is_empty()).then_some(operator);
        let older = list(&mut cursor, RANGES_MAX, 1, range)?;
        let hot = list(&mut cursor, RANGES_MAX, 1, range)?;
        let values = match version {
            1 => ValueRules::default(),
            _ => ValueRules::get(&mut cursor)?,
        };
        cursor.finish()?;
        let job = Self {
            id,
            epoch,
            part,
            store,
            keyspace,
            inputs,
            bounds,
            horizon,
            now_ms,
            older,
            output,
            operator,
            hot,
            values,
        };
        job.check()?;
        Ok(job)
    }

    /// Every piece of a table that is merged.
    pub fn pieces(&self) -> impl Iterator<Item = &Input> {
        self.inputs.iter().flat_map(|run| &run.tables)
    }

    /// # Errors
    /// `Corrupt` where no merge can be made of it.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: &'static str| Err(Error::corrupt("job").at(self.id).expected(what));
        let pieces = self.pieces().count();
        if pieces == 0 || pieces > INPUTS_MAX {
            return wrong("tables to merge");
        }
        if self.horizon.seqnos().is_empty() {
            return wrong("a horizon with the present in it");
        }
        if self.output.ids.is_empty() {
            return wrong("ids for its outputs");
        }
        if self.pieces().any(|piece| self.output.ids.contains(&piece.id)) {
            return wrong("ids for its outputs that no input has");
        }
        let ValueRules { ids, collect, .. } = &self.values;
        if ids.start < self.output.ids.end && self.output.ids.start < ids.end {
            return wrong("ids for value files that no table has");
        }
        if collect.iter().any(|file| ids.contains(file)) || !collect.is_sorted_by(|a, b| a < b) {
            return wrong("value files to collect, in order");
        }
        if self.output.dictionary.is_some() && self.output.codec != Codec::Zstd {
            return wrong("a dictionary for zstd only");
        }
        if self.output.table_bytes_max < TABLE_BYTES_MIN {
            return wrong("a longer limit for outputs");
        }
        Ok(())
    }

    /// Removes what attempts at this job have written: all files of the ids reserved for it. For
    /// outcomes that are not installed, and before a job whose process died is run again.
    ///
    /// # Errors
    /// As the medium's; what is left is found when the store is opened.
    pub fn discard_outputs(&self, medium: &dyn Medium) -> Result<()> {
        let mut removed = Ok(());
        for file in medium.list()? {
            let table = table::parse_file_name(&file.name);
            let values = table::parse_values_file_name(&file.name);
            if table.is_some_and(|id| self.output.ids.contains(&id))
                || values.is_some_and(|id| self.values.ids.contains(&id))
            {
                removed = removed.and(medium.remove(&file.name));
            }
        }
        removed
    }
}

impl Input {
    /// Id, length, digest, whether there is a number, bounds.
    const BYTES_MIN: usize = 8 + 1 + 8 + 1 + 1;

    fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, self.id.0);
        put_varint(out, self.file_bytes);
        put_u64(out, self.digest);
        // None is 0: numbers are stored one larger.
        put_varint(out, self.seqno.map_or(0, |seqno| seqno.get() + 1));
        put_range(out, &self.bounds);
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        Ok(Self {
            id: TableId(cursor.u64()?),
            file_bytes: cursor.varint()?,
            digest: cursor.u64()?,
            seqno: cursor.varint()?.checked_sub(1).map(Seqno::try_from).transpose()?,
            bounds: range(cursor)?,
        })
    }
}

impl ValueRules {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.bytes_min);
        put_u64(out, self.ids.start.0);
        put_u64(out, self.ids.end.0);
        put_varint(out, self.collect.len() as u64);
        self.collect.iter().for_each(|file| put_u64(out, file.0));
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        Ok(Self {
            bytes_min: cursor.varint()?,
            ids: TableId(cursor.u64()?)..TableId(cursor.u64()?),
            collect: list(cursor, INPUTS_MAX, 8, |cursor| cursor.u64().map(TableId))?,
        })
    }
}

impl Output {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.codec as u8);
        put_u32(out, self.zstd_level.cast_unsigned());
        put_u32(out, self.dictionary.unwrap_or_default().0);
        out.push(self.filter_bits);
        put_varint(out, self.table_bytes_max);
        put_u64(out, self.ids.start.0);
        put_u64(out, self.ids.end.0);
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        Ok(Self {
            codec: Codec::decode(cursor.u8()?)?,
            zstd_level: cursor.u32()?.cast_signed(),
            dictionary: Some(DictionaryId(cursor.u32()?)).filter(|id| id.0 != 0),
            filter_bits: cursor.u8()?,
            table_bytes_max: cursor.varint()?,
            ids: TableId(cursor.u64()?)..TableId(cursor.u64()?),
        })
    }
}
