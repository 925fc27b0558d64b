//! Reads arbitrary bytes as the metadata page of a table with bins. Walks and searches stay within the
//! partition, and a walk of its blocks ends.

#![no_main]

use base::limits::PAGE_BYTES;
use base::{EntryKind, Seqno, Trailer};
use libfuzzer_sys::fuzz_target;
use table::{HEADER_BYTES, MetaPage, PAYLOAD_BYTES, PageKind};

fuzz_target!(|input: (u16, u8, bool, u16, &[u8])| {
    let (blocks, flags, is_straddled, pages, index) = input;
    let index = &index[..index.len().min(PAYLOAD_BYTES - 20)];
    let mut payload = blocks.to_le_bytes().to_vec();
    payload.extend([flags, if is_straddled { 0x80 } else { 0 }]);
    payload.extend(100u32.to_le_bytes());
    payload.extend(u32::from(pages).to_le_bytes());
    payload.extend([0; 4]);
    // The index is the rest of the page, or the part that the first pages of the blocks leave.
    let listed = match (is_straddled, flags & 1) {
        (true, _) => usize::from(pages).div_ceil(8),
        (false, 1) => 4 * usize::from(blocks),
        (false, _) => 0,
    };
    payload.extend((index.len().saturating_sub(listed) as u16).to_le_bytes());
    payload.extend([0; 2]);
    payload.extend(index);
    let mut page = vec![0; PAGE_BYTES];
    page[8] = PageKind::Meta as u8;
    page[16..20].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    page[20..24].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    page[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(&payload);
    let Ok(meta) = MetaPage::parse(&page) else { return };
    let mut next = Some(0);
    let mut walked = 0;
    while let Some(block) = next {
        if let Ok((first, count)) = meta.block_pages(block) {
            assert!(count > 0 && first >= 100 && first + count <= 100 + u32::from(pages));
        }
        let Ok(after) = meta.after(block) else { break };
        assert!(after.is_none_or(|after| after > block));
        (next, walked) = (after, walked + 1);
    }
    assert!(walked <= usize::from(pages));
    let at = Trailer::new(Seqno::new(7), EntryKind::Put);
    for key in [&[][..], &[0; 9], &[0x80, 1], &[0xff; 12], &index[..index.len().min(8)]] {
        if let Ok(block) = meta.search(key, at) {
            assert!(block < usize::from(pages));
        }
    }
});
