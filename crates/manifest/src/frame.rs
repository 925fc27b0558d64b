//! Manifest frames: each record is stored as two equal frames, one after the other. Byte format:
//! docs/format/manifest.md.
//!
//! A record with one intact frame is intact, so no single flipped byte loses a table. A record with no intact
//! frame is the torn end of an unacknowledged append if no intact frame follows it, and damage if one does.

use base::{Cursor, Error, Result, crc32c, crc32c_append, put_u32, put_u64};

const MAGIC: u32 = u32::from_le_bytes(*b"MREC");
const HEADER_BYTES: usize = 24;
static ZEROS: [u8; 4096] = [0; 4096];
/// The longest body of a frame, bytes: about a million tables with keys of average length.
const BODY_BYTES_MAX: usize = 256 << 20;

/// Checks that a record with this body can be read back.
///
/// # Errors
/// `Invalid` if it is longer than a record may be.
pub(crate) fn check_body(body: &[u8]) -> Result<()> {
    if body.len() > BODY_BYTES_MAX {
        return Err(Error::invalid("manifest size")
            .expected(format_args!("at most {BODY_BYTES_MAX} bytes"))
            .got(body.len()));
    }
    Ok(())
}

/// Appends the two frames of record number `sequence`.
pub(crate) fn encode_record(out: &mut Vec<u8>, seed: u32, sequence: u64, body: &[u8]) {
    base::invariant!(body.len() <= BODY_BYTES_MAX, "a manifest record can be read back");
    let mut header = Vec::with_capacity(HEADER_BYTES);
    put_u32(&mut header, MAGIC);
    put_u32(&mut header, body.len() as u32);
    put_u64(&mut header, sequence);
    let crc = crc32c_append(crc32c_append(seed, &header), body);
    put_u32(&mut header, crc);
    let header_crc = crc32c_append(seed, &header);
    put_u32(&mut header, header_crc);
    let at = out.len();
    for _ in 0..2 {
        out.extend_from_slice(&header);
        out.extend_from_slice(body);
    }
    debug_assert!(
        frame_at(out, seed, at).is_some_and(|(found, read, _)| found == sequence && read == body),
        "a frame that is written reads back"
    );
}

/// Decodes the frame at offset `at`: its sequence number, body and end offset. `None` if no intact frame
/// starts there.
fn frame_at(bytes: &[u8], seed: u32, at: usize) -> Option<(u64, &[u8], usize)> {
    let frame = bytes.get(at..)?;
    let header = frame.get(..HEADER_BYTES)?;
    let mut cursor = Cursor::new("manifest frame", header);
    if cursor.u32().ok()? != MAGIC {
        return None;
    }
    let length = cursor.u32().ok()? as usize;
    let sequence = cursor.u64().ok()?;
    let body_crc = cursor.u32().ok()?;
    if cursor.u32().ok()? != crc32c_append(seed, header.get(..20)?) || length > BODY_BYTES_MAX {
        return None;
    }
    let body = frame.get(HEADER_BYTES..HEADER_BYTES + length)?;
    let crc = crc32c_append(crc32c_append(seed, header.get(..16)?), body);
    (crc == body_crc).then_some((sequence, body, at + HEADER_BYTES + length))
}

/// Finds the first intact frame at or after `at`: its offset, sequence number, body and end offset.
fn find_frame(bytes: &[u8], seed: u32, at: usize) -> Option<(usize, u64, &[u8], usize)> {
    let mut start = at;
    loop {
        let offset = find_magic(bytes.get(start..)?)?;
        if let Some((sequence, body, end)) = frame_at(bytes, seed, start + offset) {
            return Some((start + offset, sequence, body, end));
        }
        start += offset + 1;
    }
}

/// Returns the offset of the first frame magic in `bytes`.
fn find_magic(bytes: &[u8]) -> Option<usize> {
    let mut start = 0;
    loop {
        // Most of a manifest is reserved space that is not used yet.
        while bytes.get(start..)?.starts_with(&ZEROS) {
            start += ZEROS.len();
        }
        let rest = bytes.get(start..)?;
        let chunk = rest.get(..ZEROS.len() + 3).unwrap_or(rest);
        if let Some(offset) = chunk.windows(4).position(|window| window == MAGIC.to_le_bytes()) {
            return Some(start + offset);
        }
        if chunk.len() == rest.len() {
            return None;
        }
        start += ZEROS.len();
    }
}

