//! Reads arbitrary bytes as a page with a matching checksum: its header, its content as metadata, and its
//! content as properties.

#![no_main]

use base::{EntryKind, Seqno, Trailer, key_hash};
use libfuzzer_sys::fuzz_target;
use table::{Header, MetaPage, Properties};

fuzz_target!(|bytes: &[u8]| {
    let mut page = bytes.to_vec();
    page.resize(4096, 0);
    if let Ok(properties) = Properties::decode(bytes) {
        assert_eq!(Properties::decode(&properties.encode()).ok(), Some(properties));
    }
    if let Ok(header) = Header::parse(&page) {
        let payload = table::payload(&page, &header).expect("a page holds its part of a run");
        assert_eq!(payload.len(), header.payload_here());
        let _ = Properties::decode(payload);
    }
    let Ok(meta) = MetaPage::parse(&page) else { return };
    for block in 0..meta.blocks() + 1 {
        if let Ok((first, pages)) = meta.block_pages(block) {
            let (start, all) = meta.data_pages();
            let end = |first: u32, pages: u32| u64::from(first) + u64::from(pages);
            assert!(pages > 0 && first >= start && end(first, pages) <= end(start, all));
        }
    }
    for key in [&b"a"[..], &bytes[..bytes.len().min(9)]] {
        let at = Trailer::new(Seqno::new(7), EntryKind::Put);
        if let Ok(block) = meta.search(key, at) {
            assert!(block < meta.data_pages().1 as usize);
        }
        let _ = meta.may_contain(key_hash(key));
    }
});
