//! The queue of a medium with cold files: local reads go to the local queue, cold ones to the pool.

use std::sync::Arc;

use base::{Error, Result};

use super::file::{ColdFile, Current};
use super::range::{Range, Read};
use super::remote::Remote;
use crate::pool::{Pool, PoolHandle};
use crate::{Completion, Op, Queue, Refused, Request};

/// The longest range of merged reads, bytes. A single longer read is a range of its own.
const RANGE_BYTES_MAX: u64 = 64 << 10;

/// See the module.
pub(super) struct ColdQueue {
    local: Box<dyn Queue>,
    pool: Arc<Pool<Range>>,
    /// Cold reads that the pool has; none before the first.
    handle: Option<PoolHandle<Range>>,
    /// Cold reads that the pool has not seen.
    waiting: Vec<(Arc<Remote>, Read, crate::Purpose)>,
    /// Reads of kept pages, and those that the pool refused.
    done: Vec<Completion>,
}

impl ColdQueue {
    pub(super) fn new(local: Box<dyn Queue>, pool: &Arc<Pool<Range>>) -> Self {
        let (handle, waiting, done) = Default::default();
        Self { local, pool: Arc::clone(pool), handle, waiting, done }
    }

    /// Cold reads that the pool has.
    fn running(&self) -> usize {
        self.handle.as_ref().map_or(0, PoolHandle::running)
    }

    /// Merges the waiting reads to ranges, and begins these.
    fn begin(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let address = |file: &Arc<Remote>| Arc::as_ptr(file).addr();
        waiting.sort_by_key(|(file, read, _)| (address(file), read.at));
        let mut ranges: Vec<Range> = Vec::new();
        for (file, read, purpose) in waiting {
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
        if ranges.is_empty() {
            return;
        }
        let handle = match self.handle.take().map_or_else(|| self.pool.handle(), Ok) {
            Ok(handle) => self.handle.insert(handle),
            Err(error) => {
                let reads = ranges.into_iter().flat_map(|range| range.reads);
                let failed =
                    |Read { buf, token, .. }| Completion { token, buf, result: Err(error.clone()) };
                self.done.extend(reads.map(failed));
                return;
            }
        };
        ranges.into_iter().for_each(|range| handle.start(range));
    }

    /// Takes completions of cold reads, of `least` at least.
    fn reap(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        self.handle.as_mut().map_or(Ok(()), |handle| handle.reap(least, out))
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
        match (cold.current(), request) {
            (Current::Local(file), request) => self.local.submit(Request { file, ..request }),
            (Current::Cold(file), Request { op: Op::Read { at, buf }, purpose, token, .. }) => {
                // A kept page is not read from the other medium, whatever lies beside it. Threads may all
                // wait for that one.
                if file.keeps(at, buf.len()) {
                    let (buf, result) = file.read(at, buf, purpose);
                    self.done.push(Completion { token, buf, result });
                } else {
                    self.waiting.push((file, Read { at, buf, token }, purpose));
                }
                Ok(())
            }
            (Current::Cold(_), Request { op, file, token, .. }) => {
                let result = Err(Error::invalid("change of a cold file").at(file.name()));
                self.done.push(Completion { token, buf: op.into_buf(), result });
                Ok(())
            }
        }
    }

    fn complete(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        self.begin();
        let before = out.len();
        out.append(&mut self.done);
        loop {
            self.reap(0, out)?;
            let missing = least.saturating_sub(out.len() - before);
            // A local device answers long before an object store does.
            let local = self.local.in_flight().min(missing.min(1));
            self.local.complete(local, out)?;
            let is_enough = out.len() - before >= least;
            if is_enough || (self.running() == 0 && self.local.in_flight() == 0) {
                return Ok(());
            }
            if self.local.in_flight() == 0 {
                self.reap(1, out)?;
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.local.in_flight() + self.waiting.len() + self.running() + self.done.len()
    }

    fn depth(&self) -> usize {
        self.local.depth()
    }
}
