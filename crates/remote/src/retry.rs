//! Retry: which answers of a store are worth another try, and after how long. Pure.

use std::time::Duration;

/// Tries of one request, the first among them.
pub(crate) const TRIES_MAX: u32 = 8;
/// Longest wait between two tries.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Wait after the first try.
const WAIT_FIRST: Duration = Duration::from_millis(100);

/// Whether an answer of `status`, with the error code `code`, may be another one the next time.
pub(crate) fn is_passing(status: u16, code: &str) -> bool {
    match status {
        408 | 425 | 429 | 500 | 502 | 503 | 504 => true,
        400 => matches!(code, "RequestTimeout" | "IncompleteBody" | "BadDigest"),
        409 => matches!(code, "ConditionalRequestConflict" | "OperationAborted"),
        _ => false,
    }
}

/// The wait before try `next`, which counts from 1 for the second. `asked` is the wait that the store asked
/// for, and `noise` any number, which spreads the tries of several callers.
pub(crate) fn wait(next: u32, asked: Option<Duration>, noise: u64) -> Duration {
    let doubled = WAIT_FIRST.saturating_mul(1 << next.saturating_sub(1).min(16)).min(WAIT_MAX);
    // Between half of it and all of it.
    let spread = doubled / 2 + doubled.mul_f64((noise % 1024) as f64 / 2048.0);
    spread.max(asked.unwrap_or_default()).min(WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_are_bounded() {
        let first = wait(1, None, 0);
        assert_eq!(
            (first, wait(3, None, 0)),
            (Duration::from_millis(50), Duration::from_millis(200))
        );
        for noise in [0, 1, 1023, u64::MAX] {
            for next in 1..40 {
                let wait = wait(next, None, noise);
                assert!(wait <= WAIT_MAX && wait >= WAIT_FIRST / 2, "{next} {noise}: {wait:?}");
            }
        }
        let asked = Some(Duration::from_secs(3));
        assert_eq!(wait(1, asked, 0), Duration::from_secs(3));
        assert_eq!(wait(1, Some(Duration::from_secs(3600)), 0), WAIT_MAX);
    }

    #[test]
    fn only_answers_that_pass_are_tried_again() {
        for (status, code) in
            [(429, ""), (500, "InternalError"), (503, "SlowDown"), (400, "RequestTimeout")]
        {
            assert!(is_passing(status, code), "{status} {code}");
        }
        for (status, code) in
            [(403, "AccessDenied"), (400, "ExpiredToken"), (404, ""), (412, ""), (501, "")]
        {
            assert!(!is_passing(status, code), "{status} {code}");
        }
    }
}
