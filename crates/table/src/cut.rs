//! In-place pages that are lost in the middle of a read, for tests: one slot in a file that can be cut.

use std::fs::{File, OpenOptions};
use std::path::Path;

use base::Account;
use base::limits::PAGE_BYTES;
use media::scm::{Scm, Slots};
use tempfile::TempDir;

use crate::Pages;

/// Lends pages that all share one slot, so that a reader that keeps a page gets no other.
pub(crate) struct Cut {
    slots: Slots,
    file: File,
    _folder: TempDir,
    /// Number of pages to lend before one is lost.
    left: usize,
    is_lost: bool,
}

impl Cut {
    /// Loses the page after `left` others. `None` if the system has no file system in memory.
    pub(crate) fn after(left: usize) -> Option<Self> {
        let shm = Path::new("/dev/shm");
        if cfg!(miri) || !shm.is_dir() {
            println!("skipped: no /dev/shm");
            return None;
        }
        let folder = tempfile::tempdir_in(shm).unwrap();
        let location = folder.path().to_str().unwrap().parse().unwrap();
        let Scm::Mapped(region) = Scm::open(&location, PAGE_BYTES as u64, b"slots").unwrap() else {
            panic!("{location} is not mapped");
        };
        let slots = Slots::new(region, &Account::unlimited("slots")).unwrap();
        let file = OpenOptions::new().write(true).open(folder.path().join("terrace.scm")).unwrap();
        Some(Self { slots, file, _folder: folder, left, is_lost: false })
    }

    /// Whether a page was lost.
    pub(crate) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// `page` in place, and lost at once if it is its turn. `None` after a page was lost.
    pub(crate) fn lend(&mut self, page: &[u8; PAGE_BYTES]) -> Option<Pages> {
        if self.is_lost {
            return None;
        }
        let mut filling = self.slots.fill(0).expect("no reader keeps the previous page");
        *filling = *page;
        drop(filling);
        let pinned = self.slots.pin(0).unwrap();
        self.is_lost = self.left == 0;
        self.left = self.left.saturating_sub(1);
        if self.is_lost {
            self.file.set_len(0).unwrap();
        }
        Some(Pages::InPlace(pinned))
    }
}
