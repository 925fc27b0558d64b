use std::cmp::Reverse;
use std::collections::BTreeMap;

use base::{Budget, EntryKind, Rng, Seqno};

use super::*;

/// The model: a `BTreeMap` with the same order of entries.
type ModelKey = (Vec<u8>, Reverse<u64>);
type Model = BTreeMap<ModelKey, Vec<u8>>;

/// Key, trailer word and value of an entry.
type Found = Option<(Vec<u8>, u64, Vec<u8>)>;

fn trailer(seqno: u64) -> Trailer {
    Trailer::new(Seqno::new(seqno), EntryKind::Put)
}

fn map() -> Arc<OrderedMap> {
    OrderedMap::new(&Account::unlimited("map")).unwrap()
}

fn insert(map: &OrderedMap, key: &[u8], seqno: u64, value: &[u8]) {
    map.reserve(1, key.len() + value.len()).unwrap();
    map.insert(key, trailer(seqno), value);
}

/// Keys of several shapes: short and long, prefixes of one another, and with long common prefixes.
fn random_key(rng: &mut Rng) -> Vec<u8> {
    let mut key = match rng.below(4) {
        0 => Vec::new(),
        1 => b"user:profile:0000".to_vec(),
        2 => vec![0; rng.below(12) as usize],
        _ => vec![0xff; rng.below(12) as usize],
    };
    let alphabet = if rng.one_in(2) { 2 } else { 256 };
    for _ in 0..=rng.below(10) {
        key.push(rng.below(alphabet) as u8);
    }
    key
}

fn entry(cursor: &Cursor) -> Found {
    cursor
        .valid()
        .then(|| (cursor.key().to_vec(), cursor.trailer().word(), cursor.value().to_vec()))
}

fn of_model(entry: Option<(&ModelKey, &Vec<u8>)>) -> Found {
    entry.map(|((key, Reverse(word)), value)| (key.clone(), *word, value.clone()))
}

/// Every query gets the model's answer, at every size while the map grows.
#[test]
fn gets_and_seeks_agree_with_a_btree_map() {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..if cfg!(miri) { 2 } else { 20 } {
        let map = map();
        let mut model = Model::new();
        let inserts = if cfg!(miri) { 60 } else { 1 + rng.below(3000) };
        let keys: Vec<_> = (0..1 + rng.below(400)).map(|_| random_key(&mut rng)).collect();
        for seqno in 1..=inserts {
            // Existing keys get more versions, not always newer ones: seqnos are random.
            let key = if rng.one_in(2) {
                keys[rng.below(keys.len() as u64) as usize].clone()
            } else {
                random_key(&mut rng)
            };
            let seqno = seqno * 1024 + rng.below(1 << 20) * 4096 + round;
            let value = seqno.to_string().into_bytes();
            if model.insert((key.clone(), Reverse(trailer(seqno).word())), value.clone()).is_none()
            {
                insert(&map, &key, seqno, &value);
            }
            if rng.one_in(8) {
                check_one(&map, &model, &keys, &mut rng, seed);
            }
        }
        assert_eq!(map.len(), model.len() as u64, "seed {seed}");
        check_whole(&map, &model, seed);
    }
}

fn check_one(map: &Arc<OrderedMap>, model: &Model, keys: &[Vec<u8>], rng: &mut Rng, seed: u64) {
    let key = if rng.one_in(2) {
        keys[rng.below(keys.len() as u64) as usize].clone()
    } else {
        random_key(rng)
    };
    let at = match rng.below(3) {
        0 => Trailer::seek(Seqno::MAX),
        1 => Trailer::seek(Seqno::new(rng.below(1 << 33))),
        _ => Trailer::seek(Seqno::ZERO),
    };
    let position = (key.clone(), Reverse(at.word()));
    let expected = of_model(model.range(position.clone()..).next());

    let newest = expected.clone().filter(|(found, _, _)| *found == key);
    let got =
        map.get(&key, at).map(|(trailer, value)| (key.clone(), trailer.word(), value.to_vec()));
    assert_eq!(got, newest, "seed {seed}");
    let shared = map.get_shared(&key, at).map(|(trailer, value)| (trailer.word(), value));
    assert_eq!(
        shared.as_ref().map(|(word, value)| (*word, &**value)),
        newest.as_ref().map(|(_, word, value)| (*word, &**value)),
        "seed {seed}"
    );

    let mut cursor = map.cursor();
    cursor.seek(&key, at);
    assert_eq!(entry(&cursor), expected, "seed {seed}");
    cursor.next();
    assert_eq!(entry(&cursor), of_model(model.range(position.clone()..).nth(1)), "seed {seed}");

    cursor.seek_before(&key, at);
    let mut back = model.range(..position).rev();
    assert_eq!(entry(&cursor), of_model(back.next()), "seed {seed}");
    cursor.prev();
    assert_eq!(entry(&cursor), of_model(back.next()), "seed {seed}");
}

