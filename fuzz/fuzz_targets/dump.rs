//! Reads arbitrary bytes as a dump, and arbitrary payloads as frames with matching checksums.

#![no_main]

use base::{crc32c, crc32c_append, put_u32};
use libfuzzer_sys::fuzz_target;
use terracedb::tools::{DumpItem, DumpReader};

/// Reads a dump to its end or first error. What it holds is at most as long as the input.
fn read(bytes: &[u8]) {
    let Ok(mut reader) = DumpReader::new(bytes) else { return };
    let mut held = 0;
    while let Ok(Some(item)) = reader.next_item() {
        held += match item {
            DumpItem::Keyspace(keyspace) => keyspace.name.len(),
            DumpItem::Entry { key, value, .. } => key.len() + value.len(),
        };
        assert!(held <= bytes.len());
    }
}

fuzz_target!(|input: &[u8]| {
    read(input);
    // Kind, length and payload of each frame.
    let mut dump = b"TERRADMP".to_vec();
    put_u32(&mut dump, 1);
    let checksum = crc32c(&dump);
    put_u32(&mut dump, checksum);
    let (mut rest, mut number) = (input, 0u64);
    while let [kind, len, after @ ..] = rest {
        let (payload, behind) = after.split_at(usize::from(*len).min(after.len()));
        let begin = dump.len();
        put_u32(&mut dump, payload.len() as u32);
        dump.push(kind % 5);
        dump.extend_from_slice(payload);
        let checksum = crc32c_append(crc32c(&number.to_le_bytes()), &dump[begin..]);
        put_u32(&mut dump, checksum);
        (rest, number) = (behind, number + 1);
    }
    read(&dump);
});
