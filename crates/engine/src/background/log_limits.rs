//! Limits of the log: segment length, total length, and segments prepared ahead of writers.

use base::invariant;
use wal::Log;

use crate::Resources;

/// A log longer than this many write-buffer quotas makes the keyspaces flush that pin its oldest segment.
const LOG_QUOTAS: u64 = 2;

/// Length of the first segment after an open, bytes, if segments grow. Later ones double, up to the whole
/// length.
const FIRST_SEGMENT_BYTES: u64 = 1 << 20;

/// Segments up to this length are whole from the first one on: growing would save little, and a store on a
/// full device is deleted from in the space that the unused end of its last segment gives back.
const WHOLE_BYTES_MAX: u64 = 8 << 20;

/// The longest segment, bytes.
const SEGMENT_BYTES_MAX: u64 = 32 << 20;

/// The length at which the log is shortened by flushes, and the length of its segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLimits {
    /// Number of lanes that are appended to; each has its segments.
    lanes: u64,
    /// Length of a segment, bytes.
    pub segment_bytes: u64,
    /// Most written bytes of all segments.
    pub bytes_max: u64,
}

impl LogLimits {
    /// Most segments beyond those of a full log: stores that are opened often and written little leave
    /// many short segments.
    const SEGMENTS_MAX: u64 = 8;

    /// The limits for a store's present share of the memory limit. A segment is a quarter of the write
    /// buffers, 1 to 32 MiB in whole MiB, so that the log of a small store is small. Several lanes share
    /// these lengths.
    pub(crate) fn of(resources: &Resources, lanes: u64) -> Self {
        let quota = resources.write_buffer_bytes();
        let lanes = lanes.max(1);
        let segment_bytes =
            (quota / 4 / lanes).clamp(FIRST_SEGMENT_BYTES, SEGMENT_BYTES_MAX) & !0xf_ffff;
        let bytes_max = (LOG_QUOTAS * quota).max(4 * lanes * segment_bytes);
        Self { lanes, segment_bytes, bytes_max }
    }

    /// Whether the log begins with short segments, and spare ones are removed at a close.
    pub(crate) const fn is_growing(self) -> bool {
        self.segment_bytes > WHOLE_BYTES_MAX
    }

    /// Length of the first segment after an open.
    pub(crate) const fn first_segment_bytes(self) -> u64 {
        if self.is_growing() { FIRST_SEGMENT_BYTES } else { self.segment_bytes }
    }

    /// Most segments of a lane that are shorter than a whole one, because they grew.
    fn short_segments(self) -> u64 {
        u64::from((self.segment_bytes / self.first_segment_bytes()).ilog2())
    }

    /// How many empty segments should be ready after the active one of each lane: 0 until it is half full,
    /// then 1, and 2 for a log of more than two segments. Making one takes two syncs, which wait for the
    /// writes of merges, and writers fill a segment in a quarter of a second.
    fn segments_ahead(self, log: &Log) -> usize {
        let bytes = log.bytes() / self.lanes;
        // While segments grow, those before the active one have about its length together.
        let next = log.next_segment_bytes();
        let half = match next < self.segment_bytes {
            true => (next / 4 * 3).saturating_sub(FIRST_SEGMENT_BYTES),
            false => self.segment_bytes / 2,
        };
        usize::from(bytes > half) + usize::from(bytes > 2 * self.segment_bytes)
    }

    /// Makes the next segment if one is missing. Returns whether it made one. An error poisons the log,
    /// which every writer then reports.
    pub(super) fn prepare_segment(self, log: &Log) -> bool {
        let ahead = self.segments_ahead(log);
        ahead > 0 && log.prepare(ahead).unwrap_or(false)
    }

    /// Removes empty segments that are no longer needed because the log became shorter. One that cannot be
    /// removed costs only its space.
    pub(super) fn remove_spare_segments(self, log: &Log) {
        let _ = log.give_back(self.segments_ahead(log));
    }

    /// Whether flushes should shorten the log: it is long, or its device is nearly full.
    pub(super) fn is_over(self, log: &Log) -> bool {
        let full = self.bytes_max / self.segment_bytes;
        let spare = (Self::SEGMENTS_MAX + self.short_segments()) * self.lanes;
        log.is_full()
            || log.is_refused_space()
            || log.bytes() > self.bytes_max_within(log.free_bytes())
            || log.statistics().segments_live > full + spare
    }

    /// The most written bytes of all segments on a device with `free` bytes: at most half of these, so that
    /// the space is there for tables, but two segments for each lane.
    fn bytes_max_within(self, free: Option<u64>) -> u64 {
        let Some(free) = free else { return self.bytes_max };
        let least = 2 * self.lanes * self.segment_bytes;
        invariant!(least < self.bytes_max, "a log that is as long as it may be has two segments");
        self.bytes_max.min((free / 2).max(least))
    }

    /// Whether open should flush all replayed writes, so that the log starts anew.
    pub(crate) fn is_worth_emptying(self, log: &Log) -> bool {
        let statistics = log.statistics();
        let most = Self::SEGMENTS_MAX / 2 + self.short_segments();
        statistics.segments_live > most * statistics.lanes
    }
}
