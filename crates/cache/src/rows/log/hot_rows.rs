//! Hot rows over a restart: visiting the rows that are worth reading ahead, and inserting such rows.

use std::collections::VecDeque;

use arena::{Bucket, WORD_BYTES};

use super::{CHUNK_BYTES, Refusal, Row, RowLog, SEGMENT_WORDS, SPARE_SEGMENTS, Segment, Shared};
use crate::rows::RowRef;
use crate::rows::policy::Queue;

impl RowLog {
    /// The numbers of the segments of both queues: of the main queue first, the newest of each first.
    pub(in crate::rows) fn newest_segments(&self) -> Vec<usize> {
        let newest = |queue: &VecDeque<Segment>| {
            queue.iter().rev().map(|segment| segment.number).collect::<Vec<_>>()
        };
        [newest(&self.main), newest(&self.new)].concat()
    }

    /// Calls `visit` with the owner, the key and the memory in bytes of each current row of the segment
    /// `number` that is hot, or is not, as `wants_hot` says: in the main queue, or used since it came. Does
    /// nothing if the segment belongs to no queue any more. Returns false once `visit` did.
    pub(in crate::rows) fn visit_segment(
        &mut self,
        shared: Shared<'_>,
        number: usize,
        wants_hot: bool,
        visit: &mut dyn FnMut(u32, &[u8], usize) -> bool,
    ) -> bool {
        let in_queue = |segments: &VecDeque<Segment>| {
            segments.iter().find(|segment| segment.number == number).copied()
        };
        let (queue, segment) = match (in_queue(&self.main), in_queue(&self.new)) {
            (Some(segment), _) => (Queue::Main, segment),
            (None, Some(segment)) => (Queue::New, segment),
            (None, None) => return true,
        };
        let (rows, mut key) = (self.rows_of(shared, segment), Vec::new());
        let goes_on = rows.iter().all(|(at, hash)| {
            let Some(entry) = segment.place(*at).and_then(|place| shared.index.entry(*hash, place))
            else {
                return true;
            };
            let is_hot = queue == Queue::Main || entry.heat > 0;
            if entry.is_stale || is_hot != wants_hot {
                return true;
            }
            let words = shared.words.get(number * SEGMENT_WORDS + at, segment.end - at);
            let Some(row) = RowRef::read(words) else { return true };
            row.copy_key(&mut key);
            visit(row.owner(), &key, row.words() * WORD_BYTES)
        });
        self.rows = rows;
        goes_on
    }

    /// Takes memory for `bytes` of rows, or up to the limit, as far as nobody else needs it.
    pub(in crate::rows) fn reserve(&mut self, bytes: u64) {
        let missing = bytes.min(self.bytes_max).saturating_sub(self.bytes());
        self.grow(missing.div_ceil(CHUNK_BYTES));
    }

    /// Whether a row can be inserted without evicting another.
    pub(in crate::rows) fn has_room(&self) -> bool {
        self.segments.free() > SPARE_SEGMENTS || self.bytes() + CHUNK_BYTES <= self.bytes_max
    }

    /// Inserts a row that was hot in an earlier run, read after `bucket` was taken, to where rows stay that
    /// were used again. Evicts nothing for it.
    pub(in crate::rows) fn fill_ahead(
        &mut self,
        shared: Shared<'_>,
        owner: u32,
        hash: u64,
        bucket: Bucket,
        row: Row<'_>,
    ) -> Result<(), Refusal> {
        if self.segments.free() <= SPARE_SEGMENTS {
            let may_grow = self.bytes() + CHUNK_BYTES <= self.bytes_max;
            if !(may_grow && self.segments.grow()) {
                return Err(Refusal::Memory);
            }
        }
        self.insert(shared, owner, (hash, bucket), row, (Queue::Main, false))?;
        self.counts.ahead += 1;
        Ok(())
    }
}
