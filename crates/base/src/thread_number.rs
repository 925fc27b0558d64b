//! A number for each thread, so that threads choose different ones of several equal things.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The thread's own, once it asked.
    static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The calling thread's number: the same each time, dealt out in turn from 0 on.
#[inline]
pub fn thread_number() -> usize {
    OWN.with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Relaxed));
        }
        own.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_numbers_of_their_own() {
        let own = thread_number();
        assert_eq!(thread_number(), own);
        let other = std::thread::spawn(thread_number).join().unwrap();
        assert_ne!(own, other);
    }
}
