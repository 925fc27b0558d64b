use std::collections::VecDeque;

use base::{Budget, Rng};

use super::*;

const MIB: u64 = 1 << 20;

fn cache(capacity: u64) -> PageCache {
    PageCache::new(&Account::unlimited("test"), capacity).unwrap()
}

pub(super) fn key(page: u64) -> PageKey {
    PageKey { file: page >> 16, page: page as u32 & 0xffff }
}

pub(super) fn content(key: PageKey) -> Page {
    let mut rng = Rng::new(key.file << 32 | u64::from(key.page));
    let mut page = [0; PAGE_BYTES];
    rng.fill(&mut page[..64]);
    page
}

/// Reads as the engine does: fills after a miss.
pub(super) fn read(cache: &PageCache, key: PageKey, kind: PageKind) -> bool {
    if let Some(frame) = cache.get(key, kind) {
        assert_eq!(frame[..64], content(key)[..64]);
        return true;
    }
    let frame = cache.insert(key, kind, &content(key));
    assert_eq!(frame[..64], content(key)[..64]);
    false
}

#[test]
fn pages_are_found_until_they_are_removed() {
    // Removal looks up each page of a small file, and walks the cache for a large one.
    for pages in [100, 1 << 16] {
        come_back_until_removed(pages);
    }
}

fn come_back_until_removed(pages: u32) {
    let cache = cache(8 * MIB);
    for page in 0..100 {
        assert!(!read(&cache, key(page), PageKind::Data));
        assert!(read(&cache, key(page), PageKind::Data));
    }
    let other = PageKey { file: 1, ..key(5) };
    assert!(cache.get(other, PageKind::Data).is_none());
    let _ = cache.insert(other, PageKind::Data, &content(other));
    let held = cache.get(key(5), PageKind::Data).unwrap();
    cache.remove_file(0, pages);
    assert!((0..100).all(|page| cache.peek(key(page)).is_none()));
    assert!(cache.peek(other).is_some(), "another file's");
    assert!(cache.get(key(5), PageKind::Data).is_none());
    assert_eq!(held[..64], content(key(5))[..64]);
    let data = cache.statistics().data;
    assert_eq!((data.hits, data.inserted, data.evicted, data.resident), (101, 101, 0, 1));
    assert!(!read(&cache, key(5), PageKind::Data));
}

#[test]
fn capacity_bounds_all_memory_of_the_cache() {
    let budget = Budget::new(u64::MAX);
    for capacity in [4 * MIB, 64 * MIB] {
        let account = budget.account("cache");
        let cache = PageCache::new(&account, capacity).unwrap();
        for page in 0..2 * capacity / 4096 {
            read(&cache, key(page), PageKind::Data);
        }
        let statistics = cache.statistics();
        assert!(account.used() <= capacity, "{} of {capacity}", account.used());
        assert!(statistics.capacity_pages * 4096 > capacity / 100 * 95);
        // Shards fill unevenly, but all are full in the end.
        assert_eq!(statistics.data.resident, statistics.capacity_pages);
        drop(cache);
        assert_eq!(account.used(), 0);
    }
}

#[test] // I6
fn a_pinned_page_keeps_its_content_when_all_frames_are_pinned() {
    let cache = cache(4 * MIB);
    let pages = cache.statistics().capacity_pages;
    let pinned: Vec<_> = (0..pages)
        .map(|page| cache.insert(key(page), PageKind::Data, &content(key(page))))
        .collect();
    let extra = cache.insert(key(1 << 20), PageKind::Data, &content(key(1 << 20)));
    assert_eq!(extra[..64], content(key(1 << 20))[..64]);
    assert_eq!(cache.statistics().refused, 1);
    assert!(cache.get(key(1 << 20), PageKind::Data).is_none());
    for (page, frame) in (0..).zip(&pinned) {
        assert_eq!(frame[..64], content(key(page))[..64]);
    }
    drop(pinned);
    assert!(!read(&cache, key(1 << 20), PageKind::Data));
    assert!(read(&cache, key(1 << 20), PageKind::Data));
}

/// Scenario: reads spread evenly over far more data than fits. Each read first uses a metadata page.
#[test]
fn metadata_stays_cached_under_uniform_reads() {
    let cache = cache(16 * MIB);
    let (mut rng, data_pages) = (Rng::new(1), 100_000);
    let meta = |page: u64| PageKey { file: 1 << 40, page: (page / 115) as u32 };
    let mut misses = 0;
    for turn in 0..60_000 {
        let page = rng.below(data_pages);
        let hit = read(&cache, meta(page), PageKind::Meta);
        misses += u64::from(!hit && turn >= 30_000);
        read(&cache, key(page), PageKind::Data);
    }
    // 870 metadata pages compete with 25 times as much data as the cache holds.
    assert!(misses < 150, "{misses} of 30000 metadata reads missed");
}

