//! Appends on a full device: deletes take space that puts leave.

use std::sync::atomic::Ordering;

use base::{ErrorKind, Result, broken_invariant};

use super::{LaneOfLog, Log};
use crate::address::Appended;
use crate::options::Batch;

/// Other writers may use up the room that was made for deletes this often.
const SHORT_ROOMS_MAX: usize = 3;

impl Log {
    /// As [`Log::append`], of a batch that only deletes: on a full device it may take half of the space that
    /// segments leave free for flushes ([`crate::Options::leave_bytes`]), and all of the space that they
    /// leave free for deletes of resident keyspaces. The lanes of other threads may have some if the own one
    /// has none.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_deletes(&self, batch: Batch<'_>) -> Result<Appended> {
        base::unbroken()?;
        batch.check()?;
        let bytes = (batch.body.len() + 5 * (2 + batch.keyspaces.len())) as u64;
        let mut appended = self.begin_lacking().and_then(|()| {
            let lane = self.lane()?;
            let written = self.after_reserve(|| lane.combiner.append(&batch))?;
            self.acknowledge(lane.id, written, &batch)
        });
        let is_refused = |appended: &Result<Appended>| {
            appended.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace)
        };
        if !is_refused(&appended) {
            if appended.is_ok() && self.lanes.iter().any(|lane| lane.supply.is_full()) {
                self.note_delete_on_full_device();
            }
            return appended;
        }
        self.note_delete_on_full_device();
        self.after_reserve(|| self.begin_short())?;
        let (home, lanes) = (self.home(), self.writers_lanes().max(1));
        for step in 0..lanes {
            let lane = self.lanes.get((home + step) % lanes);
            let lane = lane.ok_or_else(|| broken_invariant!("a log has lanes"))?;
            for _ in 0..SHORT_ROOMS_MAX {
                let written = self
                    .after_reserve(|| lane.combiner.with(|lane| lane.make_short_room(bytes)))
                    .and_then(|()| lane.combiner.append(&batch));
                appended = written.and_then(|written| self.acknowledge(lane.id, written, &batch));
                if !is_refused(&appended) {
                    return appended;
                }
            }
        }
        appended
    }

    fn note_delete_on_full_device(&self) {
        self.shared.has_deletes_on_full_device.store(true, Ordering::Relaxed);
    }

    /// Whether deletes may have been taken since the device last had space for puts.
    #[must_use]
    pub fn has_deletes_on_full_device(&self) -> bool {
        self.shared.has_deletes_on_full_device.load(Ordering::Relaxed)
    }
}

impl LaneOfLog {
    /// Refuses a put if the segment being written has space for deletes only.
    pub(super) fn check_put(&self) -> Result<()> {
        if self.shared.is_for_deletes.load(Ordering::Relaxed) {
            self.supply.check_put()?;
            self.shared.is_for_deletes.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}
