//! The first segment of each lane after an open, if a device had no space for it then.

use std::sync::atomic::Ordering;

use base::Result;

use super::Log;

impl Log {
    /// Begins the first segment of each lane that has none. Nothing is appended to any lane before: the Begin
    /// cuts off the records that recovery gave up, and their seqnos are about to be assigned again.
    pub(super) fn begin_lacking(&self) -> Result<()> {
        if !self.lacks_segments.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.begin_lanes()?;
        self.lacks_segments.store(false, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn begin_lanes(&self) -> Result<()> {
        self.lanes.iter().try_for_each(|lane| {
            lane.combiner.with(|writer| match writer.begin() {
                Some(_) => Ok(()),
                None => writer.rotate(0).map(drop),
            })
        })
    }

    /// As [`Log::begin_lacking`], with the shortest segments.
    pub(super) fn begin_short(&self) -> Result<()> {
        let lacking = self.lanes.iter().filter(|_| self.lacks_segments.load(Ordering::Relaxed));
        let mut each = lacking.map(|lane| lane.combiner.with(|writer| writer.make_short_room(0)));
        each.try_for_each(|begun| begun)
    }
}
