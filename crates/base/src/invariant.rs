//! Invariants, checked at run time: after one is broken, nothing more is written.
//!
//! [`invariant!`](crate::invariant!) checks a condition that the code relies on. The first condition of the
//! process that is false is recorded. From then on, every append to a log or a manifest fails with a
//! `Poisoned` error that names the invariant ([`unbroken`]); reads go on. A build with debug assertions
//! (tests, simulation, `cargo xtask long`) panics as well. The record belongs to the process and not to one
//! store, because stores share caches, memory accounts and background threads.
//!
//! Check an invariant in the code that relies on it, and word it as the condition that holds: `"a sealed
//! memtable is flushed before a newer one"`. Bytes from outside are not invariants: check them and return
//! `Corrupt`.

use std::sync::OnceLock;

use crate::{Error, ErrorKind, Result};

/// The first broken invariant of the process, with the file and line of its check.
static BROKEN: OnceLock<(&'static str, &'static str, u32)> = OnceLock::new();

/// Checks a condition that the code relies on. See the module `base::invariant` for the effect of a failure.
///
/// ```
/// # use terrace_base as base;
/// use base::{Result, broken_invariant, invariant};
///
/// fn newest(runs: &[u64]) -> Result<u64> {
///     invariant!(runs.is_sorted(), "runs are ordered by age");
///     runs.last().copied().ok_or_else(|| broken_invariant!("a tree that is read has a run"))
/// }
/// assert_eq!(newest(&[1, 2]).unwrap(), 2);
/// ```
#[macro_export]
macro_rules! invariant {
    ($condition:expr, $holds:literal $(,)?) => {
        if !$condition {
            $crate::note_broken($holds, file!(), line!());
        }
    };
}

/// Records a broken invariant and evaluates to its error, for a function that cannot go on. As with
/// [`invariant!`](crate::invariant!), a build with debug assertions panics here.
#[macro_export]
macro_rules! broken_invariant {
    ($holds:literal) => {
        $crate::note_broken($holds, file!(), line!())
    };
}

/// Records a broken invariant and returns its error. Called by the macros.
///
/// # Panics
/// In builds with debug assertions, always.
#[cold]
#[inline(never)]
pub fn note_broken(holds: &'static str, file: &'static str, line: u32) -> Error {
    let first = *BROKEN.get_or_init(|| (holds, file, line));
    #[expect(clippy::panic, reason = "a broken invariant ends a test at the check")]
    if cfg!(debug_assertions) {
        panic!("broken invariant: {holds} ({file}:{line})");
    }
    error(first)
}

fn error((holds, file, line): (&'static str, &'static str, u32)) -> Error {
    Error::new(ErrorKind::Poisoned, "invariant").at(format_args!("{file}:{line}")).expected(holds)
}

/// Fails after an invariant of the process was broken. Every append to a log or a manifest calls this first.
///
/// # Errors
/// `Poisoned`, with the first broken invariant and the file and line of its check.
#[inline]
pub fn unbroken() -> Result<()> {
    match BROKEN.get() {
        None => Ok(()),
        Some(first) => Err(error(*first)),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    /// One test, because the record belongs to the process.
    #[test]
    fn the_first_false_condition_is_recorded_and_named() {
        invariant!(1 + 1 == 2, "numbers add up");
        assert!(unbroken().is_ok());
        for holds in ["numbers add up", "numbers are numbers"] {
            let caught = catch_unwind(|| note_broken(holds, "sum.rs", 7));
            assert_eq!(caught.is_err(), cfg!(debug_assertions));
            let error = unbroken().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned);
            let text = error.to_string();
            assert!(text.contains("numbers add up") && text.contains("sum.rs:7"), "{text}");
        }
    }
}