fn check_whole(map: &Arc<OrderedMap>, model: &Model, seed: u64) {
    let mut cursor = map.cursor();
    cursor.seek_first();
    for expected in model {
        assert_eq!(entry(&cursor), of_model(Some(expected)), "seed {seed}");
        cursor.next();
    }
    assert!(!cursor.valid(), "seed {seed}");
    cursor.seek_last();
    for expected in model.iter().rev() {
        assert_eq!(entry(&cursor), of_model(Some(expected)), "seed {seed}");
        cursor.prev();
    }
    assert!(!cursor.valid(), "seed {seed}");
    let bytes: usize = model.iter().map(|((key, _), value)| key.len() + value.len()).sum();
    assert_eq!(map.data_bytes(), bytes as u64, "seed {seed}");
}

#[test]
fn an_empty_map_has_nothing_before_or_after_anything() {
    let map = map();
    let mut cursor = map.cursor();
    assert!(map.is_empty() && !cursor.valid());
    cursor.next();
    cursor.prev();
    cursor.seek_first();
    assert!(!cursor.valid());
    cursor.seek_last();
    assert!(!cursor.valid());
    cursor.seek(b"k", Trailer::seek(Seqno::MAX));
    assert!(!cursor.valid());
    cursor.seek_before(b"k", Trailer::seek(Seqno::MAX));
    assert!(!cursor.valid() && cursor.key().is_empty() && cursor.value().is_empty());
    assert!(map.get(b"k", Trailer::seek(Seqno::MAX)).is_none());
}

/// Ascending and descending inserts split nodes at the ends of their levels.
#[test]
fn ascending_and_descending_inserts_agree_with_the_model() {
    let count = if cfg!(miri) { 40u64 } else { 5000 };
    for descending in [false, true] {
        let map = map();
        let mut model = Model::new();
        for step in 0..count {
            let number = if descending { count - step } else { step };
            let key = format!("key:{number:016}").into_bytes();
            insert(&map, &key, step + 1, &key);
            model.insert((key.clone(), Reverse(trailer(step + 1).word())), key);
        }
        check_whole(&map, &model, 0);
    }
}

