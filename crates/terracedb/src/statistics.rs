//! What a store did and holds, in numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cache::curve::MissCurve;
use cache::{CacheStatistics, RowStatistics};
use media::{Space, Usage};

use crate::{ClockStatistics, Problem, ScrubStatistics};
use engine::Delays;
use engine::Memory;
use engine::Store;
use tools::Scrubber;
use tree::compaction::CompactionStatistics;
use tree::{TableFile, Tree, ValueFile, Version};

/// A copy of every counter at one moment. Counters count since the store was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Statistics {
    /// Device operations and bytes, by purpose.
    pub device: Usage,
    /// How operations reach the device: `io_uring`, `pread pool`, `memory`.
    pub device_backend: &'static str,
    /// How much the device holds, and what is left of it; none where nothing bounds it, or it does
    /// not say.
    pub device_space: Option<Space>,
    /// The memory of all stores of the same resources, by component.
    pub memory: Memory,
    /// The page cache, shared by all stores of the same resources.
    pub cache: CacheStatistics,
    /// The cache of single rows, shared likewise.
    pub rows: RowStatistics,
    /// Gets and multi-gets by where they found their value.
    pub hits: Hits,
    /// Misses over the memory of rows, and over that of pages, in DRAM or below: of this store's reads,
    /// since it was opened; without points where there was no memory for them. What lies between two
    /// moments, [`MissCurve::since`] says.
    pub row_curve: MissCurve,
    /// See `row_curve`.
    pub page_curve: MissCurve,
    /// Steps of read operations: gets, queued gets and cursor moves share one machine.
    pub read_steps: u64,
    /// Pages that failed their checksum or could not be read.
    pub pages_damaged: u64,
    /// Operations and bytes of keys and values acknowledged.
    pub writes: u64,
    /// See `writes`.
    pub user_bytes: u64,
    /// Transactions that wrote something and committed, and those that met others' writes.
    pub transactions: u64,
    /// See `transactions`.
    pub transaction_conflicts: u64,
    /// The commit log.
    pub log: wal::Statistics,
    /// Space the log takes now, bytes.
    pub log_bytes: u64,
    /// Memtables written to tables, bytes written, failures.
    pub flushes: u64,
    /// See `flushes`.
    pub flush_bytes: u64,
    /// See `flushes`.
    pub flush_failures: u64,
    /// Why flushes fail now, if they do.
    pub flush_failing: Option<String>,
    /// The tier below DRAM, where one was set.
    pub scm: Option<crate::ScmStatus>,
    /// Merges of tables.
    pub compaction: CompactionStatistics,
    /// Tables read again and verified in the background.
    pub scrub: ScrubStatistics,
    /// Damages that merges and scrubbing found since the store was opened.
    pub damages: u64,
    /// The last of them, at most 256.
    pub damaged: Vec<Problem>,
    /// Panics of listeners.
    pub listener_panics: u64,
    /// Why writes are refused, if they are.
    pub poisoned: Option<String>,
    /// Time writers waited, all together, for memtables to be flushed.
    pub stalled: Duration,
    /// Time those waited, all together, who asked for flushes: by `flush`, `compact` and ingests.
    pub flushes_awaited: Duration,
    /// Time writers were delayed, all together, so that flushes and merges keep up.
    pub delays: Delays,
    /// Who waits for what, and for how long, where nothing moved for seconds: writers and those who asked
    /// for flushes, and the operation from which the device has not returned.
    pub blocked: Option<String>,
    /// How the wall clock stands to the time that expiries are held against.
    pub clock: ClockStatistics,
    /// Live snapshots.
    pub snapshots: usize,
    /// One entry a keyspace.
    pub keyspaces: Vec<KeyspaceStatistics>,
}

/// Where gets found their value; one that fails counts nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// In a memtable.
    pub memtable: u64,
    /// In the cache of single rows.
    pub row: u64,
    /// In cached pages.
    pub page: u64,
    /// In the SCM tier below DRAM.
    pub scm: u64,
    /// On flash: at least one device read.
    pub flash: u64,
    /// Nowhere: the key has no value.
    pub absent: u64,
    /// Of these, those for which pages were looked into: neither memtables nor the tables' key ranges told.
    pub absent_searched: u64,
}

/// What one keyspace holds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KeyspaceStatistics {
    /// The name.
    pub name: String,
    /// Memtables and their memory, bytes.
    pub memtables: usize,
    /// See `memtables`.
    pub memtable_bytes: u64,
    /// What of that memory entries take, bytes: of what was written since the last flush.
    pub unflushed_bytes: u64,
    /// Table files, their bytes, and the entries (versions) in them.
    pub tables: usize,
    /// See `tables`.
    pub table_bytes: u64,
    /// See `tables`.
    pub table_entries: u64,
    /// Files of long values, their bytes, and the bytes of the values that tables point at.
    pub value_files: usize,
    /// See `value_files`.
    pub value_file_bytes: u64,
    /// See `value_files`.
    pub live_value_bytes: u64,
    /// Sorted runs a get may have to look into.
    pub runs: usize,
    /// Memory of what tables keep pinned, bytes.
    pub pinned_bytes: u64,
    /// Filters and separators of all tables, pinned or read through the page cache, bytes.
    pub metadata_bytes: u64,
    /// What the tables hold by level: 0 is what flushes wrote, merges write deeper ones.
    pub levels: Vec<LevelStatistics>,
}

