//! The outcome of a job: its output tables, value file and counts.

use std::ops::{Range, RangeInclusive};

use base::{Cursor, Error, Result, TableId, invariant, put_bytes, put_u32, put_u64, put_varint};
use table::{Properties, Summary, ValuesSummary};

use crate::message::{MESSAGE_BYTES_MAX, MessageKind, list};
use crate::{EntrySums, Job, VersionCounts};

/// Most output tables of one job.
const TABLES_MAX: usize = 1 << 16;

const KIND: MessageKind = MessageKind { name: "outcome", magic: *b"TERRDONE", version: 4 };

/// The files that a job wrote. They and their names are durable, but no manifest names them yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// [`Job::id`] of the job.
    pub job: u64,
    /// [`Job::epoch`] of the attempt.
    pub epoch: u64,
    /// [`Job::part`] of the job.
    pub part: u32,
    /// The output tables, ascending by key, without overlap. Empty if no entry survived.
    pub tables: Vec<Summary>,
    /// The output value file, if values were separated or copied.
    pub values: Option<ValuesSummary>,
    /// Number of versions read, kept and dropped, by reason.
    pub counts: VersionCounts,
    /// The sums of entries read, dropped and made, if the job was to count them.
    pub sums: Option<EntrySums>,
    /// Bytes read from the inputs.
    pub bytes_read: u64,
    /// Data pages that were copied without decoding (block passthrough).
    pub pages_passed: u64,
}

impl Outcome {
    /// Bytes of all output tables.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.tables.iter().map(|table| table.file_bytes).sum()
    }

    /// Encodes the outcome (docs/format/job.md).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Without sums the outcome is encoded as version 3, without hot pages as version 2, without a value
        // file as version 1.
        let has_hot = self.sums.is_some() || self.tables.iter().any(|it| !it.hot.is_empty());
        let version = match self.sums {
            Some(_) => 4,
            None if has_hot => 3,
            None => 1 + u32::from(self.values.is_some()),
        };
        invariant!(self.tables.len() <= TABLES_MAX, "a job writes a bounded number of tables");
        let mut out = KIND.start(version);
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
        invariant!(self.counts.evicted == 0, "no worker runs a partial discard");
        for count in self.counts.list() {
            put_varint(&mut out, count);
        }
        put_varint(&mut out, self.bytes_read);
        put_varint(&mut out, self.pages_passed);
        if has_hot {
            out.push(u8::from(self.values.is_some()));
        }
        if let Some(ValuesSummary { file, file_bytes, values, value_bytes, digest }) = self.values {
            put_u64(&mut out, file.0);
            put_varint(&mut out, file_bytes);
            put_varint(&mut out, values);
            put_varint(&mut out, value_bytes);
            put_u64(&mut out, digest);
        }
        if has_hot {
            self.tables.iter().for_each(|table| put_hot(&mut out, &table.hot));
        }
        if let Some(EntrySums { read, dropped, made }) = self.sums {
            [read, dropped, made].into_iter().for_each(|sum| put_u64(&mut out, sum));
        }
        MessageKind::seal(out)
    }

    /// Decodes an outcome.
    ///
    /// # Errors
    /// `Corrupt` if the message is damaged, `Invalid` if its version is unknown.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (version, mut cursor) = KIND.open(message)?;
        let (job, epoch, part) = (cursor.u64()?, cursor.u64()?, cursor.u32()?);
        let table = |cursor: &mut Cursor<'_>| {
            let (table, file_bytes) = (TableId(cursor.u64()?), cursor.varint()?);
            let (pages, digest) = (cursor.u32()?, cursor.u64()?);
            let properties = Properties::decode(cursor.bytes(MESSAGE_BYTES_MAX)?)?;
            Ok(Summary { table, file_bytes, pages, digest, properties, hot: Vec::new() })
        };
        let mut tables = list(&mut cursor, TABLES_MAX, 8 + 1 + 4 + 8 + 1, table)?;
        let counts = VersionCounts::from_list(|| cursor.varint())?;
        let (bytes_read, pages_passed) = (cursor.varint()?, cursor.varint()?);
        let has_values = match version {
            1 => false,
            2 => true,
            _ => match cursor.u8()? {
                flag @ 0..=1 => flag == 1,
                flag => {
                    return Err(Error::corrupt("value file flag of an outcome")
                        .expected("0 or 1")
                        .got(flag));
                }
            },
        };
        let values = if has_values { Some(values(&mut cursor)?) } else { None };
        if version >= 3 {
            for table in &mut tables {
                table.hot = hot(&mut cursor, table.pages)?;
            }
        }
        let sums = match version {
            4.. => {
                Some(EntrySums { read: cursor.u64()?, dropped: cursor.u64()?, made: cursor.u64()? })
            }
            _ => None,
        };
        cursor.finish()?;
        Ok(Self { job, epoch, part, tables, values, counts, sums, bytes_read, pages_passed })
    }

    /// Checks that this is the outcome of `job` and of its current attempt.
    ///
    /// # Errors
    /// `Invalid` if it belongs to another job or attempt, for example to a worker that was given up.
    pub fn expect(&self, job: &Job) -> Result<()> {
        if (self.job, self.epoch, self.part) == (job.id, job.epoch, job.part) {
            return Ok(());
        }
        Err(Error::invalid("outcome of another attempt")
            .expected(format_args!("job {} epoch {} part {}", job.id, job.epoch, job.part))
            .got(format_args!("job {} epoch {} part {}", self.job, self.epoch, self.part)))
    }

    /// Checks that the job read as many versions as its inputs hold: otherwise an outcome that claims to have
    /// read nothing would look like one that dropped them. Inputs that are read in part give no lower bound.
    ///
    /// # Errors
    /// `Corrupt` if the number is not within `versions`.
    pub fn expect_read(&self, versions: RangeInclusive<u64>) -> Result<()> {
        if versions.contains(&self.counts.read) {
            return Ok(());
        }
        Err(Error::corrupt("versions that a job read")
            .at(format_args!("outcome of job {}", self.job))
            .expected(format_args!("{} to {}", versions.start(), versions.end()))
            .got(self.counts.read))
    }
}

