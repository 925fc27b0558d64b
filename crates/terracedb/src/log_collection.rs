//! [`LogCollection`]: the lanes of a log, and the collection of its segments with resident entries.

use std::collections::BTreeMap;
use std::time::Duration;

use base::LaneId;
use engine::Store;
use wal::LaneStatistics;

/// The lanes of a log, and the collection of the segments that hold entries of resident keyspaces.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogCollection {
    /// The lanes that receive appends.
    pub lanes: Vec<LaneStatistics>,
    /// Segments out of which the live entries were moved, and collections that failed, since the store was
    /// opened.
    pub collected_segments: u64,
    /// See `collected_segments`.
    pub collect_failures: u64,
    /// Entries that were moved, and the bytes of their new records.
    pub moved_entries: u64,
    /// See `moved_entries`.
    pub moved_bytes: u64,
    /// Tombstones that were given up, because the log had no older version of their keys.
    pub dropped_tombstones: u64,
    /// Segments that the collector could not read whole, since the store was opened. What can be read is
    /// moved.
    pub damaged_segments: u64,
    /// Entries of such segments that a second collection could not read either, and gave up. Reads of their
    /// keys fail until these are written again; a repair of the store forgets them.
    pub lost_entries: u64,
    /// Checkpoints of the indexes that were written, their bytes, and those that failed.
    pub index_checkpoints: u64,
    /// See `index_checkpoints`.
    pub index_checkpoint_bytes: u64,
    /// See `index_checkpoints`.
    pub index_checkpoint_failures: u64,
    /// Length of the newest checkpoint of the indexes, bytes; 0 without one.
    pub newest_index_checkpoint_bytes: u64,
    /// Its age; `None` without one, or if its file does not say.
    pub newest_index_checkpoint_age: Option<Duration>,
    /// Bytes that the log wrote since it was begun, about as many as an open now would read of the log.
    pub replay_log_bytes: u64,
    /// The next checkpoint is begun once the log wrote so many: the bound of what an open reads of the log,
    /// beside the segments that are being written.
    pub replay_log_bytes_max: u64,
    /// Bytes of keys and values that were written to resident keyspaces.
    pub resident_user_bytes: u64,
    /// The segments with entries that writers wrote.
    pub writers: GenerationStatistics,
    /// The segments with entries that survived a collection. A log of one lane has both in the same segments,
    /// and counts them as those of writers.
    pub survivors: GenerationStatistics,
}

/// The segments of one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GenerationStatistics {
    /// Segments with live entries, those being written included.
    pub segments: u64,
    /// Their written bytes.
    pub bytes: u64,
    /// The bytes of their live entries, estimated from the number of entries.
    pub live_bytes: u64,
}

impl GenerationStatistics {
    /// The part of the bytes that is live; 1 without segments.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        if self.bytes == 0 { 1.0 } else { self.live_bytes as f64 / self.bytes as f64 }
    }
}

impl LogCollection {
    /// Bytes that the log wrote for resident keyspaces, per byte of keys and values that was written to them:
    /// 1 without collection. Heads of records and other keyspaces are left out. 0 if nothing was written.
    #[must_use]
    pub fn collection_write_amplification(&self) -> f64 {
        if self.resident_user_bytes == 0 {
            return 0.0;
        }
        1.0 + self.moved_bytes as f64 / self.resident_user_bytes as f64
    }

    pub(crate) fn of(store: &Store) -> Self {
        let counters = &store.background.counters;
        let resident = store.trees.all().into_iter().filter(|tree| tree.kind().is_resident());
        let lanes = store.log.lane_statistics();
        let survivors = lanes.iter().find(|lane| lane.is_of_survivors).map(|lane| lane.lane);
        let full: BTreeMap<LaneId, Vec<_>> = store.log.full_segments();
        let newest = *counters.index_checkpoint.lock();
        let now = store.timekeeper.trusted_now() / 1000;
        let age = (newest.begun > 0).then(|| now.saturating_sub(u64::from(newest.begun)));
        let mut statistics = Self {
            newest_index_checkpoint_bytes: newest.bytes,
            newest_index_checkpoint_age: age.map(Duration::from_secs),
            replay_log_bytes: newest.log_bytes,
            replay_log_bytes_max: newest.log_bytes_due,
            collected_segments: counters.collected_segments.get(),
            collect_failures: counters.collect_failures.get(),
            moved_entries: counters.moved_entries.get(),
            moved_bytes: counters.moved_bytes.get(),
            dropped_tombstones: counters.dropped_tombstones.get(),
            damaged_segments: counters.damaged_segments.get(),
            lost_entries: counters.lost_entries.get(),
            index_checkpoints: counters.index_checkpoints.get(),
            index_checkpoint_bytes: counters.index_checkpoint_bytes.get(),
            index_checkpoint_failures: counters.index_checkpoint_failures.get(),
            resident_user_bytes: resident.map(|tree| tree.writes().user_bytes.get()).sum(),
            lanes,
            ..Self::default()
        };
        for segment in store.segments.all().iter().filter(|segment| segment.live() > 0) {
            let (lane, id) = segment.id();
            let full = full.get(&lane).and_then(|it| it.iter().find(|full| full.segment == id));
            let live_bytes = segment.live_bytes();
            let generation = match survivors == Some(lane) {
                true => &mut statistics.survivors,
                false => &mut statistics.writers,
            };
            generation.segments += 1;
            // One that is being written has about as many bytes as its entries.
            generation.bytes += full.map_or_else(|| segment.noted_bytes(), |full| full.bytes);
            generation.live_bytes += live_bytes;
        }
        statistics
    }
}
