//! Reads arbitrary bytes as the page by which a device of a log is recognised, alone and as the file of a
//! directory that is about to get a log.

#![no_main]

use base::StoreId;
use libfuzzer_sys::fuzz_target;
use terrace_fuzz::{medium_of, seal_crc};
use wal::{DEVICE_FILE, DeviceHeader};

const PAGE: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    let _ = DeviceHeader::decode(bytes);
    let mut page = bytes.to_vec();
    page.resize(PAGE, 0);
    // Some inputs keep a damaged checksum.
    if bytes.first() != Some(&0) {
        seal_crc(&mut page, 0, PAGE - 4);
    }
    let decoded = DeviceHeader::decode(&page).ok();
    if let Some(header) = decoded {
        assert_eq!(header.encode(), page);
    }
    let medium = medium_of(DEVICE_FILE, page);
    let found = DeviceHeader::find(&*medium);
    assert_eq!(found.ok().flatten(), decoded);
    let own = DeviceHeader { store: StoreId(7), device: 9 };
    assert_eq!(own.check(&*medium).is_ok(), decoded == Some(own));
    // Without segments the directory is free, unless a newer version made the page.
    if own.install(&*medium).is_ok() {
        own.check(&*medium).expect("it is this device now");
    }
});
