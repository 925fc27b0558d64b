//! Mapped memory that disappears during use: another program cuts the file, or the module fails.
//!
//! The next access raises `SIGBUS`, which by default ends the process. This handler checks whether the
//! address lies in a watched range. If so it marks the range as lost and maps zeros over all of it, so that
//! the access continues with meaningless bytes: readers check [`Watch::is_lost`] after a read, and discard
//! the data if it is true.
//!
//! Order: a range is marked as lost before zeros are mapped, so that a reader of zeros also sees the mark.
//! The mark covers the whole range and is never removed.
//!
//! The handler belongs to the process and is set when the first range is watched. It allocates nothing and
//! locks nothing: atomics and one system call. A signal for any other address goes to the previous handler,
//! or to the system's default action.

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

/// The most ranges watched at once: a tier is one, and so is each segment of a log that is written or read.
const RANGES: usize = 4096;

/// Ranges that mappings for loads leave to others: a load can do without its mapping.
const RANGES_FOR_STORES: usize = 256;

static WATCHED: [Range; RANGES] = [const { Range::new() }; RANGES];

/// A handler set with `SA_SIGINFO`.
type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// The action for the signal before this handler was set.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A range of addresses, which may be watched.
#[derive(Debug)]
struct Range {
    is_taken: AtomicBool,
    /// The first address, and the one past the last; zero while no range is watched.
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

    /// Marks the range as lost if `at` is one of its addresses. Returns the range then.
    fn lose(&self, at: usize) -> Option<ops::Range<usize>> {
        let end = self.end.load(Acquire);
        let start = self.start.load(Acquire);
        // `start` and `end` belong to one watch if `end` is unchanged: it is zero while a watch is replaced.
        if !(start..end).contains(&at) || self.end.load(Acquire) != end {
            return None;
        }
        self.is_lost.store(true, SeqCst);
        Some(start..end)
    }
}

/// Calls `map` to put zeros over the range `lost`, or if that fails over the page of address `at`. Returns
/// whether it succeeded. A system with strict memory commitment may refuse the whole range; then each further
/// page faults by itself.
fn replace(lost: ops::Range<usize>, at: usize, map: impl Fn(usize, usize) -> bool) -> bool {
    map(lost.start, lost.len()) || map(at / PAGE_BYTES * PAGE_BYTES, PAGE_BYTES)
}

/// Maps zeros over `len` bytes from `start` on: whole pages of a lost range, which this thread was accessing.
fn map_zeros(start: usize, len: usize) -> bool {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: within a mapping that its owner keeps, because this thread was accessing it, and whose bytes
    // are gone. The new pages are as readable and writable.
    unsafe { mmap_anonymous(start as *mut c_void, len, access, flags) }.is_ok()
}

/// Watches a range of addresses until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    range: &'static Range,
}

impl Watch {
    /// Reserves an entry for a range.
    ///
    /// # Errors
    /// If the most ranges possible are watched.
    pub(super) fn new() -> io::Result<Self> {
        Self::of(&WATCHED)
    }

    /// As [`Watch::new`], for a range whose owner can do without: some are left to others.
    ///
    /// # Errors
    /// As [`Watch::new`], sooner.
    pub(super) fn spare() -> io::Result<Self> {
        Self::of(WATCHED.get(RANGES_FOR_STORES..).unwrap_or_default())
    }

    fn of(ranges: &'static [Range]) -> io::Result<Self> {
        let take =
            |range: &&Range| !range.is_taken.load(Relaxed) && !range.is_taken.swap(true, Acquire);
        let Some(range) = ranges.iter().find(take) else {
            let full = format!("{} mapped regions are in use", ranges.len());
            return Err(io::Error::other(full));
        };
        range.is_lost.store(false, Relaxed);
        Ok(Self { range })
    }

