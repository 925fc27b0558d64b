//! Reads arbitrary bytes as the file of a keyspace, alone and as a file of a directory.

#![no_main]

use base::KeyspaceId;
use libfuzzer_sys::fuzz_target;
use manifest::KeyspaceFile;
use terrace_fuzz::{medium_of, seal_crc};

const PAGE: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    let _ = KeyspaceFile::decode(bytes);
    let mut page = bytes.to_vec();
    page.resize(PAGE, 0);
    // Some inputs keep a damaged checksum.
    if bytes.first() != Some(&0) {
        seal_crc(&mut page, 0, PAGE - 4);
    }
    let decoded = KeyspaceFile::decode(&page).ok();
    let id = decoded.as_ref().map_or(KeyspaceId(7), |file| file.keyspace);
    let medium = medium_of(&KeyspaceFile::file_name(id), page);
    assert_eq!(KeyspaceFile::find(&*medium, id).ok().flatten(), decoded);
    if let Some(file) = decoded {
        // Another form of the same numbers may decode, and only one is written.
        assert_eq!(KeyspaceFile::decode(&file.encode()).ok(), Some(file.clone()));
        file.check(&*medium).expect("it says the same");
        file.install(&*medium).expect("a medium in memory");
        file.check(&*medium).expect("it was written");
    }
});
