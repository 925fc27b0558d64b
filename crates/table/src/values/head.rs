//! What stands before a value in its run: its key.

use base::limits::KEY_BYTES_MAX;
use base::{Cursor, Result, put_bytes};

/// What stands before the value of `key`.
pub(super) fn encode(key: &[u8]) -> Vec<u8> {
    let mut head = Vec::with_capacity(key.len() + 3);
    put_bytes(&mut head, key);
    head
}

/// The key of a run's content, and where its value begins.
///
/// # Errors
/// `Corrupt` where no key stands there.
pub(super) fn split(content: &[u8]) -> Result<(&[u8], usize)> {
    let mut cursor = Cursor::new("value and its key", content);
    let key = cursor.bytes(KEY_BYTES_MAX)?;
    Ok((key, cursor.position()))
}
