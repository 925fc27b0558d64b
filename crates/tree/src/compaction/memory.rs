//! The memory that compaction jobs of all stores of a process share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Account;

/// The memory that all compaction jobs may charge, and the part of it that running jobs were granted.
#[derive(Debug)]
pub struct CompactionPool {
    account: Account,
    /// The most that all jobs may charge, bytes. Only a number: `Relaxed`.
    limit: AtomicU64,
    /// The bytes granted to jobs. Only a number: `Relaxed`.
    granted: AtomicU64,
}

impl CompactionPool {
    /// A pool of `limit` bytes, charged to `account`.
    #[must_use]
    pub fn new(account: Account, limit: u64) -> Arc<Self> {
        Arc::new(Self { account, limit: AtomicU64::new(limit), granted: AtomicU64::new(0) })
    }

    /// The account that jobs charge. Its cap is reserved for them: a merge of twelve runs fits the smallest
    /// memory limit.
    #[must_use]
    pub fn account(&self) -> Account {
        self.account.clone()
    }

    /// The most that all jobs may charge, bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Jobs that run keep what they were granted.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Whether a job of `bytes` would be granted them now.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        let others = self.granted.load(Ordering::Relaxed);
        others == 0 || others.saturating_add(bytes) <= self.limit()
    }

    /// Grants a job `bytes`, if the other jobs leave as much. The only job is never refused: it fails later
    /// if memory is short.
    #[must_use]
    pub fn grant(self: &Arc<Self>, bytes: u64) -> Option<CompactionMemory> {
        let limit = self.limit();
        let add = |others: u64| {
            let all = others.saturating_add(bytes);
            (others == 0 || all <= limit).then_some(all)
        };
        self.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(CompactionMemory { pool: Arc::clone(self), bytes, limit })
    }
}

/// Memory that one compaction job may charge; returned to the pool when dropped.
#[derive(Debug)]
pub struct CompactionMemory {
    pool: Arc<CompactionPool>,
    bytes: u64,
    /// The pool's limit when this was granted, bytes.
    limit: u64,
}

impl CompactionMemory {
    /// Whether the pool has shrunk since: a job that keeps within its grant may find no room.
    #[must_use]
    pub fn is_curtailed(&self) -> bool {
        self.pool.limit() < self.limit
    }

    /// Grants the job `bytes` in place of what it has, by the rules of [`CompactionPool::grant`]. Returns
    /// whether it did: otherwise the job keeps what it has.
    #[must_use]
    pub fn change_to(&mut self, bytes: u64) -> bool {
        let limit = self.pool.limit();
        let change = |granted: u64| {
            let others = granted.saturating_sub(self.bytes);
            let all = others.saturating_add(bytes);
            (others == 0 || all <= limit).then_some(all)
        };
        let is_granted =
            self.pool.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok();
        if is_granted {
            (self.bytes, self.limit) = (bytes, limit);
        }
        is_granted
    }
}

impl Drop for CompactionMemory {
    fn drop(&mut self) {
        let before = self.pool.granted.fetch_sub(self.bytes, Ordering::Relaxed);
        base::invariant!(
            before >= self.bytes,
            "a compaction job returns no more memory than was granted"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_changes_within_the_room_that_others_leave() {
        let pool = CompactionPool::new(Account::unlimited("test"), 100);
        let mut one = pool.grant(10).unwrap();
        let other = pool.grant(50).unwrap();
        assert!(!one.change_to(51));
        assert!(one.change_to(50));
        assert!(!pool.has_room(1));
        assert!(one.change_to(10));
        assert!(pool.has_room(40) && !pool.has_room(41));
        drop(other);
        // The only job is never refused.
        assert!(one.change_to(1000));
        drop(one);
        assert!(pool.grant(100).is_some());
    }
}
