//! Waiting for other threads, on a machine of any speed.

use std::time::{Duration, Instant};

/// A bound that no machine reaches under any load: it only ends a test that would hang.
const NEVER: Duration = Duration::from_secs(300);

/// Calls `ask` until it returns a value; panics with `what` after [`NEVER`].
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < NEVER, "waited for {NEVER:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
