//! Rings kept for reuse: creating a ring costs system calls and mappings, and a merge has a queue for each
//! table.
//!
//! Creating and removing mappings delays every thread with a page fault (`crate::buf::mapping`).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use base::{Owner, Result};
use parking_lot::Mutex;

use super::poll_queues::PollQueues;
use super::queue::{IoEngine, Operation};
use super::ring::Ring;
use crate::Completion;

/// The most rings kept, some kilobytes of kernel memory each: as many as flushes, merges and a few readers
/// use at once.
const IDLE_MAX: usize = 16;

/// The rings of a device that no queue uses now. They keep the latencies that they measured.
pub(super) struct IdleRings {
    /// A forked child shares the kernel's side of a ring and has no mapping of it.
    owner: Owner,
    poll_queues: Arc<PollQueues>,
    idle: Mutex<Vec<Ring>>,
}

impl IdleRings {
    /// No ring yet, for a device with these poll queues.
    pub(super) fn new(poll_queues: Arc<PollQueues>) -> Self {
        Self { owner: Owner::this(), poll_queues, idle: Mutex::new(Vec::new()) }
    }

    pub(super) fn poll_queues(&self) -> &PollQueues {
        &self.poll_queues
    }

    /// A ring for `depth` operations. It is given back when it is dropped.
    ///
    /// # Errors
    /// As [`Ring::new`].
    pub(super) fn take(self: &Arc<Self>, depth: usize) -> io::Result<LeasedRing> {
        let ring = {
            let mut idle = self.idle.lock();
            let capacity = Ring::capacity_for(depth);
            let at = idle.iter().rposition(|ring| ring.capacity() == capacity);
            at.map(|at| idle.swap_remove(at))
        };
        let ring = match ring {
            Some(mut ring) => {
                ring.set_depth(depth);
                ring
            }
            None => Ring::new(depth, Arc::clone(&self.poll_queues))?,
        };
        base::invariant!(ring.capacity() >= depth, "a ring has a slot for each operation");
        Ok(LeasedRing { ring: Some(ring), idle: Arc::clone(self) })
    }

    fn give_back(&self, ring: Ring) {
        base::invariant!(ring.running() == 0, "an idle ring has no operation in flight");
        let mut idle = self.idle.lock();
        if idle.len() >= IDLE_MAX {
            // The ring that was given back longest ago.
            let oldest = idle.remove(0);
            idle.push(ring);
            drop(idle);
            drop(oldest);
            return;
        }
        idle.push(ring);
    }
}

/// A queue's ring, given back on drop.
pub(super) struct LeasedRing {
    /// None only during drop.
    ring: Option<Ring>,
    idle: Arc<IdleRings>,
}

impl IoEngine for LeasedRing {
    fn start(&mut self, operation: Operation) {
        base::invariant!(self.ring.is_some(), "a leased ring is there until it is dropped");
        if let Some(ring) = &mut self.ring {
            ring.start(operation);
        }
    }

    fn reap(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        self.idle.owner.check()?;
        self.ring.as_mut().map_or(Ok(()), |ring| ring.reap(least, out))
    }

    fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        self.ring.as_mut().and_then(IoEngine::descriptor)
    }

    fn running(&self) -> usize {
        self.ring.as_ref().map_or(0, Ring::running)
    }
}

impl Drop for IdleRings {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // Dropping a ring would wait for its operations and unmap memory that is not mapped here.
            Box::leak(Box::new(std::mem::take(self.idle.get_mut())));
        }
    }
}

impl Drop for LeasedRing {
    fn drop(&mut self) {
        if !self.idle.owner.is_here() {
            Box::leak(Box::new(self.ring.take()));
            return;
        }
        if let Some(mut ring) = self.ring.take()
            && ring.finish()
        {
            self.idle.give_back(ring);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{FileMedium, FileOptions};
    use crate::{Access, Buf, Medium, Op, Purpose, Request};

    /// A ring is reused only after its operations are complete, and at most `IDLE_MAX` rings are kept.
    #[test]
    fn a_ring_is_reused_by_the_next_queue() {
        // Without io_uring there is nothing to reuse.
        let Ok(()) = Ring::probe() else { return };
        let directory = tempfile::tempdir().unwrap();
        let medium = FileMedium::open(directory.path(), FileOptions::default()).unwrap();
        let file = medium.create("f", Access::Direct, 0).unwrap();
        file.write(0, Buf::pages(4), Purpose::Flush).1.unwrap();
        let read = |token| {
            let op = Op::Read { at: token * 4096, buf: Buf::pages(1) };
            let request = Request { file: Arc::clone(&file), op, purpose: Purpose::Data, token };
            Operation::new(request).unwrap_or_else(|refused| panic!("{:?}", refused.result))
        };

        let rings = Arc::new(IdleRings::new(PollQueues::known(false)));
        for _ in 0..3 {
            let mut lent = rings.take(4).unwrap();
            assert_eq!(rings.idle.lock().len(), 0);
            (0..4).for_each(|token| lent.start(read(token)));
            let mut out = Vec::new();
            lent.reap(1, &mut out).unwrap();
            assert!(out.iter().all(|done| done.result.is_ok()) && !out.is_empty());
            assert_eq!(lent.running(), 4 - out.len());
            drop(lent);
            let idle = rings.idle.lock();
            assert_eq!((idle.len(), idle.first().map(Ring::running)), (1, Some(0)));
        }
        // A ring of the same capacity is reused for another depth.
        for (depth, kept) in [(3, 1), (8, 2), (5, 2)] {
            drop(rings.take(depth).unwrap());
            assert_eq!(rings.idle.lock().len(), kept);
        }
        let many: Vec<_> = (0..2 * IDLE_MAX).map(|_| rings.take(4).unwrap()).collect();
        drop(many);
        assert_eq!(rings.idle.lock().len(), IDLE_MAX);
    }
}