    /// Watches `len` bytes from `start` on, which the caller keeps mapped until [`Watch::end`].
    pub(super) fn begin(&self, start: NonNull<u8>, len: usize) -> io::Result<()> {
        base::invariant!(self.range.end.load(Relaxed) == 0, "a watch begins once");
        base::invariant!(len > 0, "a watched range has bytes");
        handle()?;
        let start = start.as_ptr().addr();
        self.range.start.store(start, Release);
        self.range.end.store(start + len, Release);
        Ok(())
    }

    /// Stops watching: the range may be unmapped.
    pub(super) fn end(&self) {
        self.range.end.store(0, Release);
    }

    /// Whether bytes of the range were lost since it began: then no earlier read is valid.
    pub(super) fn is_lost(&self) -> bool {
        // Reads of the range come before the check of the mark.
        fence(Acquire);
        self.range.is_lost.load(Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
        base::invariant!(self.range.is_taken.load(Relaxed), "a watch has its entry for itself");
        self.range.is_taken.store(false, Release);
    }
}

/// Sets the handler at the first call.
fn handle() -> io::Result<()> {
    static SET: OnceLock<Result<(), i32>> = OnceLock::new();
    let outcome = SET.get_or_init(|| set().map_err(|error| error.raw_os_error().unwrap_or(0)));
    outcome.map_err(io::Error::from_raw_os_error)
}

fn set() -> io::Result<()> {
    let mut before = default_action();
    // SAFETY: queries the present action, which is written to a live place of its type.
    if unsafe { libc::sigaction(SIGBUS, null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    _ = BEFORE.set(before);
    let handler: Handler = on_bus_error;
    let action = libc::sigaction {
        sa_sigaction: handler as usize,
        // On the thread's signal stack, if it has one: the previous handler may need it.
        sa_flags: SA_SIGINFO | SA_ONSTACK | SA_RESTART,
        ..default_action()
    };
    match act(&action) {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

/// Sets the action for the signal. Returns whether that succeeded.
fn act(action: &libc::sigaction) -> bool {
    // SAFETY: a complete action, whose handler is the default, the previous one, or one of this file.
    unsafe { libc::sigaction(SIGBUS, action, null_mut()) == 0 }
}

/// The system's default action.
const fn default_action() -> libc::sigaction {
    // SAFETY: plain numbers and an optional pointer; zeros are the default action and an empty mask.
    unsafe { std::mem::zeroed() }
}

extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a live `siginfo_t` to a handler with `SA_SIGINFO`.
    let fault = unsafe { &*info };
    let lost = |at| WATCHED.iter().find_map(|range| range.lose(at));
    match fault.si_code {
        BUS_ADRERR | BUS_OBJERR | BUS_MCEERR_AR => {
            // SAFETY: for a fault, `si_addr` is set.
            let at = unsafe { fault.si_addr() }.addr();
            if lost(at).is_some_and(|range| replace(range, at, map_zeros)) {
                return;
            }
        }
        BUS_MCEERR_AO => {
            // SAFETY: as above.
            let at = unsafe { fault.si_addr() }.addr();
            // Failed memory that no thread accessed yet: an access will fault. Nothing is mapped here,
            // because the owner may have unmapped the range already.
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
            // SAFETY: `raise` accesses no memory. The signal is blocked until this handler returns; then its
            // default action ends the process.
            unsafe { libc::raise(signal) };
        }
    }
}

fn hand_on(before: &libc::sigaction, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let address = before.sa_sigaction as *const ();
    if before.sa_flags & SA_SIGINFO == 0 {
        // SAFETY: an action without the flag has a handler that takes the signal's number.
        let handler = unsafe { transmute::<*const (), extern "C" fn(c_int)>(address) };
        return handler(signal);
    }
    // SAFETY: an action with the flag has a handler that takes all three.
    let handler = unsafe { transmute::<*const (), Handler>(address) };
    handler(signal, info, context);
}

#[cfg(test)]
mod tests;
