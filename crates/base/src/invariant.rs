//! Invariants, checked at run time: after one is broken, nothing more is written.
//!
//! [`invariant!`](crate::invariant!) checks a condition that the code relies on. If the condition is false, a
//! build with debug assertions (tests, simulation, `cargo xtask long`) panics. A release build records the
//! first broken invariant of the process. From then on, every append to a log or a manifest fails with a
//! `Poisoned` error that names the invariant ([`unbroken`]); reads go on. The record belongs to the process
//! and not to one store, because stores share caches, memory accounts and background threads.
//!
//! Check an invariant in the code that relies on it, and word it as the condition that holds: `"a sealed
//! memtable is flushed before a newer one"`. Bytes from outside are not invariants: check them and return
//! `Corrupt`.

use std::sync::OnceLock;

use crate::{Error, ErrorKind, Result};

/// The first broken invariant of the process, with the file and line of its check.
static BROKEN: OnceLock<(&str, &str, u32)> = OnceLock::new();

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
    #[expect(clippy::panic, reason = "a broken invariant ends a test at the check")]
    if cfg!(debug_assertions) {
        panic!("broken invariant: {holds} ({file}:{line})");
    }
    let (holds, file, line) = *BROKEN.get_or_init(|| (holds, file, line));
    error(holds, file, line)
}

fn error(holds: &'static str, file: &'static str, line: u32) -> Error {
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
        Some(&(holds, file, line)) => Err(error(holds, file, line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_true_condition_is_not_recorded() {
        invariant!(1 + 1 == 2, "numbers add up");
        assert!(unbroken().is_ok());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "broken invariant: numbers add up")]
    fn a_false_condition_panics_with_debug_assertions() {
        invariant!(1 + 1 == 3, "numbers add up");
    }

    #[test]
    fn the_error_names_the_invariant_and_its_source_line() {
        let error = error("numbers add up", "sum.rs", 7);
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        let text = error.to_string();
        assert!(text.contains("numbers add up") && text.contains("sum.rs:7"), "{text}");
    }
}
