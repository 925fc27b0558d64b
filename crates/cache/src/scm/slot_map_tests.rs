use base::Rng;

use super::*;

fn hash(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 7
}

/// An entry with a tag made of the hash.
fn entry(hash: u64) -> SlotEntry {
    SlotEntry { hash, tag: hash as u16 & 0x7ff }
}

fn put(map: &SlotMap, number: u64) -> usize {
    let slot = map.choose_slot(hash(number)).unwrap();
    map.claim(slot);
    map.publish(slot, entry(hash(number)), PageKind::Data);
    slot
}

#[test]
fn a_published_page_is_found_until_it_is_cleared() {
    let map = SlotMap::new(8);
    let slot = put(&map, 1);
    assert_eq!(map.find(hash(1)), Some(slot));
    assert!(map.holds(slot, hash(1)) && !map.holds(slot, hash(2)));
    assert_eq!(map.find(hash(2)), None);
    assert!(!map.clear_if(slot, hash(2)));
    assert_eq!((map.claim(slot), map.claim(slot)), (Some(hash(1)), None));
    map.release(slot);
    assert_eq!(map.find(hash(1)), None);
    let slot = map.choose_slot(0).unwrap();
    map.publish(slot, entry(0), PageKind::Meta);
    assert_eq!(map.find(0), Some(slot), "a hash of zero is a page like any other");
}

#[test]
fn used_entries_outlive_unused_ones() {
    let map = SlotMap::new(64);
    let slots = map.slots() as u64;
    (0..slots).for_each(|number| {
        put(&map, number);
    });
    let kept = || (0..slots / 4).filter(|number| map.find(hash(*number)).is_some()).count();
    let before = kept();
    for round in 0..8 {
        for kept in 0..slots / 4 {
            if let Some(slot) = map.find(hash(kept)) {
                map.record_use(slot);
            }
        }
        let new = slots * (round + 1);
        (new..new + slots / 4).for_each(|number| {
            put(&map, number);
        });
    }
    assert!(kept() * 10 > before * 9, "{} of {before}", kept());
}

#[test]
fn heat_counts_to_three_beside_the_state_bits() {
    let map = SlotMap::new(1);
    let slot = put(&map, 5);
    let heats: Vec<_> = (0..5).map(|_| map.record_use(slot).heat).collect();
    assert_eq!(heats, [1, 2, 3, 3, 3]);
    assert!(map.set_promoting(slot) && !map.set_promoting(slot));
    map.set_verified(slot);
    assert_eq!(map.record_use(slot), SlotUse { heat: 3, is_verified: true, is_promoting: true });
    map.clear_promoting(slot);
    assert_eq!(map.record_use(slot), SlotUse { heat: 3, is_verified: true, is_promoting: false });
    map.ensure_heat(slot);
    assert_eq!(map.record_use(slot).heat, 3);
    map.set_promoted(slot);
    map.ensure_heat(slot);
    assert_eq!(map.record_use(slot), SlotUse { heat: 3, is_verified: true, is_promoting: false });
    map.claim(slot);
    map.publish(slot, entry(hash(6)), PageKind::Data);
    assert_eq!(map.record_use(slot), SlotUse { heat: 1, is_verified: false, is_promoting: false });
}

#[test]
fn a_restored_map_ignores_hashes_of_other_sets() {
    let (map, mut rng) = (SlotMap::new(32), Rng::new(7));
    (0..400).for_each(|number| {
        put(&map, number);
    });
    let mut entries = vec![SlotEntry::default(); map.slots()];
    map.entries(0, &mut entries);
    let again = SlotMap::new(32);
    let placed = again.restore(0, &entries);
    assert_eq!(placed, entries.iter().filter(|entry| entry.hash != 0).count());
    // With 400 pages in 512 slots some sets are full.
    assert!((0..400).all(|n| again.has_room(hash(n)) == map.has_room(hash(n))));
    assert!(!(0..400).all(|n| map.has_room(hash(n))) && SlotMap::new(1).has_room(1));
    assert!((0..400).all(|number| again.find(hash(number)) == map.find(hash(number))));
    let is_tagged = |number| {
        again.find(hash(number)).is_none_or(|slot| again.tag(slot) == entry(hash(number)).tag)
    };
    assert!((0..400).all(is_tagged));
    let noise: Vec<_> = (0..map.slots()).map(|_| entry(rng.next_u64())).collect();
    let placed = SlotMap::new(32).restore(0, &noise);
    assert!(placed < noise.len() / 8, "{placed} of {}", noise.len());
    assert_eq!(SlotMap::new(1).restore(12, &noise[..64]), 4, "no more than there are slots");
}

#[test]
fn a_used_page_outlives_pages_that_were_only_restored() {
    let map = SlotMap::new(1);
    (0..WAYS as u64).for_each(|number| {
        put(&map, number);
    });
    let mut entries = vec![SlotEntry::default(); map.slots()];
    map.entries(0, &mut entries);
    let again = SlotMap::new(1);
    assert_eq!(again.restore(0, &entries), WAYS);
    // A restored page is no hotter than the others, and is evicted as soon.
    let asked = again.find(hash(3)).unwrap();
    again.record_use(asked);
    for number in 100..100 + WAYS as u64 - 1 {
        assert_ne!(put(&again, number), asked);
    }
    assert_eq!(again.find(hash(3)), Some(asked));
}
