use super::*;
use crate::OrderedMap;
use base::{Budget, EntryKind, ReclaimOrder, Rng, Seqno, Trailer};
use std::collections::BTreeMap;

const CHUNK: u64 = CHUNK_BYTES as u64;

/// Makes a map that charges at least `bytes`, and drops it.
fn use_up(pool: &Arc<RegionPool>, account: &Account, bytes: u64) -> base::Result<()> {
    OrderedMap::pooled(pool, account, bytes)?.reserve(0, bytes as usize)
}

#[test] // I10
fn memory_moves_from_map_to_map_and_is_always_charged() {
    let budget = Budget::new(1 << 30);
    let (maps, pool) = (budget.account("maps"), RegionPool::new(budget.account("kept"), 32 << 20));
    use_up(&pool, &maps, 7 * CHUNK).unwrap();
    assert_eq!((maps.used(), pool.bytes()), (0, 8 * CHUNK));
    let map = OrderedMap::pooled(&pool, &maps, 8 * CHUNK).unwrap();
    assert_eq!(map.bytes() + pool.bytes(), 8 * CHUNK, "no new memory was allocated");
    map.reserve(0, 3 * CHUNK as usize).unwrap();
    assert_eq!(budget.used(), 8 * CHUNK);
    drop(map);
    let small = OrderedMap::pooled(&pool, &maps, 100).unwrap();
    assert_eq!(pool.bytes(), 8 * CHUNK, "a small map takes no spare region");
    let middle = OrderedMap::pooled(&pool, &maps, 2 * CHUNK).unwrap();
    assert_eq!(
        middle.bytes() + pool.bytes(),
        2 * CHUNK,
        "memory beyond the likely size is given back"
    );
    drop((small, middle));
}

#[test]
fn the_pool_keeps_at_most_bytes_max_and_releases_it_when_idle() {
    let budget = Budget::new(1 << 30);
    let (maps, pool) = (budget.account("maps"), RegionPool::new(budget.account("kept"), 6 * CHUNK));
    let two = [3 * CHUNK, 4 * CHUNK - 1000].map(|bytes| {
        let map = OrderedMap::pooled(&pool, &maps, bytes).unwrap();
        map.reserve(0, bytes as usize).unwrap();
        map
    });
    drop(two);
    assert!((1..=6 * CHUNK).contains(&pool.bytes()), "{pool:?}");
    use_up(&pool, &maps, 20 * CHUNK).unwrap();
    assert_eq!(pool.bytes(), 6 * CHUNK, "trimmed to bytes_max");
    for _ in 1..IDLE_CHECKS_MAX {
        assert!(!pool.release_when_idle());
    }
    drop(OrderedMap::pooled(&pool, &maps, 6 * CHUNK).unwrap());
    assert!(!pool.release_when_idle(), "a request restarts the idle checks");
    while !pool.release_when_idle() {}
    assert_eq!(budget.used(), 0);
    pool.set_bytes_max(0);
    use_up(&pool, &maps, 4 * CHUNK).unwrap();
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_pool_without_a_limit_keeps_all_memory() {
    let budget = Budget::new(1 << 30);
    let (maps, pool) = (budget.account("maps"), RegionPool::new(budget.account("kept"), u64::MAX));
    use_up(&pool, &maps, 3 * CHUNK).unwrap();
    assert_eq!((maps.used(), pool.bytes()), (0, 4 * CHUNK));
    // A request of any size gets the spare region.
    drop(OrderedMap::pooled(&pool, &maps, u64::MAX).unwrap());
    assert_eq!(pool.bytes(), 4 * CHUNK);
}

#[test]
fn prepare_prefaults_a_spare_region_after_a_request_that_found_none() {
    let budget = Budget::new(10 * CHUNK);
    let (maps, pool) = (budget.account("maps"), RegionPool::new(budget.account("kept"), 4 * CHUNK));
    pool.prepare();
    assert_eq!(pool.bytes(), 0, "no region was requested");
    let first = OrderedMap::pooled(&pool, &maps, 8 * CHUNK).unwrap();
    pool.prepare();
    pool.prepare();
    assert_eq!(pool.bytes(), CHUNK);
    let second = OrderedMap::pooled(&pool, &maps, 8 * CHUNK).unwrap();
    second.reserve(0, 8).unwrap();
    assert_eq!(second.bytes() + pool.bytes(), CHUNK, "the prepared region was used");
    // Not if the budget has no room, or the pool may not keep a chunk.
    let other = budget.account("other").charge(9 * CHUNK - first.bytes()).unwrap();
    pool.prepare();
    assert_eq!(second.bytes() + pool.bytes(), CHUNK);
    drop(other);
    pool.set_bytes_max(CHUNK - 1);
    drop(OrderedMap::pooled(&pool, &maps, 8 * CHUNK).unwrap());
    pool.prepare();
    assert!(pool.bytes() < CHUNK);
    drop((first, second));
}

#[test]
fn kept_memory_is_reclaimed_for_another_account() {
    let budget = Budget::new(10 * CHUNK);
    let (maps, pool) = (budget.account("maps"), RegionPool::new(budget.account("kept"), 32 << 20));
    budget.add_reclaimer(ReclaimOrder::Optional, Arc::downgrade(&pool) as _);
    use_up(&pool, &maps, 7 * CHUNK).unwrap();
    assert!(pool.bytes() > 6 * CHUNK);
    let other = budget.account("other").charge(9 * CHUNK).unwrap();
    assert_eq!((budget.used(), pool.bytes()), (other.bytes(), 0));
}

/// A map in memory that contains the bytes of earlier maps answers like one in new memory.
#[test]
fn a_map_reads_no_bytes_of_an_earlier_map() {
    let (mut rng, seed) = Rng::from_env();
    let account = Account::unlimited("maps");
    let pool = RegionPool::new(Account::unlimited("kept"), 64 << 20);
    let (entries, bytes) = if cfg!(miri) { (50, 1 << 20) } else { (20_000, 32 << 20) };
    for round in 0..if cfg!(miri) { 3 } else { 4u8 } {
        let map = OrderedMap::pooled(&pool, &account, bytes).unwrap();
        let mut model = BTreeMap::new();
        for number in 1..=entries {
            let key = rng.below(entries * 2).to_be_bytes();
            let value = vec![round; rng.below(if cfg!(miri) { 8 } else { 300 }) as usize];
            let trailer = Trailer::new(Seqno::new(number), EntryKind::Put);
            map.reserve(1, key.len() + value.len()).unwrap();
            map.insert(&key, trailer, &value);
            model.insert(key, value);
        }
        let latest = Trailer::seek(Seqno::MAX);
        for key in (0..entries * 2).map(u64::to_be_bytes) {
            let found = map.get(&key, latest).map(|(_, value)| value);
            let expected = model.get(&key).map(Vec::as_slice);
            assert_eq!(found, expected, "TERRACE_SEED={seed}, round {round}");
        }
        drop(map);
        assert!(cfg!(miri) || pool.bytes() > 0);
    }
}
