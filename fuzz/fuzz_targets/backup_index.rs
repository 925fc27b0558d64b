//! Reads arbitrary bytes as the body of a backup's index with a matching checksum, and lists, verifies,
//! restores and deletes the backups in it.

#![no_main]

use std::sync::Arc;

use base::{hash64, put_u32, put_u64};
use libfuzzer_sys::fuzz_target;
use media::MemoryMedium;
use terracedb::tools::Backup;

fuzz_target!(|body: &[u8]| {
    let mut file = b"TERRABAK".to_vec();
    put_u32(&mut file, 1);
    put_u32(&mut file, body.len() as u32);
    let checksum = hash64(hash64(0, &file), body);
    put_u64(&mut file, checksum);
    file.extend_from_slice(body);
    file.resize(file.len().next_multiple_of(4096), 0);
    file.extend_from_within(..);
    let medium = MemoryMedium::new();
    medium.insert("backup-0000000001", file).expect("a fine name");
    let repository = Backup::on_medium(Arc::new(medium));
    let list = repository.list().expect("memory does not fail");
    assert_eq!(list.backups.len() + list.damaged.len(), 1);
    let _ = repository.verify(1);
    let _ = repository.restore_on(1, &(Arc::new(MemoryMedium::new()) as Arc<dyn media::Medium>));
    repository.delete(1).expect("an index, damaged or not, can be deleted");
});
