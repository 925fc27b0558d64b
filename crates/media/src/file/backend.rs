//! The I/O backend of one device: rings, or a pool of threads if the kernel refuses io_uring, and the
//! permits that both share.

use std::fmt;
use std::sync::Arc;

use base::{Error, Result};

use super::idle_rings::IdleRings;
use super::permits::IoPermits;
use super::poll_queues::PollQueues;
use super::pool::pool;
use super::queue::{FileQueue, Operation};
use super::ring::Ring;
use crate::Queue;
use crate::pool::Pool;

/// The deepest queue: slots and entries of its ring stay far below a megabyte.
const DEPTH_MAX: usize = 4096;

/// Rings or pool of one device.
pub(super) struct Backend {
    /// Used in place of rings.
    pool: Option<Arc<Pool<Operation>>>,
    idle: Arc<IdleRings>,
    permits: Arc<IoPermits>,
    depth: usize,
}

impl Backend {
    /// For a device with these poll queues that `depth` operations keep busy. Features that are refused are
    /// added to `notices`.
    pub(super) fn new(
        io_uring: bool,
        depth: usize,
        poll_queues: Arc<PollQueues>,
        notices: &mut Vec<String>,
    ) -> Self {
        let depth = depth.clamp(1, DEPTH_MAX);
        let pool = (!takes_ring(io_uring, depth, notices)).then(|| pool(depth));
        let idle = Arc::new(IdleRings::new(poll_queues));
        Self { pool, idle, permits: IoPermits::new(depth), depth }
    }

    pub(super) fn permits(&self) -> Arc<IoPermits> {
        Arc::clone(&self.permits)
    }

    pub(super) const fn depth(&self) -> usize {
        self.depth
    }

    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.pool.as_ref().map_or(0, |pool| pool.threads())
    }

    /// The refusal that showed only in use.
    pub(super) fn notice(&self) -> Option<&str> {
        self.idle.poll_queues().notice()
    }

    /// The name of the backend, for statistics.
    pub(super) fn backend(&self, is_direct: bool) -> &'static str {
        match (&self.pool, is_direct) {
            (None, true) if self.idle.poll_queues().are_used() => "io_uring polled",
            (None, true) => "io_uring",
            (None, false) => "io_uring cached",
            (Some(_), true) => "pread pool",
            (Some(_), false) => "pread pool cached",
        }
    }

    /// A queue for one thread, for files at `path`.
    ///
    /// # Errors
    /// `Retry` if no ring or thread is available.
    pub(super) fn queue(&self, depth: usize, place: impl fmt::Display) -> Result<Box<dyn Queue>> {
        let depth = depth.clamp(1, DEPTH_MAX);
        let permits = self.permits();
        if let Some(pool) = &self.pool {
            return Ok(Box::new(FileQueue::new(pool.handle()?, permits, depth)));
        }
        match self.idle.take(depth) {
            Ok(ring) => Ok(Box::new(FileQueue::new(ring, permits, depth))),
            Err(error) => Err(Error::retry("io_uring queue")
                .at(place)
                .expected(format_args!("a ring of {depth} operations"))
                .caused_by(error)),
        }
    }
}

fn takes_ring(wanted: bool, threads: usize, notices: &mut Vec<String>) -> bool {
    let refused = if wanted {
        match Ring::probe() {
            Ok(()) => return true,
            Err(error) => format!("io_uring refused ({error})"),
        }
    } else {
        "io_uring is switched off".to_owned()
    };
    notices.push(format!("{refused}: up to {threads} threads read and write instead"));
    false
}
