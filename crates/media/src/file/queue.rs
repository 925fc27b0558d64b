//! Many operations of one thread in flight: turns by class in front of a ring or a pool.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use base::Result;

use super::handle::DiskFile;
use super::transfer::{Step, Transfer};
use super::turns::{Turn, Turns};
use crate::{Class, Completion, File, Queue, Refused, Request, check};

/// What carries operations to the device.
pub(super) trait Carrier: Send {
    /// Takes an operation on its way. There are never more than the queue's depth.
    fn start(&mut self, operation: Operation);

    /// Hands what was started to the device, waits for at least `least` of them (at most
    /// [`Carrier::running`]), and appends their completions, perhaps more.
    fn reap(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()>;

    /// Started and not reaped.
    fn running(&self) -> usize;
}

/// An operation under way, or waiting for its turn. Owns what the device works on.
pub(super) struct Operation {
    pub(super) transfer: Transfer,
    /// Keeps `handle` open.
    file: Arc<dyn File>,
    handle: RawFd,
    /// A read past the system's cache.
    is_direct_read: bool,
    token: u64,
    class: Class,
    turn: Option<Turn>,
}

impl Operation {
    /// # Errors
    /// The failed completion where the file is not a directory's, or the range not aligned.
    pub(super) fn new(request: Request) -> std::result::Result<Self, Completion> {
        let Request { file, op, purpose, token } = request;
        let transfer = match own(&*file) {
            Ok(own) => Transfer::new(own.name(), op).map(|transfer| (transfer, own)),
            Err(error) => Err((op.into_buf(), error)),
        };
        match transfer {
            Ok((transfer, own)) => {
                let (handle, class) = (own.file().as_raw_fd(), purpose.class());
                let is_direct_read = own.is_direct() && transfer.is_read();
                Ok(Self { transfer, file, handle, is_direct_read, token, class, turn: None })
            }
            Err((buf, error)) => Err(Completion { token, buf, result: Err(error) }),
        }
    }

    /// The operating system's handle; open as long as the operation lives.
    pub(super) const fn handle(&self) -> RawFd {
        self.handle
    }

    /// Whether it may go to a ring that polls.
    pub(super) const fn is_direct_read(&self) -> bool {
        self.is_direct_read
    }

    pub(super) const fn class(&self) -> Class {
        self.class
    }

    /// Carries the operation to its end on the calling thread.
    pub(super) fn run(&mut self) -> Result<()> {
        let file = own(&*self.file)?;
        self.transfer.run(file.file(), file.name())
    }

    /// Takes in what a system call returned.
    pub(super) fn advance(&mut self, outcome: io::Result<usize>) -> Step {
        self.transfer.advance(self.file.name(), outcome)
    }

    /// Lets go of the file and the turn.
    pub(super) fn complete(self, result: Result<()>) -> Completion {
        Completion { token: self.token, buf: self.transfer.into_buf(), result }
    }
}

/// The directory's own file under any decorators.
fn own(file: &dyn File) -> Result<&DiskFile> {
    file.undecorated().downcast_ref().ok_or_else(|| check::foreign(file.name()))
}

/// The queue of a directory's files.
pub(super) struct FileQueue<C> {
    carrier: C,
    turns: Arc<Turns>,
    /// Background operations that wait for their turn, oldest first.
    held: VecDeque<Operation>,
    /// Refused at the edge; handed out with the next completions.
    refused: Vec<Completion>,
    depth: usize,
}

impl<C: Carrier> FileQueue<C> {
    pub(super) fn new(carrier: C, turns: Arc<Turns>, depth: usize) -> Self {
        Self { carrier, turns, held: VecDeque::new(), refused: Vec::new(), depth }
    }

    /// Starts what may start, in the order it came.
    fn start_held(&mut self) {
        for _ in 0..self.held.len() {
            let Some(operation) = self.held.pop_front() else { return };
            self.start_or_hold(operation);
        }
    }

    fn start_or_hold(&mut self, mut operation: Operation) {
        operation.turn = self.turns.try_take(operation.class);
        if operation.turn.is_some() {
            self.carrier.start(operation);
        } else {
            self.held.push_back(operation);
        }
    }
}

impl<C: Carrier> Queue for FileQueue<C> {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.in_flight() >= self.depth {
            return Err(Refused(request));
        }
        match Operation::new(request) {
            // Behind others that wait, unless it never has to.
            Ok(operation) if operation.class > Class::Read && !self.held.is_empty() => {
                self.held.push_back(operation);
            }
            Ok(operation) => self.start_or_hold(operation),
            Err(completion) => self.refused.push(completion),
        }
        Ok(())
    }

    fn complete(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        let before = out.len();
        out.append(&mut self.refused);
        loop {
            self.start_held();
            let wanted = least.saturating_sub(out.len() - before);
            let running = self.carrier.running();
            if wanted > 0 && running == 0 {
                // Only held operations are left, if any: wait for the first one's turn.
                let Some(mut operation) = self.held.pop_front() else { return Ok(()) };
                operation.turn = Some(self.turns.take(operation.class));
                self.carrier.start(operation);
                continue;
            }
            // While some are held, look again after each completion: it may free a turn.
            let most = if self.held.is_empty() { running } else { 1 };
            self.carrier.reap(wanted.min(most), out)?;
            if out.len() - before >= least {
                return Ok(());
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.carrier.running() + self.held.len() + self.refused.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}
