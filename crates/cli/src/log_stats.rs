//! The part of `terrace stats` that is about the lanes of the log and their collection.

use base::{format_bytes, format_count};
use serde_json::{Value, json};
use terracedb::Result;
use terracedb::stats::{GenerationStatistics, LogCollection, Statistics};

use crate::output::Output;

/// The lanes of a log on storage-class memory, and what was collected for resident keyspaces.
pub(crate) fn print_lanes(log: &LogCollection, out: &mut Output) -> Result<()> {
    if log.lanes.len() < 2 && log.writers.segments == 0 {
        return Ok(());
    }
    for lane in &log.lanes {
        let batches = format_count(lane.records, "batch");
        out.line(format_args!(
            "lane {}{}: {} in {}, {batches} in {}, queue {}",
            lane.lane,
            if lane.is_of_survivors { " (survivors)" } else { "" },
            format_bytes(lane.bytes),
            format_count(lane.segments, "segment"),
            format_count(lane.groups, "group"),
            lane.queue,
        ))?;
    }
    if log.writers.segments + log.survivors.segments == 0 {
        return Ok(());
    }
    for (name, generation) in [("writers", &log.writers), ("survivors", &log.survivors)] {
        out.line(format_args!(
            "resident entries of {name}: {} of {} live in {}, utilisation {:.0} %",
            format_bytes(generation.live_bytes),
            format_bytes(generation.bytes),
            format_count(generation.segments, "segment"),
            100.0 * generation.utilisation(),
        ))?;
    }
    out.line(format_args!(
        "collected {}: {} of {} moved, {} given up, write amplification of collection {:.2}",
        format_count(log.collected_segments, "segment"),
        format_count(log.moved_entries, "entry"),
        format_bytes(log.moved_bytes),
        format_count(log.dropped_tombstones, "tombstone"),
        log.collection_write_amplification(),
    ))?;
    out.line(format_args!(
        "index checkpoints: {} of {} written, {} failed",
        log.index_checkpoints,
        format_bytes(log.index_checkpoint_bytes),
        log.index_checkpoint_failures,
    ))?;
    let age = match log.newest_index_checkpoint_age {
        Some(age) => format!("{} s old", age.as_secs()),
        None if log.newest_index_checkpoint_bytes == 0 => "none".to_owned(),
        None => "of unknown age".to_owned(),
    };
    out.line(format_args!(
        "newest index checkpoint: {age}, {}; an open reads {} of log behind it, {} at most",
        format_bytes(log.newest_index_checkpoint_bytes),
        format_bytes(log.replay_log_bytes),
        format_bytes(log.replay_log_bytes_max),
    ))?;
    if log.damaged_segments > 0 {
        out.line(format_args!(
            "damaged: {}, {} given up",
            format_count(log.damaged_segments, "segment"),
            format_count(log.lost_entries, "entry"),
        ))?;
    }
    Ok(())
}

/// The log: its length, its lanes and its collection.
pub(crate) fn log_to_json(statistics: &Statistics) -> Value {
    let log = &statistics.log_collection;
    let lanes = log.lanes.iter().map(|lane| {
        json!({
            "lane": lane.lane.0,
            "survivors": lane.is_of_survivors,
            "bytes": lane.bytes,
            "segments": lane.segments,
            "ready": lane.ready,
            "records": lane.records,
            "groups": lane.groups,
            "queue": lane.queue,
        })
    });
    json!({
        "bytes": statistics.log_bytes,
        "segments": statistics.log.segments_live,
        "lanes": lanes.collect::<Vec<_>>(),
        "resident": {
            "writers": generation_to_json(&log.writers),
            "survivors": generation_to_json(&log.survivors),
            "collected_segments": log.collected_segments,
            "collect_failures": log.collect_failures,
            "moved_entries": log.moved_entries,
            "moved_bytes": log.moved_bytes,
            "dropped_tombstones": log.dropped_tombstones,
            "damaged_segments": log.damaged_segments,
            "lost_entries": log.lost_entries,
            "index_checkpoints": log.index_checkpoints,
            "index_checkpoint_bytes": log.index_checkpoint_bytes,
            "index_checkpoint_failures": log.index_checkpoint_failures,
            "newest_index_checkpoint_bytes": log.newest_index_checkpoint_bytes,
            "newest_index_checkpoint_age_seconds": log.newest_index_checkpoint_age.map(|it| it.as_secs()),
            "replay_log_bytes": log.replay_log_bytes,
            "replay_log_bytes_max": log.replay_log_bytes_max,
            "write_amplification": log.collection_write_amplification(),
        },
    })
}

fn generation_to_json(generation: &GenerationStatistics) -> Value {
    json!({
        "segments": generation.segments,
        "bytes": generation.bytes,
        "live_bytes": generation.live_bytes,
        "utilisation": generation.utilisation(),
    })
}
