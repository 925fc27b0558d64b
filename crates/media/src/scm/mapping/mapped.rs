//! The system calls on mapped memory.

use std::fs;
use std::io;
use std::ptr::{NonNull, null_mut};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};

use super::Mapping;
use crate::scm::watch::Watch;

impl Mapping {
    /// Maps the first `len` bytes of `file`, which must be allocated, or of a device. With
    /// `is_synchronous`, only if flushed stores need no sync of the file (real DAX).
    pub(in crate::scm) fn shared(
        file: &fs::File,
        len: usize,
        is_synchronous: bool,
    ) -> io::Result<Self> {
        let flags = match is_synchronous {
            true => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            false => MapFlags::SHARED,
        };
        Self::of(file, len, ProtFlags::READ | ProtFlags::WRITE, flags, Watch::new()?)
    }

    /// Maps the first `len` bytes of `file` for loads.
    pub(in crate::scm) fn read_only(file: &fs::File, len: usize) -> io::Result<Self> {
        Self::of(file, len, ProtFlags::READ, MapFlags::SHARED, Watch::spare()?)
    }

    fn of(
        file: &fs::File,
        len: usize,
        access: ProtFlags,
        flags: MapFlags,
        watch: Watch,
    ) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let start = unsafe { mmap(null_mut(), len, access, flags, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        let mapping = Self { start, len, watch };
        mapping.watch.begin(start, len)?;
        Ok(mapping)
    }

    /// `len` zeroed bytes outside any file system, allocated on first access. Shared memory, so that the
    /// system counts it separately from the process's own (`RssShmem`).
    pub(in crate::scm) fn anonymous(len: usize) -> io::Result<Self> {
        let file = fs::File::from(memfd_create("terrace-scm", MemfdFlags::CLOEXEC)?);
        file.set_len(len as u64)?;
        Self::shared(&file, len, false)
    }

    /// Whether the medium took bytes away since they were mapped: then no earlier read is valid.
    pub(in crate::scm) fn is_lost(&self) -> bool {
        self.watch.is_lost()
    }

    /// Allocates all of the memory now, so that a shortage is an error here and no signal later.
    pub(in crate::scm) fn populate(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping's own, shared and writable; no byte of it changes.
        unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxPopulateWrite) }?;
        Ok(())
    }

    /// Allocates every page that is first accessed from now on from NUMA node `node` only.
    pub(in crate::scm) fn bind(&self, node: u32) -> io::Result<()> {
        let bits = libc::c_ulong::BITS;
        let mut mask: [libc::c_ulong; 16] = [0; 16];
        let word = mask.get_mut((node / bits) as usize).ok_or(io::ErrorKind::InvalidInput)?;
        *word = 1 << (node % bits);
        // The kernel reads one bit less than the length says.
        let mask_bits = mask.len() * bits as usize + 1;
        // SAFETY: the range is this mapping's own, and `mask` is live and as long as said.
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.len,
                libc::MPOL_BIND,
                mask.as_ptr(),
                mask_bits,
                0,
            )
        };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Writes `len` bytes at `at`, whole pages, to the file and waits for completion.
    pub(in crate::scm) fn sync(&self, at: usize, len: usize) -> io::Result<()> {
        let (start, len) = self.part(at, len);
        // SAFETY: the range lies within this mapping; no byte of it changes.
        unsafe { msync(start.cast(), len, MsyncFlags::SYNC) }?;
        Ok(())
    }

    /// Begins to flush `len` bytes at `at` from the processor's caches; [`Mapping::fence`] waits for it.
    pub(in crate::scm) fn write_back(&self, at: usize, len: usize) {
        let (start, len) = self.part(at, len);
        // SAFETY: the range lies within this mapping.
        unsafe { crate::scm::flush::write_back(start, len) };
    }

    /// Waits until the lines that this thread flushed are on the medium.
    pub(in crate::scm) fn fence(&self) {
        crate::scm::flush::fence();
    }

    /// Flushes `len` bytes at `at` from the processor's caches to the medium.
    pub(in crate::scm) fn flush(&self, at: usize, len: usize) {
        let (start, len) = self.part(at, len);
        // SAFETY: the range lies within this mapping.
        unsafe { crate::scm::flush::flush(start, len) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.watch.end();
        // SAFETY: mapped with this length and dropped once; no borrowed page outlives the owner. If
        // unmapping fails, the address range leaks.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
