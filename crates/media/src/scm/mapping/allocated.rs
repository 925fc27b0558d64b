//! Miri supports neither mapped files nor NUMA policies: the allocator stands in.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs;
use std::io;
use std::ptr::NonNull;

use base::limits::PAGE_BYTES;

use super::Mapping;

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, PAGE_BYTES).unwrap_or(Layout::new::<u8>())
}

impl Mapping {
    pub(in crate::scm) fn shared(_: &fs::File, _: usize, _: bool) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::scm) fn read_only(_: &fs::File, _: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::scm) fn anonymous(len: usize) -> io::Result<Self> {
        // SAFETY: callers ask for at least a page.
        let start = NonNull::new(unsafe { alloc_zeroed(layout(len)) });
        Ok(Self { start: start.ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    pub(in crate::scm) fn is_lost(&self) -> bool {
        false
    }

    pub(in crate::scm) fn populate(&self) -> io::Result<()> {
        Ok(())
    }

    pub(in crate::scm) fn bind(&self, _node: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::scm) fn sync(&self, _at: usize, _len: usize) -> io::Result<()> {
        Ok(())
    }

    pub(in crate::scm) fn write_back(&self, _at: usize, _len: usize) {}

    pub(in crate::scm) fn fence(&self) {}

    pub(in crate::scm) fn flush(&self, _at: usize, _len: usize) {}
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: allocated with this very layout, and dropped once.
        unsafe { dealloc(self.start.as_ptr(), layout(self.len)) }
    }
}