fn values(cursor: &mut Cursor<'_>) -> Result<ValuesSummary> {
    Ok(ValuesSummary {
        file: TableId(cursor.u64()?),
        file_bytes: cursor.varint()?,
        values: cursor.varint()?,
        value_bytes: cursor.varint()?,
        digest: cursor.u64()?,
    })
}

/// Appends page ranges: their count, then for each its gap to the end of the range before, and its length.
fn put_hot(out: &mut Vec<u8>, hot: &[Range<u32>]) {
    put_varint(out, hot.len() as u64);
    let mut before = 0;
    for pages in hot {
        invariant!(before <= pages.start && pages.start <= pages.end, "hot page ranges ascend");
        put_varint(out, u64::from(pages.start.saturating_sub(before)));
        put_varint(out, u64::from(pages.end.saturating_sub(pages.start)));
        before = pages.end;
    }
}

/// Decodes the hot page ranges of a table of `pages` pages.
///
/// # Errors
/// `Corrupt` if a range is empty, touches the one before it, or ends past the table.
fn hot(cursor: &mut Cursor<'_>, pages: u32) -> Result<Vec<Range<u32>>> {
    let mut before = None;
    list(cursor, pages as usize, 2, |cursor| {
        let (gap, count) = (cursor.varint()?, cursor.varint()?);
        let first = gap.saturating_add(before.unwrap_or(0).into());
        let end = first.saturating_add(count);
        if count == 0 || (gap == 0 && before.is_some()) || end > u64::from(pages) {
            return Err(Error::corrupt("hot pages of a table")
                .expected(format_args!("disjoint ranges of {pages} pages"))
                .got(format_args!("{first}..{end}")));
        }
        before = Some(end as u32);
        Ok(first as u32..end as u32)
    })
}
