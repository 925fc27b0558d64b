//! Reads arbitrary bytes as a dictionary file with a matching checksum.

#![no_main]

use base::{Account, DictionaryId, StoreId, hash64};
use libfuzzer_sys::fuzz_target;
use table::Dictionary;
use terrace_fuzz::medium_of;

fuzz_target!(|bytes: &[u8]| {
    let mut file = bytes.to_vec();
    file.resize(bytes.len().next_multiple_of(4096).clamp(4096, 64 << 10), 0);
    // Magic, version, id, store, length, reserved, checksum, content.
    let id = DictionaryId(u32::from_le_bytes(file[12..16].try_into().expect("four bytes")));
    let store = StoreId(u128::from_le_bytes(file[16..32].try_into().expect("sixteen bytes")));
    let length = u32::from_le_bytes(file[32..36].try_into().expect("four bytes")) as usize;
    if let Some(content) = file.get(48..48usize.saturating_add(length)) {
        let checksum = hash64(hash64(0, &file[..40]), content);
        file[40..48].copy_from_slice(&checksum.to_le_bytes());
    }
    let name = Dictionary::file_name(id);
    assert_eq!(Dictionary::parse_file_name(&name), Some(id));
    let medium = medium_of(&name, file);
    if let Ok(read) = Dictionary::read(&*medium, store, id, &Account::unlimited("fuzz")) {
        assert_eq!(read.bytes().len(), length);
    }
});
