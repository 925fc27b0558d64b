//! Reads arbitrary bytes as a decompressed block, compact or not. Every entry lies within it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|raw: &[u8]| {
    let (mut entries, mut value_bytes) = (0usize, 0usize);
    let hash_key = Some(base::HashKey::new([7; base::HashKey::BYTES]));
    let _ = table::visit_block(raw, hash_key, |key, _, value| {
        assert!(key.len() <= base::limits::KEY_BYTES_MAX);
        entries += 1;
        value_bytes += value.len();
    });
    assert!(entries <= raw.len() && value_bytes <= raw.len());
});
