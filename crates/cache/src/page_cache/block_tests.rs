//! Blocks that attach on pages.

use std::sync::Arc;

use base::{Budget, ReclaimOrder};

use super::tests::{content, key, read};
use super::*;

const MIB: u64 = 1 << 20;

/// What the page of `key` stands for, decompressed.
fn block_of(key: PageKey) -> Bytes {
    Bytes::from(content(key).repeat(2))
}

/// As the engine reads: a block that is worth it is hung. Whether one was there.
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
fn what_is_read_again_and_again_is_kept_decompressed() {
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
    // As stored they are there, too.
    assert!((0..200).all(|page| read(&cache, key(page), PageKind::Data)));
    cache.remove_file(0, 1 << 16);
    assert_eq!(cache.statistics().blocks, 0);
    assert!(matches!(held, Some(Cached::Block(block)) if *block == *block_of(key(5))));
    drop(cache);
    assert_eq!(budget.used(), 0);
}

#[test]
fn blocks_are_the_first_to_go() {
    let budget = Budget::new(64 * MIB);
    let (cache, writes) = (cache(&budget), budget.account("writes"));
    for _ in 0..4 {
        read_all(&cache, 0..500);
    }
    let full = cache.statistics();
    assert_eq!(full.blocks, 500);
    // More than is free, and less than is with what blocks take.
    let charge = writes.charge(budget.limit() - budget.used() + MIB).unwrap();
    let after = cache.statistics();
    assert!(after.blocks < 500 && after.data.resident == full.data.resident, "{after:?}");
    assert!(budget.used() <= budget.limit());
    // While memory is short none is kept.
    for _ in 0..4 {
        read_all(&cache, 0..500);
    }
    assert_eq!(cache.statistics().blocks, after.blocks);
    // Pages need what there is.
    read_all(&cache, 1000..40_000);
    let filled = cache.statistics();
    assert!(filled.blocks == 0 && filled.data.resident >= after.data.resident, "{filled:?}");
    drop((charge, cache, writes));
    assert_eq!(budget.used(), 0);
}

/// However much memory is free, blocks take a part of it.
#[test]
fn blocks_take_a_part_of_the_cache() {
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

/// Nobody but the frame's handle keeps it, so whoever takes blocks back leaves it to a later time.
#[test]
fn a_block_in_use_stays_where_it_is() {
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

/// Asking the processor for a page counts nothing and holds nothing, whether it is cached or not.
#[test]
fn asking_ahead_changes_nothing() {
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
