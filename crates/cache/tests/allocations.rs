//! Hits allocate nothing: neither of a page, nor of a row whose value fits the caller's buffer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use allocation_counter::measure;
use base::limits::PAGE_BYTES;
use base::{Account, Seqno, key_hash};
use terrace_cache::rows::{Row, RowFrom};
use terrace_cache::{PageCache, PageKey, PageKind, RowCache};

const MIB: u64 = 1 << 20;

#[test]
fn a_hit_of_a_page_allocates_nothing() {
    let cache = PageCache::new(&Account::unlimited("pages"), 8 * MIB).unwrap();
    let key = |page| PageKey { file: 7, page };
    for page in 0..1000 {
        drop(cache.insert(key(page), PageKind::Data, &[page as u8; PAGE_BYTES]));
    }
    // Whatever a thread allocates once is allocated by now.
    assert!(cache.get(key(999), PageKind::Data).is_some());
    let mut hits = 0;
    let done = measure(|| {
        for page in 0..1000 {
            let frame = cache.get(key(page), PageKind::Data);
            hits += u32::from(frame.is_some_and(|frame| frame.first() == Some(&(page as u8))));
        }
    });
    assert_eq!((hits, done.count_total), (1000, 0));
}

#[test]
fn a_hit_of_a_row_allocates_nothing() {
    let cache = RowCache::new(&Account::unlimited("rows"), 8 * MIB).unwrap();
    let owner = cache.owner();
    let key = |number: u64| number.to_be_bytes();
    let hash = |number| owner.hash(key_hash(&key(number)));
    let (seqno, as_of) = (Seqno::new(1), Seqno::new(2));
    let mut filled = 0;
    for number in 0..1000 {
        let vacancy = cache.vacancy(&owner, hash(number)).unwrap();
        let row = Row {
            key: &key(number),
            value: &[number as u8; 100],
            packed: false,
            seqno,
            as_of,
            expiry: 0,
            from: RowFrom::Device,
        };
        filled += u32::from(cache.fill(&owner, hash(number), vacancy, row).is_ok());
    }
    let (mut value, mut hits) = (Vec::with_capacity(4096), 0);
    assert!(cache.get(&owner, &key(999), hash(999), as_of, &mut value).is_some());
    let done = measure(|| {
        for number in 0..1000 {
            let hit = cache.get(&owner, &key(number), hash(number), as_of, &mut value);
            hits += u32::from(hit.is_some() && value == [number as u8; 100]);
        }
    });
    assert!(filled > 900 && hits == filled, "{hits} of {filled}");
    assert_eq!(done.count_total, 0);
}
