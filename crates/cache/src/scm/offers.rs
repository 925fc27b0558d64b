//! What waits for the tier's background work: pages to be written below, pages to be copied up, files
//! whose pages are to go. Bounded: what finds no room is not waited for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use arena::Frame;
use parking_lot::Mutex;

use crate::{PageKey, PageKind};

/// Pages that wait to be written below, at most: a mebibyte of frames.
pub(crate) const STAGED_MAX: usize = 256;

/// Pages that wait to be copied up, at most.
const RISING_MAX: usize = 64;

/// Files whose pages are to go, at most; of more, pages go as others push them out.
const DEAD_MAX: usize = 1024;

/// From so many waiting pages on, the background work is woken; fewer wait until it looks by itself.
const WAKE_AT: usize = 16;

/// A page that is to be written below, in the frame that it had above.
pub(crate) struct Staged {
    pub(crate) key: PageKey,
    pub(crate) hash: u64,
    pub(crate) kind: PageKind,
    pub(crate) frame: Frame,
    /// Whether it was in DRAM before.
    pub(crate) is_demoted: bool,
}

/// A file that is gone.
#[derive(Clone, Copy)]
pub(crate) struct Dead {
    pub(crate) file: u64,
    /// Its pages from `next` on may still lie below.
    pub(crate) next: u32,
    pub(crate) pages: u32,
}

#[derive(Default)]
pub(crate) struct Offers {
    staged: Mutex<VecDeque<Staged>>,
    /// Only a number.
    staged_len: AtomicUsize,
    rising: Mutex<VecDeque<(PageKey, PageKind)>>,
    dead: Mutex<VecDeque<Dead>>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Offers {
    /// Has `wake` called when there is work that should not wait.
    pub(crate) fn on_work(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // Set once, when the task is spawned.
        let _ = self.wake.set(wake);
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.staged() < STAGED_MAX
    }

    pub(crate) fn stage(&self, page: Staged) {
        let mut staged = self.staged.lock();
        staged.push_back(page);
        let len = staged.len();
        self.staged_len.store(len, Relaxed);
        drop(staged);
        if len == WAKE_AT {
            self.wake();
        }
    }

    /// The pages that waited longest.
    pub(crate) fn take_staged(&self, most: usize) -> Vec<Staged> {
        let mut staged = self.staged.lock();
        let most = most.min(staged.len());
        let taken = staged.drain(..most).collect();
        self.staged_len.store(staged.len(), Relaxed);
        taken
    }

    pub(crate) fn staged(&self) -> usize {
        self.staged_len.load(Relaxed)
    }

    /// Whether there was room.
    pub(crate) fn rise(&self, key: PageKey, kind: PageKind) -> bool {
        let mut rising = self.rising.lock();
        if rising.len() >= RISING_MAX {
            return false;
        }
        rising.push_back((key, kind));
        let len = rising.len();
        drop(rising);
        if len == WAKE_AT {
            self.wake();
        }
        true
    }

    pub(crate) fn take_rising(&self) -> VecDeque<(PageKey, PageKind)> {
        std::mem::take(&mut *self.rising.lock())
    }

    pub(crate) fn bury(&self, file: u64, pages: u32) {
        let mut dead = self.dead.lock();
        if dead.len() < DEAD_MAX {
            dead.push_back(Dead { file, next: 0, pages });
        }
    }

    /// Whether pages of `file` are to go.
    pub(crate) fn is_dead(&self, file: u64) -> bool {
        self.dead.lock().iter().any(|dead| dead.file == file)
    }

    /// Whether files wait whose pages are to go.
    pub(crate) fn has_dead(&self) -> bool {
        !self.dead.lock().is_empty()
    }

    /// The file whose turn it is, with its next pages, at most as many; they count as gone from now on.
    pub(crate) fn next_dead(&self, most: u32) -> Option<Dead> {
        let mut dead = self.dead.lock();
        let first = dead.front_mut()?;
        let part = Dead { pages: first.pages.min(first.next.saturating_add(most)), ..*first };
        first.next = part.pages;
        if first.next == first.pages {
            dead.pop_front();
        }
        Some(part)
    }
}

impl fmt::Debug for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offers({} staged)", self.staged_len.load(Relaxed))
    }
}
