//! Runs every command of the Redis protocol on keys over arbitrary stored bytes: the value of a key, and
//! rows of its elements. Nothing panics, and a request has one reply or an error.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use server::fuzzing::{StoredBytes, large_value};
use tempfile::TempDir;

static STORED: OnceLock<(StoredBytes, TempDir)> = OnceLock::new();

/// The next piece: a byte with its length, and so many bytes or those that are left.
fn piece<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = input.split_first()?;
    let (piece, rest) = rest.split_at(rest.len().min(usize::from(*length)));
    *input = rest;
    Some(piece)
}

fuzz_target!(|input: &[u8]| {
    let (stored, _) = STORED.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        (StoredBytes::open(directory.path()).unwrap(), directory)
    });
    let mut rest = input;
    let Some(mut value) = piece(&mut rest).map(<[u8]>::to_vec) else { return };
    // A large collection of few elements, whose head few inputs would find.
    if let [255, kind, count, start @ ..] = &value[..] {
        let start = start.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        value = large_value(*kind, u64::from(*count), start);
    }
    let mut rows = Vec::new();
    while let (Some(element), Some(value)) = (piece(&mut rest), piece(&mut rest)) {
        rows.push((element, value));
    }
    let _count = stored.run(&value, &rows);
});
