//! The task of hot pages: reads the pages ahead that were hot before the store was opened, and stores the
//! list of those that are hot now, now and then and when the store closes.
//!
//! Nothing waits for it, and an error costs warmth only. A cache of few pages is warm soon by itself, so no
//! list of fewer than [`PAGES_MIN`] pages is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Charge, Progress, Result, StoreId, Task};
use cache::{HotPages, PageCache};
use manifest::Manifest;
use media::{Access, Medium, Purpose};
use tree::{HotPageReader, Trees, hot_pages};

use crate::Resources;
use crate::resources::Components as _;

/// Fewer hot pages are not stored: 1 MiB.
const PAGES_MIN: u64 = 256;

/// How often the list is stored.
const INTERVAL: Duration = Duration::from_secs(300);

/// Memory while a list is made, bytes a page: its name, its range, its file and its bytes.
const BYTES_A_PAGE: u64 = 80;

/// Memory while a list is read, bytes a byte of it: two bytes may be a range and a read.
const BYTES_A_BYTE: u64 = 20;

/// Memory of one read.
const READ_BYTES: u64 = 512 << 10;

/// The list of hot pages of one store.
#[derive(Clone, Debug)]
pub(crate) struct HotPageList {
    pub(crate) id: StoreId,
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) trees: Arc<Trees>,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) resources: Resources,
}

impl HotPageList {
    fn cache(&self) -> &Arc<PageCache> {
        self.resources.cache()
    }

    /// Stores the list, unless there are few hot pages or there is no memory for it.
    pub(crate) fn store(&self) {
        let pages = self.cache().statistics().memory_pages.min(HotPages::PAGES_MAX as u64);
        let Some(_charge) = self.resources.reads_account().try_charge(pages * BYTES_A_PAGE) else {
            return;
        };
        let list = hot_pages(self.id, &self.trees, self.cache());
        if list.count() >= PAGES_MIN {
            // The next open finds the list before.
            let _ = self.write(&list.encode());
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        if self.medium.list()?.iter().any(|file| file.name == HotPages::NEW_FILE_NAME) {
            self.medium.remove(HotPages::NEW_FILE_NAME)?;
        }
        let file =
            self.medium.create(HotPages::NEW_FILE_NAME, Access::Bytes, bytes.len() as u64)?;
        file.store(0, bytes, Purpose::Manifest)?;
        drop(file);
        self.medium.rename(HotPages::NEW_FILE_NAME, HotPages::FILE_NAME)
    }

    /// Reads the list; `None` if there is none that can be used.
    fn load(&self) -> Option<(HotPages, Charge)> {
        let listed = self.medium.list().ok()?;
        let bytes = listed.iter().find(|file| file.name == HotPages::FILE_NAME)?.len;
        let len = usize::try_from(bytes).ok().filter(|len| *len <= HotPages::BYTES_MAX)?;
        let charge = len as u64 * BYTES_A_BYTE + READ_BYTES;
        let charge = self.resources.reads_account().try_charge(charge)?;
        let file = self.medium.open(HotPages::FILE_NAME, Access::Bytes).ok()?;
        let mut encoded = vec![0; len];
        file.load(0, &mut encoded, Purpose::Manifest).ok()?;
        let list = HotPages::decode(&encoded).ok()?;
        (list.store == self.id).then_some((list, charge))
    }
}

/// See the module.
pub(crate) struct HotPagesTask {
    list: HotPageList,
    stop: Arc<AtomicBool>,
    state: HotPagesState,
}

impl HotPagesTask {
    /// The task for a store that was just opened.
    pub(crate) fn new(list: HotPageList, stop: Arc<AtomicBool>) -> Self {
        Self { list, stop, state: HotPagesState::Opened }
    }
}

/// What the task does next.
enum HotPagesState {
    /// It reads the list.
    Opened,
    /// It reads the pages of the list.
    Reading { reader: HotPageReader, _charge: Charge },
    /// It waits until the list is to be stored.
    Waiting,
}

impl Task for HotPagesTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        match &mut self.state {
            HotPagesState::Opened => {
                let list = &self.list;
                let loaded = list.load().map(|(pages, _charge)| {
                    // A request to an object store may take a minute, on a thread that merges need.
                    let is_local = |id| !list.manifest.is_cold(id);
                    let reader = HotPageReader::new(&pages, &list.trees, list.cache(), &is_local);
                    HotPagesState::Reading { reader, _charge }
                });
                self.state = loaded.unwrap_or(HotPagesState::Waiting);
            }
            HotPagesState::Reading { reader, .. } => {
                if !reader.step() {
                    self.state = HotPagesState::Waiting;
                }
            }
            HotPagesState::Waiting => {
                self.list.store();
                return Progress::IdleFor(INTERVAL);
            }
        }
        match self.state {
            HotPagesState::Waiting => Progress::IdleFor(INTERVAL),
            _ => Progress::Again,
        }
    }
}
