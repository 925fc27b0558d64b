//! Reads arbitrary bytes as the one segment of a log: record by record, and as recovery would.

#![no_main]

use base::Account;
use libfuzzer_sys::fuzz_target;
use log::{Entry, SegmentHeader};
use terrace_fuzz::{medium_of, seal_crc, seal_record};

const NAME: &str = "log-0-0000000001";
const PAGE: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    let mut file = bytes.to_vec();
    file.resize(bytes.len().next_multiple_of(PAGE).max(2 * PAGE), 0);
    seal_crc(&mut file, 0, PAGE - 4);
    if let Ok(header) = SegmentHeader::decode(&file[..PAGE]) {
        // As long as it says, so that records and not the length are looked at.
        let capacity = header.capacity.min(1 << 20) as usize;
        file.resize(file.len().max(capacity), 0);
        let mut at = PAGE;
        while at + log::FIXED_BYTES <= bytes.len() {
            at = match seal_record(header.seed(), &mut file[at..]) {
                Some(whole) => at + whole,
                None => (at + 1).next_multiple_of(PAGE),
            };
        }
    }
    let length = file.len() as u64;
    let medium = medium_of(NAME, file);
    let mut last = 0;
    let _ = log::inspect(&*medium, NAME, &mut |entry| {
        if let Entry::Begin { offset, .. }
        | Entry::Mark { offset, .. }
        | Entry::Batch { offset, .. } = entry
        {
            assert!(offset > last && offset < length);
            last = offset;
        }
        Ok(())
    });
    if let Ok(found) = log::check(&medium, None, &log::Start::new(), &Account::unlimited("fuzz")) {
        assert!(found.bytes <= length);
    }
});
