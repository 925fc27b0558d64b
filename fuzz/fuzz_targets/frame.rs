//! Reads arbitrary bytes as a frame of a link between host and worker, with a matching length and checksum.

#![no_main]

use base::hash64;
use libfuzzer_sys::fuzz_target;
use offload::Frame;

fuzz_target!(|bytes: &[u8]| {
    let _ = Frame::decode(bytes);
    let mut framed = u32::to_le_bytes(bytes.len() as u32 + 8).to_vec();
    framed.extend_from_slice(bytes);
    let checksum = hash64(0, &framed);
    framed.extend_from_slice(&checksum.to_le_bytes());
    if let Ok(frame) = Frame::decode(&framed) {
        assert_eq!(frame.encode(), framed);
    }
});
