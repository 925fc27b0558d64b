//! The queue of devices that complete an operation at once: memory, and the faulty device.

use std::marker::PhantomData;

use base::Result;

use crate::{Completion, File, Op, Queue, Refused, Request, check};

/// Performs each operation as it is submitted and keeps the completion until it is collected.
/// `F` is the device's own file type, without decorators.
pub(crate) struct Immediate<F> {
    done: Vec<Completion>,
    depth: usize,
    files: PhantomData<fn() -> F>,
}

impl<F> Immediate<F> {
    /// A queue for `depth` operations, at least one.
    pub(crate) fn new(depth: usize) -> Self {
        Self { done: Vec::new(), depth: depth.max(1), files: PhantomData }
    }
}

impl<F: File + 'static> Queue for Immediate<F> {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.done.len() >= self.depth {
            return Err(Refused(request));
        }
        let Request { file, op, purpose, token } = request;
        let (buf, result) = match (file.undecorated().downcast_ref::<F>(), op) {
            (Some(file), Op::Read { at, buf }) => file.read(at, buf, purpose),
            (Some(file), Op::Write { at, buf }) => file.write(at, buf, purpose),
            (None, op) => (op.into_buf(), Err(check::foreign(file.name()))),
        };
        self.done.push(Completion { token, buf, result });
        Ok(())
    }

    fn complete(&mut self, _least: usize, out: &mut Vec<Completion>) -> Result<()> {
        out.append(&mut self.done);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}
