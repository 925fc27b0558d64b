//! Manifest frames: a record's bytes on the device, twice. Bytes: docs/format/manifest.md.
//!
//! Every record is written as two equal frames, one after the other, then synced. A record with
//! one good frame is good, so that no single flipped byte costs a table. A record with none is
//! the torn end of an append that was never acknowledged if no good frame follows it, damage if
//! one does.

use base::{Cursor, Error, Result, crc32c, crc32c_append, put_u32, put_u64};

const MAGIC: u32 = u32::from_le_bytes(*b"MREC");
const HEADER_BYTES: usize = 24;
static ZEROS: [u8; 4096] = [0; 4096];
/// A frame's body is at most this long: about a million tables of average keys.
pub(crate) const BODY_BYTES_MAX: usize = 256 << 20;

/// Appends the two frames of record number `sequence`.
pub(crate) fn encode_record(out: &mut Vec<u8>, seed: u32, sequence: u64, body: &[u8]) {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    put_u32(&mut header, MAGIC);
    put_u32(&mut header, body.len() as u32);
    put_u64(&mut header, sequence);
    let crc = crc32c_append(crc32c_append(seed, &header), body);
    put_u32(&mut header, crc);
    let header_crc = crc32c_append(seed, &header);
    put_u32(&mut header, header_crc);
    for _ in 0..2 {
        out.extend_from_slice(&header);
        out.extend_from_slice(body);
    }
}

/// The frame that starts at `at`, if one does: its sequence number, body and end.
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

/// The next good frame at or after `at`.
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

fn find_magic(bytes: &[u8]) -> Option<usize> {
    let mut start = 0;
    loop {
        // Most of a manifest is space reserved and not yet used.
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

/// What reading a manifest's records found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Records<'a> {
    /// The records' bodies in order, numbered from 0.
    pub bodies: Vec<&'a [u8]>,
    /// Where the last good record ends.
    pub end: usize,
    /// Frames that were bad while their twin was good.
    pub repaired: usize,
}

/// Reads every record of `bytes` from offset `start`.
///
/// # Errors
/// `Corrupt` where both frames of a record are bad and a later frame is good.
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

/// Every body that can still be read, in order, whatever lies between.
pub(crate) fn salvage_records(bytes: &[u8], seed: u32, start: usize) -> Vec<&[u8]> {
    let mut bodies: Vec<&[u8]> = Vec::new();
    let (mut at, mut next) = (start, 0);
    while let Some((_, sequence, body, end)) = find_frame(bytes, seed, at) {
        if sequence >= next {
            bodies.push(body);
            // Nothing has a number above the largest.
            let Some(after) = sequence.checked_add(1) else { break };
            next = after;
        }
        at = end;
    }
    bodies
}

/// The seed of a manifest's checksums: its file header's.
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
    fn no_single_flipped_byte_costs_a_record() {
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
    fn a_torn_end_is_cut_and_a_hole_is_damage() {
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
    fn the_largest_number_is_refused() {
        let mut bytes = Vec::new();
        encode_record(&mut bytes, 9, u64::MAX, b"last");
        let error = decode_records(&bytes, 9, 0).unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::Corrupt);
        bytes.extend(three());
        assert_eq!(salvage_records(&bytes, 9, 0), [&b"last"[..]]);
    }
}
