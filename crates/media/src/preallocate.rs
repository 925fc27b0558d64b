//! Space allocated to a file before it is written.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, fallocate, fstat, fstatvfs};
use rustix::io::{Errno, Result};

/// Allocates the first `len` bytes of `file`.
///
/// A file system may allocate all of its free space before it finds that it is not enough, and free it only
/// then: for seconds every other write finds the device full. So the free space is compared first, and a
/// request that exceeds it is not made.
///
/// # Errors
/// `NOSPC` if there is not enough free space; otherwise the error of the system.
pub(crate) fn preallocate(file: &File, mode: FallocateFlags, len: u64) -> Result<()> {
    let held = u64::try_from(fstat(file)?.st_blocks).unwrap_or(0).saturating_mul(512);
    // Some file systems that have no fixed size report no block count.
    if let Ok(system) = fstatvfs(file)
        && system.f_blocks > 0
        && len.saturating_sub(held) > system.f_bfree.saturating_mul(system.f_frsize)
    {
        return Err(Errno::NOSPC);
    }
    fallocate(file.as_fd(), mode, 0, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_allocated_and_a_request_beyond_it_is_not_made() {
        let file = tempfile::tempfile().unwrap();
        match preallocate(&file, FallocateFlags::empty(), 1 << 20) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return,
            done => done.unwrap(),
        }
        assert_eq!(preallocate(&file, FallocateFlags::empty(), 15 << 40), Err(Errno::NOSPC));
        assert_eq!(fstat(&file).unwrap().st_size, 1 << 20);
        // Space that the file already has counts.
        preallocate(&file, FallocateFlags::empty(), (1 << 20) + 4096).unwrap();
    }
}
