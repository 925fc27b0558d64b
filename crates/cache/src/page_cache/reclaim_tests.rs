//! The page cache beside other users of the memory limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use base::{Budget, Clock, ManualClock, Reclaim, ReclaimOrder, Rng};
use media::scm::{Region, Scm};

use super::tests::{content, key, read};
use super::*;
use crate::ScmOptions;

const MIB: u64 = 1 << 20;

/// A cache that may use the whole limit.
fn cache(budget: &Budget) -> Arc<PageCache> {
    let account = budget.spare_account("page cache");
    let cache = Arc::new(PageCache::new(&account, budget.limit()).unwrap());
    let weak = Arc::downgrade(&cache);
    budget.add_reclaimer(ReclaimOrder::Cache, weak);
    cache
}

fn fill(cache: &PageCache, pages: std::ops::Range<u64>) {
    for page in pages {
        read(cache, key(page), PageKind::Data);
    }
}

#[test]
fn the_cache_grows_into_free_memory_and_gives_it_back() {
    let budget = Budget::new(64 * MIB);
    let (cache, writes) = (cache(&budget), budget.account("writes"));
    fill(&cache, 0..20_000);
    // All memory but the rest that is smaller than a chunk.
    assert!(budget.used() > 61 * MIB, "{}", budget.used());
    let mut held = writes.charge(MIB).unwrap();
    for _ in 0..40 {
        held.grow(MIB).unwrap();
        assert!(budget.used() <= budget.limit());
    }
    let full = cache.statistics();
    assert!(full.memory_pages * 4096 <= 23 * MIB && full.memory_pages * 4096 > 18 * MIB);
    assert_eq!(full.data.resident, full.memory_pages);
    // The cache does not grow again at once, but only after enough misses.
    drop(held);
    fill(&cache, 20_000..24_000);
    assert_eq!(cache.statistics().memory_pages, full.memory_pages);
    fill(&cache, 24_000..60_000);
    let later = cache.statistics().memory_pages - full.memory_pages;
    assert!((512..=10 * 512).contains(&later), "{later} pages");
    // All but the last chunk can be reclaimed, and no more than the limit.
    assert!(writes.charge(60 * MIB).is_ok());
    assert!(writes.charge(65 * MIB).is_err());
    assert_eq!(cache.statistics().memory_pages, 512);
    fill(&cache, 0..100);
    drop(cache);
    assert_eq!(budget.used(), 0);
}

#[test]
fn reclaim_evicts_the_coldest_pages_of_any_chunk() {
    let budget = Budget::new(64 * MIB);
    let cache = cache(&budget);
    // One page in four is hot, spread over all chunks.
    let hot = |page: u64| page.is_multiple_of(4);
    fill(&cache, 0..16_000);
    for _ in 0..2 {
        (0..16_000).filter(|page| hot(*page)).for_each(|page| {
            read(&cache, key(page), PageKind::Data);
        });
    }
    let held = budget.account("writes").charge(30 * MIB).unwrap();
    let is_cached = |page: &u64| cache.get(key(*page), PageKind::Data).is_some();
    let kept = (0..16_000).filter(|page| hot(*page)).filter(is_cached).count();
    // If chunks were given back whatever their heat, 2100 hot pages would stay.
    assert!(kept > 3_800, "{kept} of 4000 hot pages");
    let statistics = cache.statistics();
    assert!(statistics.moved > 500 && statistics.given_back > 5_000, "{statistics:?}");
    for page in 0..16_000 {
        if let Some(frame) = cache.get(key(page), PageKind::Data) {
            assert_eq!(frame[..64], content(key(page))[..64]);
        }
    }
    drop(held);
}

#[test]
fn pinned_pages_stay_and_a_charge_without_room_is_refused() {
    let budget = Budget::new(16 * MIB);
    let (cache, writes) = (cache(&budget), budget.account("writes"));
    let pinned: Vec<_> = (0..)
        .map(|page| cache.insert(key(page), PageKind::Data, &content(key(page))))
        .take_while(|_| cache.statistics().refused == 0)
        .collect();
    assert!(writes.charge(8 * MIB).is_err());
    for (page, frame) in (0..).zip(&pinned) {
        assert_eq!(frame[..64], content(key(page))[..64]);
    }
    drop(pinned);
    assert!(writes.charge(8 * MIB).is_ok());
}

