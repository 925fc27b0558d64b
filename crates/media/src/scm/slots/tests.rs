//! A slot has one writer or many readers, whatever the interleaving.

use std::sync::atomic::Ordering::Relaxed;

use base::limits::PAGE_BYTES;
use base::{Account, Budget};

use super::{PINS_MAX, SLOT_WORDS, Slots};
use crate::scm::Region;

fn account() -> Account {
    Budget::new(1 << 20).account("slots")
}

fn slots(count: usize) -> Slots {
    let region = Region::anonymous((count * PAGE_BYTES) as u64).unwrap();
    Slots::new(region, &account()).unwrap()
}

#[test]
fn a_slot_has_one_writer_or_many_readers() {
    let slots = slots(3);
    assert_eq!(slots.len(), 3);
    let mut filling = slots.fill(1).unwrap();
    assert!(slots.pin(1).is_none() && slots.fill(1).is_none());
    filling.fill(7);
    drop(filling);
    let one = slots.pin(1).unwrap();
    let other = slots.pin(1).unwrap();
    assert!(slots.fill(1).is_none());
    assert!(one.iter().all(|byte| *byte == 7));
    drop(one);
    assert!(slots.fill(1).is_none());
    assert_eq!(other.slot(), 1);
    drop(other);
    // The slot was not written: its content stays.
    drop(slots.fill(1).unwrap());
    assert_eq!(slots.pin(1).unwrap()[PAGE_BYTES - 1], 7);
    // Neighbours are not affected.
    assert_eq!((slots.pin(0).unwrap()[PAGE_BYTES - 1], slots.pin(2).unwrap()[0]), (0, 0));
    slots.persist(0..3).unwrap();
}

#[test]
fn a_slot_that_does_not_exist_is_none() {
    let slots = slots(2);
    for slot in [2, 3, usize::MAX] {
        assert!(slots.pin(slot).is_none() && slots.fill(slot).is_none());
    }
}

#[test]
fn pins_are_counted_and_one_above_the_limit_is_refused() {
    let slots = slots(1);
    let mut pins: Vec<_> = (0..PINS_MAX).map(|_| slots.pin(0).unwrap()).collect();
    assert!(slots.pin(0).is_none());
    pins.pop();
    assert!(slots.pin(0).is_some());
    drop(pins);
    assert!(slots.fill(0).is_some());
}

#[test]
fn a_shared_slot_is_words_for_many_users_and_cannot_be_pinned_or_written() {
    let slots = slots(2);
    assert!(slots.words(0).is_none() && !slots.take_back(0));
    let pin = slots.pin(0).unwrap();
    assert!(!slots.lend(0), "the slot is pinned");
    drop(pin);
    slots.fill(0).unwrap().fill(1);
    assert!(slots.lend(0) && !slots.lend(0) && !slots.lend(2));
    assert!(slots.pin(0).is_none() && slots.fill(0).is_none() && slots.pin(1).is_some());
    let (one, other) = (slots.words(0).unwrap(), slots.words(0).unwrap());
    assert_eq!(one[SLOT_WORDS - 1].load(Relaxed), u64::from_le_bytes([1; 8]));
    one[3].store(u64::from_le_bytes([9; 8]), Relaxed);
    assert_eq!(other[3].load(Relaxed), u64::from_le_bytes([9; 8]));
    drop(one);
    assert!(!slots.take_back(0), "the words are in use");
    let more: Vec<_> = std::iter::from_fn(|| slots.words(0)).collect();
    assert_eq!(more.len(), 125);
    drop((more, other));
    assert!(slots.take_back(0) && !slots.take_back(0));
    assert_eq!(slots.pin(0).unwrap()[20..36], [[1; 4], [9; 4], [9; 4], [1; 4]].concat()[..]);
}

#[test]
fn a_pin_outlives_its_slots_handle_and_its_thread() {
    let slots = slots(1);
    slots.fill(0).unwrap().fill(3);
    let pin = slots.pin(0).unwrap();
    drop(slots);
    let sum = std::thread::spawn(move || pin.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    assert_eq!(sum.join().unwrap(), 3 * PAGE_BYTES as u64);
}

#[test]
fn slot_states_are_charged_before_they_are_allocated() {
    let account = account();
    let region = Region::anonymous(64 * PAGE_BYTES as u64).unwrap();
    let slots = Slots::new(region, &account).unwrap();
    assert_eq!(account.used(), 64);
    drop(slots);
    assert_eq!(account.used(), 0);
    let none = self::account();
    none.set_cap(63);
    let region = Region::anonymous(64 * PAGE_BYTES as u64).unwrap();
    Slots::new(region, &none).unwrap_err();
}

/// Writers fill a page with equal bytes; readers see equal bytes.
#[test]
fn threads_never_see_a_half_written_page() {
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let slots = slots(2);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let slots = slots.clone();
            scope.spawn(move || {
                for round in 0..rounds {
                    let slot = round % 2;
                    if thread == 0 {
                        if let Some(mut page) = slots.fill(slot) {
                            page.fill(round as u8);
                        }
                    } else if let Some(page) = slots.pin(slot) {
                        let first = page[0];
                        assert!(page.iter().all(|byte| *byte == first));
                    }
                }
            });
        }
    });
}

#[cfg(feature = "shuttle")]
#[test]
fn shuttle_one_writer_or_many_readers() {
    use shuttle::thread;

    let test = || {
        let slots = slots(1);
        let threads: Vec<_> = (1..4_u8)
            .map(|number| {
                let slots = slots.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        if let Some(mut page) = slots.fill(0) {
                            page[0] = number;
                            thread::yield_now();
                            page[1] = number;
                        }
                        if let Some(page) = slots.pin(0) {
                            let seen = page[0];
                            thread::yield_now();
                            assert_eq!((page[0], page[1]), (seen, seen));
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(slots.fill(0).is_some(), "no pin is left");
    };
    shuttle::check_random(test, 2000);
    shuttle::check_pct(test, 2000, 3);
}
