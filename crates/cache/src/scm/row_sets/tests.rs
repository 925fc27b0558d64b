//! Pages of rows compared with a map; pages with arbitrary bytes; groups that grow and shrink.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use base::limits::PAGE_BYTES;
use base::{Account, Rng, Seqno, hash64, key_hash};
use media::scm::{Region, SLOT_WORDS, Slots};

use super::*;
use crate::RowCache;
use crate::rows::{ROW_BYTES_MAX, Row, RowFrom};

struct Memory(Slots);

impl RowPages for Memory {
    fn words(&self, slot: usize) -> Option<SlotWords<'_>> {
        self.0.words(slot)
    }
}

fn memory(groups: usize) -> Memory {
    let region = Region::anonymous((groups * WAYS * PAGE_BYTES) as u64).unwrap();
    Memory(Slots::new(region, &Account::unlimited("test")).unwrap())
}

struct Owned {
    owner: RowOwner,
    number: u32,
}

fn owner() -> Owned {
    let cache = RowCache::new(&Account::unlimited("test"), 1 << 20).unwrap();
    Owned { owner: cache.owner(), number: 1 }
}

impl Owned {
    fn hash(&self, key: u64) -> u64 {
        self.owner.hash(key_hash(&key.to_be_bytes()))
    }

    fn words(&self, key: u64, value: &[u8], as_of: u64) -> Vec<AtomicU64> {
        let (key, from) = (key.to_be_bytes(), RowFrom::Device);
        let (seqno, as_of) = (Seqno::new(3), Seqno::new(as_of));
        let row = Row { key: &key, value, packed: false, seqno, as_of, expiry: 0, from };
        let words: Vec<_> = (0..row.words()).map(|_| AtomicU64::new(0)).collect();
        row.write(self.number, &words);
        words
    }

    fn find(&self, rows: &RowSets, memory: &Memory, key: u64) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        let row = (&key.to_be_bytes()[..], self.hash(key));
        rows.find(memory, &self.owner, row, Seqno::new(9), &mut value).map(|_| value)
    }
}

fn value(key: u64, len: usize) -> Vec<u8> {
    let mut value = vec![key as u8; len];
    value.iter_mut().zip(key.to_be_bytes()).for_each(|(to, byte)| *to = byte);
    value
}

