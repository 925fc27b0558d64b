//! Many operations of one thread in flight: turns by class in front of a ring or a pool.

use std::collections::VecDeque;
use std::fs;
use std::io;
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
    /// [`Carrier::running`]), and appends everything that is complete.
    fn reap(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()>;

    /// Started and not reaped.
    fn running(&self) -> usize;
}

/// An operation under way. Owns what the device works on.
pub(super) struct Operation {
    pub(super) transfer: Transfer,
    file: Arc<dyn File>,
    token: u64,
    turn: Turn,
}

impl Operation {
    /// The operating system's handle.
    pub(super) fn handle(&self) -> Result<&fs::File> {
        own(&*self.file).map(DiskFile::file)
    }

    pub(super) const fn class(&self) -> Class {
        self.turn.class()
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

/// An operation that waits for its turn.
struct Held {
    transfer: Transfer,
    file: Arc<dyn File>,
    token: u64,
    class: Class,
}

impl Held {
    fn start(self, turn: Turn) -> Operation {
        Operation { transfer: self.transfer, file: self.file, token: self.token, turn }
    }
}

/// The queue of a directory's files.
pub(super) struct FileQueue<C> {
    carrier: C,
    turns: Arc<Turns>,
    held: VecDeque<Held>,
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
            let Some(held) = self.held.pop_front() else { return };
            match self.turns.try_take(held.class) {
                Some(turn) => self.carrier.start(held.start(turn)),
                None => self.held.push_back(held),
            }
        }
    }
}

impl<C: Carrier> Queue for FileQueue<C> {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.in_flight() >= self.depth {
            return Err(Refused(request));
        }
        let Request { file, op, purpose, token } = request;
        let transfer = match own(&*file) {
            Ok(own) => Transfer::new(own.name(), op),
            Err(error) => Err((op.into_buf(), error)),
        };
        match transfer {
            Ok(transfer) => {
                let held = Held { transfer, file, token, class: purpose.class() };
                let turn = if self.held.is_empty() || purpose.class() <= Class::Read {
                    self.turns.try_take(held.class)
                } else {
                    None
                };
                match turn {
                    Some(turn) => self.carrier.start(held.start(turn)),
                    None => self.held.push_back(held),
                }
            }
            Err((buf, error)) => self.refused.push(Completion { token, buf, result: Err(error) }),
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
                let Some(held) = self.held.pop_front() else { return Ok(()) };
                let turn = self.turns.take(held.class);
                self.carrier.start(held.start(turn));
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
