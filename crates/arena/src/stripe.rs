//! Stripes: structures with several equal parts, of which each thread uses its own to avoid contention.

/// The number of stripes. With more threads, some share a stripe.
pub(crate) const STRIPES: usize = 8;

/// The stripe of the calling thread, the same at every call. Threads get stripes in turn.
pub(crate) fn own_stripe() -> usize {
    base::thread_number() % STRIPES
}
