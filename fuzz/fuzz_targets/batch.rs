//! Reads arbitrary bytes as a write batch, as the log hands it to recovery.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let (mut ops, mut bytes) = (0, 0);
    let _ = terracedb::fuzzing::batch(body, |key, value| {
        ops += 1;
        bytes += key.len() + value.len();
    });
    assert!(ops <= body.len() && bytes <= body.len());
});
