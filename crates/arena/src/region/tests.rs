use super::*;

fn pool_of(budget: &base::Budget, most: u64) -> (Account, Arc<RegionPool>) {
    (budget.account("maps"), RegionPool::new(budget.account("kept"), most))
}

const CHUNK: u64 = CHUNK_BYTES as u64;

#[test]
fn warm_memory_is_charged_once_and_only_ahead() {
    let budget = base::Budget::new(64 << 20);
    let (maps, pool) = pool_of(&budget, 32 << 20);
    let region = Region::pooled(&pool, &maps, 0, 8).unwrap();
    region.prefault(4 * CHUNK, u64::MAX);
    assert_eq!(pool.bytes(), 0, "what is small stays so");
    region.commit(CHUNK).unwrap();
    region.prefault(2 * CHUNK, u64::MAX);
    assert_eq!((maps.used(), pool.bytes()), (2 * CHUNK, 2 * CHUNK));
    region.prefault(4 * CHUNK, 5 * CHUNK);
    assert_eq!(pool.bytes(), 3 * CHUNK, "no more than in all");
    region.commit(CHUNK).unwrap();
    assert_eq!((maps.used(), pool.bytes()), (3 * CHUNK, 2 * CHUNK), "it changed accounts");
    region.commit(4 * CHUNK).unwrap();
    assert_eq!((maps.used(), pool.bytes()), (7 * CHUNK, 0));
    region.prefault(CHUNK, u64::MAX);
    region.release_prefaulted();
    assert_eq!((region.charged(), pool.bytes(), budget.used()), (7 * CHUNK, 0, 7 * CHUNK));
}

#[test]
fn warm_memory_stays_within_the_budget_and_goes_where_charging_fails() {
    let budget = base::Budget::new(8 * CHUNK);
    let (maps, pool) = pool_of(&budget, 8 * CHUNK);
    let region = Region::pooled(&pool, &maps, 0, CHUNK).unwrap();
    let other = budget.account("other").charge(4 * CHUNK).unwrap();
    region.prefault(100 * CHUNK, u64::MAX);
    assert_eq!(budget.used(), 8 * CHUNK);
    // The prefaulted chunks are given up for more than there is.
    let error = region.commit(5 * CHUNK).unwrap_err();
    assert!(error.is_retryable());
    assert_eq!((maps.used(), pool.bytes()), (2 * CHUNK, 0));
    drop(other);
    region.commit(5 * CHUNK).unwrap();
}

/// Writers allocate while another thread warms and cools what is ahead of them: nothing they wrote
/// changes, and what is charged is what is counted.
#[test]
fn allocations_bear_that_memory_ahead_of_them_comes_and_goes() {
    let budget = base::Budget::new(1 << 30);
    let (maps, pool) = pool_of(&budget, 64 << 20);
    let bytes = if cfg!(miri) { 1 << 10 } else { 64 << 10 };
    let rounds = if cfg!(miri) { 100 } else { 200 };
    let region = Region::pooled(&pool, &maps, 0, 8).unwrap();
    let done = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for writer in 0..2u8 {
            let (region, done) = (&region, &done);
            scope.spawn(move || {
                let mut places = Vec::new();
                for round in 0..rounds {
                    region.commit(bytes as u64).unwrap();
                    let place = region.alloc(bytes);
                    // SAFETY: the allocation is this long, and this thread's alone.
                    unsafe { region.address(place).write_bytes(writer + round as u8, bytes) };
                    places.push(place);
                }
                for (round, place) in places.into_iter().enumerate() {
                    for at in [0, bytes / 2, bytes - 1] {
                        // SAFETY: within the allocation.
                        let byte = unsafe { region.address(place).add(at) };
                        // SAFETY: written above.
                        let byte = unsafe { byte.read() };
                        assert_eq!(byte, writer + round as u8);
                    }
                }
                done.fetch_add(1, Relaxed);
            });
        }
        while done.load(Relaxed) < 2 {
            region.prefault(4 * CHUNK, u64::MAX);
            region.release_prefaulted();
            // The lock is not a fair one.
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    });
    assert_eq!(budget.used(), region.charged());
    drop(region);
    assert_eq!(budget.used(), pool.bytes(), "the pool has it");
}
