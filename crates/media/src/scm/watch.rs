//! Mapped memory that goes away under its readers: a file that another program cuts, a module that fails.
//!
//! The next access there raises `SIGBUS`, which by default ends the process. The handler here looks whether
//! the address lies in a watched range. If so it notes that the range is lost and maps zeros over all of it,
//! so that the access goes on, with bytes that mean nothing: whoever read asks [`Watch::is_lost`]
//! afterwards, and if so has read nothing.
//!
//! Order: a loss is noted before zeros are mapped, so that whoever saw one sees the note, too. The note
//! is of the whole range and for good.
//!
//! The handler is the process's, set when the first range is watched. It allocates nothing and
//! locks nothing: atomics and one system call. What is none of its ranges it leaves to the handler that
//! was there before, or to what the system does by default.

use std::io;
use std::mem::transmute;
use std::ops;
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize, fence};

use base::limits::PAGE_BYTES;
use libc::{BUS_ADRERR, BUS_MCEERR_AO, BUS_MCEERR_AR, BUS_OBJERR};
use libc::{
    SA_ONSTACK, SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_IGN, SIGBUS, c_int, c_void, siginfo_t,
};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Ranges that can be watched at once: a store has one, and a test several stores.
const RANGES: usize = 64;

static WATCHED: [Range; RANGES] = [const { Range::new() }; RANGES];

/// A handler that is told all that is known.
type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// What the process did about the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Addresses that may be watched.
#[derive(Debug)]
struct Range {
    is_taken: AtomicBool,
    /// The first address, and the one past the last; zero while nothing is watched.
    start: AtomicUsize,
    end: AtomicUsize,
    is_lost: AtomicBool,
}

impl Range {
    const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Notes the loss if the address `at` is one of the range; the range, where it is.
    fn lose(&self, at: usize) -> Option<ops::Range<usize>> {
        let end = self.end.load(Acquire);
        let start = self.start.load(Acquire);
        // Of one and the same watch: `end` is zero in between.
        if !(start..end).contains(&at) || self.end.load(Acquire) != end {
            return None;
        }
        self.is_lost.store(true, SeqCst);
        Some(start..end)
    }
}

/// Has `map` put zeros where the range `lost` is, or at least on the page of the address `at`; whether
/// it did. A system that commits memory strictly may have none for all, and the rest faults in its turn.
fn replace(lost: ops::Range<usize>, at: usize, map: impl Fn(usize, usize) -> bool) -> bool {
    map(lost.start, lost.len()) || map(at / PAGE_BYTES * PAGE_BYTES, PAGE_BYTES)
}

/// Maps zeros over `len` bytes from `start` on: whole pages of a range that is lost, in which this thread
/// was stopped.
fn map_zeros(start: usize, len: usize) -> bool {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: within a mapping that its owner keeps, since this thread was using it, and whose bytes
    // are gone. What takes its place is as readable and writable.
    unsafe { mmap_anonymous(start as *mut c_void, len, access, flags) }.is_ok()
}

/// A range of addresses that is watched, for as long as this lives.
#[derive(Debug)]
pub(super) struct Watch {
    range: &'static Range,
}

impl Watch {
    /// Room for a range.
    ///
    /// # Errors
    /// Where as many as can be are watched.
    pub(super) fn new() -> io::Result<Self> {
        Self::of(&WATCHED)
    }

    fn of(ranges: &'static [Range]) -> io::Result<Self> {
        let take = |range: &&Range| !range.is_taken.swap(true, Acquire);
        let Some(range) = ranges.iter().find(take) else {
            let full = format!("{} mapped regions are in use", ranges.len());
            return Err(io::Error::other(full));
        };
        range.is_lost.store(false, Relaxed);
        Ok(Self { range })
    }