/// The records of a manifest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Records<'a> {
    /// The bodies of the records, in order, numbered from 0.
    pub bodies: Vec<&'a [u8]>,
    /// End of the last intact record, bytes.
    pub end: usize,
    /// Damaged frames with an intact twin.
    pub repaired: usize,
}

/// Decodes every record of `bytes` from offset `start` on.
///
/// # Errors
/// `Corrupt` if both frames of a record are damaged and a later frame is intact.
pub(crate) fn decode_records(bytes: &[u8], seed: u32, start: usize) -> Result<Records<'_>> {
    let mut records = Records { bodies: Vec::new(), end: start, repaired: 0 };
    let mut frames = 0;
    let mut at = start;
    while let Some((found, sequence, body, end)) = find_frame(bytes, seed, at) {
        let next = records.bodies.len() as u64;
        if sequence == next {
            records.bodies.push(body);
        } else if sequence.checked_add(1) != Some(next) {
            return Err(Error::corrupt("manifest record")
                .at(format_args!("byte {at}"))
                .expected(format_args!("record {next}"))
                .got(format_args!("record {sequence} at byte {found}")));
        }
        frames += 1;
        records.end = end;
        at = end;
    }
    records.repaired = (2 * records.bodies.len()).saturating_sub(frames);
    Ok(records)
}

/// Returns every body that can still be read, in ascending order of the record numbers, whatever bytes lie
/// between.
pub(crate) fn salvage_records(bytes: &[u8], seed: u32, start: usize) -> Vec<&[u8]> {
    let mut bodies: Vec<&[u8]> = Vec::new();
    let (mut at, mut next) = (start, 0);
    while let Some((_, sequence, body, end)) = find_frame(bytes, seed, at) {
        if sequence >= next {
            bodies.push(body);
            // The record with the largest number is the last one.
            let Some(after) = sequence.checked_add(1) else { break };
            next = after;
        }
        at = end;
    }
    bodies
}

/// Returns the seed of a manifest's checksums: the CRC of its file header.
pub(crate) fn seed(header: &[u8]) -> u32 {
    crc32c(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<u8> {
        let mut bytes = Vec::new();
        for (sequence, body) in (0u64..).zip([&b"one"[..], b"", b"three MREC"]) {
            encode_record(&mut bytes, 9, sequence, body);
        }
        bytes
    }

    #[test]
    fn records_round_trip() {
        let bytes = three();
        let records = decode_records(&bytes, 9, 0).unwrap();
        assert_eq!(records.bodies, [&b"one"[..], b"", b"three MREC"]);
        assert_eq!((records.end, records.repaired), (bytes.len(), 0));
        assert!(decode_records(&bytes, 8, 0).unwrap().bodies.is_empty());
    }

    #[test]
    fn a_single_flipped_byte_loses_no_record() {
        let good = three();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x40;
            let records = decode_records(&bytes, 9, 0).unwrap();
            assert_eq!(records.bodies, [&b"one"[..], b"", b"three MREC"], "byte {at}");
            assert_eq!(records.repaired, 1, "byte {at}");
        }
    }

    #[test]
    fn a_torn_end_is_dropped_and_a_damaged_middle_record_is_an_error() {
        let bytes = three();
        for cut in 0..bytes.len() {
            let records = decode_records(&bytes[..cut], 9, 0).unwrap();
            assert!(records.bodies.len() <= 3 && records.end <= cut);
        }
        let one = 2 * (HEADER_BYTES + 3);
        let mut hole = bytes.clone();
        hole[..one].fill(0);
        let error = decode_records(&hole, 9, 0).unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::Corrupt);
    }

    #[test]
    fn the_largest_record_number_is_refused() {
        let mut bytes = Vec::new();
        encode_record(&mut bytes, 9, u64::MAX, b"last");
        let error = decode_records(&bytes, 9, 0).unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::Corrupt);
        bytes.extend(three());
        assert_eq!(salvage_records(&bytes, 9, 0), [&b"last"[..]]);
    }
}
