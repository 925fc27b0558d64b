//! Admission of writes that must not wait: they are admitted at once, or told when to try again.
//!
//! A write that waits for nothing may exceed the quota by the chunk that its memtable grew by. Until a flush
//! has brought the memtables back within the quota, no other write is admitted here, so the excess is at most
//! one chunk for each write that runs at the same time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{ErrorKind, Result, WriteSize};
use tree::Tree;

use super::{Buffers, FLUSHES_AWAITED_MAX};

/// A write that found the write buffers full should try again after this time.
const RETRY: Duration = Duration::from_millis(1);

impl Buffers {
    /// The time after which a write should try again; `None` if it may be admitted now. Reserves nothing.
    /// A batch that is refused at a later keyspace leaves the memory of the earlier ones reserved until their
    /// memtables are flushed; the quota bounds it.
    ///
    /// # Errors
    /// As [`Buffers::admit`].
    pub(crate) fn wait_before(&self) -> Result<Option<Duration>> {
        self.check_open()?;
        if self.is_over_quota.load(Ordering::Relaxed) {
            let usage = self.usage();
            self.pace.set_buffers(usage.fullness());
            if usage.used > usage.quota {
                return self.flush_soon().map(Some);
            }
            self.is_over_quota.store(false, Ordering::Relaxed);
        }
        Ok(self.pace.delay_left(self.resources.executor()))
    }

    /// Counts a write of `bytes` that was admitted as a whole.
    pub(crate) fn note_admitted(&self, bytes: usize) {
        self.pace.join(bytes, self.resources.executor());
    }

    /// Reserves memory in `tree`'s active memtable for writes of `size`, as [`Buffers::admit`] does; returns
    /// the time after which to try again if there is none.
    ///
    /// # Errors
    /// As [`Buffers::admit`]; a range delete does not wait for merges.
    pub(crate) fn admit_now(
        &self,
        tree: &Tree,
        size: WriteSize,
        deletes: bool,
    ) -> Result<Option<Duration>> {
        match self.admit_now_within_quota(tree, size) {
            Err(error) if deletes && error.kind() == ErrorKind::NoSpace => {
                self.admit_deletes(tree, size, error).map(|()| None)
            }
            admitted => admitted,
        }
    }

    fn admit_now_within_quota(&self, tree: &Tree, size: WriteSize) -> Result<Option<Duration>> {
        self.metadata.check_now(tree, size)?;
        // A memtable that other writers fill as fast as it is replaced gets one more write than it should.
        for _ in 0..FLUSHES_AWAITED_MAX {
            let view = tree.view();
            if !self.is_full(tree, &view.active) || view.active.is_empty() {
                break;
            }
            tree.usable()?;
            drop(view);
            self.seal_if_full(tree)?;
        }
        let view = tree.view();
        let active = &view.active;
        let before = active.bytes();
        if active.reserve(size).is_err() {
            drop(view);
            return self.flush_soon().map(Some);
        }
        if active.bytes() != before {
            drop(view);
            self.note_growth()?;
        }
        Ok(None)
    }

    /// A memtable grew: as [`Buffers::stay_within_quota`], but instead of waiting refuses later writes.
    fn note_growth(&self) -> Result<()> {
        let usage = self.usage();
        self.pace.set_buffers(usage.fullness());
        if usage.active > usage.quota / 2 {
            self.seal_largest()?;
        }
        if usage.used > usage.quota {
            self.is_over_quota.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes the flush task give memory back. Returns the time after which to look again.
    ///
    /// # Errors
    /// The last flush's, if flushes fail.
    fn flush_soon(&self) -> Result<Duration> {
        if let Some(error) = self.waits.failure().filter(|_| self.waits.is_failing()) {
            return Err(error);
        }
        if !self.waits.is_any_sealed() {
            for tree in self.trees.all() {
                // A seal fails for lack of memory only; another tree's memtable may still be sealed.
                drop(self.seal(&tree));
            }
        }
        self.wake_flusher();
        Ok(RETRY)
    }
}
