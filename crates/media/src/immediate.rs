//! The queue of media that complete an operation at once: memory, the faulty device, and media over others.

use base::Result;

use crate::{Completion, File, Op, Queue, Refused, Request, check};

/// Performs each operation as it is submitted and keeps the completion until it is collected.
pub struct Immediate {
    done: Vec<Completion>,
    depth: usize,
    /// The file that performs the operations of a file that was submitted; `None` for one of another medium.
    own: fn(&dyn File) -> Option<&dyn File>,
}

impl Immediate {
    /// A queue for `depth` operations, at least one, on any files.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        Self { done: Vec::new(), depth: depth.max(1), own: |file| Some(file) }
    }

    /// As [`Immediate::new`], on files of the type `F` alone, without their decorators.
    pub(crate) fn of<F: File + 'static>(depth: usize) -> Self {
        let own: fn(&dyn File) -> Option<&dyn File> =
            |file| file.undecorated().downcast_ref::<F>().map(|file| file as &dyn File);
        Self { own, ..Self::new(depth) }
    }
}

impl Queue for Immediate {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.done.len() >= self.depth {
            return Err(Refused(request));
        }
        let Request { file, op, purpose, token } = request;
        let (buf, result) = match ((self.own)(&*file), op) {
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
