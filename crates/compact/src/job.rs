//! A compaction job: everything a merge needs, by value.
//!
//! A job rewrites the content of age-contiguous runs within one key range. Any process that reaches the files
//! can run it ([`crate::Run`]). A job may be lost, repeated or late without changing the store (I9): inputs
//! are only read, outputs have ids reserved for this job, and nothing counts before the manifest records it.
//! docs/format/job.md describes the encoding.

#[cfg(test)]
mod tests;

use std::ops::Range;

use base::{
    Codec, Cursor, DictionaryId, Error, KeyspaceId, Result, Seqno, StoreId, TableId, invariant,
    put_bytes, put_u32, put_u64, put_u128, put_varint,
};
use media::Medium;
use table::Layout;

use base::limits::OPERATOR_NAME_BYTES_MAX;

use crate::message::{MessageKind, list, put_range, range};
use crate::{Horizon, KeyRange};

/// Most pieces of tables in one job.
pub const INPUTS_MAX: usize = 1 << 16;

/// Most ranges in each of a job's range lists.
const RANGES_MAX: usize = 1 << 16;

/// Most sequence numbers in a job's horizon.
const READERS_MAX: usize = 1 << 20;

/// Least permitted value of [`Output::table_bytes_max`], bytes.
pub const TABLE_BYTES_MIN: u64 = 16 << 10;

const KIND: MessageKind = MessageKind { name: "job", magic: *b"TERRAJOB", version: 3 };

/// The inputs of a merge and the form of its outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Unique among all jobs of the store: the number of its manifest in the upper half, a counter in the
    /// lower one.
    pub id: u64,
    /// Number of this attempt: the outcome of another attempt is refused. The engine draws the upper half
    /// when it opens the store and counts attempts in the lower one, so that no outcome of an earlier life
    /// of the store matches.
    pub epoch: u64,
    /// Number of this part if several workers share a job, each with a range of its keys. The engine makes
    /// only whole jobs: 0.
    pub part: u32,
    /// The store of the tables.
    pub store: StoreId,
    /// The keyspace of the tables.
    pub keyspace: KeyspaceId,
    /// The input runs, newest first. For one key, an earlier run holds newer versions (I4).
    pub inputs: Vec<InputRun>,
    /// The keys that are merged; the inputs' other keys are ignored.
    pub bounds: KeyRange,
    /// The sequence numbers that open reads and snapshots use.
    pub horizon: Horizon,
    /// The current time, Unix milliseconds. No later read uses an earlier time.
    pub now_ms: u64,
    /// Key ranges that tables older than the inputs may hold: tombstones over these keys stay (I5).
    pub older: Vec<KeyRange>,
    /// The form of the output tables.
    pub output: Output,
    /// The keyspace's merge operator; `None`: operands are kept unmerged.
    pub operator: Option<String>,
    /// Hot ranges: keys that were read often. The outcome names the output pages that hold them, for caches.
    pub hot: Vec<KeyRange>,
    /// How separated values are treated.
    pub values: ValueRules,
}

/// Key-value separation in a job. The default leaves every value where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueRules {
    /// Values of at least this many bytes move to a value file.
    pub bytes_min: u64,
    /// Ids reserved for value files. A job writes at most one; an empty range: no value moves.
    pub ids: Range<TableId>,
    /// Value files with live values that are copied so that the files become obsolete; ascending.
    pub collect: Vec<TableId>,
}

/// Pieces of tables that do not overlap, ascending by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputRun {
    /// The pieces of the run.
    pub tables: Vec<Input>,
}

/// A table, or the part of its key range that a job reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The table's id.
    pub id: TableId,
    /// Length of the table's file, bytes.
    pub file_bytes: u64,
    /// The table's digest: a hash over its page checksums.
    pub digest: u64,
    /// The keys of the table that are read.
    pub bounds: KeyRange,
    /// The sequence number of every entry of an ingested table; `None`: entries have their own.
    pub seqno: Option<Seqno>,
}

/// The form of the output tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The compression codec of blocks.
    pub codec: Codec,
    /// The level of the codec, if it has levels.
    pub level: i32,
    /// The Zstandard dictionary; only with [`Codec::Zstd`].
    pub dictionary: Option<DictionaryId>,
    /// Filter bits per key, in the unit of [`table::Spec`].
    pub filter_bits: u8,
    /// The layout of the tables.
    pub layout: Layout,
    /// A table ends before the next key once its file has this many bytes.
    pub table_bytes_max: u64,
    /// Ids reserved for the output tables. The table with the last id takes all remaining entries.
    pub ids: Range<TableId>,
}

