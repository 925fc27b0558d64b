//! Hot pages over a restart: which cached pages are worth reading ahead, and caching such pages.

use super::PageCache;
use crate::shard::{PageEntry, reserve};
use crate::{PageKey, PageKind};
use arena::Page;

impl PageCache {
    /// At most `most` cached pages for which `is_wanted`, the hot ones first; each shard has an equal part in
    /// them. Locks one shard at a time.
    #[must_use]
    pub fn hot_pages(&self, most: usize, is_wanted: impl Fn(&PageKey) -> bool) -> Vec<PageKey> {
        let most = most / self.shards.len().max(1);
        let mut found = Vec::new();
        for shard in &self.shards {
            shard.0.lock().hot_pages(most, &is_wanted, &mut found);
        }
        found
    }

    /// Caches a copy of `page`, which was hot in an earlier run and which the caller verified (I8), while the
    /// cache may still take more memory: nothing is evicted for it. Returns whether the page is cached.
    pub fn insert_read_ahead(&self, key: PageKey, kind: PageKind, page: &Page) -> bool {
        let hash = key.hash();
        let entry = PageEntry { key, hash, kind, is_warm: true };
        let reserve = reserve(&self.pool, self.lower_tier().is_some());
        let insert = || {
            let shard = self.shard(hash)?;
            Some(shard.lock().insert_if_free(entry, page, self.shared(), reserve))
        };
        self.grows() && insert().unwrap_or(false)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use base::Account;
    use base::limits::PAGE_BYTES;

    use super::*;

    #[test]
    fn hot_pages_come_first_and_pages_of_other_stores_not_at_all() {
        let cache = PageCache::new(&Account::unlimited("test"), 4 << 20).unwrap();
        let key = |file, page| PageKey { file, page };
        for page in 0..60 {
            drop(cache.insert(key(1, page), PageKind::Data, &[1; PAGE_BYTES]));
            drop(cache.insert(key(2, page), PageKind::Data, &[2; PAGE_BYTES]));
        }
        for page in (0..60).filter(|page| page % 3 == 0) {
            assert!(cache.get(key(1, page), PageKind::Data).is_some());
        }
        let of_one = |most| {
            let mut pages = cache.hot_pages(most, |page| page.file == 1);
            pages.sort_unstable_by_key(|page| (page.file, page.page));
            pages
        };
        let all: Vec<_> = (0..60).map(|page| key(1, page)).collect();
        assert_eq!(of_one(1000), all);
        let hot: Vec<_> = all.iter().copied().filter(|key| key.page % 3 == 0).collect();
        assert_eq!(of_one(20), hot);
    }

    #[test]
    fn pages_that_are_read_ahead_evict_nothing_and_stay_longer_than_new_ones() {
        let cache = PageCache::new(&Account::unlimited("test"), 4 << 20).unwrap();
        let key = |file, page| PageKey { file, page };
        let most = cache.statistics().capacity_pages as u32;
        let inserted = (0..2 * most)
            .take_while(|page| {
                cache.insert_read_ahead(key(1, *page), PageKind::Data, &[1; PAGE_BYTES])
            })
            .count() as u32;
        assert!(inserted > most / 2 && inserted <= most, "{inserted} of {most}");
        assert_eq!(cache.statistics().data.evicted, 0);
        assert_eq!(cache.statistics().written, 0);
        for page in 0..most / 2 {
            drop(cache.insert(key(2, page), PageKind::Data, &[2; PAGE_BYTES]));
        }
        let left = (0..inserted).filter(|page| cache.peek(key(1, *page)).is_some()).count() as u32;
        assert!(left > inserted / 2, "{left} of {inserted}");
    }
}
