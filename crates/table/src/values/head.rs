//! The head of a value's run: its key.

use base::limits::KEY_BYTES_MAX;
use base::{Cursor, Result, put_bytes};

use crate::page::{Header, payload};

/// Encodes the head of the value of `key`.
pub(super) fn encode(key: &[u8]) -> Vec<u8> {
    let mut head = Vec::with_capacity(key.len() + 3);
    put_bytes(&mut head, key);
    head
}

/// The key in a run's content, and the offset of the value.
///
/// # Errors
/// `Corrupt` if the content does not begin with a key.
pub(super) fn split(content: &[u8]) -> Result<(&[u8], usize)> {
    let mut cursor = Cursor::new("value and its key", content);
    let key = cursor.bytes(KEY_BYTES_MAX)?;
    Ok((key, cursor.position()))
}

/// The key on the first page of a run, if it can be read without the other pages.
pub(super) fn key_on(page: &[u8], header: &Header) -> Option<Vec<u8>> {
    if header.codec != base::Codec::None {
        return None;
    }
    let (key, _) = split(payload(page, header).ok()?).ok()?;
    Some(key.to_vec())
}
