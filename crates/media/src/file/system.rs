//! Errors and flags of the operating system, in the types of this crate and of the standard library.

use std::fmt;
use std::io;

use base::Error;
use rustix::fs::OFlags;

/// Flags in the type that the standard library expects.
pub(super) const fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// An error of the operating system, with advice if the process ran out of file handles.
#[cold]
pub(super) fn failed(what: &'static str, place: impl fmt::Display, error: io::Error) -> Error {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match error.raw_os_error() {
        Some(ENFILE | EMFILE) => Error::retry(what)
            .at(place)
            .expected("a free file handle (raise `ulimit -n`, or open fewer files)")
            .caused_by(error),
        _ => Error::io(what, place, error),
    }
}
