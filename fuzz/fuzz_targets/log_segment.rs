//! Reads arbitrary bytes as the only segment of a log: record by record, and as recovery does, up to damage
//! and past it.

#![no_main]

use base::{Account, ErrorKind};
use libfuzzer_sys::fuzz_target;
use terrace_fuzz::{medium_of, seal_crc, seal_record};
use wal::{LogEntry, Recover, SegmentHeader};

const NAME: &str = "log-0-0000000001";
const PAGE: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    let mut file = bytes.to_vec();
    file.resize(bytes.len().next_multiple_of(PAGE).max(2 * PAGE), 0);
    // Some inputs keep a damaged header.
    if bytes.first() != Some(&0) {
        seal_crc(&mut file, 0, PAGE - 4);
    }
    let mut store = None;
    if let Ok(header) = SegmentHeader::decode(&file[..PAGE]) {
        store = Some(header.store);
        // The file is made as long as the header says, so that the fuzzer reaches the records behind the
        // check of the length.
        let capacity = header.capacity.min(1 << 20) as usize;
        file.resize(file.len().max(capacity), 0);
        // Records begin behind one another, or at the next page; in a fenced lane at the next write unit.
        let unit = if header.version < 3 { PAGE } else { 256 };
        let mut at = PAGE;
        while at + wal::FIXED_BYTES <= bytes.len() {
            at = match seal_record(header.seed(), &mut file[at..]) {
                Some(whole) => at + whole,
                None => (at + 1).next_multiple_of(unit),
            };
        }
    }
    let length = file.len() as u64;
    let medium = medium_of(NAME, file);
    let mut last = 0;
    let _ = wal::inspect(&*medium, NAME, &mut |entry| {
        if let LogEntry::Begin { offset, .. }
        | LogEntry::Mark { offset, .. }
        | LogEntry::Batch { offset, .. }
        | LogEntry::Gap { offset, .. } = entry
        {
            assert!(offset > last && offset < length);
            last = offset;
        }
        Ok(())
    });
    let check = |recover| {
        let account = Account::unlimited("fuzz");
        wal::check(&medium, store, &wal::Known::default(), recover, &account)
    };
    let strict = check(Recover::Strict);
    let past = check(Recover::PastDamage);
    for found in strict.iter().chain(&past) {
        assert!(found.bytes <= length);
    }
    // Recovery past damage finds at least the records before it, and reports the lost ones.
    if let (Ok(strict), Ok(past)) = (&strict, &past) {
        assert!(past.records >= strict.records);
    }
    if let (Err(error), Ok(past)) = (&strict, &past) {
        assert!(error.kind() != ErrorKind::Corrupt || past.damage.is_some());
    }
});
