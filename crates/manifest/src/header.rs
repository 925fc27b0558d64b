//! The header of a manifest file: docs/format/manifest.md.

use base::{StoreId, put_u32, put_u64, put_u128};

/// The first bytes of every manifest.
pub(crate) const MAGIC: &[u8; 8] = b"TERRMANI";
/// The newest format version that this code reads. It writes the least one that has the edits of the file, so
/// that older versions of the code read every store that has nothing new to them.
pub(crate) const VERSION: u32 = 9;
/// The version of the manifest that an open writes: soon after, it states how far the log reached.
pub(crate) const VERSION_OPENED: u32 = 5;
/// The version of a manifest without hashed keyspaces, of a store that is no copy and has its log in its
/// directory.
pub(crate) const VERSION_FIRST: u32 = 1;
/// Two copies of a 40-byte header, each in its own sector.
pub(crate) const HEADERS_BYTES: usize = 1024;

/// Encodes one copy of the header, without padding.
pub(crate) fn encode_header(version: u32, store: StoreId, number: u64) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    put_u32(&mut header, version);
    put_u128(&mut header, store.0);
    put_u64(&mut header, number);
    let crc = base::crc32c(&header);
    put_u32(&mut header, crc);
    header
}
