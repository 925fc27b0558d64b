//! Reads arbitrary bytes as a record of the log, and as the header of a segment.

#![no_main]

use libfuzzer_sys::fuzz_target;
use terrace_fuzz::{seal_crc, seal_record};
use wal::{Content, SegmentHeader, parse_record};

const SEED: u32 = 9;

fuzz_target!(|bytes: &[u8]| {
    assert!(parse_record(SEED, bytes).is_err() || wal::record_bytes(bytes).is_some());
    let mut page = bytes.to_vec();
    page.resize(4096, 0);
    seal_crc(&mut page, 0, 4092);
    if let Ok(header) = SegmentHeader::decode(&page) {
        assert_eq!(header.encode(), page);
    }
    let mut record = bytes.to_vec();
    let Some(whole) = seal_record(SEED, &mut record) else { return };
    let Ok(parsed) = parse_record(SEED, &record) else { return };
    assert!(parse_record(SEED, &record[..whole - 1]).is_err());
    match parsed.content {
        Content::Batch { ops, keyspaces, body } => {
            assert!(ops > 0 && body.len() < whole);
            assert!(keyspaces.count() > 0);
        }
        Content::Gap { count } => assert!(count > 0 && parsed.seqno.get() + count < 1 << 56),
        Content::Mark { .. } | Content::Begin(_) => {}
    }
});