/// I10: after `reserve` no insert charges more, in any order of keys.
#[test]
fn inserts_charge_no_more_than_reserve_did() {
    let (mut rng, seed) = Rng::from_env();
    let rounds = if cfg!(miri) { 1 } else { 8 };
    for shape in (0..3).cycle().take(rounds) {
        let budget = Budget::new(u64::MAX);
        let map = OrderedMap::new(&budget.account("map")).unwrap();
        assert!(budget.used() <= 64 << 10, "an empty map is small");
        let entries = if cfg!(miri) { 30 } else { 1 + rng.below(60_000) };
        let keys: Vec<u64> = (0..entries)
            .map(|number| match shape {
                0 => rng.next_u64(),
                1 => number,
                _ => u64::MAX - number,
            })
            .collect();
        map.reserve(keys.len(), keys.len() * 8).unwrap();
        let charged = budget.used();
        for (seqno, key) in (1..).zip(&keys) {
            map.insert(&key.to_be_bytes(), trailer(seqno), b"");
        }
        assert_eq!(budget.used(), charged, "seed {seed}, shape {shape}");
        assert_eq!(map.bytes(), charged);
        drop(map);
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn a_full_budget_refuses_a_reservation_but_not_an_unreserved_insert() {
    let budget = Budget::new(128 << 10);
    let map = OrderedMap::new(&budget.account("map")).unwrap();
    let used = budget.used();
    let refused = map.reserve(1, 1 << 20).unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    assert_eq!(budget.used(), used);
    map.reserve(1, 100).unwrap();
    let long = vec![7; if cfg!(miri) { 70 << 10 } else { 1 << 20 }];
    map.insert(b"long", trailer(1), &long);
    assert_eq!(map.get(b"long", Trailer::seek(Seqno::MAX)).unwrap().1, long);
}

#[test]
fn a_shared_value_outlives_all_other_handles_of_the_map() {
    let map = map();
    insert(&map, b"k", 1, b"value");
    let (_, value) = map.get_shared(b"k", Trailer::seek(Seqno::MAX)).unwrap();
    let clone = value.clone();
    drop((map, value));
    assert_eq!(&*clone, b"value");
}

/// Writers insert disjoint keys while readers get published keys, seek, and walk in both directions: entries
/// are in order, no published entry is missed, and every value belongs to its key.
#[test]
fn readers_see_all_published_entries_in_order_while_writers_insert() {
    let (mut rng, seed) = Rng::from_env();
    let (writers, each) = if cfg!(miri) { (2, 25u64) } else { (3, 15_000) };
    let map = map();
    let salt = rng.next_u64() | 1;
    // The key of a number: spread over the whole range, so that writers insert into the same leaves.
    let key_of = move |writer: u64, number: u64| (number * writers + writer).wrapping_mul(salt);
    let done: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (map, done) = (&map, &done[writer as usize]);
            scope.spawn(move || {
                for number in 0..each {
                    let key = key_of(writer, number).to_be_bytes();
                    insert(map, &key, number + 1, &key);
                    done.store(number + 1, Release);
                }
            });
        }
        for _ in 0..2 {
            let (map, done) = (&map, &done);
            let mut rng = Rng::new(rng.next_u64());
            scope.spawn(move || {
                let mut cursor = map.cursor();
                loop {
                    let before: Vec<u64> = done.iter().map(|done| done.load(Acquire)).collect();
                    for _ in 0..if cfg!(miri) { 2 } else { 50 } {
                        let writer = rng.below(writers);
                        let number = rng.below(each);
                        let key = key_of(writer, number).to_be_bytes();
                        let found = map.get(&key, Trailer::seek(Seqno::MAX));
                        if number < before[writer as usize] {
                            let (found, value) = found.unwrap();
                            assert_eq!((found, value), (trailer(number + 1), &key[..]));
                        }
                        walk(&mut cursor, &key, rng.one_in(2), seed);
                    }
                    if before.iter().all(|done| *done == each) {
                        break;
                    }
                    let published = before.iter().sum::<u64>();
                    cursor.seek_first();
                    let mut walked = 0;
                    let mut last = Vec::new();
                    while cursor.valid() {
                        assert!(walked == 0 || last.as_slice() < cursor.key(), "seed {seed}");
                        last = cursor.key().to_vec();
                        walked += 1;
                        cursor.next();
                    }
                    assert!(walked >= published, "seed {seed}: {walked} of {published}");
                }
            });
        }
    });
    assert_eq!(map.len(), writers * each);
}

/// Walks a few steps from `key`, forward or backward: strictly in order, and every value belongs to its key.
fn walk(cursor: &mut Cursor, key: &[u8], forward: bool, seed: u64) {
    let at = Trailer::seek(Seqno::MAX);
    if forward {
        cursor.seek(key, at)
    } else {
        cursor.seek_before(key, at)
    }
    let mut last = key.to_vec();
    for step in 0..if cfg!(miri) { 6 } else { 60 } {
        if !cursor.valid() {
            return;
        }
        assert_eq!(cursor.key(), cursor.value(), "seed {seed}");
        let inclusive = forward && step == 0;
        assert!(
            if forward { cursor.key() > last.as_slice() } else { cursor.key() < last.as_slice() }
                || (inclusive && cursor.key() == last),
            "seed {seed}"
        );
        last = cursor.key().to_vec();
        if forward { cursor.next() } else { cursor.prev() }
    }
}

/// Many threads insert versions of one key: they are sorted newest first, and `get` finds each of them.
#[test]
fn versions_of_one_key_inserted_by_many_threads_are_newest_first() {
    let (threads, each) = if cfg!(miri) { (2, 20) } else { (4, 2000) };
    let map = map();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let map = &map;
            scope.spawn(move || {
                for number in 0..each {
                    let seqno = 1 + number * threads + thread;
                    insert(map, b"hot", seqno, &seqno.to_le_bytes());
                }
            });
        }
    });
    let total = threads * each;
    for seqno in 1..=total {
        let (found, value) = map.get(b"hot", Trailer::seek(Seqno::new(seqno))).unwrap();
        assert_eq!((found.seqno().get(), value), (seqno, &seqno.to_le_bytes()[..]));
    }
    let mut cursor = map.cursor();
    cursor.seek_first();
    for seqno in (1..=total).rev() {
        assert_eq!(cursor.trailer(), trailer(seqno));
        cursor.next();
    }
    assert!(!cursor.valid());
}
