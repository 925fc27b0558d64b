//! Times lookups in the page cache and counts its hits: `cargo bench -p terrace-cache --bench page_cache`.
//!
//! Hits by one and by two threads, in processor time; then the hit ratio of zipfian reads, compared with an
//! LRU list of the same size. Figures: docs/ledger.md.

use std::collections::{BTreeMap, HashMap};

use base::{Account, Result, Rng};
use rustix::time::{ClockId, clock_gettime};
use terrace_cache::{PageCache, PageKey, PageKind};

const PAGE: [u8; 4096] = [7; 4096];

fn main() -> Result<()> {
    for capacity in [16 << 20, 512 << 20] {
        let cache = PageCache::new(&Account::unlimited("cache"), capacity)?;
        let pages = cache.statistics().capacity_pages;
        // Shards fill unevenly, but half of the capacity certainly fits.
        for page in 0..pages / 2 {
            drop(cache.insert(key(page), PageKind::Data, &PAGE));
        }
        for threads in [1, 2] {
            hits(&cache, pages / 2, threads);
        }
        inserts(&cache, pages);
    }
    for skew in [0.8, 0.99, 1.1] {
        zipfian(skew)?;
    }
    Ok(())
}

fn key(page: u64) -> PageKey {
    PageKey { file: page >> 14, page: page as u32 & 0x3fff }
}

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn hits(cache: &PageCache, pages: u64, threads: u64) {
    const GETS: u64 = 4_000_000;
    let (seconds, found) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let (mut rng, start) = (Rng::new(thread), processor_seconds());
                    let found = (0..GETS)
                        .filter(|_| cache.get(key(rng.below(pages)), PageKind::Data).is_some())
                        .count();
                    (processor_seconds() - start, found)
                })
            })
            .collect();
        let each = threads.into_iter().filter_map(|thread| thread.join().ok());
        each.fold((0.0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    });
    println!(
        "hit among {pages:6} pages, {threads} threads: {:5.0} ns; {found} of {} found",
        seconds * 1e9 / (GETS * threads) as f64,
        GETS * threads
    );
}

fn inserts(cache: &PageCache, pages: u64) {
    let insert = |page| drop(cache.insert(key((1 << 30) + page), PageKind::Data, &PAGE));
    // Fills until every frame has memory and every page that was hit has cooled down.
    (0..5 * pages).for_each(insert);
    let (start, count) = (processor_seconds(), 2 * pages);
    (5 * pages..7 * pages).for_each(insert);
    let seconds = processor_seconds() - start;
    println!("insert with eviction, {pages:6} pages: {:5.0} ns", seconds * 1e9 / count as f64);
}

/// 64 Ki pages, of which 1/16 fits.
fn zipfian(skew: f64) -> Result<()> {
    const PAGES: usize = 1 << 16;
    let cache = PageCache::new(&Account::unlimited("cache"), (PAGES as u64 / 16) * 4300)?;
    let capacity = cache.statistics().capacity_pages as usize;
    let mut sums = Vec::with_capacity(PAGES);
    let mut sum = 0.0;
    for rank in 1..=PAGES {
        sum += (rank as f64).powf(-skew);
        sums.push(sum);
    }
    let mut rng = Rng::new(1);
    let (mut lru, mut best, mut own, mut reads) = (Lru::new(capacity), 0u64, 0u64, 0u64);
    for turn in 0..2_000_000 {
        let point = rng.unit() * sum;
        let rank = sums.partition_point(|sum| *sum < point);
        // Popular pages are scattered, as hashed keys are.
        let page = (rank as u64).wrapping_mul(0x9e37_79b1) % (1 << 32);
        let hit = cache.get(key(page), PageKind::Data).is_some();
        if !hit {
            drop(cache.insert(key(page), PageKind::Data, &PAGE));
        }
        let lru_hit = lru.read(page);
        if turn >= 500_000 {
            reads += 1;
            own += u64::from(hit);
            lru.hits += u64::from(lru_hit);
            best += u64::from(rank < capacity);
        }
    }
    let ratio = |hits: u64| hits as f64 / reads as f64;
    println!(
        "zipfian {skew}: hit ratio {:.3}, LRU {:.3}, the most popular pinned {:.3}",
        ratio(own),
        ratio(lru.hits),
        ratio(best)
    );
    Ok(())
}

/// The baseline: an LRU list of pages.
struct Lru {
    capacity: usize,
    clock: u64,
    last_use: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    hits: u64,
}

impl Lru {
    fn new(capacity: usize) -> Self {
        Self { capacity, clock: 0, last_use: HashMap::new(), by_use: BTreeMap::new(), hits: 0 }
    }

    fn read(&mut self, page: u64) -> bool {
        self.clock += 1;
        let before = self.last_use.insert(page, self.clock);
        if let Some(before) = before {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.clock, page);
        if self.by_use.len() > self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.last_use.remove(&oldest);
        }
        before.is_some()
    }
}
