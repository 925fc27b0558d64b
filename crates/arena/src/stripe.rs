//! Which of several equal things a thread uses, so that threads seldom meet.

/// How many; more threads than this share.
pub(crate) const STRIPES: usize = 8;

/// The stripe of the calling thread: the same each time, dealt out in turn.
pub(crate) fn own_stripe() -> usize {
    base::thread_number() % STRIPES
}
