//! Ranges of cold files, and the threads that wait for them: a range of an object store takes tens of
//! milliseconds, and hundreds can be in flight.

use std::sync::Arc;

use base::limits::PAGE_BYTES;

use super::remote::Remote;
use crate::pool::{Pool, Threads, Work};
use crate::{Buf, Class, Completion, Purpose};

/// The most threads: ranges in flight of all queues of a store.
const THREADS_MAX: usize = 32;
/// Room for the client of an object store, with its encryption.
const STACK_BYTES: usize = 512 << 10;

/// The pool of one store.
pub(super) fn pool() -> Arc<Pool<Range>> {
    Pool::new(Threads { name: "terrace-cold", most: THREADS_MAX, stack_bytes: STACK_BYTES })
}

/// One read of a queue.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) at: u64,
    pub(super) buf: Buf,
    pub(super) token: u64,
}

/// Reads of one file, ascending, that are done as one range from the first to the end of the last.
pub(super) struct Range {
    pub(super) file: Arc<Remote>,
    pub(super) purpose: Purpose,
    pub(super) reads: Vec<Read>,
}

impl Range {
    /// The first offset and the end.
    pub(super) fn bounds(&self) -> (u64, u64) {
        let end = |read: &Read| read.at + read.buf.len() as u64;
        let first = self.reads.first().map_or(0, |read| read.at);
        (first, self.reads.iter().map(end).max().unwrap_or(first))
    }
}

impl Work for Range {
    fn class(&self) -> Class {
        Class::of(self.purpose)
    }

    fn operations(&self) -> usize {
        self.reads.len()
    }

    fn run(self, out: &mut Vec<Completion>) {
        let (first, end) = self.bounds();
        let Self { file, purpose, mut reads } = self;
        if reads.len() == 1 {
            let Some(Read { at, buf, token }) = reads.pop() else { return };
            let (buf, result) = file.read(at, buf, purpose);
            out.push(Completion { token, buf, result });
            return;
        }
        let pages = usize::try_from(end - first).unwrap_or(0).div_ceil(PAGE_BYTES);
        let (range, result) = file.fetch(reads.len(), first, Buf::pages(pages), purpose);
        let done = reads.into_iter().map(|Read { at, mut buf, token }| {
            let from = usize::try_from(at - first).unwrap_or(usize::MAX);
            let content = range.get(from..).and_then(|rest| rest.get(..buf.len()));
            base::invariant!(content.is_some(), "a merged range has its reads");
            if let Some(content) = content {
                buf.copy_from_slice(content);
            }
            Completion { token, buf, result: result.clone() }
        });
        out.extend(done);
    }
}
