//! Reads arbitrary bytes as a dump file of Redis: nothing panics, and no length takes memory.

#![no_main]

use libfuzzer_sys::fuzz_target;
use server::parse_rdb_for_fuzzing;

fuzz_target!(|input: &[u8]| {
    let elements = parse_rdb_for_fuzzing(input);
    // The head of a file is rarely found: the input is the rest of one, too.
    let _elements = elements + parse_rdb_for_fuzzing(&[b"REDIS0011", input].concat());
});
