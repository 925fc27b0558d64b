//! Operations in flight through threads that block in `pread` and `pwrite`: used if the kernel refuses
//! io_uring.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use base::Result;

use super::queue::{IoEngine, Operation};
use crate::pool::{Pool, PoolHandle, Threads, Work};
use crate::{Class, Completion};

/// A thread needs only the frame of a system call.
const STACK_BYTES: usize = 128 << 10;

/// A pool of at most `most` threads.
pub(super) fn pool(most: usize) -> Arc<Pool<Operation>> {
    Pool::new(Threads { name: "terrace-io", most, stack_bytes: STACK_BYTES })
}

impl Work for Operation {
    fn class(&self) -> Class {
        self.class()
    }

    fn operations(&self) -> usize {
        1
    }

    fn run(mut self, done: &mut Vec<Completion>) {
        let result = self.perform();
        done.push(self.complete(result));
    }
}

impl IoEngine for PoolHandle<Operation> {
    fn start(&mut self, operation: Operation) {
        self.start(operation);
    }

    fn reap(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        self.reap(least, out)
    }

    fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        self.descriptor()
    }

    fn running(&self) -> usize {
        self.running()
    }
}
