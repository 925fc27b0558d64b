//! What damage of the log costs: where records cannot be read, and which sequence numbers they had.

use std::fmt;

use base::{Error, Seqno};
use wal::{Cut, Loss, segment_name};

/// A run of log records that cannot be read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LostRecords {
    /// The damage.
    pub error: Error,
    /// Where the first of them should be.
    pub from: LogPlace,
    /// Where the log can be read again; nowhere, where it cannot.
    pub to: Option<LogPlace>,
    /// How many they are: write batches, and notes of the log's own. Not known where what is lost said
    /// so; where the log cannot be read again, there may be more.
    pub records: Option<u64>,
    /// The writes among them that may be in no table have sequence numbers from the first on and below the
    /// second; no write is lost where both are the same. The second is not known where the log cannot be
    /// read again.
    pub seqnos: (u64, Option<u64>),
}

/// A place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogPlace {
    /// The file.
    pub file: String,
    /// The offset in it, bytes.
    pub offset: u64,
    /// The number of the record that follows among those of its lane.
    pub lane_sequence: u64,
}

impl LogPlace {
    fn of(cut: &Cut) -> Self {
        let Cut { lane, segment, offset, sequence } = *cut;
        Self { file: segment_name(lane, segment), offset, lane_sequence: sequence }
    }
}

impl LostRecords {
    /// False where only notes of the log's own are lost.
    #[must_use]
    pub fn costs_writes(&self) -> bool {
        self.seqnos.1 != Some(self.seqnos.0)
    }

    /// `flushed` says below which sequence number everything is in tables.
    pub fn of(loss: &Loss, flushed: Seqno) -> Self {
        let (from, below) = loss.seqnos;
        let from = from.max(flushed);
        let below = below.map(|below| below.max(from));
        Self {
            error: loss.error.clone(),
            from: LogPlace::of(&loss.from),
            to: loss.to.as_ref().map(LogPlace::of),
            records: loss.records,
            seqnos: (from.get(), below.map(Seqno::get)),
        }
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