/// A page of a scan is cached when it is read the second time; pages read once evict nothing.
#[test]
fn a_page_of_a_scan_is_cached_at_its_second_read() {
    let cache = cache(8 * MIB);
    for page in 0..1000 {
        read(&cache, key(page), PageKind::Data);
    }
    let resident = cache.statistics().data.resident;
    let pass = |pages: std::ops::Range<u64>| {
        for page in pages {
            let frame = cache.insert_if_seen_before(key(page), PageKind::Data, &content(key(page)));
            assert_eq!(frame[..64], content(key(page))[..64]);
        }
    };
    pass(1 << 20..(1 << 20) + 10_000);
    assert_eq!(cache.statistics().data.resident, resident);
    assert!((0..1000).all(|page| cache.peek(key(page)).is_some()));
    pass(5000..5100);
    assert!((5000..5100).all(|page| cache.peek(key(page)).is_none()));
    pass(5000..5100);
    let kept = (5000..5100).filter(|page| cache.peek(key(*page)).is_some()).count();
    assert!(kept > 90, "{kept} of 100");
}

/// Scenario: reads of a hot set while a scan passes, two pages for each read. Compared with an LRU list of
/// the same size.
#[test]
fn a_scan_does_not_evict_hot_pages() {
    let cache = cache(8 * MIB);
    let capacity = cache.statistics().capacity_pages as usize;
    let (mut rng, mut lru) = (Rng::new(2), VecDeque::new());
    let (mut hits, mut lru_hits, mut reads) = (0u32, 0u32, 0u32);
    let mut scanned = 1u64 << 24;
    for turn in 0..60_000u32 {
        // 90 % of the reads go to a hot set of a third of the capacity.
        let hot = rng.below(10) < 9;
        let page =
            if hot { rng.below(capacity as u64 / 3) } else { rng.below(capacity as u64 * 10) };
        let hit = read(&cache, key(page), PageKind::Data);
        let position = lru.iter().position(|other| *other == page);
        let lru_hit = position.map(|at| lru.remove(at)).is_some();
        lru.push_front(page);
        for _ in 0..2 {
            scanned += 1;
            read(&cache, key(scanned), PageKind::Data);
            lru.push_front(scanned);
        }
        lru.truncate(capacity);
        if turn > 20_000 {
            reads += 1;
            hits += u32::from(hit);
            lru_hits += u32::from(lru_hit);
        }
    }
    println!(
        "hit ratio {:.3}, LRU {:.3}",
        hits as f64 / reads as f64,
        lru_hits as f64 / reads as f64
    );
    assert!(hits * 100 > reads * 70, "{hits} of {reads}");
    assert!(hits * 5 > lru_hits * 6, "{hits}, LRU {lru_hits}");
}

/// Scenario: zipfian reads (exponent 0.99) of 16 times as many pages as fit. Compared with an LRU list of the
/// same size.
#[test]
fn zipfian_reads_hit_more_often_than_with_lru() {
    let cache = cache(4 * MIB);
    let capacity = cache.statistics().capacity_pages as usize;
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=capacity * 16)
        .map(|rank| {
            sum += (rank as f64).powf(-0.99);
            sum
        })
        .collect();
    let (mut rng, seed) = Rng::from_env();
    let mut lru = VecDeque::new();
    let (mut hits, mut lru_hits) = (0u32, 0u32);
    for turn in 0..100_000 {
        let point = rng.unit() * sum;
        let page = sums.partition_point(|sum| *sum < point) as u64;
        let hit = read(&cache, key(page), PageKind::Data);
        let position = lru.iter().position(|other| *other == page);
        let lru_hit = position.map(|at| lru.remove(at)).is_some();
        lru.push_front(page);
        lru.truncate(capacity);
        if turn >= 20_000 {
            hits += u32::from(hit);
            lru_hits += u32::from(lru_hit);
        }
    }
    println!("hit ratio {:.3}, LRU {:.3}", hits as f64 / 8e4, lru_hits as f64 / 8e4);
    assert!(hits > lru_hits, "{hits}, LRU {lru_hits}, seed {seed}");
}

