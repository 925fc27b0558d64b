//! Parsers of the pages that an earlier process left in a tier, for the fuzz targets.

use base::hash64;
use base::limits::PAGE_BYTES;

use super::slot_map::SlotMap;
use super::stored_map::{decode_head, decode_map};

/// Decodes `bytes` as a first page and as a map page, the latter once more with a correct checksum, and
/// restores the entries of that.
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
