//! Descriptors that a forked child must not have.
//!
//! A child shares the open files of its parent: it would keep the parent's locks after the parent died, and
//! unlocking a file in the child would unlock it for the parent. So the child closes the descriptors of all
//! stores before `fork` returns in it, and leaves its [`Descriptor`]s alone from then on, because their
//! numbers may be other files by then. Every use of one checks the process first.
//!
//! The handler of `fork` takes no lock and allocates nothing: it reads a list that only grows. Cost: one scan
//! of the list for an opened file, one load for a use.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicI32, AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
};

use base::{Owner, Result};

/// No descriptor.
const NONE: i32 = -1;

/// The number of descriptors in one part of the list.
const PART: usize = 256;

/// The descriptors of this process, in parts that are never freed.
struct Slots {
    descriptors: [AtomicI32; PART],
    next: AtomicPtr<Slots>,
}

static FIRST: Slots = Slots::new();

impl Slots {
    const fn new() -> Self {
        Self {
            descriptors: [const { AtomicI32::new(NONE) }; PART],
            next: AtomicPtr::new(null_mut()),
        }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: null, or a part that was leaked when it was added.
        unsafe { self.next.load(Acquire).as_ref() }
    }

    /// The next part, added if there is none.
    fn next_or_add(&self) -> &'static Self {
        if let Some(next) = self.next() {
            return next;
        }
        let new: &'static mut Self = Box::leak(Box::new(Self::new()));
        let new: *mut Self = new;
        let added = self.next.compare_exchange(null_mut(), new, AcqRel, Acquire);
        // SAFETY: both the new part and one that another thread added meanwhile are leaked. The new part is
        // lost in the second case.
        unsafe { &*added.err().unwrap_or(new) }
    }
}

/// Enters `descriptor` in the list. It stays there until its slot is [`NONE`] again.
fn enter(descriptor: i32) -> &'static AtomicI32 {
    let mut part = &FIRST;
    loop {
        let take = |slot: &&AtomicI32| {
            slot.load(Relaxed) == NONE
                && slot.compare_exchange(NONE, descriptor, AcqRel, Relaxed).is_ok()
        };
        if let Some(slot) = part.descriptors.iter().find(take) {
            return slot;
        }
        part = part.next_or_add();
    }
}

/// An open file that only the process that opened it uses.
#[derive(Debug)]
pub(crate) struct Descriptor {
    file: ManuallyDrop<File>,
    slot: &'static AtomicI32,
    owner: Owner,
}

impl Descriptor {
    /// Takes over `file`, which this process opened.
    pub(crate) fn new(file: File) -> Self {
        watch_forks();
        let slot = enter(file.as_raw_fd());
        Self { file: ManuallyDrop::new(file), slot, owner: Owner::this() }
    }

    /// The open file.
    ///
    /// # Errors
    /// `Closed` in a process forked from the one that opened it.
    #[inline]
    pub(crate) fn get(&self) -> Result<&File> {
        self.owner.check()?;
        Ok(&self.file)
    }

    /// Whether this process opened it.
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // Out of the list first, so that no child closes the number after another file took it.
        if self.slot.swap(NONE, AcqRel) != NONE {
            // SAFETY: dropped here only, once. If a child's handler closed the descriptor, the slot was
            // `NONE`.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// Makes every child of this process call [`in_child`].
fn watch_forks() {
    if base::are_forks_watched() {
        return;
    }
    // Two threads may both install it: a child that runs it twice is as well told apart from its parent.
    // SAFETY: the handler is a function of this library, and safe in a child of a process with threads.
    #[cfg(not(miri))]
    let outcome = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    #[cfg(miri)]
    let outcome = 1;
    // Without memory for the handler, each use asks the system for the process id instead.
    if outcome == 0 {
        base::watch_forks();
    }
}

/// Runs in a child process before `fork` returns there, on its only thread.
extern "C" fn in_child() {
    base::note_fork();
    let mut part = Some(&FIRST);
    while let Some(Slots { descriptors, .. }) = part {
        for slot in descriptors {
            let descriptor = slot.swap(NONE, Relaxed);
            if descriptor != NONE {
                // SAFETY: a copy of the parent's descriptor, which nothing in this process uses any more.
                unsafe { libc::close(descriptor) };
            }
        }
        part = part.and_then(Slots::next);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// More descriptors than one part holds, each entered once and removed when it is dropped.
    #[test]
    fn the_list_grows_and_its_slots_are_used_again() {
        let files: Vec<_> =
            (0..PART + 10).map(|_| Descriptor::new(tempfile::tempfile().unwrap())).collect();
        let slots: std::collections::HashSet<_> =
            files.iter().map(|file| std::ptr::from_ref(file.slot)).collect();
        assert_eq!(slots.len(), files.len());
        for file in &files {
            assert_eq!(file.slot.load(Relaxed), file.get().unwrap().as_raw_fd());
            assert!(file.is_here());
        }
        assert!(FIRST.next().is_some());
        let slot = files[PART + 9].slot;
        drop(files);
        assert_eq!(slot.load(Relaxed), NONE);
    }
}
