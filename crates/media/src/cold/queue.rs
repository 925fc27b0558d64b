//! The queue of a medium with cold files: local reads go to the local queue, cold ones to the pool.

use std::sync::Arc;

use base::Result;

use super::file::{ColdFile, Current};
use super::pool::{Mailbox, Pool, Range, Read};
use crate::{Completion, Op, Queue, Refused, Request};

/// The longest range of merged reads, bytes. A single longer read is a range of its own.
const RANGE_BYTES_MAX: u64 = 64 << 10;

/// See the module.
pub(super) struct ColdQueue {
    local: Box<dyn Queue>,
    pool: Arc<Pool>,
    mailbox: Arc<Mailbox>,
    /// Cold reads that the pool has not seen.
    waiting: Vec<(Current, Read, crate::Purpose)>,
    /// Cold reads that the pool has.
    running: usize,
    /// Reads that the pool refused.
    failed: Vec<Completion>,
}

impl ColdQueue {
    pub(super) fn new(local: Box<dyn Queue>, pool: &Arc<Pool>) -> Self {
        let (mailbox, waiting, running, failed) = Default::default();
        Self { local, pool: Arc::clone(pool), mailbox, waiting, running, failed }
    }

    /// Merges the waiting reads to ranges, and begins these.
    fn begin(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let address = |current: &Current| Arc::as_ptr(&current.file).cast::<()>().addr();
        waiting.sort_by_key(|(current, read, _)| (address(current), read.at));
        let mut ranges: Vec<Range> = Vec::new();
        for (Current { file, .. }, read, purpose) in waiting {
            let end = read.at + read.buf.len() as u64;
            match ranges.last_mut() {
                Some(range)
                    if Arc::ptr_eq(&range.file, &file)
                        && end.max(range.bounds().1) - range.bounds().0 <= RANGE_BYTES_MAX =>
                {
                    range.reads.push(read);
                }
                _ => ranges.push(Range { file, purpose, reads: vec![read] }),
            }
        }
        for range in ranges {
            let count = range.reads.len();
            let tokens: Vec<_> =
                range.reads.iter().map(|read| (read.token, read.buf.len())).collect();
            match self.pool.begin(range, &self.mailbox) {
                Ok(()) => self.running += count,
                Err(error) => self.failed.extend(tokens.into_iter().map(|(token, len)| {
                    let buf = crate::Buf::pages(len.div_ceil(base::limits::PAGE_BYTES));
                    Completion { token, buf, result: Err(error.clone()) }
                })),
            }
        }
    }
}

impl Queue for ColdQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.in_flight() >= self.depth() {
            return Err(Refused(request));
        }
        let Some(cold) = request.file.undecorated().downcast_ref::<ColdFile>() else {
            return self.local.submit(request);
        };
        let current = cold.current();
        match request {
            Request { op: Op::Read { at, buf }, purpose, token, .. } if current.is_cold => {
                self.waiting.push((current, Read { at, buf, token }, purpose));
                Ok(())
            }
            request => self.local.submit(Request { file: current.file, ..request }),
        }
    }

    fn complete(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        self.begin();
        let before = out.len();
        out.append(&mut self.failed);
        loop {
            self.running -= self.mailbox.take(false, out);
            let missing = least.saturating_sub(out.len() - before);
            // A local device answers long before an object store does.
            let local = self.local.in_flight().min(missing.min(1));
            self.local.complete(local, out)?;
            let is_enough = out.len() - before >= least;
            if is_enough || (self.running == 0 && self.local.in_flight() == 0) {
                return Ok(());
            }
            if self.local.in_flight() == 0 {
                self.running -= self.mailbox.take(true, out);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.local.in_flight() + self.waiting.len() + self.running + self.failed.len()
    }

    fn depth(&self) -> usize {
        self.local.depth()
    }
}

impl Drop for ColdQueue {
    fn drop(&mut self) {
        // In a forked child no thread would complete a read.
        while self.running > 0 && self.pool.is_here() {
            self.running -= self.mailbox.take(true, &mut Vec::new());
        }
    }
}
