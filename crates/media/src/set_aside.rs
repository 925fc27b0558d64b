//! Space that a file is given before it is written.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, fallocate, fstat, fstatvfs};
use rustix::io::{Errno, Result};

/// Sets the first `len` bytes of `file` aside.
///
/// A file system may take all the space that it has before it finds that this is too little, and give it
/// back only then: for seconds nobody else's writes find any. So it is not asked for what it cannot have.
///
/// # Errors
/// `NOSPC` where there is too little; the system's others.
pub(crate) fn set_aside(file: &File, mode: FallocateFlags, len: u64) -> Result<()> {
    let held = u64::try_from(fstat(file)?.st_blocks).unwrap_or(0).saturating_mul(512);
    // Some file systems, made as they are needed, do not count blocks.
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
    fn what_there_is_is_set_aside_and_what_there_is_not_is_not_tried() {
        let file = tempfile::tempfile().unwrap();
        match set_aside(&file, FallocateFlags::empty(), 1 << 20) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return,
            done => done.unwrap(),
        }
        assert_eq!(set_aside(&file, FallocateFlags::empty(), 15 << 40), Err(Errno::NOSPC));
        assert_eq!(fstat(&file).unwrap().st_size, 1 << 20);
        // What it has counts.
        set_aside(&file, FallocateFlags::empty(), (1 << 20) + 4096).unwrap();
    }
}
