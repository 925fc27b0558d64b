//! Helpers of the fuzz targets: media to read from, and repair of checksums.
//!
//! Almost every mutated input would fail its checksum first. So a target computes the checksums of its input
//! anew, and fuzzes the code behind them.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{PageSeed, StoreId, TableId, crc32c};
use media::{Medium, MemoryMedium};

/// A medium with one file.
#[must_use]
pub fn medium_of(name: &str, content: Vec<u8>) -> Arc<dyn Medium> {
    let medium = MemoryMedium::new();
    medium.insert(name, content).expect("a good name");
    Arc::new(medium)
}

/// Writes the CRC-32C of `bytes[from..at]` at `at`, if there is room.
pub fn seal_crc(bytes: &mut [u8], from: usize, at: usize) {
    let Some(crc) = bytes.get(from..at).map(crc32c) else { return };
    if let Some(slot) = bytes.get_mut(at..at + 4) {
        slot.copy_from_slice(&crc.to_le_bytes());
    }
}

/// Repairs the checksum of every page, for the table that the footer on the last page names. Returns the
/// identity of that table, or `None` if the file is too short for a footer.
pub fn seal_pages(file: &mut [u8]) -> Option<(StoreId, TableId)> {
    // The footer follows the page's header: magic, version, pages, store, table.
    let footer = file.len().checked_sub(PAGE_BYTES)? + table::HEADER_BYTES;
    let store = u128::from_le_bytes(file.get(footer + 16..footer + 32)?.try_into().ok()?);
    let id = u64::from_le_bytes(file.get(footer + 32..footer + 40)?.try_into().ok()?);
    let identity = (StoreId(store), TableId(id));
    let seed = PageSeed::new(identity.0, identity.1);
    for (number, page) in (0..).zip(file.chunks_exact_mut(PAGE_BYTES)) {
        let (slot, covered) = page.split_at_mut(8);
        slot.copy_from_slice(&seed.checksum(number, covered).to_le_bytes());
    }
    Some(identity)
}

/// Repairs the checksum of the record at the start of `bytes`, in a segment with this `seed`. Returns the
/// length of the record, or `None` if no record starts there.
pub fn seal_record(seed: u32, bytes: &mut [u8]) -> Option<usize> {
    let whole = wal::record_bytes(bytes).filter(|whole| *whole <= bytes.len())?;
    let record = bytes.get_mut(..whole)?;
    let is_batch = record[7] >> 4 == 1;
    let mut cursor = base::Cursor::new("record", record);
    cursor.take(wal::FIXED_BYTES).ok()?;
    if is_batch {
        cursor.varint().ok()?;
        for _ in 0..cursor.length(base::limits::KEYSPACES_MAX).ok()? {
            cursor.varint().ok()?;
        }
    }
    let (head, body) = record.split_at_mut(cursor.position());
    let crc = base::crc32c_append(crc32c(body), &head[4..]) ^ seed;
    head[..4].copy_from_slice(&crc.to_le_bytes());
    Some(whole)
}
