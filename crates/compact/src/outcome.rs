//! An outcome: what a job that ran to its end has made.

use base::{Cursor, Error, Result, TableId, put_bytes, put_u32, put_u64, put_varint};
use table::{Properties, Summary, ValuesSummary};

use crate::sealed::{Kind, MESSAGE_BYTES_MAX, list};
use crate::{Counts, Job};

/// The most tables that one job writes.
const TABLES_MAX: usize = 1 << 16;

const KIND: Kind = Kind { what: "outcome", magic: *b"TERRDONE", version: 2 };

/// What a job has made: durable files, names included, that nobody knows of yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The job.
    pub job: u64,
    /// The attempt.
    pub epoch: u64,
    /// The part of the job.
    pub part: u32,
    /// The tables, ascending by key. They do not overlap; none where nothing survived.
    pub tables: Vec<Summary>,
    /// The value file, where long values were put apart or copied.
    pub values: Option<ValuesSummary>,
    /// What became of the versions read.
    pub counts: Counts,
    /// Bytes read from inputs.
    pub bytes_read: u64,
    /// Pages of data that passed through as they were.
    pub pages_passed: u64,
}

impl Outcome {
    /// Bytes of the tables written.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.tables.iter().map(|table| table.file_bytes).sum()
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // One without values is one of the first version.
        let mut out = KIND.start(if self.values.is_some() { 2 } else { 1 });
        put_u64(&mut out, self.job);
        put_u64(&mut out, self.epoch);
        put_u32(&mut out, self.part);
        put_varint(&mut out, self.tables.len() as u64);
        for table in &self.tables {
            put_u64(&mut out, table.table.0);
            put_varint(&mut out, table.file_bytes);
            put_u32(&mut out, table.pages);
            put_u64(&mut out, table.digest);
            put_bytes(&mut out, &table.properties.encode());
        }
        for count in self.counts.list() {
            put_varint(&mut out, count);
        }
        put_varint(&mut out, self.bytes_read);
        put_varint(&mut out, self.pages_passed);
        if let Some(ValuesSummary { file, file_bytes, values, value_bytes, digest }) = self.values {
            put_u64(&mut out, file.0);
            put_varint(&mut out, file_bytes);
            put_varint(&mut out, values);
            put_varint(&mut out, value_bytes);
            put_u64(&mut out, digest);
        }
        Kind::seal(out)
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// `Corrupt` where it is damaged, `Invalid` where it is of another version.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (version, mut cursor) = KIND.open(message)?;
        let (job, epoch, part) = (cursor.u64()?, cursor.u64()?, cursor.u32()?);
        let table = |cursor: &mut Cursor<'_>| {
            let (table, file_bytes) = (TableId(cursor.u64()?), cursor.varint()?);
            let (pages, digest) = (cursor.u32()?, cursor.u64()?);
            let properties = Properties::decode(cursor.bytes(MESSAGE_BYTES_MAX)?)?;
            Ok(Summary { table, file_bytes, pages, digest, properties })
        };
        let tables = list(&mut cursor, TABLES_MAX, 8 + 1 + 4 + 8 + 1, table)?;
        let counts = Counts::from_list(|| cursor.varint())?;
        let (bytes_read, pages_passed) = (cursor.varint()?, cursor.varint()?);
        let values = match version {
            1 => None,
            _ => Some(ValuesSummary {
                file: TableId(cursor.u64()?),
                file_bytes: cursor.varint()?,
                values: cursor.varint()?,
                value_bytes: cursor.varint()?,
                digest: cursor.u64()?,
            }),
        };
        cursor.finish()?;
        Ok(Self { job, epoch, part, tables, values, counts, bytes_read, pages_passed })
    }

    /// Checks that it is of `job`, of this very attempt.
    ///
    /// # Errors
    /// `Invalid` where it is of another: late, or of a worker that was given up.
    pub fn expect(&self, job: &Job) -> Result<()> {
        if (self.job, self.epoch, self.part) == (job.id, job.epoch, job.part) {
            return Ok(());
        }
        Err(Error::invalid("outcome of another attempt")
            .expected(format_args!("job {} epoch {} part {}", job.id, job.epoch, job.part))
            .got(format_args!("job {} epoch {} part {}", self.job, self.epoch, self.part)))
    }
}
