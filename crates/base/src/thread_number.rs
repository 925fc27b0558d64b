//! A small number for each thread. Threads use it to pick different stripes of a striped structure.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The thread's number; `usize::MAX` before its first call of [`thread_number`].
    static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The calling thread's number. A thread gets the next number, from 0 on, at its first call, and keeps it.
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
    fn a_thread_keeps_its_number_and_another_thread_has_another() {
        let own = thread_number();
        assert_eq!(thread_number(), own);
        let other = std::thread::spawn(thread_number).join().unwrap();
        assert_ne!(own, other);
    }
}
