//! Reads arbitrary text as a size: the result is an error, or a whole number of bytes, which as text reads
//! back as itself.

#![no_main]

use base::{format_bytes, parse_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(bytes) = parse_bytes(text) {
        assert_eq!(parse_bytes(&bytes.to_string()).ok(), Some(bytes));
        assert!(!format_bytes(bytes).is_empty());
    }
});