impl Job {
    /// Encodes the job (docs/format/job.md).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let has_values = self.values != ValueRules::default();
        // A job is encoded in the first version that can express it.
        let version = match self.output.layout {
            Layout::Bins(_) => 3,
            Layout::Sorted if has_values => 2,
            Layout::Sorted => 1,
        };
        let mut out = KIND.start(version);
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
            invariant!(seqno.get() >= before, "the numbers of a horizon ascend");
            put_varint(&mut out, seqno.get().saturating_sub(before));
            before = seqno.get();
        }
        self.output.put(&mut out);
        put_bytes(&mut out, self.operator.as_deref().unwrap_or_default().as_bytes());
        for ranges in [&self.older, &self.hot] {
            put_varint(&mut out, ranges.len() as u64);
            ranges.iter().for_each(|range| put_range(&mut out, range));
        }
        if version > 1 {
            self.values.put(&mut out);
        }
        if version > 2 {
            out.push(self.output.layout.encode());
        }
        MessageKind::seal(out)
    }

    /// Decodes a job.
    ///
    /// # Errors
    /// `Corrupt` if the message is damaged or describes no valid job, `Invalid` if its version is unknown.
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
        let mut output = Output::get(&mut cursor)?;
        let operator =
            String::from_utf8(cursor.bytes(OPERATOR_NAME_BYTES_MAX)?.to_vec()).map_err(|e| {
                Error::corrupt("name of a merge operator").expected("UTF-8").caused_by(e)
            })?;
        let operator = (!operator.is_empty()).then_some(operator);
        let older = list(&mut cursor, RANGES_MAX, 1, range)?;
        let hot = list(&mut cursor, RANGES_MAX, 1, range)?;
        let values = match version {
            1 => ValueRules::default(),
            _ => ValueRules::get(&mut cursor)?,
        };
        if version > 2 {
            output.layout = Layout::decode(cursor.u8()?)?;
        }
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

    /// All input pieces, newest run first.
    pub fn pieces(&self) -> impl Iterator<Item = &Input> {
        self.inputs.iter().flat_map(|run| &run.tables)
    }

    /// Checks what [`crate::Run`] relies on.
    ///
    /// # Errors
    /// `Corrupt` if the job cannot be run.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: &'static str| Err(Error::corrupt("job").at(self.id).expected(what));
        let pieces = self.pieces().count();
        if pieces == 0 || pieces > INPUTS_MAX {
            return wrong("1 to 65536 tables to merge");
        }
        if self.horizon.seqnos().is_empty() {
            return wrong("a horizon that is not empty");
        }
        if self.output.ids.is_empty() {
            return wrong("reserved output ids");
        }
        if self.pieces().any(|piece| self.output.ids.contains(&piece.id)) {
            return wrong("output ids that no input has");
        }
        let ValueRules { ids, collect, .. } = &self.values;
        if ids.start < self.output.ids.end && self.output.ids.start < ids.end {
            return wrong("value file ids that are not output ids");
        }
        if collect.iter().any(|file| ids.contains(file)) || !collect.is_sorted_by(|a, b| a < b) {
            return wrong("ascending value files to collect, none of them an output");
        }
        if self.output.dictionary.is_some() && self.output.codec != Codec::Zstd {
            return wrong("a dictionary only with Zstandard");
        }
        if self.output.table_bytes_max < TABLE_BYTES_MIN {
            return wrong("a maximum table length of at least 16 KiB");
        }
        Ok(())
    }

    /// Removes every output file of this job's attempts: all files with an id reserved for it. Called for an
    /// outcome that is not installed, and before a job is run again after its process died.
    ///
    /// # Errors
    /// The first error of the medium. Files that remain are orphans, which opening the store removes.
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
    /// Id, length, digest, sequence number, bounds.
    const BYTES_MIN: usize = 8 + 1 + 8 + 1 + 1;

    fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, self.id.0);
        put_varint(out, self.file_bytes);
        put_u64(out, self.digest);
        // 0 is `None`: sequence numbers are stored plus one.
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
        put_u32(out, self.level.cast_unsigned());
        put_u32(out, self.dictionary.unwrap_or_default().0);
        out.push(self.filter_bits);
        put_varint(out, self.table_bytes_max);
        put_u64(out, self.ids.start.0);
        put_u64(out, self.ids.end.0);
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        Ok(Self {
            codec: Codec::decode(cursor.u8()?)?,
            level: cursor.u32()?.cast_signed(),
            dictionary: Some(DictionaryId(cursor.u32()?)).filter(|id| id.0 != 0),
            filter_bits: cursor.u8()?,
            layout: Layout::Sorted,
            table_bytes_max: cursor.varint()?,
            ids: TableId(cursor.u64()?)..TableId(cursor.u64()?),
        })
    }
}
