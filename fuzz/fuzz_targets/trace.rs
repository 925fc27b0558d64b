//! Reads arbitrary bytes as a trace of the format and compression that the first byte chooses.

#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use workload::trace::{Access, Format};

/// A few input bytes can stand for very many accesses, as a range of blocks or a workload.
const ACCESSES_MAX: usize = 4096;

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else { return };
    let format = Format::ALL[usize::from(choice % 8).min(5)];
    let name = ["trace", "trace.xz", "trace.zst"][usize::from(choice / 8).min(2)];
    let source = Box::new(Cursor::new(bytes.to_vec()));
    let Ok(mut trace) = format.read(name, source) else { return };
    let mut access = Access::default();
    for _ in 0..ACCESSES_MAX {
        match trace.load(&mut access) {
            Ok(true) => assert!(!access.key.is_empty()),
            Ok(false) | Err(_) => break,
        }
    }
    for _ in 0..ACCESSES_MAX {
        match trace.next(&mut access) {
            Ok(true) => assert!(!access.key.is_empty()),
            Ok(false) | Err(_) => break,
        }
    }
    let _ = trace.position();
});
