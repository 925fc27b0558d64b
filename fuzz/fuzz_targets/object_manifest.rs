//! Reads arbitrary bytes as the body of an object store's manifest with a matching checksum. A manifest that
//! is accepted is written as it was read.

#![no_main]

use base::{hash64, put_u32, put_u64};
use libfuzzer_sys::fuzz_target;
use remote::Manifest;

fuzz_target!(|body: &[u8]| {
    let _ = Manifest::decode(body);
    let mut bytes = b"TERRAOBJ".to_vec();
    put_u32(&mut bytes, 1);
    put_u32(&mut bytes, body.len() as u32);
    let checksum = hash64(hash64(0, &bytes), body);
    put_u64(&mut bytes, checksum);
    bytes.extend_from_slice(body);
    if let Ok(manifest) = Manifest::decode(&bytes) {
        assert_eq!(manifest.encode().expect("it is as short as it was"), bytes);
    }
});
