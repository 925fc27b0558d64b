//! Reads arbitrary bytes as the manifest of a store without other files: shows it, and checks the store,
//! which applies its edits.

#![no_main]

use base::{crc32c, crc32c_append};
use libfuzzer_sys::fuzz_target;
use terrace_fuzz::{medium_of, seal_crc};

const NAME: &str = "manifest-0000000000000001";
const HEADERS: usize = 1024;
const FRAME_HEADER: usize = 24;

fuzz_target!(|bytes: &[u8]| {
    let mut file = bytes.to_vec();
    file.resize(bytes.len().max(HEADERS), 0);
    // Two headers, each with its checksum.
    seal_crc(&mut file, 0, 36);
    seal_crc(&mut file, 512, 548);
    let seed = crc32c(&file[..40]);
    // Consecutive frames: magic, length, number, two checksums, body.
    let mut at = HEADERS;
    while let Some(header) = file.get(at..at + FRAME_HEADER) {
        let length = u32::from_le_bytes(header[4..8].try_into().expect("four bytes")) as usize;
        let Some(body) = file.get(at + FRAME_HEADER..(at + FRAME_HEADER).saturating_add(length))
        else {
            break;
        };
        let crc = crc32c_append(crc32c_append(seed, &header[..16]), body);
        file[at + 16..at + 20].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32c_append(seed, &file[at..at + 20]);
        file[at + 20..at + 24].copy_from_slice(&crc.to_le_bytes());
        at += FRAME_HEADER + length;
    }
    let medium = medium_of(NAME, file);
    let shown = terracedb::tools::inspect_manifest(&*medium, NAME);
    let checked = terracedb::tools::check(&medium, &mut |done, total| assert!(done <= total));
    // If the manifest cannot be shown, there is no store, or a damaged one.
    assert!(shown.is_ok() || !checked.is_ok_and(|report| report.is_clean()));
});
