use super::*;

fn pool_of(budget: &base::Budget, most: u64) -> (Account, Arc<RegionPool>) {
    (budget.account("maps"), RegionPool::new(budget.account("kept"), most))
}

const CHUNK: u64 = CHUNK_BYTES as u64;

#[test] // I10
fn prefaulted_memory_is_charged_once_and_moves_between_accounts() {
    let budget = base::Budget::new(64 << 20);
    let (maps, pool) = pool_of(&budget, 32 << 20);
    let region = Region::pooled(&pool, &maps, 0, 8).unwrap();
    region.prefault(4 * CHUNK, u64::MAX);
    assert_eq!(pool.bytes(), 0, "a small region is not prefaulted");
    region.commit(CHUNK).unwrap();
    region.prefault(2 * CHUNK, u64::MAX);
    assert_eq!((maps.used(), pool.bytes()), (2 * CHUNK, 2 * CHUNK));
    region.prefault(4 * CHUNK, 5 * CHUNK);
    assert_eq!(pool.bytes(), 3 * CHUNK, "no more than `most` in all");
    region.commit(CHUNK).unwrap();
    assert_eq!(
        (maps.used(), pool.bytes()),
        (3 * CHUNK, 2 * CHUNK),
        "the charge moved to the other account"
    );
    region.commit(4 * CHUNK).unwrap();
    assert_eq!((maps.used(), pool.bytes()), (7 * CHUNK, 0));
    region.prefault(CHUNK, u64::MAX);
    region.release_prefaulted();
    assert_eq!((region.charged(), pool.bytes(), budget.used()), (7 * CHUNK, 0, 7 * CHUNK));
}

#[test]
fn prefaulted_memory_stays_within_the_budget_and_is_released_if_a_charge_fails() {
    let budget = base::Budget::new(8 * CHUNK);
    let (maps, pool) = pool_of(&budget, 8 * CHUNK);
    let region = Region::pooled(&pool, &maps, 0, CHUNK).unwrap();
    assert_eq!(budget.used(), 0, "nothing is charged before the first commit");
    region.commit(8).unwrap();
    let other = budget.account("other").charge(4 * CHUNK).unwrap();
    region.prefault(100 * CHUNK, u64::MAX);
    assert_eq!(budget.used(), 8 * CHUNK);
    // The failed charge, of more than the budget has, gives up the prefaulted chunks.
    let error = region.commit(5 * CHUNK).unwrap_err();
    assert!(error.is_retryable());
    assert_eq!((maps.used(), pool.bytes()), (2 * CHUNK, 0));
    drop(other);
    region.commit(5 * CHUNK).unwrap();
}

/// Writers allocate while another thread prefaults and releases the memory ahead of them: no byte that they
/// wrote changes, and the budget counts exactly the charged bytes.
#[test]
fn allocations_are_safe_while_memory_ahead_is_prefaulted_and_released() {
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
                    // SAFETY: the allocation has `bytes` bytes and belongs to this thread alone.
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
            // The lock is not fair: give the writers a chance.
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    });
    assert_eq!(budget.used(), region.charged());
    drop(region);
    assert_eq!(budget.used(), pool.bytes(), "the pool keeps the memory");
}
