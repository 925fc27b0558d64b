//! Decompressed blocks attached to cached pages.

use std::sync::Arc;

use base::{Budget, ReclaimOrder};

use super::tests::{content, key, read};
use super::*;

const MIB: u64 = 1 << 20;

/// The decompressed content of the page `key`.
fn block_of(key: PageKey) -> Bytes {
    Bytes::from(content(key).repeat(2))
}

/// Reads as the engine does, and attaches a block if the page wants one. Returns whether a block was attached
/// before.
fn read_block(cache: &PageCache, key: PageKey, kind: PageKind) -> bool {
    match cache.read(key, kind) {
        None => {
            drop(cache.insert(key, kind, &content(key)));
            false
        }
        Some(Cached::Block(block)) => {
            assert_eq!(*block, *block_of(key));
            true
        }
        Some(Cached::Page { frame, wants_block }) => {
            assert_eq!(frame[..64], content(key)[..64]);
            if wants_block {
                cache.attach(key, &block_of(key));
            }
            false
        }
    }
}

fn read_all(cache: &PageCache, pages: std::ops::Range<u64>) {
    for page in pages {
        read_block(cache, key(page), PageKind::Data);
    }
}

fn cache(budget: &Budget) -> Arc<PageCache> {
    let account = budget.spare_account("page cache");
    let cache = Arc::new(PageCache::new(&account, budget.limit()).unwrap());
    let weak = Arc::downgrade(&cache);
    budget.add_reclaimer(ReclaimOrder::Cache, weak);
    cache
}

#[test]
fn hot_pages_keep_their_decompressed_block() {
    let budget = Budget::new(64 * MIB);
    let cache = cache(&budget);
    for (turn, is_block) in [false, false, false, true, true].into_iter().enumerate() {
        for page in 0..200 {
            assert_eq!(read_block(&cache, key(page), PageKind::Data), is_block, "turn {turn}");
            assert!(!read_block(&cache, key(1 << 20 | page), PageKind::Meta), "turn {turn}");
        }
    }
    let held = cache.read(key(5), PageKind::Data);
    let full = cache.statistics();
    assert!(
        full.blocks == 200 && full.block_bytes > 200 * 8192 && budget.used() > full.block_bytes
    );
    // The pages are cached as stored, too.
    assert!((0..200).all(|page| read(&cache, key(page), PageKind::Data)));
    cache.remove_file(0, 1 << 16);
    assert_eq!(cache.statistics().blocks, 0);
    assert!(matches!(held, Some(Cached::Block(block)) if *block == *block_of(key(5))));
    drop(cache);
    assert_eq!(budget.used(), 0);
}

#[test]
fn memory_pressure_frees_blocks_before_pages() {
    let budget = Budget::new(64 * MIB);
    let (cache, writes) = (cache(&budget), budget.account("writes"));
    for _ in 0..4 {
        read_all(&cache, 0..500);
    }
    let full = cache.statistics();
    assert_eq!(full.blocks, 500);
    // More than is free now, and less than is free without the blocks.
    let charge = writes.charge(budget.limit() - budget.used() + MIB).unwrap();
    let after = cache.statistics();
    assert!(after.blocks < 500 && after.data.resident == full.data.resident, "{after:?}");
    assert!(budget.used() <= budget.limit());
    // While memory is short no block is attached.
    for _ in 0..4 {
        read_all(&cache, 0..500);
    }
    assert_eq!(cache.statistics().blocks, after.blocks);
    // Pages need all memory.
    read_all(&cache, 1000..40_000);
    let filled = cache.statistics();
    assert!(filled.blocks == 0 && filled.data.resident >= after.data.resident, "{filled:?}");
    drop((charge, cache, writes));
    assert_eq!(budget.used(), 0);
}

/// However much memory is free, blocks use at most their part.
#[test]
fn blocks_use_at_most_their_part_of_the_capacity() {
    let budget = Budget::new(64 * MIB);
    let cache = cache(&budget);
    for _ in 0..4 {
        read_all(&cache, 0..4000);
    }
    let full = cache.statistics();
    assert!(full.block_bytes > 6 * MIB && full.block_bytes <= 9 * MIB, "{full:?}");
    cache.set_capacity(16 * MIB);
    assert_eq!(cache.statistics().blocks, full.blocks);
}

/// A frame that a reader holds keeps its block; it is detached later.
#[test]
fn a_block_in_use_is_not_detached() {
    let budget = Budget::new(64 * MIB);
    let cache = cache(&budget);
    (0..4).for_each(|_| read_all(&cache, 0..10));
    let held = cache.read(key(5), PageKind::Data);
    let Some(Cached::Block(block)) = held else { panic!("{held:?}") };
    cache.detach_blocks(u64::MAX);
    assert_eq!(cache.statistics().blocks, 1);
    assert_eq!(*block, *block_of(key(5)));
    let shared = block.shared();
    drop(block);
    cache.detach_blocks(u64::MAX);
    assert_eq!((cache.statistics().blocks, shared), (0, block_of(key(5))));
}

/// A prefetch counts nothing and holds nothing, whether the page is cached or not.
#[test]
fn prefetching_counts_and_holds_nothing() {
    let budget = Budget::new(64 * MIB);
    let cache = cache(&budget);
    (0..4).for_each(|_| read_all(&cache, 0..10));
    let before = format!("{:?}", cache.statistics());
    for page in 0..20 {
        for stage in [Stage::Index, Stage::Frame, Stage::Content] {
            cache.prefetch(key(page), stage);
        }
    }
    assert_eq!(format!("{:?}", cache.statistics()), before);
    cache.detach_blocks(u64::MAX);
    assert_eq!(cache.statistics().blocks, 0);
}
