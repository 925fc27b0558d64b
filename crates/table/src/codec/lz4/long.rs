//! An LZ4 decoder for payloads with long matches, such as values with padding or copies. It does two
//! copies per sequence, each at memory-copy speed: two to three times as fast as a decoder made for the
//! short sequences of text, and slower than that one on text.

use base::{Error, Result};

/// Number of sequences that decide whether a payload has long matches.
const LOOKED_AT: usize = 4;

/// Average match length, bytes, from which matches count as long.
const LONG_BYTES: usize = 64;

/// Literals and the match after them; the last sequence has no match.
struct Sequence<'a> {
    literals: &'a [u8],
    /// Distance back to the match, bytes.
    offset: usize,
    repeated: usize,
}

/// Whether [`decompress`] is the better decoder for `payload`, judged by its first sequences.
pub(super) fn is_long(payload: &[u8]) -> bool {
    let mut at = 0;
    let first = (0..LOOKED_AT).map_while(|_| next(payload, &mut at));
    first.map(|sequence| sequence.repeated).sum::<usize>() >= LOOKED_AT * LONG_BYTES
}

/// Decompresses `payload` into at most `raw_bytes` bytes.
pub(super) fn decompress(payload: &[u8], raw_bytes: usize) -> Result<Vec<u8>> {
    let mut raw = Vec::with_capacity(raw_bytes);
    fill(&mut raw, payload, raw_bytes).ok_or_else(|| {
        Error::corrupt("lz4 payload")
            .expected(format_args!("{raw_bytes} bytes once decompressed"))
            .got(format_args!("an invalid sequence after {}", raw.len()))
    })?;
    Ok(raw)
}

fn fill(raw: &mut Vec<u8>, payload: &[u8], raw_bytes: usize) -> Option<()> {
    let mut at = 0;
    loop {
        let Sequence { literals, offset, repeated } = next(payload, &mut at)?;
        if literals.len() + repeated > raw_bytes - raw.len() {
            return None;
        }
        raw.extend_from_slice(literals);
        if at == payload.len() {
            // The last sequence has only literals.
            return (repeated == 0).then_some(());
        }
        let from = raw.len().checked_sub(offset).filter(|from| *from < raw.len())?;
        // A match may overlap its own output: each round doubles the bytes available to copy.
        let mut left = repeated;
        while left > 0 {
            let now = left.min(raw.len() - from);
            raw.extend_from_within(from..from + now);
            left -= now;
        }
    }
}

/// The sequence at `at`; moves `at` past it. `None` if the sequence does not end within `payload`.
#[inline]
fn next<'a>(payload: &'a [u8], at: &mut usize) -> Option<Sequence<'a>> {
    let token = *payload.get(*at)?;
    *at += 1;
    let length = length(payload, at, token >> 4)?;
    let literals = payload.get(*at..)?.get(..length)?;
    *at += length;
    if *at == payload.len() {
        return Some(Sequence { literals, offset: 0, repeated: 0 });
    }
    let offset = u16::from_le_bytes(*payload.get(*at..)?.first_chunk()?).into();
    *at += size_of::<u16>();
    let repeated = self::length(payload, at, token & 15)? + super::MATCH_BYTES_MIN;
    Some(Sequence { literals, offset, repeated })
}

/// A length that starts with `nibble`, with its extension bytes.
#[inline]
fn length(payload: &[u8], at: &mut usize, nibble: u8) -> Option<usize> {
    let mut length = usize::from(nibble);
    if nibble == 15 {
        loop {
            let byte = *payload.get(*at)?;
            *at += 1;
            length += usize::from(byte);
            if byte < u8::MAX {
                break;
            }
        }
    }
    Some(length)
}
