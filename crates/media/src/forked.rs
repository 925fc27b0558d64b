//! For tests: a closure in a forked child process. `fork` is `unsafe`, which other crates forbid.

use std::io::{PipeWriter, Read, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A child that runs for longer hangs.
const LONGEST: Duration = Duration::from_secs(120);

/// Runs `work` in a forked child of this process and waits for its end. Returns what `work` wrote to the
/// pipe. Only the calling thread exists in the child, so `work` must not take a lock that another thread
/// may hold.
///
/// # Errors
/// Why there is no child, or why it did not end well: it panicked, or hangs.
pub fn in_forked_child(work: impl FnOnce(&mut PipeWriter)) -> Result<String, String> {
    let (mut from_child, mut to_parent) = pipe().map_err(|error| error.to_string())?;
    // SAFETY: the child runs `work` on its only thread and ends with `_exit`; it returns to no caller.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    if child == 0 {
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&mut to_parent)));
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    drop(to_parent);
    let status = wait(child);
    let mut said = String::new();
    let read = from_child.read_to_string(&mut said);
    match (status, read) {
        (Some(0), Ok(_)) => Ok(said),
        (Some(status), _) => Err(format!("the child ended with status {status:#x}: {said}")),
        (None, _) => Err(format!("the child hangs: {said}")),
    }
}

/// The exit status of `child`; none if it did not end, and was killed.
fn wait(child: libc::pid_t) -> Option<i32> {
    let (began, mut status) = (Instant::now(), 0);
    loop {
        // SAFETY: `status` is live, and `child` is a child of this process that nothing else waits for.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 if began.elapsed() < LONGEST => sleep(Duration::from_millis(2)),
            0 => {
                // SAFETY: accesses no memory; the child was not waited for, so the id is still its own.
                unsafe { libc::kill(child, libc::SIGKILL) };
                // SAFETY: as above.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                return None;
            }
            _ => return Some(status),
        }
    }
}
