//! One queue for the read-ahead of all sources of a run.
//!
//! A source consumes its read long after the device has finished it. So every call takes all completions,
//! also those of other sources: a finished read frees its slot in the device queue at once, and does not hold
//! up other reads until its source needs it.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Error, Result, invariant};
use media::{Buf, Completion, File, Medium, Op, Purpose, Queue, Request};

/// The I/O purpose of a merge's reads.
pub(super) const PURPOSE: Purpose = Purpose::Compaction;

/// Identifies a submitted read; consumed by [`ReadQueue::wait`].
#[derive(Debug)]
pub(super) struct Ticket(u64);

/// Reads in flight, and completed reads that no source has taken yet. Each source has at most one chunk and
/// one metadata page here.
pub(super) struct ReadQueue {
    /// `None` if the device has no queue: then nothing is read ahead.
    queue: Option<Box<dyn Queue>>,
    done: Vec<Completion>,
    next: u64,
    /// Most reads in flight and not taken: two per source.
    reads_max: usize,
}

impl ReadQueue {
    /// A queue for `sources` sources.
    pub(super) fn new(medium: &dyn Medium, sources: usize) -> Self {
        let reads_max = 2 * sources.max(1);
        Self { queue: medium.queue(reads_max).ok(), done: Vec::new(), next: 0, reads_max }
    }

    /// Submits a read of the pages from `first` on. `None` if it cannot be submitted now.
    pub(super) fn submit(&mut self, file: &Arc<dyn File>, first: u32, buf: Buf) -> Option<Ticket> {
        let queue = self.queue.as_mut()?;
        let (file, token) = (Arc::clone(file), self.next);
        let op = Op::Read { at: u64::from(first) * PAGE_BYTES as u64, buf };
        queue.submit(Request { file, op, purpose: PURPOSE, token }).ok()?;
        self.next += 1;
        // Starts the read without waiting, and takes completions. A failed read is reported to the source
        // that waits for it.
        let _ = queue.complete(0, &mut self.done);
        invariant!(
            self.done.len() + queue.in_flight() <= self.reads_max,
            "a source reads ahead one chunk and one metadata page"
        );
        Some(Ticket(token))
    }

    /// Waits for the read of `ticket`; returns its buffer and its result.
    ///
    /// # Errors
    /// The errors of [`Queue::complete`], and `Retry` if no such read is in flight.
    pub(super) fn wait(&mut self, ticket: Ticket) -> Result<(Buf, Result<()>)> {
        loop {
            let found = self.done.iter().position(|done| done.token == ticket.0);
            if let Some(Completion { buf, result, .. }) = found.map(|at| self.done.swap_remove(at))
            {
                return Ok((buf, result));
            }
            let in_flight = self.queue.as_mut().filter(|queue| queue.in_flight() > 0);
            let queue = in_flight
                .ok_or_else(|| Error::retry("read-ahead that is not in flight").never_heals())?;
            queue.complete(1, &mut self.done)?;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use media::{Access, FileMedium, FileOptions, MemoryMedium};

    /// Reads are taken in any order and each gets its own pages, although the device's queue is shorter.
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
    fn each_source_gets_its_own_pages_in_any_order_of_waiting() {
        taken_in_any_order(&MemoryMedium::new());
        let directory = tempfile::tempdir().unwrap();
        let options = FileOptions { queue_depth: 4, ..FileOptions::default() };
        taken_in_any_order(&FileMedium::open(directory.path(), options).unwrap());
    }
}
