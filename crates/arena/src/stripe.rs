//! Which of several equal things a thread uses, so that threads seldom meet.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many; more threads than this share.
pub(crate) const STRIPES: usize = 8;

/// The stripe of the calling thread: the same each time, dealt out in turn.
pub(crate) fn own_stripe() -> usize {
    // `std`'s atomic, not shuttle's: it outlives one run of a shuttle test.
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: Cell<usize> = const { Cell::new(STRIPES) });
    OWN.with(|own| {
        if own.get() == STRIPES {
            own.set(THREADS.fetch_add(1, Relaxed) % STRIPES);
        }
        own.get()
    })
}
