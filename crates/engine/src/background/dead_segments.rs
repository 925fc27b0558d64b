//! Segments of the log without a live entry of a resident keyspace: the log may free them.
//!
//! A segment is dead once no index points into it, and no memtable has a write in it that a flush would
//! bring into an index. A tombstone counts as an entry, so that no older version of its key comes back with
//! a replay.
//!
//! A segment that was dead when the process ended, and that waited for an older one of its lane, has no entry
//! that the next open brings into an index: it is dead from then on.
//!
//! The newer records, to which the index points instead, are made durable first: a power cut must not lose
//! both.
//!
//! Called by the flush task between two flushes: then no flush changes an index.

use std::collections::BTreeMap;
use std::sync::Arc;

use arena::PublishRing;
use base::Seqno;
use tree::{LogSegments, Tree, Trees};
use wal::{Log, SegmentUse};

/// Tells `log` which of its segments hold no live entry of a resident keyspace.
pub(super) fn give_up_dead_segments(
    segments: &LogSegments,
    trees: &Trees,
    log: &Log,
    ring: &PublishRing,
) {
    let unused = segments.all().into_iter().filter(|segment| segment.live() == 0);
    let mut dead = Vec::new();
    for (lane, segment) in unused.map(|segment| segment.id()) {
        match log.use_of(lane, segment) {
            SegmentUse::Active => {}
            SegmentUse::Full(end) if !is_flushed(trees, ring, end) => {}
            SegmentUse::Full(_) => dead.push((lane, segment)),
            SegmentUse::Freed => segments.forget(lane, segment),
        }
    }
    let has_resident = trees.all().iter().any(|tree| tree.kind().is_resident());
    let full = if has_resident { log.full_segments() } else { BTreeMap::new() };
    let full = full.iter().flat_map(|(lane, segments)| segments.iter().map(move |it| (*lane, it)));
    let unknown = full.filter(|(lane, it)| {
        it.resident_end > Seqno::ZERO
            && !it.is_collected
            && segments.of(*lane, it.segment).is_none()
            && is_flushed(trees, ring, it.resident_end)
    });
    dead.extend(unknown.map(|(lane, it)| (lane, it.segment)));
    // An error poisons the log, which every writer then reports.
    if dead.is_empty() || log.sync(log.stored_below().before()).is_err() {
        return;
    }
    for (lane, segment) in dead {
        log.collected(lane, segment);
        segments.forget(lane, segment);
    }
}

/// Whether every write to a resident keyspace below `end` is in its index.
fn is_flushed(trees: &Trees, ring: &PublishRing, end: Seqno) -> bool {
    // First: a visible write is in its memtable.
    if ring.visible().plus(1) < end {
        return false;
    }
    let is_flushed = |tree: &Arc<Tree>| {
        let view = tree.view();
        let mut memtables = view.memtables().filter(|memtable| !memtable.is_empty());
        memtables.all(|memtable| memtable.first() >= end)
    };
    let resident = trees.all().into_iter().filter(|tree| tree.kind().is_resident());
    resident.filter(|tree| !tree.is_dropped()).all(|tree| is_flushed(&tree))
}
