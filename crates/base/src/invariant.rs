//! Broken invariants: noticed at once, and nothing is written on a false premise.
//!
//! [`invariant!`](crate::invariant!) states what holds at one place. Where it does not hold, a build with
//! debug assertions (tests, simulation, `cargo xtask long`) panics. A release build records the first broken
//! invariant of the process: from then on every append to a log and to a manifest is refused with an error
//! of kind `Poisoned` that names it ([`unbroken`]), and reads go on. The record belongs to the process
//! and not to one store, because stores share caches, memory accounts and background threads.
//!
//! State an invariant where code relies on it, in words that say what holds: `"a sealed memtable is flushed
//! before a newer one"`. Bytes from outside are no invariant: they are checked, and are `Corrupt`.

use std::sync::OnceLock;

use crate::{Error, ErrorKind, Result};

/// The first invariant that did not hold, and the source line that noticed it.
static BROKEN: OnceLock<(&str, &str, u32)> = OnceLock::new();

/// Checks that a condition holds that this code relies on (see the module `base::invariant`).
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

/// The error of an invariant that does not hold, for a function that cannot go on without it. Noted as
/// [`invariant!`](crate::invariant!) notes it: a build with debug assertions panics here.
#[macro_export]
macro_rules! broken_invariant {
    ($holds:literal) => {
        $crate::note_broken($holds, file!(), line!())
    };
}

/// Notes that an invariant does not hold; the error that tells of it. Called by the macros.
///
/// # Panics
/// In builds with debug assertions, always.
#[cold]
#[inline(never)]
pub fn note_broken(holds: &'static str, file: &'static str, line: u32) -> Error {
    #[expect(clippy::panic, reason = "a broken invariant ends a test where it is noticed")]
    if cfg!(debug_assertions) {
        panic!("broken invariant: {holds} ({file}:{line})");
    }
    let (holds, file, line) = *BROKEN.get_or_init(|| (holds, file, line));
    error(holds, file, line)
}

fn error(holds: &'static str, file: &'static str, line: u32) -> Error {
    Error::new(ErrorKind::Poisoned, "invariant").at(format_args!("{file}:{line}")).expected(holds)
}

/// Fails once an invariant of the process was broken. Every append to a log or a manifest asks first.
///
/// # Errors
/// `Poisoned`, naming the first broken invariant and its source line.
#[inline]
pub fn unbroken() -> Result<()> {
    match BROKEN.get() {
        None => Ok(()),
        Some(&(holds, file, line)) => Err(error(holds, file, line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_holds_is_not_noted() {
        invariant!(1 + 1 == 2, "numbers add up");
        assert!(unbroken().is_ok());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "broken invariant: numbers add up")]
    fn a_broken_invariant_panics_with_debug_assertions() {
        invariant!(1 + 1 == 3, "numbers add up");
    }

    #[test]
    fn the_error_names_the_invariant_and_the_line() {
        let error = error("numbers add up", "sum.rs", 7);
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        let text = error.to_string();
        assert!(text.contains("numbers add up") && text.contains("sum.rs:7"), "{text}");
    }
}
