//! The segments that are kept for moved records, and the space that puts leave to deletes.

use std::sync::atomic::Ordering;

use base::{Error, Result, invariant};

use super::Supply;

impl Supply {
    /// Keeps `count` segments ready for moved records, and makes those that are missing. As long as some are,
    /// no lane gets a segment for other records.
    ///
    /// # Errors
    /// As making a segment.
    pub(crate) fn reserve(&self, count: usize) -> Result<()> {
        self.reserved.store(count, Ordering::Relaxed);
        self.refill_reserve()
    }

    /// Makes the segments that are missing of those to be kept.
    ///
    /// # Errors
    /// As making a segment.
    pub(crate) fn refill_reserve(&self) -> Result<()> {
        let mut next = self.making.lock();
        let lacks = || self.ahead() < self.reserved.load(Ordering::Relaxed);
        let mut made = Ok(());
        while lacks() && made.is_ok() {
            made = self.make(&mut next, self.spec.segment_bytes).map(|fresh| {
                let mut ready = self.ready.lock();
                invariant!(
                    ready.back().is_none_or(|last| last.id < fresh.id),
                    "segments kept for moved records are in the order of their ids"
                );
                ready.push_back(fresh);
            });
        }
        self.shared.log.lacks_reserve.store(lacks(), Ordering::Relaxed);
        made
    }

    /// Whether segments are kept here for moved records.
    pub(super) fn is_reserve(&self) -> bool {
        self.reserved.load(Ordering::Relaxed) > 0
    }

    /// Refuses a put into space that is left to deletes, unless there is space for another segment.
    pub(crate) fn check_put(&self) -> Result<()> {
        let checked =
            self.check_reserve().and_then(|()| self.check_free_space(self.spec.segment_bytes));
        self.is_full.store(checked.is_err(), Ordering::Relaxed);
        checked
    }

    /// Refuses a segment while the lane of moved records has none: they free space.
    pub(super) fn check_reserve(&self) -> Result<()> {
        if !self.shared.log.lacks_reserve.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.is_full.store(true, Ordering::Relaxed);
        Err(no_space_for_collector())
    }

    /// Whether puts leave space to deletes of resident keyspaces.
    pub(crate) fn leaves_for_deletes(&self) -> bool {
        self.is_fenced() && self.shared.log.has_resident.load(Ordering::Relaxed)
    }
}

#[cold]
fn no_space_for_collector() -> Error {
    Error::no_space("log segment").expected("space for the log's collector first")
}
