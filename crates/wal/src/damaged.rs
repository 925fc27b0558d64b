//! The records of a loss, as far as they are legible: for a report of what was lost. Nothing is verified.

use base::limits::PAGE_BYTES;
use base::{ErrorKind, Result, SegmentId, Seqno};
use media::{Access, File, Medium, Purpose};

use crate::header::UNIT_BYTES;
use crate::loss::Loss;
use crate::name::segment_name;
use crate::record::{FIXED_BYTES, batch_head_bytes, record_bytes};

/// Offset of the seqno within a record.
const SEQNO_AT: usize = 12;

/// Calls `see` with segment, first seqno and body of each damaged batch of `loss` whose head is legible.
/// Returns whether these are all of its batches.
///
/// # Errors
/// The device's, but for bytes that it cannot read.
pub fn damaged_batches(
    medium: &dyn Medium,
    loss: &Loss,
    see: &mut dyn FnMut(SegmentId, Seqno, &[u8]),
) -> Result<bool> {
    let (from, segment) = (loss.from, loss.from.segment);
    let opened = medium.open(&segment_name(from.lane, segment), Access::Bytes);
    let file = match opened {
        Err(error) if error.is_retryable() => return Err(error),
        Err(_) => return Ok(loss.records == Some(0)),
        Ok(file) => file,
    };
    let end = match loss.to {
        Some(to) if to.segment == segment => to.offset,
        _ => file.size()?,
    };
    let (mut at, mut records) = (from.offset.max(PAGE_BYTES as u64), 0);
    while let Some((offset, bytes)) = legible(&*file, at, end)? {
        debug_assert!(offset >= at, "a loss is read front to back");
        debug_assert!(bytes.len() >= FIXED_BYTES, "a legible record has its fixed part");
        records += 1;
        at = offset + bytes.len() as u64;
        let seqno = bytes.get(SEQNO_AT..).and_then(|rest| rest.first_chunk());
        let seqno = seqno.map(|seqno| Seqno::try_from(u64::from_le_bytes(*seqno)));
        if let Ok(head) = batch_head_bytes(&bytes)
            && let Some(Ok(seqno)) = seqno
            && let Some(body) = bytes.get(head..)
        {
            see(segment, seqno, body);
        }
    }
    Ok(loss.records == Some(records))
}

/// The bytes with the shape of a record at `at`, or at the next begin of a group.
fn legible(file: &dyn File, at: u64, end: u64) -> Result<Option<(u64, Vec<u8>)>> {
    for unit in [1, UNIT_BYTES, PAGE_BYTES as u64] {
        let at = at.next_multiple_of(unit);
        let mut bytes = vec![0; FIXED_BYTES];
        if at + FIXED_BYTES as u64 > end || !is_read(file, at, &mut bytes)? {
            continue;
        }
        let Some(whole) = record_bytes(&bytes).filter(|whole| at + *whole as u64 <= end) else {
            continue;
        };
        bytes.resize(whole, 0);
        if is_read(file, at, &mut bytes)? {
            return Ok(Some((at, bytes)));
        }
    }
    Ok(None)
}

fn is_read(file: &dyn File, at: u64, bytes: &mut [u8]) -> Result<bool> {
    match file.load(at, bytes, Purpose::Replay) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(false),
        read => read.map(|()| true),
    }
}
