//! The cost of damage in the log: the records that cannot be read, and their seqnos.

use std::fmt;

use base::{Error, Seqno};
use wal::{Cut, Loss, segment_name};

/// Consecutive log records that cannot be read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LostRecords {
    /// The damage.
    pub error: Error,
    /// Position of the first of them.
    pub from: LogPlace,
    /// Position from which the log can be read again. `None` if it cannot be read again.
    pub to: Option<LogPlace>,
    /// Number of records: write batches and the log's own Begins and Marks. `None` if the log does not say.
    /// If the log cannot be read again, the true number may be larger.
    pub records: Option<u64>,
    /// The lost writes that may be in no table have sequence numbers from the first of these on and below
    /// the second. No write is lost if both are equal. The second is `None` if the log cannot be read again.
    pub seqnos: (u64, Option<u64>),
}

/// A position in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogPlace {
    /// Name of the segment file.
    pub file: String,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Lane sequence of the record there.
    pub lane_sequence: u64,
}

impl LogPlace {
    fn of(cut: &Cut) -> Self {
        let Cut { lane, segment, offset, sequence } = *cut;
        Self { file: segment_name(lane, segment), offset, lane_sequence: sequence }
    }
}

impl LostRecords {
    /// False if only the log's own Begins and Marks are lost.
    #[must_use]
    pub fn costs_writes(&self) -> bool {
        self.seqnos.1 != Some(self.seqnos.0)
    }
}

/// The cost of `loss`. All writes below `flushed` are in tables. Not a method: [`LostRecords`] is part of the
/// public API, and the log is not.
#[must_use]
pub fn lost_records(loss: &Loss, flushed: Seqno) -> LostRecords {
    let (from, below) = loss.seqnos;
    let from = from.max(flushed);
    let below = below.map(|below| below.max(from));
    LostRecords {
        error: loss.error.clone(),
        from: LogPlace::of(&loss.from),
        to: loss.to.as_ref().map(LogPlace::of),
        records: loss.records,
        seqnos: (from.get(), below.map(Seqno::get)),
    }
}

impl fmt::Display for LostRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogPlace { file, offset, lane_sequence } = &self.from;
        write!(f, "{file}, from byte {offset}")?;
        match &self.to {
            Some(to) if to.file == *file => write!(f, " to {}", to.offset)?,
            Some(to) => write!(f, " to {}, byte {}", to.file, to.offset)?,
            None => f.write_str(" on")?,
        }
        match (self.records, &self.to) {
            (Some(0), Some(_)) => f.write_str(": no record")?,
            (Some(1), Some(_)) => write!(f, ": record {lane_sequence}")?,
            (Some(count), Some(_)) => {
                write!(f, ": {count} records, {lane_sequence} to {}", lane_sequence + count - 1)?;
            }
            (Some(count), None) => write!(f, ": {count} records from {lane_sequence} on, or more")?,
            (None, _) => f.write_str(": records")?,
        }
        match self.seqnos {
            (from, Some(below)) if below <= from => f.write_str("; no write is lost"),
            (from, Some(below)) if below == from + 1 => {
                write!(f, "; lost: the write of sequence number {from}")
            }
            (from, Some(below)) => {
                write!(f, "; lost: writes of sequence numbers {from} to {}", below - 1)
            }
            (from, None) => write!(f, "; lost: writes of sequence numbers from {from} on, if any"),
        }
    }
}
