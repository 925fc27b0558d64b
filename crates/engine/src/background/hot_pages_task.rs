//! The task of hot pages: reads the pages and rows ahead that were hot before the store was opened, and
//! stores the list of those that are hot now, now and then and when the store closes.
//!
//! Nothing waits for it, and an error costs warmth only. A cache of few pages is warm soon by itself, so no
//! list of fewer than [`PAGES_MIN`] pages and [`ROWS_MIN`] rows is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arena::PublishRing;
use base::{Charge, Progress, Result, StoreId, Task};
use cache::{HotPages, HotRows, PageCache};
use manifest::Manifest;
use media::{Access, Medium, Purpose};
use tree::reads::{Reader, open_queue};
use tree::{HotPageReader, HotRowReader, Trees, add_hot_rows, hot_pages};

use crate::Resources;
use crate::resources::Components as _;

/// Fewer hot pages are not stored: 1 MiB.
const PAGES_MIN: u64 = 256;

/// As [`PAGES_MIN`], for rows.
const ROWS_MIN: usize = 2048;

/// How often the list is stored.
const INTERVAL: Duration = Duration::from_secs(300);

/// Memory while a list is made, bytes a page: its name, its range, its file and its bytes.
const BYTES_A_PAGE: u64 = 80;

/// Reads of rows at the device at once.
const ROW_READS: usize = 32;

/// Memory of one read.
const READ_BYTES: u64 = 512 << 10;

/// The list of hot pages of one store.
#[derive(Clone, Debug)]
pub(crate) struct HotPageList {
    pub(crate) id: StoreId,
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) trees: Arc<Trees>,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) ring: Arc<PublishRing>,
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
        let mut list = hot_pages(self.id, &self.trees, self.cache());
        let rows = self.charge_rows();
        if let Some(charge) = &rows {
            // The keys, and their encoded form.
            let memory = charge.bytes() as usize / 2;
            add_hot_rows(&mut list, &self.trees, self.reader.rows.cache(), memory);
        }
        if list.count() >= PAGES_MIN || list.row_count() >= ROWS_MIN {
            // The next open finds the list before.
            let _ = self.write(&list.encode());
        }
    }

    /// Charges the keys of the rows of a list, of fewer rows if memory is short.
    fn charge_rows(&self) -> Option<Charge> {
        let rows = self.reader.rows.cache().statistics();
        // No key is longer than its row.
        let most = rows.bytes + rows.rows * HotPages::key_bytes(&[]) as u64;
        let most = 2 * most.min(HotPages::ROW_KEYS_MAX as u64);
        (0..4).find_map(|halved| self.resources.reads_account().try_charge(most >> halved))
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
        let account = self.resources.reads_account();
        let _encoded_charge = account.try_charge(len as u64)?;
        let file = self.medium.open(HotPages::FILE_NAME, Access::Bytes).ok()?;
        let mut encoded = vec![0; len];
        file.load(0, &mut encoded, Purpose::Manifest).ok()?;
        let charge = account.try_charge(HotPages::memory_of(&encoded) + READ_BYTES)?;
        let list = HotPages::decode(&encoded).ok()?;
        (list.store == self.id).then_some((list, charge))
    }

    /// Starts to read the pages of a list.
    fn read_pages(&self, (list, charge): (HotPages, Charge)) -> HotPagesState {
        // A request to an object store may take a minute, on a thread that merges need.
        let is_local = |id| !self.manifest.is_cold(id);
        let pages = HotPageReader::new(&list, &self.trees, self.cache(), &is_local);
        // Pages, which are read first, leave the memory that the rows had.
        self.reader.rows.cache().reserve(list.row_bytes);
        HotPagesState::Pages { pages, rows: list.rows, charge }
    }

    /// Starts to read rows, unless there are none, a row may be in a table in an object store, or there is no
    /// queue.
    fn read_rows(&self, rows: Vec<HotRows>, charge: Charge) -> HotPagesState {
        let state = self.manifest.state();
        let mut tables = state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        if rows.is_empty() || tables.any(|table| table.cold.is_some()) {
            return HotPagesState::Waiting;
        }
        match open_queue(Arc::clone(&self.reader), &*self.medium, ROW_READS) {
            Ok(queue) => {
                let rows = Box::new(HotRowReader::new(rows, &self.trees, &self.reader, queue));
                HotPagesState::Rows { rows, _charge: charge }
            }
            Err(_) => HotPagesState::Waiting,
        }
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
    Pages { pages: HotPageReader, rows: Vec<HotRows>, charge: Charge },
    /// It reads the rows of the list.
    Rows { rows: Box<HotRowReader>, _charge: Charge },
    /// It waits until the list is to be stored.
    Waiting,
}

impl Task for HotPagesTask {
    fn step(&mut self) -> Progress {
        if self.stop.load(Ordering::Acquire) {
            return Progress::Done;
        }
        let list = &self.list;
        self.state = match std::mem::replace(&mut self.state, HotPagesState::Waiting) {
            HotPagesState::Opened => {
                list.load().map_or(HotPagesState::Waiting, |loaded| list.read_pages(loaded))
            }
            HotPagesState::Pages { mut pages, rows, charge } => match pages.step() {
                true => HotPagesState::Pages { pages, rows, charge },
                false => list.read_rows(rows, charge),
            },
            HotPagesState::Rows { mut rows, _charge } => match rows.step(|| list.ring.visible()) {
                true => HotPagesState::Rows { rows, _charge },
                false => HotPagesState::Waiting,
            },
            HotPagesState::Waiting => {
                list.store();
                return Progress::IdleFor(INTERVAL);
            }
        };
        match self.state {
            HotPagesState::Waiting => Progress::IdleFor(INTERVAL),
            _ => Progress::Again,
        }
    }
}
