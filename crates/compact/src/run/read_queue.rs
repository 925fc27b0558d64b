//! The reads ahead of all sources of one run, in one queue.
//!
//! A source takes what it asked for when it gets there, long after the device is done. So whichever
//! source waits or asks takes in what has come for all of them: a read that is done gives its turn at
//! the device back at once, and never keeps others from it until its source needs it.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Error, Result};
use media::{Buf, Completion, File, Medium, Op, Purpose, Queue, Request};

/// What a merge reads for.
pub(super) const PURPOSE: Purpose = Purpose::Compaction;

/// Names a read in flight: taken in once, with [`ReadQueue::wait`].
#[derive(Debug)]
pub(super) struct Ticket(u64);

/// ReadQueue in flight, and those that are done and were not taken yet: of each source one chunk and one
/// metadata page at most.
pub(super) struct ReadQueue {
    /// Where the device has no queue to give, nothing is read ahead.
    queue: Option<Box<dyn Queue>>,
    done: Vec<Completion>,
    next: u64,
}

impl ReadQueue {
    /// For so many sources.
    pub(super) fn new(medium: &dyn Medium, sources: usize) -> Self {
        Self { queue: medium.queue(2 * sources.max(1)).ok(), done: Vec::new(), next: 0 }
    }

    /// Puts a read of the pages from `first` on in flight; none where that cannot be now.
    pub(super) fn submit(&mut self, file: &Arc<dyn File>, first: u32, buf: Buf) -> Option<Ticket> {
        let queue = self.queue.as_mut()?;
        let (file, token) = (Arc::clone(file), self.next);
        let op = Op::Read { at: u64::from(first) * PAGE_BYTES as u64, buf };
        queue.submit(Request { file, op, purpose: PURPOSE, token }).ok()?;
        self.next += 1;
        // Hands it to the device without waiting, and takes in what is done. What fails here is
        // told to the source that waits for it.
        let _ = queue.complete(0, &mut self.done);
        Some(Ticket(token))
    }

    /// Waits for the read of `ticket`: its buffer, and how it went.
    ///
    /// # Errors
    /// As [`Queue::complete`].
    pub(super) fn wait(&mut self, ticket: Ticket) -> Result<(Buf, Result<()>)> {
        loop {
            let found = self.done.iter().position(|done| done.token == ticket.0);
            if let Some(Completion { buf, result, .. }) = found.map(|at| self.done.swap_remove(at))
            {
                return Ok((buf, result));
            }
            let in_flight = self.queue.as_mut().filter(|queue| queue.in_flight() > 0);
            let queue = in_flight.ok_or_else(|| Error::retry("a read ahead"))?;
            queue.complete(1, &mut self.done)?;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use media::{Access, FileMedium, FileOptions, MemoryMedium};

    /// ReadQueue are taken in any order, each its own, however few the device gives turns to at once.
    fn taken_in_any_order(medium: &dyn Medium) {
        let file = medium.create("pages", Access::Direct, 0).unwrap();
        let mut content = Buf::pages(16);
        content.chunks_mut(PAGE_BYTES).zip(0..).for_each(|(page, number)| page.fill(number));
        file.write(0, content, PURPOSE).1.unwrap();
        let mut reads = ReadQueue::new(medium, 8);
        let mut tickets: Vec<_> =
            (0..16).map(|page| (page, reads.submit(&file, page, Buf::pages(1)).unwrap())).collect();
        tickets.sort_by_key(|(page, _)| page * 7 % 16);
        for (page, ticket) in tickets {
            let (buf, result) = reads.wait(ticket).unwrap();
            result.unwrap();
            assert!(buf.iter().all(|byte| u32::from(*byte) == page), "page {page}");
        }
        assert!(reads.wait(Ticket(99)).is_err(), "what was never asked for is not waited for");
    }

    #[test]
    fn each_source_gets_its_own_whoever_waits_first() {
        taken_in_any_order(&MemoryMedium::new());
        let directory = tempfile::tempdir().unwrap();
        let options = FileOptions { queue_depth: 4, ..FileOptions::default() };
        taken_in_any_order(&FileMedium::open(directory.path(), options).unwrap());
    }
}
