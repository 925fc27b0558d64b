//! Parses arbitrary bytes as requests of the Redis protocol: nothing panics, and however the input is cut, it
//! has as many requests.

#![no_main]

use libfuzzer_sys::fuzz_target;
use server::parse_for_fuzzing;

fuzz_target!(|input: &[u8]| {
    let whole = parse_for_fuzzing(input, input.len());
    let piece = usize::from(input.first().copied().unwrap_or(1) % 16 + 1);
    assert_eq!(parse_for_fuzzing(input, piece), whole);
});
