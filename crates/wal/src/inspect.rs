//! Log inspection for tools: the records of one segment, or a check of the whole log. Read-only.

use std::sync::Arc;

use base::{Account, Error, KeyspaceId, Result, Seqno, StoreId};
use media::{Medium, Purpose};

use crate::Appended;
use crate::header::SegmentHeader;
use crate::known::Known;
use crate::name::parse_segment_name;
use crate::options::Recover;
use crate::reader::{LocatedContent, LocatedRecord, SegmentReader};
use crate::record::Begin;
use crate::recover::{self, Recovery, ReplaySink};
use crate::retention::Retention;
use crate::source::Source;

/// One entry of a segment as [`inspect`] reports it, in file order.
#[derive(Clone, Debug)]
pub enum LogEntry {
    /// The header page.
    Header(SegmentHeader),
    /// The Begin: the segment's position in the lane.
    Begin {
        /// The record's offset, bytes.
        offset: u64,
        /// The next seqno at that position.
        seqno: Seqno,
        /// Content of the record.
        begin: Begin,
    },
    /// A Mark: the lane was durable up to some record.
    Mark {
        /// The record's offset, bytes.
        offset: u64,
        /// The record's lane sequence.
        sequence: u64,
        /// The lane was durable below this lane sequence.
        durable: u64,
    },
    /// A write batch.
    Batch {
        /// The record's offset, bytes.
        offset: u64,
        /// The record's length, bytes.
        bytes: u64,
        /// The record's lane sequence.
        sequence: u64,
        /// The batch's first seqno.
        seqno: Seqno,
        /// Number of operations.
        ops: u32,
        /// The keyspaces that the batch writes to.
        keyspaces: Vec<KeyspaceId>,
        /// Length of the body, bytes.
        body_bytes: usize,
    },
    /// Seqnos that unlogged batches took.
    Gap {
        /// The record's offset, bytes.
        offset: u64,
        /// The record's lane sequence.
        sequence: u64,
        /// The first of the seqnos.
        seqno: Seqno,
        /// The number of seqnos.
        count: u64,
    },
    /// No further record could be read.
    End {
        /// The offset after the last record, bytes.
        offset: u64,
        /// If other bytes than zeros follow: why they are not the next record.
        unreadable: Option<Error>,
    },
}

/// Reports each entry of the segment named `name` to `see`.
///
/// # Errors
/// `Invalid` if the name is no segment's or a newer version wrote the segment, `Corrupt` if its header
/// or its Begin is damaged, and the errors of `see`.
pub fn inspect(
    medium: &dyn Medium,
    name: &str,
    see: &mut dyn FnMut(LogEntry) -> Result<()>,
) -> Result<()> {
    inspect_bodies(medium, name, &mut |entry, _| see(entry))
}

/// As [`inspect`], each batch with its body; other entries have an empty one.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_bodies(
    medium: &dyn Medium,
    name: &str,
    see: &mut dyn FnMut(LogEntry, &[u8]) -> Result<()>,
) -> Result<()> {
    let (lane, segment) = parse_segment_name(name).ok_or_else(|| {
        Error::invalid("name of a log segment").expected("log-<lane>-<segment>").got(name)
    })?;
    let account = Account::unlimited("log inspection");
    let (mut reader, header) =
        SegmentReader::open(medium, lane, segment, None, Purpose::Scrub, false, &account)?;
    see(LogEntry::Header(header?), &[])?;
    let mut sequence = reader.begin()?.map_or(0, |(begin, _)| begin.sequence);
    while let Some(found) = reader.next(sequence)? {
        see(entry(&reader, &found)?, reader.body(&found)?)?;
        sequence += 1;
    }
    let (offset, why) = (reader.at(), reader.explain(sequence));
    let unreadable = (!reader.survey().is_clean()).then_some(why);
    see(LogEntry::End { offset, unreadable }, &[])
}

fn entry(reader: &SegmentReader, found: &LocatedRecord) -> Result<LogEntry> {
    let (offset, sequence) = (found.offset, found.sequence);
    let seqno = Seqno::try_from(found.seqno)?;
    Ok(match found.content {
        LocatedContent::Begin(begin) => LogEntry::Begin { offset, seqno, begin },
        LocatedContent::Mark { durable } => LogEntry::Mark { offset, sequence, durable },
        LocatedContent::Gap { count } => LogEntry::Gap { offset, sequence, seqno, count },
        LocatedContent::Batch { ops, body, .. } => LogEntry::Batch {
            offset,
            bytes: found.end - offset,
            sequence,
            seqno,
            ops,
            keyspaces: reader.keyspaces(found)?.collect(),
            body_bytes: body,
        },
    })
}

/// Reads the log as recovery does, given what is `known` of it, and verifies every checksum. A torn tail is
/// part of the report, not an error. So is damage if `recover` allows it.
///
/// # Errors
/// As [`crate::Log::open`].
pub fn check(
    medium: &Arc<dyn Medium>,
    store: Option<StoreId>,
    known: &Known,
    recover: Recover,
    account: &Account,
) -> Result<Recovery> {
    read(medium, store, known, recover, account, &mut |_, _| Ok(()))
}

/// As [`check`], and passes the first seqno, the address and the body of every batch to `record`, in seqno
/// order.
///
/// # Errors
/// As [`check`], and those of `record`.
pub fn read(
    medium: &Arc<dyn Medium>,
    store: Option<StoreId>,
    known: &Known,
    recover: Recover,
    account: &Account,
    record: &mut dyn FnMut(Appended, &[u8]) -> Result<()>,
) -> Result<Recovery> {
    let source = Source {
        medium: Arc::clone(medium),
        store,
        purpose: Purpose::Scrub,
        account: account.clone(),
        recover,
        known: known.clone(),
    };
    let mut replay = ReplaySink {
        from: &|_| Some(Seqno::ZERO),
        record,
        retention: &Retention::default(),
        below: Vec::new(),
    };
    let (_, mut recovery, next) = recover::replay(&source, &mut replay)?;
    recovery.last = Seqno::try_from(next.saturating_sub(1))?;
    Ok(recovery)
}
