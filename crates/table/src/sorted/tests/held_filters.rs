//! Held filters: probes without a page, their memory, and a reclaim. Pages are counted.

use base::Reclaim;

use super::*;
use crate::Accounts;

const KEYS: u64 = 20_000;

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// A table of the even keys, whose filters may take `most` bytes.
fn table(most: u64) -> (Arc<Table>, Arc<HeldFilters>) {
    let medium = medium();
    let account = Account::unlimited("test");
    let model = (0..KEYS).map(|it| ((key(2 * it), Reverse(put(5))), b"value".to_vec())).collect();
    write(&medium, spec(Codec::None), &model, &account).unwrap();
    let filters = Account::unlimited("filters");
    filters.set_cap(most);
    let filters = HeldFilters::new(filters);
    let accounts = Accounts { filters: Some(Arc::clone(&filters)), ..(&account).into() };
    let none = Arc::new(NoDictionaries);
    (Table::open(&*medium, STORE, TABLE, None, None, none, accounts).unwrap(), filters)
}

/// Gets every missing key, and returns the metadata pages that the gets asked for.
fn pages_of_missing(table: &Arc<Table>) -> u64 {
    let mut driver = Driver::new(table);
    for number in 0..KEYS {
        assert_eq!(driver.get(&key(2 * number + 1), put(9)).unwrap(), None);
    }
    driver.meta_spans
}

#[test]
fn a_filter_that_ruled_a_key_out_is_probed_without_its_page() {
    let (table, filters) = table(u64::MAX);
    // Keys that are found hold no filter.
    let mut driver = Driver::new(&table);
    (0..KEYS).for_each(|it| assert!(driver.get(&key(2 * it), put(9)).unwrap().is_some()));
    assert_eq!((filters.bytes(), driver.meta_spans), (0, KEYS));
    let partitions = table.top().unwrap().partitions() as u64;
    assert!(partitions > 5, "{partitions} partitions");
    // One page for each partition, and for each key that a filter does not rule out: one in 256.
    let first = pages_of_missing(&table);
    assert!((partitions..partitions + KEYS / 100).contains(&first), "{first} pages");
    assert!((KEYS..KEYS + KEYS / 8).contains(&filters.bytes()), "{} bytes", filters.bytes());
    assert_eq!(pages_of_missing(&table), first - partitions);
    // Every key is still found, and no probe says otherwise.
    for number in 0..KEYS {
        let probe = table.filter_probe(&key(2 * number), key_hash(&key(2 * number)), put(9));
        assert!(probe.unwrap().may_contain());
        assert!(driver.get(&key(2 * number), put(9)).unwrap().is_some());
    }
    // A reclaim gives everything back, and filters are held again.
    let held = filters.bytes();
    assert_eq!((filters.reclaim(1), filters.bytes()), (held, 0));
    assert_eq!(pages_of_missing(&table), first);
    assert_eq!(filters.bytes(), held);
    drop((table, driver));
    assert_eq!(filters.bytes(), 0);
}

#[test]
fn no_more_filters_are_held_than_their_account_has_room_for() {
    let (some, filters) = table(KEYS / 2);
    let first = pages_of_missing(&some);
    assert!((KEYS / 4..=KEYS / 2).contains(&filters.bytes()), "{} bytes", filters.bytes());
    let second = pages_of_missing(&some);
    assert!(second < first && second > KEYS / 3, "{first}, then {second} pages");
    let (none, filters) = table(100);
    // The last missing key lies behind the table.
    assert_eq!(pages_of_missing(&none), KEYS - 1);
    assert_eq!(filters.bytes(), 0);
}
