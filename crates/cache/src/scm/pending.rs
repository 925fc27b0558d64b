//! Work that waits for the tier's background writer: pages to write, pages to promote, files to purge.
//!
//! Three bounded queues, each with its own mutex, which is a leaf in the lock order. Work that finds its
//! queue full is refused: a page is not written or promoted, a file's pages stay until they are evicted. Any
//! thread may add.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use arena::Frame;
use base::invariant;
use parking_lot::Mutex;

use crate::{PageKey, PageKind};

/// Most pages that wait to be written: 1 MiB of frames.
pub(crate) const STAGED_MAX: usize = 256;

/// Most pages that wait to be promoted.
const PROMOTIONS_MAX: usize = 64;

/// Most files that wait to be purged.
const PURGES_MAX: usize = 1024;

/// The background task is woken when this many pages wait; fewer wait until its next regular step.
const WAKE_AT: usize = 16;

/// A page to write, in the DRAM frame that held it.
pub(crate) struct StagedPage {
    pub(crate) key: PageKey,
    pub(crate) hash: u64,
    pub(crate) kind: PageKind,
    pub(crate) frame: Frame,
    pub(crate) origin: Origin,
}

/// Origin of a staged page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// DRAM evicted it.
    Demoted,
    /// A reader read it from flash, past DRAM.
    Read,
    /// A merge wrote it, and it covers a hot range.
    WarmOutput,
}

/// Pages to purge: a range of an obsolete file.
#[derive(Clone)]
pub(crate) struct PurgeRange {
    pub(crate) file: u64,
    /// The range.
    pub(crate) pages: Range<u32>,
    /// First page of the range that was not purged yet.
    pub(crate) next: u32,
}

#[derive(Default)]
pub(crate) struct PendingWork {
    staged: Mutex<VecDeque<StagedPage>>,
    /// Length of `staged`. A plain number: `Relaxed`.
    staged_len: AtomicUsize,
    promotions: Mutex<VecDeque<(PageKey, PageKind)>>,
    purges: Mutex<VecDeque<PurgeRange>>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl PendingWork {
    /// Sets the function that wakes the background task. The first caller's function stays.
    pub(crate) fn on_work(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // Called once, when the task is spawned.
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

    /// Takes up to `most` staged pages, oldest first.
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

    /// Queues a promotion; false if the queue is full.
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

    /// Queues pages of an obsolete file to be purged. A range that continues the range queued last is joined
    /// to it. False if the queue is full: those of the pages that are in the tier, or are written later, then
    /// stay until they are evicted.
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

    /// Whether the page is queued to be purged.
    pub(crate) fn is_purged(&self, key: PageKey) -> bool {
        let is_it =
            |purges: &PurgeRange| purges.file == key.file && purges.pages.contains(&key.page);
        self.purges.lock().iter().any(is_it)
    }

    /// Whether any file is queued to be purged.
    pub(crate) fn has_purges(&self) -> bool {
        !self.purges.lock().is_empty()
    }

    /// Takes up to `most` pages of the range that waited longest; they count as purged from now on.
    pub(crate) fn next_purge(&self, most: u32) -> Option<(u64, Range<u32>)> {
        let mut purges = self.purges.lock();
        let first = purges.front_mut()?;
        invariant!(
            (first.pages.start..=first.pages.end).contains(&first.next),
            "a purge stays within its range"
        );
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
