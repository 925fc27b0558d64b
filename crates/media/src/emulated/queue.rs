//! The queue of an emulated block device: an operation takes effect when it is submitted, and completes
//! when its emulated time is over.

use std::collections::VecDeque;
use std::sync::Arc;

use base::Result;

use super::device::Device;
use super::file::EmulatedFile;
use crate::{Completion, Op, Queue, Refused, Request, check};

/// Operations in flight for one thread.
pub(crate) struct EmulatedQueue {
    device: Arc<Device>,
    /// Completions with their times, earliest first.
    running: VecDeque<(f64, Completion)>,
    depth: usize,
}

impl EmulatedQueue {
    /// A queue for `depth` operations, at least one.
    pub(crate) fn new(device: Arc<Device>, depth: usize) -> Self {
        Self { device, running: VecDeque::new(), depth: depth.max(1) }
    }
}

impl Queue for EmulatedQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.running.len() >= self.depth {
            return Err(Refused(request));
        }
        let Request { file, op, purpose, token } = request;
        let (done, buf, result) = match (file.undecorated().downcast_ref::<EmulatedFile>(), op) {
            (Some(file), Op::Read { at, buf }) => file.start_read(at, buf, purpose),
            (Some(file), Op::Write { at, buf }) => file.start_write(at, buf, purpose),
            (None, op) => (0.0, op.into_buf(), Err(check::foreign(file.name()))),
        };
        let place = self.running.partition_point(|(other, _)| *other <= done);
        base::invariant!(done.is_finite(), "an emulated operation ends");
        self.running.insert(place, (done, Completion { token, buf, result }));
        Ok(())
    }

    /// Returns the operations that are due, and waits for more until there are `least`.
    fn complete(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        let wanted = least.min(self.running.len());
        if let Some((done, _)) = wanted.checked_sub(1).and_then(|last| self.running.get(last)) {
            self.device.wait_until(*done);
        }
        debug_assert!(
            self.running.iter().is_sorted_by(|(one, _), (next, _)| one <= next),
            "running operations are ordered by their end"
        );
        let now = self.device.now_ns();
        let over = self.running.partition_point(|(done, _)| *done <= now).max(wanted);
        out.extend(self.running.drain(..over).map(|(_, completion)| completion));
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.running.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}
