//! Signals that end a command: SIGINT (Ctrl-C), SIGTERM and SIGHUP.
//!
//! A store survives the end of its process at any moment, so most commands end at once. A command with an
//! output in the making is in a [`Section`] meanwhile: it sees the request, removes its output, and ends. A
//! second signal ends every command at once. The exit status is 128 and the signal's number.
//!
//! The handler sets a flag only; a thread does the rest. `terrace serve` has handlers of its own.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use base::Cancel;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use terracedb::Result;

use crate::output::report_to_stderr;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Longest time after a signal until blocked reads of standard input notice it.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time after a signal in which a command that prints may end its line; a full pipe may keep it for ever.
const GRACE: Duration = Duration::from_secs(1);

/// Tries to remove a directory into which threads of the ended command still write.
const REMOVALS_MAX: u32 = 100;

/// The state of this process: it has at most one command.
struct State {
    cancel: Cancel,
    /// The sections and the temporary files of the command.
    sections: Mutex<Sections>,
    /// The number of the latest signal; 0 before there was one.
    signal: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Sections {
    /// Number of sections that end by themselves.
    open: usize,
    /// Number of sections that end by themselves within [`GRACE`].
    brief: usize,
    /// Files and directories to remove before the process ends.
    scratch: Vec<PathBuf>,
    /// Processes to pass the signal on to.
    children: Vec<u32>,
}

static STATE: OnceLock<State> = OnceLock::new();

fn state() -> &'static State {
    STATE.get_or_init(|| State {
        cancel: Cancel::new(),
        sections: Mutex::default(),
        signal: Arc::default(),
    })
}

fn sections() -> std::sync::MutexGuard<'static, Sections> {
    // No code panics with the lock held.
    state().sections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handles signals from now on. If that is not possible, they end the process as they do by default.
pub(crate) fn watch() {
    for signal in SIGNALS {
        // Set by the handler itself: the same Ctrl-C ends the writer of a pipe, and the pipe may end before
        // the thread runs.
        let number = usize::try_from(signal).unwrap_or_default();
        drop(flag::register_usize(signal, Arc::clone(&state().signal), number));
        drop(flag::register(signal, state().cancel.flag()));
    }
    let Ok(mut signals) = Signals::new(SIGNALS) else { return };
    let spawned = thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for (before, signal) in signals.forever().enumerate() {
            let (open, brief) = {
                let sections = sections();
                (sections.open, sections.brief)
            };
            if before == 0 && open > 0 {
                continue;
            }
            if before == 0 && brief > 0 {
                thread::sleep(GRACE);
            }
            end(signal);
        }
    });
    drop(spawned);
}

/// Removes the temporary files of the command, and ends the process.
fn end(signal: i32) -> ! {
    let Sections { scratch, children, .. } = std::mem::take(&mut *sections());
    for child in children {
        if let (Some(pid), Some(signal)) =
            (i32::try_from(child).ok().and_then(Pid::from_raw), Signal::from_named_raw(signal))
        {
            let _ = kill_process(pid, signal);
        }
    }
    for path in scratch {
        for _ in 0..REMOVALS_MAX {
            let removed = match path.is_dir() {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            if removed.is_ok() || path.symlink_metadata().is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
    report_to_stderr("interrupted");
    exit(128 + signal)
}

/// The exit status of a command that failed after a signal; `None` if there was none.
pub(crate) fn exit_status() -> Option<u8> {
    state().cancel.is_cancelled().then(|| {
        report_to_stderr("interrupted");
        u8::try_from(128 + state().signal.load(Ordering::Relaxed)).unwrap_or(u8::MAX)
    })
}

/// The request to end, for operations that take one.
pub(crate) fn cancel() -> Cancel {
    state().cancel.clone()
}

/// Ends `operation` if there was a signal.
///
/// # Errors
/// `Cancelled` then.
pub(crate) fn check(operation: &'static str) -> Result<()> {
    state().cancel.check(operation)
}

/// A part of a command that sees the request to end, and then removes its unfinished output.
pub(crate) struct Section {
    is_brief: bool,
}

impl Section {
    /// Begins the section, which ends when it is dropped.
    pub(crate) fn begin() -> Self {
        sections().open += 1;
        Self { is_brief: false }
    }

    /// Begins a section that only prints: the process does not wait long for its end.
    pub(crate) fn printing() -> Self {
        sections().brief += 1;
        Self { is_brief: true }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        let mut sections = sections();
        let count = if self.is_brief { &mut sections.brief } else { &mut sections.open };
        *count = count.saturating_sub(1);
    }
}

/// A file or directory that is removed if a signal ends the process.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(path: &Path) -> Self {
        sections().scratch.push(path.to_owned());
        Self(path.to_owned())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        sections().scratch.retain(|path| *path != self.0);
    }
}

/// A child process that a signal ends with this one.
pub(crate) struct Child(u32);

impl Child {
    pub(crate) fn of(child: &std::process::Child) -> Self {
        sections().children.push(child.id());
        Self(child.id())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        sections().children.retain(|child| *child != self.0);
    }
}

/// Standard input. Its reads end after a signal, even if nothing comes.
pub(crate) struct Stdin(io::StdinLock<'static>);

impl Stdin {
    pub(crate) fn new() -> Self {
        Self(io::stdin().lock())
    }
}

impl Read for Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let interval = Timespec { tv_sec: 0, tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()) };
        loop {
            if state().cancel.is_cancelled() {
                return Err(io::Error::other("interrupted"));
            }
            let input = self.0.as_fd();
            let mut polled = [PollFd::new(&input, PollFlags::IN)];
            match poll(&mut polled, Some(&interval)) {
                // Something can be read, or the writer has closed the pipe. A file that cannot be polled
                // does not block.
                Ok(1..) => break,
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        // Past the buffer of the lock, in which bytes could wait unseen.
        let count = loop {
            match rustix::io::read(self.0.as_fd(), &mut *buf) {
                Err(rustix::io::Errno::INTR) => {}
                read => break read?,
            }
        };
        if count == 0 && state().cancel.is_cancelled() {
            // The writer was interrupted with this command: the input is not complete.
            return Err(io::Error::other("interrupted"));
        }
        Ok(count)
    }
}