    /// Watches `len` bytes from `start` on, which the caller mapped, and keeps mapped until [`Watch::end`].
    pub(super) fn begin(&self, start: NonNull<u8>, len: usize) -> io::Result<()> {
        handle()?;
        let start = start.as_ptr().addr();
        self.range.start.store(start, Release);
        self.range.end.store(start + len, Release);
        Ok(())
    }

    /// Ends it: the range may be unmapped.
    pub(super) fn end(&self) {
        self.range.end.store(0, Release);
    }

    /// Whether bytes of the range were lost since it began, so that nothing that was read there counts.
    pub(super) fn is_lost(&self) -> bool {
        // What was read comes before the note is looked at.
        fence(Acquire);
        self.range.is_lost.load(Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
        self.range.is_taken.store(false, Release);
    }
}

/// Has the process handle the signal, from the first call on.
fn handle() -> io::Result<()> {
    static SET: OnceLock<Result<(), i32>> = OnceLock::new();
    let outcome = SET.get_or_init(|| set().map_err(|error| error.raw_os_error().unwrap_or(0)));
    outcome.map_err(io::Error::from_raw_os_error)
}

fn set() -> io::Result<()> {
    let mut before = default_action();
    // SAFETY: asks for what there is, which is written to a live place of its type.
    if unsafe { libc::sigaction(SIGBUS, null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    _ = BEFORE.set(before);
    let handler: Handler = on_bus_error;
    let action = libc::sigaction {
        sa_sigaction: handler as usize,
        // On the stack for signals, where a thread has one: the handler before may have to run there.
        sa_flags: SA_SIGINFO | SA_ONSTACK | SA_RESTART,
        ..default_action()
    };
    match act(&action) {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

/// Has the signal come to what `action` says; whether it does.
fn act(action: &libc::sigaction) -> bool {
    // SAFETY: a whole action, whose handler is none, that of before, or this file's, which may run.
    unsafe { libc::sigaction(SIGBUS, action, null_mut()) == 0 }
}

/// What the system does by itself.
const fn default_action() -> libc::sigaction {
    // SAFETY: plain numbers and an optional pointer; zeros are the default action and an empty mask.
    unsafe { std::mem::zeroed() }
}

extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a handler that asked for it a live `siginfo_t`.
    let fault = unsafe { &*info };
    let lost = |at| WATCHED.iter().find_map(|range| range.lose(at));
    match fault.si_code {
        BUS_ADRERR | BUS_OBJERR | BUS_MCEERR_AR => {
            // SAFETY: of a fault the address is what is told.
            let at = unsafe { fault.si_addr() }.addr();
            if lost(at).is_some_and(|range| replace(range, at, map_zeros)) {
                return;
            }
        }
        BUS_MCEERR_AO => {
            // SAFETY: as above.
            let at = unsafe { fault.si_addr() }.addr();
            // Memory that failed and that nobody accessed: whoever does is stopped there. Nothing is
            // mapped, since the range may be its owner's no more by then.
            if lost(at).is_some() {
                return;
            }
        }
        _ => {}
    }
    let is_sent = fault.si_code <= 0;
    match BEFORE.get() {
        Some(before) if is_sent && before.sa_sigaction == SIG_IGN => {}
        Some(before) if ![SIG_DFL, SIG_IGN].contains(&before.sa_sigaction) => {
            hand_on(before, signal, info, context);
        }
        _ => {
            act(&default_action());
            // SAFETY: of no memory; it comes once this handler returned, and ends the process.
            unsafe { libc::raise(signal) };
        }
    }
}

fn hand_on(before: &libc::sigaction, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let address = before.sa_sigaction as *const ();
    if before.sa_flags & SA_SIGINFO == 0 {
        // SAFETY: set without the flag, it is a handler that takes the signal's number.
        let handler = unsafe { transmute::<*const (), extern "C" fn(c_int)>(address) };
        return handler(signal);
    }
    // SAFETY: set with the flag, it is a handler that takes all three.
    let handler = unsafe { transmute::<*const (), Handler>(address) };
    handler(signal, info, context);
}

#[cfg(test)]
mod tests;
