//! Reads arbitrary bytes as what an earlier SCM tier left.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| cache::fuzzing::scm_pages(bytes));
