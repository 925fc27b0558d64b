//! Reads arbitrary bytes as the header and the sections of a checkpoint of indexes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use terrace_fuzz::seal_crc;
use tree::checkpoint::{HEADER_BYTES, Header, SECTION_HEAD_BYTES, Section};

fuzz_target!(|bytes: &[u8]| {
    let mut head = bytes.to_vec();
    head.resize(HEADER_BYTES, 0);
    // Some inputs keep a damaged checksum.
    if bytes.first() != Some(&0) {
        seal_crc(&mut head, 0, HEADER_BYTES - 4);
    }
    if let Ok(header) = Header::decode(&head) {
        let encoded = header.encode();
        assert_eq!(Header::decode(&encoded).unwrap(), header);
        // Version 1 is read, and not written.
        assert!(encoded == head || head[8] == 1);
    }
    let mut rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
    while let Some((head, behind)) = rest.split_at_checked(SECTION_HEAD_BYTES) {
        let Ok(length) = Section::body_bytes(head) else { return };
        let Some((body, behind)) = behind.split_at_checked(length) else { return };
        if let Ok(section) = Section::decode(head, body) {
            let mut encoded = Vec::new();
            section.encode(&mut encoded);
            assert_eq!(encoded, [head, body].concat());
        }
        rest = behind;
    }
});
