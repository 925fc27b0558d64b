//! One read or write of a file, completed over as many system calls as it needs.
//!
//! The kernel may transfer less than requested: a short operation is continued and an interrupted one
//! repeated, a bounded number of times. A blocking call and a ring use the same steps.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;

use base::limits::PAGE_BYTES;
use base::{Error, Result};

use crate::{Buf, Op, check};

/// The most system calls for one transfer that make no progress.
const TRIES_MAX: u32 = 64;

/// The most bytes in one system call; the kernel's limit is 2 GiB.
const CALL_BYTES_MAX: usize = 1 << 30;

/// The next step after a system call.
#[derive(Debug)]
pub(super) enum Step {
    /// Another system call.
    Again,
    /// The transfer is complete, or failed.
    Done(Result<()>),
}

/// A read or write in progress.
#[derive(Debug)]
pub(super) struct Transfer {
    op: Op,
    done: usize,
    tries: u32,
}

impl Transfer {
    /// # Errors
    /// `Invalid`, with the buffer, if the range is not aligned.
    pub(super) fn new(name: &str, op: Op) -> std::result::Result<Self, (Buf, Error)> {
        let (Op::Read { at, .. } | Op::Write { at, .. }) = op;
        match check::aligned(name, at, op.buf().len()) {
            Ok(()) => Ok(Self { op, done: 0, tries: 0 }),
            Err(error) => Err((op.into_buf(), error)),
        }
    }

    pub(super) const fn is_read(&self) -> bool {
        matches!(self.op, Op::Read { .. })
    }

    /// The offset in the file of the next call, and the bytes to transfer.
    pub(super) fn rest(&mut self) -> (u64, &mut [u8]) {
        let (Op::Read { at, buf } | Op::Write { at, buf }) = &mut self.op;
        base::invariant!(self.done < buf.len(), "a further call has bytes to transfer");
        let end = buf.len().min(self.done + CALL_BYTES_MAX);
        (*at + self.done as u64, buf.get_mut(self.done..end).unwrap_or_default())
    }

    /// Processes the result of a call on the file `name`.
    pub(super) fn advance(&mut self, name: &str, outcome: io::Result<usize>) -> Step {
        self.tries += 1;
        let moved = match outcome {
            Ok(moved) => moved,
            Err(error) if self.tries < TRIES_MAX && is_transient(&error) => return Step::Again,
            Err(error) => return Step::Done(Err(failed(&self.op, name, error))),
        };
        let reached = self.done + moved;
        base::invariant!(
            reached <= self.op.buf().len(),
            "the kernel transfers at most the bytes of the buffer"
        );
        if reached >= self.op.buf().len() {
            return Step::Done(Ok(()));
        }
        // Direct I/O continues at a whole block, so a partial block is transferred again.
        let whole = reached - reached % PAGE_BYTES;
        if whole > self.done {
            self.done = whole;
            self.tries = 0;
            return Step::Again;
        }
        match &mut self.op {
            Op::Read { at, buf } => {
                // No further whole block: the file ends here.
                let size = *at + reached as u64;
                Step::Done(check::readable(name, *at, buf.len(), size).map(|held| {
                    buf.get_mut(held..).unwrap_or_default().fill(0);
                }))
            }
            Op::Write { .. } if self.tries < TRIES_MAX => Step::Again,
            Op::Write { .. } => {
                let error = io::Error::from(io::ErrorKind::WriteZero);
                Step::Done(Err(failed(&self.op, name, error)))
            }
        }
    }

    /// Performs the whole transfer on the calling thread.
    pub(super) fn run(&mut self, file: &fs::File, name: &str) -> Result<()> {
        loop {
            let is_read = self.is_read();
            let (at, bytes) = self.rest();
            let outcome = if is_read { file.read_at(bytes, at) } else { file.write_at(bytes, at) };
            if let Step::Done(result) = self.advance(name, outcome) {
                return result;
            }
        }
    }

    pub(super) fn into_buf(self) -> Buf {
        self.op.into_buf()
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

#[cold]
fn failed(op: &Op, name: &str, error: io::Error) -> Error {
    let (Op::Read { at, .. } | Op::Write { at, .. }) = op;
    let what = if matches!(op, Op::Read { .. }) { "read" } else { "write" };
    super::system::failed(what, format_args!("{name}, offset {at}"), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorKind;

    fn read_of(pages: usize) -> Transfer {
        Transfer::new("f", Op::Read { at: 0, buf: Buf::pages(pages) }).unwrap()
    }

    #[test]
    fn short_and_interrupted_calls_go_on_at_a_whole_block() {
        let mut transfer = read_of(3);
        assert!(matches!(transfer.advance("f", Ok(5000)), Step::Again));
        let (at, rest) = transfer.rest();
        assert_eq!((at, rest.len()), (4096, 8192));
        let interrupted = Err(io::ErrorKind::Interrupted.into());
        assert!(matches!(transfer.advance("f", interrupted), Step::Again));
        assert!(matches!(transfer.advance("f", Ok(8192)), Step::Done(Ok(()))));
    }

    #[test]
    fn interruptions_and_writes_without_progress_are_bounded() {
        let mut transfer = read_of(1);
        let mut calls = 1;
        while let Step::Again = transfer.advance("f", Err(io::ErrorKind::Interrupted.into())) {
            calls += 1;
        }
        assert_eq!(calls, TRIES_MAX);
        let mut stuck = Transfer::new("f", Op::Write { at: 0, buf: Buf::pages(1) }).unwrap();
        let end = loop {
            if let Step::Done(end) = stuck.advance("f", Ok(0)) {
                break end;
            }
        };
        end.unwrap_err();
    }

    #[test]
    fn a_read_past_the_end_is_zeros_in_the_last_block_and_an_error_before_it() {
        let mut transfer = read_of(2);
        transfer.rest().1.fill(7);
        assert!(matches!(transfer.advance("f", Ok(4196)), Step::Again));
        assert!(matches!(transfer.advance("f", Ok(100)), Step::Done(Ok(()))));
        let buf = transfer.into_buf();
        assert_eq!((buf[4195], buf[4196]), (7, 0));
        let mut short = read_of(2);
        let Step::Done(Err(error)) = short.advance("f", Ok(100)) else { panic!("not over") };
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}