/// Threads read while one charges and frees memory. No thread ever sees the content of another page, and no
/// charge is lost or doubled.
#[test] // I6
fn reads_see_their_own_pages_while_chunks_are_reclaimed() {
    let budget = Budget::new(24 * MIB);
    let cache = cache(&budget);
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (cache, done) = (&cache, &done);
            let mut rng = Rng::new(rng.next_u64());
            scope.spawn(move || {
                // A busy machine may let who takes memory wait; only one that never gets any takes minutes.
                let began = Instant::now();
                let goes_on = |turn| {
                    let waits = || cache.statistics().given_back == 0;
                    turn < 40_000 || waits() && began.elapsed() < Duration::from_secs(300)
                };
                for _ in (0..).take_while(|turn| goes_on(*turn)) {
                    let page = rng.below(6000).min(rng.below(6000));
                    let kind = if page < 500 { PageKind::Meta } else { PageKind::Data };
                    read(cache, key(page), kind);
                }
                done.store(true, SeqCst);
            });
        }
        let writes = budget.account("writes");
        while !done.load(SeqCst) {
            let held = writes.charge((1 + rng.below(18)) * MIB);
            assert!(budget.used() <= budget.limit(), "seed {seed}");
            drop(held);
            std::thread::yield_now();
        }
    });
    let statistics = cache.statistics();
    assert!(statistics.given_back > 0, "{statistics:?}");
    let resident = statistics.data.resident + statistics.meta.resident;
    assert!(resident <= statistics.memory_pages, "{statistics:?}, seed {seed}");
    drop(cache);
    assert_eq!(budget.used(), 0, "seed {seed}");
}

#[test]
fn a_changed_capacity_bounds_the_next_insertions() {
    let budget = Budget::new(u64::MAX);
    let account = budget.account("page cache");
    let cache = PageCache::new(&account, 8 * MIB).unwrap();
    fill(&cache, 0..4000);
    assert!(account.used() <= 8 * MIB);
    cache.set_capacity(32 * MIB);
    fill(&cache, 0..16_000);
    assert!(account.used() > 28 * MIB && account.used() <= 32 * MIB, "{}", account.used());
    cache.set_capacity(8 * MIB);
    assert!(cache.reclaim(24 * MIB) >= 24 * MIB);
    fill(&cache, 0..16_000);
    assert!(cache.statistics().memory_pages * 4096 <= 8 * MIB);
}

/// Pages that are evicted to give memory back are not offered to the lower tier, which counts them.
#[test]
fn reclaimed_pages_are_counted_by_the_lower_tier_and_not_offered() {
    let budget = Budget::new(64 * MIB);
    let cache = cache(&budget);
    let scm = Scm::Mapped(Region::anonymous(8 * MIB).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let (options, account) = (ScmOptions::default(), Account::unlimited("map"));
    let tier = Arc::new(ScmTier::open(scm, options, &account, &clock).unwrap());
    cache.set_lower_tier(&tier);
    fill(&cache, 0..16_000);
    // Hot pages move to frames of colder pages, which are evicted as well.
    for page in (0..2).flat_map(|_| (0..16_000).step_by(4)) {
        read(&cache, key(page), PageKind::Data);
    }
    while tier.step(&cache) {}
    let (before, given) = (tier.statistics(), cache.statistics().given_back);
    let held = budget.account("writes").charge(30 * MIB).unwrap();
    let (after, given) = (tier.statistics(), cache.statistics().given_back - given);
    assert!(cache.statistics().moved > 500, "{:?}", cache.statistics());
    let (kept, reclaimed) = (after.kept - before.kept, after.reclaimed - before.reclaimed);
    assert!(given > 5_000 && kept + reclaimed == given, "{given}: {kept} {reclaimed}");
    assert_eq!(after.admitted, before.admitted);
    drop(held);
}

/// Without memory for a larger index the cache holds no more pages, and new pages evict others.
#[test]
fn capacity_beyond_the_index_is_not_used() {
    for is_short in [true, false] {
        let budget = Budget::new(24 * MIB);
        let cache = cache(&budget);
        fill(&cache, 0..8_000);
        let rest = budget.limit() - budget.used();
        let rest = is_short.then(|| budget.account("rest").charge(rest).unwrap());
        // Address space is reserved for eight times the first capacity.
        let raised = if is_short { 96 * MIB } else { 400 * MIB };
        if !is_short {
            budget.set_limit(raised);
        }
        cache.set_capacity(raised);
        budget.set_limit(raised);
        let pages = if is_short { 12_000 } else { 80_000 };
        fill(&cache, 0..pages);
        assert!(cache.get(key(pages - 1), PageKind::Data).is_some(), "{is_short}");
        let statistics = cache.statistics();
        assert_eq!(statistics.refused, 0, "{is_short}: {statistics:?}");
        assert!(is_short || statistics.memory_pages > 30_000, "{statistics:?}");
        drop(rest);
    }
}
