//! Live entries of resident keyspaces leave the damaged segments of the log, in a repair.
//!
//! A flush brings the entries of other keyspaces into tables, after which the damaged segments are removed.
//! Those of resident keyspaces stay in the log: they are copied to its end, as the collector does. A lane's
//! segments are removed oldest first, so all those before a damaged one are copied too.
//!
//! Runs on the opening thread, before there are readers, writers or background tasks.

use std::sync::Arc;

use base::{Error, KeyspaceId, Result, invariant};
use tree::{LogSegment, Moves};
use wal::{Log, SegmentRecords, Start};

use super::replay::Replay;

/// A record of moved entries has about this many bytes.
const RECORD_BYTES: usize = 64 << 10;

impl Replay<'_> {
    /// Moves the live entries out of the segments of each lane up to its last one in `damaged`, and frees
    /// these. Every write is flushed, and `log` appends to other segments.
    ///
    /// # Errors
    /// `NoSpace` for the copies; `Corrupt` if the device lost more meanwhile; the device's.
    pub(super) fn leave_damaged(&self, log: &Log, damaged: &Start) -> Result<()> {
        for (lane, full) in log.full_segments() {
            let Some((_, last)) = damaged.iter().find(|(of, _)| *of == lane) else { continue };
            for segment in full.iter().filter(|it| it.segment <= last) {
                let id = segment.segment;
                if let Some(of) = self.context.segments.of(lane, id) {
                    self.leave(log, &of, segment.bytes)?;
                    self.context.segments.forget(lane, id);
                }
                log.collected(lane, id);
            }
        }
        log.free(&|start| self.context.manifest.begin_log(start)).map(drop)
    }

    /// Moves the live entries out of `segment`, whose records take `bytes` bytes.
    fn leave(&self, log: &Log, segment: &Arc<LogSegment>, bytes: u64) -> Result<()> {
        let (lane, id) = segment.id();
        let (medium, store, segments) =
            (&self.context.medium, self.context.store, &self.context.segments);
        let mut records = SegmentRecords::open(medium, store, lane, id, bytes, segments.account())?;
        // The replay put all of the segment's tombstones into the indexes.
        let end = segment.tombstones_end().unwrap_or_else(|| log.last().plus(1));
        let resident_of = |keyspace: KeyspaceId| {
            self.trees.get(keyspace)?.view().read_context.resident().cloned()
        };
        let mut is_over = false;
        while !is_over {
            let Some(mut moves) = Moves::new(segments, segment, false) else { break };
            while moves.bytes() < RECORD_BYTES {
                let Some(batch) = records.next_batch()? else {
                    is_over = true;
                    break;
                };
                moves.add(&batch, resident_of)?;
            }
            if !moves.is_empty() {
                let appended = log.append_moved(moves.batch())?;
                let moved = moves.install(appended, end)?;
                invariant!(moved.overtaken == 0, "nothing is written during a repair");
            }
        }
        if segment.live() == 0 {
            return Ok(());
        }
        Err(Error::corrupt("log segment")
            .at(wal::segment_name(lane, id))
            .expected("the entries that a replay read")
            .got(format_args!("{} that cannot be read any more", segment.live())))
    }
}
