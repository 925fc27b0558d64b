//! Waiting for what other threads bring about, on a machine of any speed.

use std::time::{Duration, Instant};

/// Longer than any machine takes, whatever runs beside the test: it ends only a test that would hang.
const NEVER: Duration = Duration::from_secs(300);

/// Asks until there is an answer; panics, saying `what` was awaited, where none comes.
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