/// Puts, finds and invalidates rows of various lengths in groups that grow and shrink. A row that is found is
/// the last one put, an invalidated row is not found, and evictions are reported.
#[test]
fn a_row_is_the_last_put_or_absent() {
    const KEYS: u64 = 600;
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (rows, memory, owned) = (RowSets::new(3), memory(3), owner());
    let mut scratch = Scratch::default();
    let mut model: HashMap<u64, (usize, u64)> = HashMap::new();
    let hashes: HashMap<u64, u64> = (0..KEYS).map(|key| (owned.hash(key), key)).collect();
    let (mut wrote, mut kept, mut found, mut narrowed) = (0, 0, 0, 0);
    for _ in 0..60_000 {
        let key = rng.below(KEYS);
        match rng.below(100) {
            0 => {
                let group = rng.below(3) as usize;
                let width = rows.width(group);
                if width < WIDTH_MAX && memory.0.lend(RowSets::slot(group, width)) {
                    rows.add_page(&memory, group, &mut scratch);
                }
            }
            1 if rng.one_in(3) => {
                let group = rng.below(3) as usize;
                let on_evicted = |hash| _ = model.remove(&hashes[&hash]);
                if let Some(slot) = rows.remove_page(&memory, group, &mut scratch, on_evicted) {
                    assert!(memory.0.take_back(slot), "seed {seed}");
                    memory.0.fill(slot).unwrap().fill(0xa7);
                    narrowed += 1;
                }
            }
            2..40 => {
                let (len, as_of) = (rng.below(500) as usize, 5 + rng.below(2));
                // Sometimes the same row again, and sometimes one of the greatest length.
                let (len, as_of) = match (rng.below(20), model.get(&key)) {
                    (0..10, Some(same)) => *same,
                    (10, _) => (ROW_BYTES_MAX - 40, as_of),
                    _ => (len, as_of),
                };
                let words = owned.words(key, &value(key, len), as_of);
                let new = NewRow { hash: owned.hash(key), words: &words, may_evict: true };
                let on_evicted = |hash| _ = model.remove(&hashes[&hash]);
                match rows.put(&memory, new, || true, &mut scratch, on_evicted) {
                    Outcome::Present => {
                        assert_eq!(model.get(&key), Some(&(len, as_of)), "seed {seed}");
                        kept += 1;
                    }
                    Outcome::Written(bytes) => {
                        assert!(bytes >= len && bytes <= PUT_BYTES_MAX, "{bytes}, seed {seed}");
                        model.insert(key, (len, as_of));
                        wrote += 1;
                    }
                    Outcome::NoRoom => assert_eq!(rows.width(rows.number(owned.hash(key))), 0),
                    Outcome::Stale | Outcome::Cold => panic!("it is current and may push"),
                }
            }
            40..50 => {
                rows.invalidate(&memory, owned.hash(key));
                model.remove(&key);
                assert_eq!(owned.find(&rows, &memory, key), None, "seed {seed}");
            }
            _ => {
                let it = owned.find(&rows, &memory, key);
                if let Some(it) = &it {
                    let len = model.get(&key).map(|(len, _)| *len);
                    assert_eq!(Some(it.len()), len, "{key}, seed {seed}");
                    assert_eq!(*it, value(key, it.len()), "seed {seed}");
                    found += 1;
                }
            }
        }
    }
    assert!(
        wrote > 5_000 && kept > 1_000 && found > 5_000 && narrowed > 20,
        "{wrote} {kept} {found}"
    );
    let counts = rows.counters.statistics();
    assert_eq!((counts.damaged, counts.refused_written), (0, 0), "seed {seed}");
    // A row is lost without a report only if a page overflows when rows move to an added page.
    let there = (0..KEYS).filter(|key| owned.find(&rows, &memory, *key).is_some()).count();
    assert!(there * 10 >= model.len() * 9, "{there} of {}, seed {seed}", model.len());
    assert_eq!(counts.rows, there as u64, "seed {seed}");
}

#[test]
fn used_entries_outlive_unused_ones() {
    let (rows, memory, owned) = (RowSets::new(1), memory(1), owner());
    let mut scratch = Scratch::default();
    for page in 0..4 {
        assert!(memory.0.lend(RowSets::slot(0, page)));
        rows.add_page(&memory, 0, &mut scratch);
    }
    let mut put = |key: u64| {
        let words = owned.words(key, &value(key, 200), 5);
        let new = NewRow { hash: owned.hash(key), words: &words, may_evict: true };
        rows.put(&memory, new, || true, &mut scratch, |_| {})
    };
    (0..40).for_each(|key| _ = put(key));
    for key in 40..4_000 {
        put(key);
        (0..20).for_each(|hot| _ = owned.find(&rows, &memory, hot));
    }
    let hot = (0..20).filter(|key| owned.find(&rows, &memory, *key).is_some()).count();
    let cold = (20..40).filter(|key| owned.find(&rows, &memory, *key).is_some()).count();
    assert!(hot >= 17 && cold == 0, "{hot} {cold}");
}

#[test]
fn a_row_used_once_evicts_no_other() {
    let (rows, memory, owned) = (RowSets::new(1), memory(1), owner());
    let mut scratch = Scratch::default();
    assert!(memory.0.lend(RowSets::slot(0, 0)));
    rows.add_page(&memory, 0, &mut scratch);
    let mut put = |key: u64, may_evict: bool| {
        let words = owned.words(key, &value(key, 200), 5);
        let new = NewRow { hash: owned.hash(key), words: &words, may_evict };
        rows.put(&memory, new, || true, &mut scratch, |_| {})
    };
    let fit = (0..).take_while(|key| put(*key, false) != Outcome::Cold).count() as u64;
    // Each row has 29 words and an entry.
    assert_eq!(fit, 17);
    assert!(rows.needs_page(&memory, owned.hash(fit), 28));
    // A row that is present is kept; a new one is refused unless it may evict others.
    assert_eq!((put(3, false), put(fit, false)), (Outcome::Present, Outcome::Cold));
    assert!((0..fit).all(|key| owned.find(&rows, &memory, key).is_some()));
    assert!(matches!(put(fit, true), Outcome::Written(_)));
    assert_eq!(rows.counters.statistics().rows, fit);
}

