//! What waits for the tier's background work: pages to be written below, pages to be copied up, files
//! whose pages are to go. Bounded: what finds no room is not waited for.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use arena::Frame;
use parking_lot::Mutex;

use crate::{PageKey, PageKind};

/// Pages that wait to be written below, at most: a mebibyte of frames.
pub(crate) const STAGED_MAX: usize = 256;

/// Pages that wait to be copied up, at most.
const PROMOTIONS_MAX: usize = 64;

/// Files whose pages are to go, at most; of more, pages go as others push them out.
const PURGES_MAX: usize = 1024;

/// From so many waiting pages on, the background work is woken; fewer wait until it looks by itself.
const WAKE_AT: usize = 16;

/// A page that is to be written below, in the frame that it had above.
pub(crate) struct StagedPage {
    pub(crate) key: PageKey,
    pub(crate) hash: u64,
    pub(crate) kind: PageKind,
    pub(crate) frame: Frame,
    pub(crate) origin: Origin,
}

/// Where a page comes from that is to be written below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It left DRAM.
    Demoted,
    /// It was read.
    Read,
    /// A merge wrote it.
    WarmOutput,
}

/// Pages of a file that are gone.
#[derive(Clone)]
pub(crate) struct PurgeRange {
    pub(crate) file: u64,
    /// Which.
    pub(crate) pages: Range<u32>,
    /// Those from this one on may still lie below.
    pub(crate) next: u32,
}

#[derive(Default)]
pub(crate) struct PendingWork {
    staged: Mutex<VecDeque<StagedPage>>,
    /// Only a number.
    staged_len: AtomicUsize,
    promotions: Mutex<VecDeque<(PageKey, PageKind)>>,
    purges: Mutex<VecDeque<PurgeRange>>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl PendingWork {
    /// Has `wake` called when there is work that should not wait.
    pub(crate) fn on_work(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // Set once, when the task is spawned.
        let _ = self.wake.set(wake);
    }

    pub(crate) fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.staged() < STAGED_MAX
    }

    pub(crate) fn stage(&self, page: StagedPage) {
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
    pub(crate) fn take_staged(&self, most: usize) -> Vec<StagedPage> {
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
    pub(crate) fn promote(&self, key: PageKey, kind: PageKind) -> bool {
        let mut promotions = self.promotions.lock();
        if promotions.len() >= PROMOTIONS_MAX {
            return false;
        }
        promotions.push_back((key, kind));
        let len = promotions.len();
        drop(promotions);
        if len == WAKE_AT {
            self.wake();
        }
        true
    }

    pub(crate) fn take_promotions(&self) -> VecDeque<(PageKey, PageKind)> {
        std::mem::take(&mut *self.promotions.lock())
    }

    /// Has the pages go; false where there is no room, unless they are the next ones of the file that
    /// came last: those of it that lie below, or come late, are left to be pushed out.
    pub(crate) fn purge(&self, file: u64, pages: Range<u32>) -> bool {
        let mut purges = self.purges.lock();
        if pages.is_empty() {
            return true;
        }
        if let Some(last) = purges.back_mut()
            && (last.file, last.pages.end) == (file, pages.start)
        {
            last.pages.end = pages.end;
            return true;
        }
        if purges.len() >= PURGES_MAX {
            return false;
        }
        purges.push_back(PurgeRange { file, next: pages.start, pages });
        true
    }

    /// Whether the page is to go.
    pub(crate) fn is_purged(&self, key: PageKey) -> bool {
        let is_it =
            |purges: &PurgeRange| purges.file == key.file && purges.pages.contains(&key.page);
        self.purges.lock().iter().any(is_it)
    }

    /// Whether files wait whose pages are to go.
    pub(crate) fn has_purges(&self) -> bool {
        !self.purges.lock().is_empty()
    }

    /// The file whose turn it is, and its next pages, at most as many; they count as gone from now on.
    pub(crate) fn next_purge(&self, most: u32) -> Option<(u64, Range<u32>)> {
        let mut purges = self.purges.lock();
        let first = purges.front_mut()?;
        let part = first.next..first.pages.end.min(first.next.saturating_add(most));
        first.next = part.end;
        let file = first.file;
        if part.end == first.pages.end {
            purges.pop_front();
        }
        Some((file, part))
    }
}

impl fmt::Debug for PendingWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingWork({} staged)", self.staged_len.load(Relaxed))
    }
}
