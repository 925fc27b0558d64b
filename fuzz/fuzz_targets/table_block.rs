//! Reads arbitrary bytes as a decompressed block. Every entry lies within it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|raw: &[u8]| {
    let (mut entries, mut value_bytes) = (0usize, 0usize);
    let _ = table::visit_block(raw, |key, _, value| {
        assert!(key.len() <= base::limits::KEY_BYTES_MAX);
        entries += 1;
        value_bytes += value.len();
    });
    assert!(entries <= raw.len() && value_bytes <= raw.len());
});
