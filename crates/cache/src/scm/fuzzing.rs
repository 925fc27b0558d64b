//! What reads the pages that an earlier tier left, for the fuzz targets.

use base::hash64;
use base::limits::PAGE_BYTES;

use super::slot_map::SlotMap;
use super::stored_map::{decode_head, decode_map};

/// Reads `bytes` as the first page of a tier and as a page of its map, the latter also with a checksum
/// that is right; what that says is taken for what it is worth.
pub fn scm_pages(bytes: &[u8]) {
    let _ = (decode_head(bytes, 4096), decode_map(7, 3, bytes));
    let mut page = [bytes, &[0; PAGE_BYTES]].concat();
    page.truncate(PAGE_BYTES);
    if let Some((checksum, body)) = page.split_first_chunk_mut::<8>() {
        if let Some(number) = body.first_chunk_mut::<8>() {
            *number = 3u64.to_le_bytes();
        }
        *checksum = hash64(7, body).to_le_bytes();
    }
    if let Ok(entries) = decode_map(7, 3, &page) {
        let map = SlotMap::new(31);
        let placed = map.restore(0, &entries);
        assert!(placed <= map.slots(), "{placed}");
    }
}