#[test]
fn a_refused_row_leaves_no_older_version_and_the_count_of_rows_is_right() {
    let (rows, memory, owned) = (RowSets::new(1), memory(1), owner());
    let mut scratch = Scratch::default();
    assert!(memory.0.lend(RowSets::slot(0, 0)));
    rows.add_page(&memory, 0, &mut scratch);
    let mut put = |key: u64, len: usize| {
        let words = owned.words(key, &value(key, len), 5);
        let new = NewRow { hash: owned.hash(key), words: &words, may_evict: false };
        rows.put(&memory, new, || true, &mut scratch, |_| {})
    };
    let fit = (0..).take_while(|key| put(*key, 200) != Outcome::Cold).count() as u64;
    // The same key with a value that does not fit: stored uncompressed now, for example.
    assert_eq!(put(3, 900), Outcome::Cold);
    assert_eq!(owned.find(&rows, &memory, 3), None);
    assert_eq!(rows.counters.statistics().rows, fit - 1);
}

#[test] // I6
fn a_damaged_row_is_not_returned_and_is_dropped() {
    let (rows, memory, owned) = (RowSets::new(1), memory(1), owner());
    let mut scratch = Scratch::default();
    assert!(memory.0.lend(RowSets::slot(0, 0)));
    rows.add_page(&memory, 0, &mut scratch);
    let words = owned.words(7, &value(7, 300), 5);
    let page = |at: usize, flip: u64| {
        let words = memory.words(RowSets::slot(0, 0)).unwrap();
        words[at].fetch_xor(flip, Relaxed);
    };
    let mut damaged = 0;
    for at in 0..SLOT_WORDS {
        for bit in [0, 17, 40, 63] {
            rows.invalidate(&memory, owned.hash(7));
            let new = NewRow { hash: owned.hash(7), words: &words, may_evict: true };
            rows.put(&memory, new, || true, &mut scratch, |_| {});
            assert!(owned.find(&rows, &memory, 7).is_some());
            page(at, 1 << bit);
            if let Some(found) = owned.find(&rows, &memory, 7) {
                assert_eq!(found, value(7, 300), "bit {bit} of word {at}");
            }
            let now = rows.counters.statistics().damaged;
            // A row that was found damaged is dropped.
            assert!(now == damaged || owned.find(&rows, &memory, 7).is_none());
            damaged = now;
            page(at, 1 << bit);
            rows.invalidate(&memory, owned.hash(7));
        }
    }
    assert!(damaged > 100, "{damaged}");
}

#[test] // I6
fn any_bytes_in_a_page_are_tolerated() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (rows, memory, owned) = (RowSets::new(1), memory(1), owner());
    let mut scratch = Scratch::default();
    for page in 0..2 {
        assert!(memory.0.lend(RowSets::slot(0, page)));
        rows.add_page(&memory, 0, &mut scratch);
    }
    for round in 0..4_000 {
        let words = memory.words(RowSets::slot(0, round % 2)).unwrap();
        for word in words.iter() {
            let noise = if rng.one_in(3) { rng.next_u64() } else { rng.below(600) };
            word.store(noise, Relaxed);
        }
        // Half of the time a plausible header.
        if rng.one_in(2) {
            let (start, count, unreferenced) = (rng.below(513), rng.below(70), rng.below(600));
            words[0].store(start | count << 16 | rng.below(80) << 32 | unreferenced << 48, Relaxed);
        }
        drop(words);
        for key in 0..20 {
            if let Some(found) = owned.find(&rows, &memory, key) {
                assert_eq!(found, value(key, found.len()), "of the other page, seed {seed}");
            }
            let row = owned.words(key, &value(key, rng.below(900) as usize), 5);
            let new = NewRow { hash: owned.hash(key), words: &row, may_evict: true };
            let put = rows.put(&memory, new, || true, &mut scratch, |_| {});
            if let (Outcome::Written(_), Some(found)) = (put, owned.find(&rows, &memory, key)) {
                assert_eq!(found, value(key, found.len()), "seed {seed}");
            }
        }
        rows.invalidate(&memory, hash64(seed, &[round as u8]));
    }
}
