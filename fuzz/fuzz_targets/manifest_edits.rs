//! Reads arbitrary bytes as the edits of the first record of a manifest, with headers and both copies of the
//! record intact.

#![no_main]

use base::{crc32c, crc32c_append, put_u32, put_u64, put_u128};
use libfuzzer_sys::fuzz_target;
use terrace_fuzz::medium_of;

const NAME: &str = "manifest-0000000000000001";

fuzz_target!(|body: &[u8]| {
    let mut header = b"TERRMANI".to_vec();
    // A reader of the newest version reads the edits of every version.
    put_u32(&mut header, 6);
    put_u128(&mut header, 7);
    put_u64(&mut header, 1);
    let crc = crc32c(&header);
    put_u32(&mut header, crc);
    let seed = crc32c(&header);
    let mut file = header;
    file.resize(512, 0);
    file.extend_from_within(..512);
    let mut frame = b"MREC".to_vec();
    put_u32(&mut frame, body.len() as u32);
    put_u64(&mut frame, 0);
    let crc = crc32c_append(crc32c_append(seed, &frame), body);
    put_u32(&mut frame, crc);
    let crc = crc32c_append(seed, &frame);
    put_u32(&mut frame, crc);
    for _ in 0..2 {
        file.extend_from_slice(&frame);
        file.extend_from_slice(body);
    }
    let medium = medium_of(NAME, file);
    let Ok((_, records)) = terracedb::tools::inspect_manifest(&*medium, NAME) else { return };
    assert!(records.len() == 1 && records[0].edits.len() <= body.len());
    let _ = terracedb::tools::check(&medium, &mut |_, _| ());
});
