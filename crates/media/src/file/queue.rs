//! Many operations of one thread in flight: permits by class in front of a ring or a pool.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use base::Result;

use super::handle::DiskFile;
use super::permits::{IoPermit, IoPermits};
use super::transfer::{Step, Transfer};
use crate::{Class, Completion, File, Queue, Refused, Request, check};

/// Performs operations asynchronously: a ring or a pool of threads.
pub(super) trait IoEngine: Send {
    /// Starts an operation. The caller never has more than the queue's depth running.
    fn start(&mut self, operation: Operation);

    /// Passes the started operations to the device, waits for at least `least` of them (at most
    /// [`IoEngine::running`]), and appends their completions, perhaps more.
    fn reap(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()>;

    /// As [`Queue::descriptor`], for the started operations.
    fn descriptor(&mut self) -> Option<BorrowedFd<'_>>;

    /// Number of operations started and not reaped.
    fn running(&self) -> usize;
}

/// An operation in flight, or waiting for its permit. Owns the file and the buffer that the device uses.
pub(super) struct Operation {
    pub(super) transfer: Transfer,
    /// Keeps `handle` open.
    file: Arc<dyn File>,
    handle: RawFd,
    /// A read with direct I/O.
    is_direct_read: bool,
    token: u64,
    class: Class,
    permit: Option<IoPermit>,
}

impl Operation {
    /// # Errors
    /// The failed completion: of a file outside a directory, a file of another process, an unaligned range.
    pub(super) fn new(request: Request) -> std::result::Result<Self, Completion> {
        let Request { file, op, purpose, token } = request;
        let transfer = match own(&*file).and_then(|own| Ok((own, own.file()?.as_raw_fd()))) {
            Ok((own, handle)) => {
                Transfer::new(own.name(), op).map(|transfer| (transfer, own, handle))
            }
            Err(error) => Err((op.into_buf(), error)),
        };
        match transfer {
            Ok((transfer, own, handle)) => {
                let class = Class::of(purpose);
                let is_direct_read = own.is_direct() && transfer.is_read();
                Ok(Self { transfer, file, handle, is_direct_read, token, class, permit: None })
            }
            Err((buf, error)) => Err(Completion { token, buf, result: Err(error) }),
        }
    }

    /// The operating system's handle; open as long as the operation exists.
    pub(super) const fn handle(&self) -> RawFd {
        self.handle
    }

    /// Whether a polled ring may perform it.
    pub(super) const fn is_direct_read(&self) -> bool {
        self.is_direct_read
    }

    pub(super) const fn class(&self) -> Class {
        self.class
    }

    /// Performs the whole operation on the calling thread.
    pub(super) fn perform(&mut self) -> Result<()> {
        let file = own(&*self.file)?;
        self.transfer.run(file.file()?, file.name())
    }

    /// Processes the result of a system call.
    pub(super) fn advance(&mut self, outcome: io::Result<usize>) -> Step {
        self.transfer.advance(self.file.name(), outcome)
    }

    /// Releases the file and the permit.
    pub(super) fn complete(self, result: Result<()>) -> Completion {
        Completion { token: self.token, buf: self.transfer.into_buf(), result }
    }
}

/// The directory's own file without decorators.
fn own(file: &dyn File) -> Result<&DiskFile> {
    file.undecorated().downcast_ref().ok_or_else(|| check::foreign(file.name()))
}

/// The queue of a directory's files.
pub(super) struct FileQueue<C> {
    engine: C,
    permits: Arc<IoPermits>,
    /// Background operations that wait for a permit, oldest first.
    waiting: VecDeque<Operation>,
    /// Failed before they were started; returned with the next completions.
    refused: Vec<Completion>,
    depth: usize,
}

impl<C: IoEngine> FileQueue<C> {
    pub(super) fn new(engine: C, permits: Arc<IoPermits>, depth: usize) -> Self {
        Self { engine, permits, waiting: VecDeque::new(), refused: Vec::new(), depth }
    }

    /// Starts the waiting operations that get a permit, in order.
    fn start_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(operation) = self.waiting.pop_front() else { return };
            self.start_or_queue(operation);
        }
    }

    fn start_or_queue(&mut self, mut operation: Operation) {
        base::invariant!(operation.permit.is_none(), "an operation is started once");
        operation.permit = self.permits.try_acquire(operation.class);
        if operation.permit.is_some() {
            self.engine.start(operation);
        } else {
            self.waiting.push_back(operation);
        }
    }
}

impl<C: IoEngine> Queue for FileQueue<C> {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.in_flight() >= self.depth {
            return Err(Refused(request));
        }
        match Operation::new(request) {
            // Behind other waiting operations, unless the class never waits.
            Ok(operation) if operation.class > Class::Read && !self.waiting.is_empty() => {
                self.waiting.push_back(operation);
            }
            Ok(operation) => self.start_or_queue(operation),
            Err(completion) => self.refused.push(completion),
        }
        base::invariant!(self.in_flight() <= self.depth, "a queue holds at most its depth");
        Ok(())
    }

    fn complete(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        let before = out.len();
        out.append(&mut self.refused);
        loop {
            self.start_waiting();
            let wanted = least.saturating_sub(out.len() - before);
            let running = self.engine.running();
            if wanted > 0 && running == 0 {
                // Only waiting operations are left, if any: wait for the first one's permit.
                let Some(mut operation) = self.waiting.pop_front() else { return Ok(()) };
                operation.permit = Some(self.permits.acquire(operation.class));
                self.engine.start(operation);
                continue;
            }
            // While operations wait, try again after each completion: it may return a permit.
            let most = if self.waiting.is_empty() { running } else { 1 };
            self.engine.reap(wanted.min(most), out)?;
            if out.len() - before >= least {
                return Ok(());
            }
        }
    }

    /// The descriptor of the engine. A read never waits for a permit, and a refused operation is returned by
    /// the call that follows its submission, so the engine's completions are all that a reader waits for.
    fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        self.engine.descriptor()
    }

    fn in_flight(&self) -> usize {
        self.engine.running() + self.waiting.len() + self.refused.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}
