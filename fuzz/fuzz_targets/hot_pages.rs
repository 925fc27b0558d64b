//! Reads arbitrary bytes as a list of hot pages.

#![no_main]

use cache::HotPages;
use libfuzzer_sys::fuzz_target;
use terrace_fuzz::seal_crc;

fuzz_target!(|bytes: &[u8]| {
    let _ = HotPages::decode(bytes);
    let mut sealed = [bytes, &[0; 4]].concat();
    seal_crc(&mut sealed, 0, bytes.len());
    if let Ok(list) = HotPages::decode(&sealed) {
        // Another form of the same numbers may decode, and only one is written.
        assert_eq!(HotPages::decode(&list.encode()).ok(), Some(list));
    }
});
