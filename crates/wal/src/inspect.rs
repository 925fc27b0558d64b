//! The log for tools: one segment record by record, or all of it checked. Nothing is written.

use std::sync::Arc;

use base::{Account, Error, KeyspaceId, Result, Seqno, StoreId};
use media::{Medium, Purpose};

use crate::chain::Source;
use crate::header::SegmentHeader;
use crate::log::LANE;
use crate::name::parse_segment_name;
use crate::options::Recover;
use crate::reader::{Located, SegmentReader, What};
use crate::record::Begin;
use crate::recover::{self, Recovery, Replay};
use crate::retention::Retention;
use crate::start::Start;

/// What [`inspect`] shows of a segment, in the order of the file.
#[derive(Clone, Debug)]
pub enum LogEntry {
    /// The header page.
    Header(SegmentHeader),
    /// Where in the lane the segment begins.
    Begin {
        /// The record's offset, bytes.
        offset: u64,
        /// The next seqno there.
        seqno: Seqno,
        /// What it says.
        begin: Begin,
    },
    /// How far the lane was durable.
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
        /// Its first seqno.
        seqno: Seqno,
        /// How many operations it holds.
        ops: u32,
        /// The keyspaces it writes to.
        keyspaces: Vec<KeyspaceId>,
        /// Bytes of its body.
        body_bytes: usize,
    },
    /// No further record could be read.
    End {
        /// The offset behind the last record, bytes.
        offset: u64,
        /// Where something follows all the same: why it is not the next record.
        unreadable: Option<Error>,
    },
}

/// Shows `see` what the segment called `name` holds.
///
/// # Errors
/// `Invalid` where the name is no segment's or a newer version wrote it, `Corrupt` where its
/// header or its Begin is damaged, and whatever `see` returns.
pub fn inspect(
    medium: &dyn Medium,
    name: &str,
    see: &mut dyn FnMut(LogEntry) -> Result<()>,
) -> Result<()> {
    let place = parse_segment_name(name).ok_or_else(|| {
        Error::invalid("name of a log segment").expected("log-<lane>-<segment>").got(name)
    })?;
    let account = Account::unlimited("log inspection");
    let (mut reader, header) =
        SegmentReader::open(medium, place, None, Purpose::Scrub, false, &account)?;
    see(LogEntry::Header(header?))?;
    let mut sequence = reader.begin()?.map_or(0, |(begin, _)| begin.sequence);
    while let Some(found) = reader.next(sequence)? {
        see(entry(&reader, &found)?)?;
        sequence += 1;
    }
    let (offset, why) = (reader.at(), reader.explain(sequence));
    let unreadable = (!reader.survey().is_clean()).then_some(why);
    see(LogEntry::End { offset, unreadable })
}

fn entry(reader: &SegmentReader, found: &Located) -> Result<LogEntry> {
    let (offset, sequence) = (found.offset, found.sequence);
    let seqno = Seqno::try_from(found.seqno)?;
    Ok(match found.what {
        What::Begin(begin) => LogEntry::Begin { offset, seqno, begin },
        What::Mark { durable } => LogEntry::Mark { offset, sequence, durable },
        What::Batch { ops, body, .. } => LogEntry::Batch {
            offset,
            bytes: found.end - offset,
            sequence,
            seqno,
            ops,
            keyspaces: reader.keyspaces(found).collect(),
            body_bytes: body,
        },
    })
}

/// Reads the log from `start` as recovery would, and verifies every checksum on the way. A torn tail is
/// reported, not an error; nor is damage, where `recover` goes past it.
///
/// # Errors
/// As [`crate::Log::open`].
pub fn check(
    medium: &Arc<dyn Medium>,
    store: Option<StoreId>,
    start: &Start,
    recover: Recover,
    account: &Account,
) -> Result<Recovery> {
    let source = Source {
        medium: Arc::clone(medium),
        store,
        purpose: Purpose::Scrub,
        account: account.clone(),
        recover,
        start: start.clone(),
    };
    let mut replay = Replay {
        from: &|_| Some(Seqno::ZERO),
        record: &mut |_, _| Ok(()),
        retention: &Retention::default(),
        below: Vec::new(),
    };
    let (_, mut recovery, next) = recover::replay(&source, LANE, &mut replay)?;
    recovery.last = Seqno::try_from(next.saturating_sub(1))?;
    Ok(recovery)
}
