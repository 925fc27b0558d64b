//! Errors.

use std::ffi::{CString, c_char};

use terracedb::{Error, ErrorKind, Retry};

/// An error. Free it with `tdb_error_free`.
pub struct tdb_error {
    message: CString,
    code: tdb_code,
    retry: tdb_retry,
}

/// The kind of an error: what the caller should do.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum tdb_code {
    /// A temporary condition: try again later.
    Retry = 1,
    /// The request, a setting or the environment is wrong.
    Invalid = 2,
    /// The request names something that does not exist.
    NotFound = 3,
    /// The request creates something that exists.
    AlreadyExists = 4,
    /// Stored bytes are damaged: run `terrace check`.
    Corrupt = 5,
    /// The device is full; deletes still work.
    NoSpace = 6,
    /// An earlier failure makes writes unsafe: open the store again.
    Poisoned = 7,
    /// The store or the keyspace was closed or dropped.
    Closed = 8,
    /// Another write came between: run the transaction again.
    Conflict = 9,
    /// Another open store has the directory: close that one.
    Locked = 10,
    /// The system refuses access to a file or directory.
    PermissionDenied = 11,
    /// Another kind, of a newer version.
    Other = 99,
}

/// Whether the same call may succeed if it is made again.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum tdb_retry {
    /// Never: something must change first.
    Never = 0,
    /// At once.
    Now = 1,
    /// Later: background work or other calls hold what it needs.
    Later = 2,
}

impl tdb_error {
    pub(crate) fn raw(error: &Error) -> *mut Self {
        let text = error.to_string().replace('\0', "\\0");
        let code = match error.kind() {
            ErrorKind::Retry => tdb_code::Retry,
            ErrorKind::Invalid => tdb_code::Invalid,
            ErrorKind::NotFound => tdb_code::NotFound,
            ErrorKind::AlreadyExists => tdb_code::AlreadyExists,
            ErrorKind::Corrupt => tdb_code::Corrupt,
            ErrorKind::NoSpace => tdb_code::NoSpace,
            ErrorKind::Poisoned => tdb_code::Poisoned,
            ErrorKind::Closed => tdb_code::Closed,
            ErrorKind::Conflict => tdb_code::Conflict,
            ErrorKind::Locked => tdb_code::Locked,
            ErrorKind::PermissionDenied => tdb_code::PermissionDenied,
            _ => tdb_code::Other,
        };
        let retry = match error.when_to_retry() {
            Retry::Now => tdb_retry::Now,
            Retry::Later => tdb_retry::Later,
            _ => tdb_retry::Never,
        };
        let message = CString::new(text).unwrap_or_default();
        Box::into_raw(Box::new(Self { message, code, retry }))
    }
}

/// Runs `work` and stores its result through `out`, or returns its error. A result without a place would be
/// lost, so `out` is looked at first.
///
/// # Safety
/// `out` is NULL or valid for a write.
pub(crate) unsafe fn give<T>(
    out: *mut T,
    work: impl FnOnce() -> terracedb::Result<T>,
) -> *mut tdb_error {
    if out.is_null() {
        return tdb_error::raw(&Error::invalid("result pointer").got("NULL"));
    }
    done(work().map(|value| {
        // SAFETY: as promised by the caller, and not NULL.
        unsafe { out.write(value) };
    }))
}

/// NULL for success, or the error.
pub(crate) fn done(result: terracedb::Result<()>) -> *mut tdb_error {
    result.map_or_else(|error| tdb_error::raw(&error), |()| std::ptr::null_mut())
}

/// The text of an error, which lives as long as the error.
///
/// # Safety
/// `error` is an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_error_message(error: *const tdb_error) -> *const c_char {
    // SAFETY: the caller passes NULL or a live error.
    unsafe { error.as_ref() }.map_or(std::ptr::null(), |error| error.message.as_ptr())
}

/// The kind of an error.
///
/// # Safety
/// `error` is an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_error_code(error: *const tdb_error) -> tdb_code {
    // SAFETY: the caller passes NULL or a live error.
    unsafe { error.as_ref() }.map_or(tdb_code::Other, |error| error.code)
}

/// Whether the call that failed may succeed if it is made again.
///
/// # Safety
/// `error` is an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_error_retry(error: *const tdb_error) -> tdb_retry {
    // SAFETY: the caller passes NULL or a live error.
    unsafe { error.as_ref() }.map_or(tdb_retry::Never, |error| error.retry)
}

/// Frees an error. NULL is allowed.
///
/// # Safety
/// `error` is NULL or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_error_free(error: *mut tdb_error) {
    if !error.is_null() {
        // SAFETY: it came from `Box::into_raw`, and the caller frees it once.
        drop(unsafe { Box::from_raw(error) });
    }
}
