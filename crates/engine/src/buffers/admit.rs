//! Admission: a writer gets memory in a memtable, waits for a flush, or is refused.

use base::{Error, ErrorKind, Result, WriteSize};
use tree::{Memtable, Tree};

use crate::batch::{BatchPart, EncodedBatch};

use super::flush_waits::Waiter;
use super::{Buffers, FLUSHES_AWAITED_MAX, READER_WAITS_MAX};

impl Buffers {
    /// Reserves memory in `tree`'s active memtable for writes of `size`. First delays the writer as the
    /// `Pace` asks; stalls while the quota is used up. If flushes find no space, writes that only delete
    /// (`deletes`) may exceed the quota a little: they free space.
    ///
    /// # Errors
    /// The last flush's error if flushes fail, e.g. `NoSpace`. `Retry` if there is no memory for another
    /// reason. `Invalid` if the metadata of tables is at its limit. `Closed` if the store or the keyspace is
    /// gone.
    pub fn admit(&self, tree: &Tree, size: WriteSize, deletes: bool) -> Result<()> {
        match self.admit_within_quota(tree, size) {
            Err(error) if deletes && error.kind() == ErrorKind::NoSpace => {
                self.admit_deletes(tree, size, error)
            }
            admitted => admitted,
        }
    }

    /// Reserves memory for every part of `batch`, as [`Buffers::admit`]. Admitting a part may seal the
    /// memtables of others, and with them what was reserved there: those parts are admitted again.
    ///
    /// # Errors
    /// As [`Buffers::admit`].
    pub fn admit_batch(&self, batch: &EncodedBatch) -> Result<()> {
        let reserved_in = |part: &BatchPart| part.tree.view().active.first();
        let mut lacking: Vec<_> = batch.parts().iter().collect();
        for _ in 0..FLUSHES_AWAITED_MAX {
            let mut reserved = Vec::with_capacity(lacking.len());
            for part in lacking {
                self.admit(&part.tree, part.size, batch.only_deletes())?;
                reserved.push((part, reserved_in(part)));
            }
            reserved.retain(|(part, first)| reserved_in(part) != *first);
            if reserved.is_empty() {
                break;
            }
            lacking = reserved.into_iter().map(|(part, _)| part).collect();
        }
        Ok(())
    }

    fn admit_within_quota(&self, tree: &Tree, size: WriteSize) -> Result<()> {
        self.check_open()?;
        self.metadata.check(tree, size, || self.waits.pause(Waiter::Writer))?;
        self.pace.delay_write(size.bytes, self.resources.executor());
        for _ in 0..READER_WAITS_MAX {
            match self.try_admit(tree, size) {
                // The wait inside gave the flush enough time to find memory.
                Err(error) if self.waits.is_failing() => return Err(error),
                // Readers give flushed memtables back when they are done.
                Err(error) if error.is_retryable() && self.is_held_by_readers() => {
                    self.waits.pause(Waiter::Writer);
                }
                result => return result,
            }
        }
        self.try_admit(tree, size)
    }

    /// Admits a delete beyond the quota, because flushes fail with `full`.
    pub(super) fn admit_deletes(&self, tree: &Tree, size: WriteSize, full: Error) -> Result<()> {
        let usage = self.usage();
        if usage.used + Memtable::reserved_bytes(size) > usage.quota + usage.quota / 8 {
            return Err(full);
        }
        for _ in 0..FLUSHES_AWAITED_MAX {
            let view = tree.view();
            view.active.reserve(size)?;
            // If the memtable was sealed meanwhile, the reservation was sealed with it.
            if tree.view().active.first() == view.active.first() {
                break;
            }
        }
        Ok(())
    }

    /// Whether readers keep flushed memtables in memory.
    fn is_held_by_readers(&self) -> bool {
        self.trees.all().iter().any(|tree| tree.is_flushed_memtable_held())
    }

    fn try_admit(&self, tree: &Tree, size: WriteSize) -> Result<()> {
        if self.waits.is_failing() {
            // The memory that a refused write reserved stays reserved. It must stay within the quota, or a
            // flush finds no memory after the device has recovered.
            self.stay_within_quota()?;
        }
        let mut flushes = 0;
        loop {
            let view = tree.view();
            let active = &view.active;
            if self.is_full(tree, active) && !active.is_empty() {
                // The memtable of a dropped keyspace is not sealed any more: it would stay full.
                tree.usable()?;
                self.seal_if_full(tree)?;
                continue;
            }
            let before = active.bytes();
            match active.reserve(size) {
                Ok(()) if active.bytes() == before => return Ok(()),
                Ok(()) => {
                    let first = active.first();
                    drop(view);
                    self.stay_within_quota()?;
                    // If the memtable was sealed meanwhile, the reservation was sealed with it.
                    if tree.view().active.first() == first || flushes == FLUSHES_AWAITED_MAX {
                        return Ok(());
                    }
                    flushes += 1;
                }
                Err(error) if flushes == FLUSHES_AWAITED_MAX => return Err(error),
                Err(error) => {
                    drop(view);
                    self.wait_for_flush(|| error.clone())?;
                    flushes += 1;
                }
            }
        }
    }
}
