//! The checks that every medium makes on its arguments: names, alignment, ranges. Pure.

use base::limits::PAGE_BYTES;
use base::{Error, Result};

/// The longest file name, bytes: far below the limit of every file system.
pub(crate) const NAME_BYTES_MAX: usize = 128;

/// The name of the file that holds a directory's lock; no other file may have it.
pub(crate) const LOCK_NAME: &str = "LOCK";

/// True for letters, digits, `.`, `-` and `_`, not hidden, not the lock: a name that no path, shell or file
/// system interprets in any other way.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && name != LOCK_NAME
        && name.bytes().all(plain)
}

/// `Invalid` unless [`is_name`].
pub(crate) fn name(name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
    Err(Error::invalid("file name")
        .expected(format_args!(
            "1 to {NAME_BYTES_MAX} letters, digits, '.', '-' or '_', not first '.', not {LOCK_NAME}"
        ))
        .got(format_args!("{shown:?}")))
}

/// The end of `len` bytes at `at`; `Invalid` if it is past the longest possible file.
pub(crate) fn end(name: &str, at: u64, len: usize) -> Result<u64> {
    // Offsets are signed in the kernel.
    match at.checked_add(len as u64).filter(|end| i64::try_from(*end).is_ok()) {
        Some(end) => Ok(end),
        None => Err(Error::invalid("file offset").at(name).expected("below 2^63").got(at)),
    }
}

/// `Invalid` unless `at` and `len` are whole pages.
pub(crate) fn aligned(name: &str, at: u64, len: usize) -> Result<()> {
    end(name, at, len)?;
    if at.is_multiple_of(PAGE_BYTES as u64) && len.is_multiple_of(PAGE_BYTES) {
        return Ok(());
    }
    Err(Error::invalid("unaligned operation")
        .at(name)
        .expected(format_args!("multiples of {PAGE_BYTES}"))
        .got(format_args!("{len} bytes at offset {at}")))
}

/// How many of `len` bytes at `at` a file of `size` bytes holds. `Corrupt` if the file ends before the last
/// block of the range.
pub(crate) fn readable(name: &str, at: u64, len: usize, size: u64) -> Result<usize> {
    base::invariant!(len.is_multiple_of(PAGE_BYTES), "the alignment of a read is checked first");
    let held = usize::try_from(size.saturating_sub(at)).unwrap_or(usize::MAX).min(len);
    if held.next_multiple_of(PAGE_BYTES) >= len {
        return Ok(held);
    }
    Err(Error::corrupt("file is too short")
        .at(name)
        .expected(format_args!("{len} bytes at offset {at}"))
        .got(format_args!("a length of {size}")))
}

/// The error of a queue that is given a file of another medium.
#[cold]
pub(crate) fn foreign(name: &str) -> Error {
    Error::invalid("file of another medium").at(name).expected("a file of the queue's own medium")
}

/// The error of a name that exists.
#[cold]
pub(crate) fn exists(name: &str) -> Error {
    Error::invalid("file exists already").at(name)
}

/// The error of a name that does not exist.
#[cold]
pub(crate) fn missing(name: &str) -> Error {
    Error::invalid("no such file").at(name)
}

/// The error of [`crate::File::store`] on a file opened for direct access.
#[cold]
pub(crate) fn not_bytes(name: &str) -> Error {
    Error::invalid("byte store into a file opened for direct access").at(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorKind;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for good in ["000001.table", "log-0-17", "MANIFEST_2", "a"] {
            name(good).unwrap();
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for bad in ["", ".", "..", "../x", "a/b", "/etc", ".hidden", "a\0b", "é", "LOCK", &long] {
            assert_eq!(name(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn only_the_last_block_of_a_read_may_be_partial() {
        assert_eq!(readable("f", 0, 8192, 9000).unwrap(), 8192);
        assert_eq!(readable("f", 0, 8192, 5000).unwrap(), 5000);
        assert_eq!(readable("f", 4096, 4096, 4097).unwrap(), 1);
        assert!(readable("f", 0, 8192, 4096).is_err());
        assert!(readable("f", 4096, 4096, 4096).is_err());
        assert!(end("f", u64::MAX, 1).is_err() && end("f", 1 << 63, 1).is_err());
        assert!(aligned("f", 512, 4096).is_err());
    }
}
