//! Reads arbitrary bytes as the content of an SCM tier from an earlier run.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| cache::fuzzing::scm_pages(bytes));