/// What the tables of one level hold. Of a table that was merged in part, the rest is estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStatistics {
    /// The level.
    pub level: u8,
    /// Runs with tables of this level.
    pub runs: usize,
    /// Tables, or parts of them.
    pub tables: usize,
    /// About their bytes.
    pub bytes: u64,
    /// About the versions in them, and those that delete.
    pub entries: u64,
    /// See `entries`.
    pub deletes: u64,
}

impl Statistics {
    /// Bytes written to the device for each byte of keys and values acknowledged, log, flushes and
    /// merges included; 0 where nothing was written yet.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        if self.user_bytes == 0 {
            return 0.0;
        }
        let written = self.log.record_bytes
            + self.log.padding_bytes
            + self.flush_bytes
            + self.compaction.bytes_written();
        written as f64 / self.user_bytes as f64
    }

    pub(crate) fn of(store: &Store, scrubber: &Scrubber) -> Self {
        let reads = &store.reader.pages.counters;
        let background = &store.background.counters;
        let poisoned = store.log.poisoned().or_else(|| store.manifest.poisoned());
        let keyspaces: Vec<_> =
            store.trees.all().iter().map(|tree| KeyspaceStatistics::of(tree)).collect();
        let metadata = keyspaces.iter().map(|keyspace| keyspace.metadata_bytes).sum();
        let (damages, damaged) = store.quarantine.found();
        Self {
            device: store.metered.snapshot(),
            device_backend: store.medium.capabilities().backend,
            device_space: store.medium.space().ok().flatten(),
            memory: store.resources.memory_usage().with_metadata(metadata),
            cache: store.resources.cache().statistics(),
            rows: store.resources.rows().statistics(),
            scm: store.resources.scm(),
            hits: Hits {
                memtable: reads.memtable.get(),
                row: reads.row.get(),
                page: reads.page.get(),
                scm: reads.scm.get(),
                flash: reads.flash.get(),
                absent: reads.absent.get(),
                absent_searched: reads.absent_searched.get(),
            },
            row_curve: store.reader.pages.curves.rows(reads.row.get()),
            page_curve: store.reader.pages.curves.pages(),
            read_steps: reads.steps.get(),
            pages_damaged: reads.damaged.get(),
            writes: store.committer.ops.get(),
            user_bytes: store.committer.user_bytes.get(),
            transactions: store.transactions.committed.get(),
            transaction_conflicts: store.transactions.conflicts.get(),
            log: store.log.statistics(),
            log_bytes: store.log.bytes(),
            flushes: background.flushes.get(),
            flush_bytes: background.flush_bytes.get(),
            flush_failures: background.flush_failures.get(),
            flush_failing: store.buffers.failure().map(|error| error.to_string()),
            compaction: store.compactor.statistics(),
            scrub: scrubber.statistics(),
            damages,
            damaged,
            listener_panics: store.events.panics(),
            poisoned: poisoned.map(|error| error.to_string()),
            stalled: store.buffers.stalled(),
            flushes_awaited: store.buffers.flushes_awaited(),
            delays: store.pace.delays(),
            blocked: store.watchdog.blocked().map(|blocked| blocked.what),
            clock: store.timekeeper.statistics(),
            snapshots: store.snapshots.count(),
            keyspaces,
        }
    }
}

impl KeyspaceStatistics {
    fn of(tree: &Tree) -> Self {
        let view = tree.view();
        let files = view.version.files();
        let sum = |of: &dyn Fn(&TableFile) -> u64| files.iter().map(|file| of(file)).sum();
        let values = view.version.value_files();
        let length = |file: &Arc<ValueFile>| file.values().map_or(0, |values| values.file_bytes());
        let live = |file: &TableFile| file.entry().values.iter().map(|(_, bytes)| bytes).sum();
        Self {
            name: tree.name().to_owned(),
            memtables: view.memtables().count(),
            memtable_bytes: view.memtables().map(|memtable| memtable.bytes()).sum(),
            unflushed_bytes: view.memtables().map(|memtable| memtable.filled_bytes()).sum(),
            tables: files.len(),
            table_bytes: sum(&|file| file.entry().file_bytes),
            table_entries: sum(&|file| file.entry().entries),
            value_files: values.len(),
            value_file_bytes: values.iter().map(|file| length(file)).sum(),
            live_value_bytes: sum(&live),
            runs: view.version.runs().len(),
            levels: levels(&view.version),
            pinned_bytes: sum(&|file| file.table().map_or(0, |table| table.pinned_bytes())),
            metadata_bytes: tree::metadata_bytes(tree),
        }
    }
}

/// The levels of a version, newest data first.
fn levels(version: &Version) -> Vec<LevelStatistics> {
    let mut levels: BTreeMap<u8, LevelStatistics> = BTreeMap::new();
    for run in version.runs() {
        let mut seen = BTreeSet::new();
        for piece in run.pieces() {
            let entry = piece.entry();
            let bytes = tree::compaction::bytes_of(piece);
            let part =
                |count: u64| (count as f64 * bytes as f64 / entry.file_bytes.max(1) as f64) as u64;
            let level = levels.entry(piece.level()).or_default();
            level.level = piece.level();
            level.runs += usize::from(seen.insert(piece.level()));
            level.tables += 1;
            level.bytes += bytes;
            level.entries += part(entry.entries);
            level.deletes += part(entry.deletes);
        }
    }
    levels.into_values().collect()
}