/// Scenario: threads get, insert and remove the same pages. No thread ever sees the content of another page.
#[test] // I6
fn threads_never_see_another_pages_content() {
    let cache = cache(4 * MIB);
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let cache = &cache;
            let mut rng = Rng::new(rng.next_u64());
            scope.spawn(move || {
                for _ in 0..20_000 {
                    let page = rng.below(3000) << 4;
                    let kind = if page < 500 { PageKind::Meta } else { PageKind::Data };
                    read(cache, key(page), kind);
                    if rng.one_in(2000) {
                        let pages = if rng.one_in(2) { 100 } else { 1 << 16 };
                        cache.remove_file(key(page).file, pages);
                    }
                }
            });
        }
    });
    let statistics = cache.statistics();
    assert!(statistics.data.resident + statistics.meta.resident <= statistics.capacity_pages);
}

#[test]
fn written_pages_fill_a_cache_that_may_grow_and_evict_nothing() {
    let cache = cache(8 * MIB);
    let most = cache.statistics().capacity_pages;
    for page in 0..most / 4 {
        read(&cache, key(page), PageKind::Data);
    }
    let written = |page: u64| PageKey { file: 9, page: page as u32 };
    let insert =
        |page: u64| cache.insert_written(written(page), PageKind::Data, &content(written(page)));
    let cached = (0..2 * most).filter(|page| insert(*page)).count() as u64;
    let statistics = cache.statistics();
    assert!(cached >= most / 4 && cached <= most - most / 4, "{cached} of {most}");
    assert_eq!((statistics.written, statistics.data.evicted), (cached, 0));
    assert!((0..most / 4).all(|page| cache.peek(key(page)).is_some()));
    // A frame that became free in a full cache is left to a page that is read.
    assert!(cache.remove_page(key(0)) && !cache.remove_page(key(0)));
    assert!(!insert(2 * most));
    let is_in = cache.insert_free(written(2 * most), PageKind::Data, &content(written(2 * most)));
    assert!(is_in || cache.statistics().data.evicted == 0);
}

#[test]
fn pages_of_a_file_take_its_name_when_it_has_its_digest() {
    let account = Account::unlimited("test");
    let cache = Arc::new(PageCache::new(&account, 8 * MIB).unwrap());
    let is_even = |page: u32| content(PageKey { file: 5, page })[0].is_multiple_of(2);
    let kind = |page: &[u8]| page[0].is_multiple_of(2).then_some(PageKind::Data);
    let file = |pages: u32| {
        let mut written = crate::WrittenPages::new(Arc::clone(&cache));
        for page in 0..pages {
            written.add(page, &content(PageKey { file: 5, page }), kind);
        }
        written
    };
    let even = (0..64).filter(|page| is_even(*page)).count() as u32;
    let unfinished = file(64);
    assert_eq!(cache.statistics().data.resident, u64::from(even));
    assert!((0..64).all(|page| cache.peek(PageKey { file: 5, page }).is_none()));
    drop(unfinished);
    assert_eq!(cache.statistics().data.resident, 0, "pages of a file that was given up leave");
    let (one, other) = (file(64), file(64));
    let used = account.used();
    assert_eq!((one.cache(5), other.cache(6)), (even, even), "two files are written at once");
    assert_eq!(account.used(), used, "a page takes its name in its frame");
    for page in 0..64 {
        let key = PageKey { file: 5, page };
        assert_eq!(cache.peek(key).is_some(), is_even(page), "{page}");
        assert!(cache.get(key, PageKind::Data).is_none_or(|frame| *frame == content(key)));
    }
    let data = cache.statistics().data;
    assert_eq!((data.resident, data.inserted), (2 * u64::from(even), 3 * u64::from(even)));
    // More than fits: the rest is left out, and nothing is evicted.
    file(4096).cache(7);
    assert_eq!(cache.statistics().data.evicted, 0);
}

#[test]
fn pages_of_an_unfinished_file_make_room_for_whoever_needs_memory() {
    let budget = Budget::new(16 * MIB);
    let cache = Arc::new(PageCache::new(&budget.spare_account("cache"), 16 * MIB).unwrap());
    let reclaimer: std::sync::Weak<PageCache> = Arc::downgrade(&cache);
    budget.add_reclaimer(base::ReclaimOrder::Cache, reclaimer);
    let mut written = crate::WrittenPages::new(Arc::clone(&cache));
    for page in 0..4096 {
        written.add(page, &content(PageKey { file: 5, page }), |_| Some(PageKind::Data));
    }
    assert!(budget.usage().spare > 12 * MIB, "{}", budget.usage().spare);
    let needed = budget.account("needed").charge(10 * MIB).unwrap();
    assert!(budget.used() <= 16 * MIB);
    let cached = written.cache(5);
    assert!(cached > 0 && u64::from(cached) * 4096 < 6 * MIB, "{cached}");
    let resident = (0..4096).filter(|page| cache.peek(PageKey { file: 5, page: *page }).is_some());
    assert_eq!(resident.count() as u32, cached);
    drop(needed);
}
