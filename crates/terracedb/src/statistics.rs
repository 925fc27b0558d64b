//! [`Statistics`]: a copy of the counters and sizes of a store, gathered from its parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cache::curve::MissCurve;
use cache::{CacheStatistics, RowStatistics};
use engine::{Components as _, Delays, Memory, Store};
use media::{Space, Usage};
use tree::compaction::CompactionStatistics;
use tree::{TableFile, Tree, ValueFile, Version};

use crate::log_collection::LogCollection;
use crate::recovery::Problem;
use crate::stats::ClockStatistics;
#[cfg(feature = "tools")]
use crate::stats::ScrubStatistics;

/// Counters and sizes of a store. Counters start at 0 when the store is opened; sizes are of now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Statistics {
    /// Device operations and bytes, by purpose.
    pub device: Usage,
    /// The interface to the device: `io_uring`, `pread pool`, `memory`.
    pub device_backend: &'static str,
    /// Capacity and free space of the device; `None` if it has no bound or does not report it.
    pub device_space: Option<Space>,
    /// The memory of all stores that share these resources, by component, bytes.
    pub memory: Memory,
    /// The page cache, which all stores with the same resources share.
    pub cache: CacheStatistics,
    /// The row cache, which all stores with the same resources share.
    pub rows: RowStatistics,
    /// Gets and multi-gets by the tier that held their value.
    pub hits: Hits,
    /// Miss curves: the estimated misses of this store's reads as a function of the memory for rows, and
    /// of that for pages (DRAM and SCM together), since the store was opened. They have no points if
    /// there was no memory for the estimate. [`MissCurve::since`] gives the curve between two readings.
    pub row_curve: MissCurve,
    /// See `row_curve`.
    pub page_curve: MissCurve,
    /// Steps of the state machine that gets, queued gets and cursor moves share.
    pub read_steps: u64,
    /// Pages that failed their checksum or could not be read.
    pub pages_damaged: u64,
    /// Acknowledged write operations, and the bytes of their keys and values.
    pub writes: u64,
    /// See `writes`.
    pub user_bytes: u64,
    /// Transactions that committed writes, and transactions refused for a conflict.
    pub transactions: u64,
    /// See `transactions`.
    pub transaction_conflicts: u64,
    /// The write-ahead log.
    pub log: wal::Statistics,
    /// Its lanes, and the collection of segments that hold entries of resident keyspaces.
    pub log_collection: LogCollection,
    /// Size of the log on the device now, bytes.
    pub log_bytes: u64,
    /// Flushes of memtables, bytes that they wrote, and failed flushes.
    pub flushes: u64,
    /// See `flushes`.
    pub flush_bytes: u64,
    /// See `flushes`.
    pub flush_failures: u64,
    /// The error of the last flush, if flushes fail now.
    pub flush_failing: Option<String>,
    /// The SCM tier; `None` if the store has none.
    pub scm: Option<crate::stats::ScmStatus>,
    /// The cold tables; `None` if the store has no object store.
    pub cold: Option<crate::stats::ColdStatistics>,
    /// Compaction.
    pub compaction: CompactionStatistics,
    /// The scrub: tables read and verified in the background.
    #[cfg(feature = "tools")]
    pub scrub: ScrubStatistics,
    /// Damages that merges and scrubs found since the store was opened.
    pub damages: u64,
    /// The latest damages, at most 256.
    pub damaged: Vec<Problem>,
    /// Panics of event listeners; each was caught.
    pub listener_panics: u64,
    /// The error that poisoned the log or the manifest; writes are refused then.
    pub poisoned: Option<String>,
    /// Total time of write stalls: writers waited for a flush. The sum over all writers.
    pub stalled: Duration,
    /// Total time that callers of `flush`, `compact` and ingests waited for the flushes they requested.
    pub flushes_awaited: Duration,
    /// Total time of write delays (backpressure), which let flushes and merges keep up.
    pub delays: Delays,
    /// A description of a wait that made no progress for seconds: writers or callers of a flush, how
    /// long they have waited, and the device operation that has not returned.
    pub blocked: Option<String>,
    /// The difference between the wall clock and the store's time, which decides expiry.
    pub clock: ClockStatistics,
    /// Live snapshots.
    pub snapshots: usize,
    /// One element per keyspace.
    pub keyspaces: Vec<KeyspaceStatistics>,
}

/// Gets by the place that held their value. A get that fails is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// In a memtable.
    pub memtable: u64,
    /// In the row cache.
    pub row: u64,
    /// In pages in DRAM.
    pub page: u64,
    /// In pages in the SCM tier.
    pub scm: u64,
    /// On flash: at least one device read.
    pub flash: u64,
    /// Gets of keys without a value.
    pub absent: u64,
    /// The part of `absent` that searched pages, because memtables and key ranges of tables did not decide.
    pub absent_searched: u64,
}

/// Sizes of one keyspace.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KeyspaceStatistics {
    /// The name.
    pub name: String,
    /// The kind: `ordered`, `hashed keep`, `hashed resident`, `hashed window=8.0 GiB`.
    pub kind: String,
    /// Memtables (active and sealed), and their memory in bytes.
    pub memtables: usize,
    /// See `memtables`.
    pub memtable_bytes: u64,
    /// As `memtable_bytes`: an empty memtable takes no memory.
    pub unflushed_bytes: u64,
    /// Table files, their bytes, and the entries (versions) in them.
    pub tables: usize,
    /// See `tables`.
    pub table_bytes: u64,
    /// See `tables`.
    pub table_entries: u64,
    /// Tables in quarantine: they are read, and merges leave them out because they are damaged.
    pub damaged_tables: usize,
    /// Value files, their bytes, and the bytes of the values in them that tables still point to.
    pub value_files: usize,
    /// See `value_files`.
    pub value_file_bytes: u64,
    /// See `value_files`.
    pub live_value_bytes: u64,
    /// Entries (versions) that a window evicted since the store was opened, their bytes in tables, and the
    /// bytes that it retained of the oldest runs when it evicted the rest.
    pub evicted_entries: u64,
    /// See `evicted_entries`.
    pub evicted_bytes: u64,
    /// See `evicted_entries`.
    pub retained_bytes: u64,
    /// Of a resident keyspace: the entries of its index, tombstones included, and its memory in bytes.
    pub index_entries: u64,
    /// See `index_entries`.
    pub index_tombstones: u64,
    /// See `index_entries`.
    pub index_bytes: u64,
    /// Runs; a get may have to search each.
    pub runs: usize,
    /// Memory that tables pin, for filters and separators, bytes.
    pub pinned_bytes: u64,
    /// The part of `pinned_bytes` that is filters. Tables of ordered keyspaces pin none.
    pub filter_bytes: u64,
    /// Size of the filters and separators of all tables, pinned or in the page cache, bytes.
    pub metadata_bytes: u64,
    /// Lookups that rows did not answer.
    pub lookups: LookupStatistics,
    /// Walks of iterators, cursors and transactions.
    pub walks: WalkStatistics,
    /// Bytes of acknowledged writes: keys as they are stored, and values.
    pub user_bytes: u64,
    /// Bytes that flushes wrote.
    pub flush_bytes: u64,
    /// Bytes that merges wrote.
    pub merge_bytes: u64,
    /// Merges into the oldest data.
    pub base_merges: u64,
    /// How many times merges rewrote the oldest data as a whole, in a hashed keyspace: the sum of the parts
    /// of the hash space that they covered.
    pub base_cycles: f64,
    /// Versions that merges dropped.
    pub dropped_entries: u64,
    /// The tables by level: flushes write level 0, merges write deeper levels.
    pub levels: Vec<LevelStatistics>,
}

/// Lookups of one keyspace that the row cache did not answer, and the device reads that they waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupStatistics {
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found no value.
    pub misses: u64,
    /// Device reads of the lookups that found a value.
    pub hit_reads: u64,
    /// Device reads of the lookups that found no value.
    pub miss_reads: u64,
    /// The part of `hit_reads` in tables that have filters and do not have the key.
    pub hit_false_reads: u64,
    /// The part of `miss_reads` in tables that have filters and do not have the key.
    pub miss_false_reads: u64,
}

/// Walks of iterators, cursors and transactions over one keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalkStatistics {
    /// Seeks.
    pub seeks: u64,
    /// Runs of tables that seeks found an entry in: divided by `seeks`, the runs that a seek looks into.
    pub seek_runs: u64,
    /// Device reads that walks waited for, a window of read-ahead counted once.
    pub device_reads: u64,
    /// Versions that walks stepped over: older or newer than the one returned, or of deleted keys.
    pub stepped_over: u64,
    /// Key ranges without values that walks noted, and the walks that jumped over such ranges.
    pub dead_spans: u64,
    /// See `dead_spans`.
    pub jumps: u64,
}

impl WalkStatistics {
    fn of(context: &tree::ReadContext) -> Self {
        let (walks, spans) = (context.walks(), context.dead_spans());
        Self {
            seeks: walks.seeks.get(),
            seek_runs: walks.seek_runs.get(),
            device_reads: walks.device_reads.get(),
            stepped_over: walks.stepped_over.get(),
            dead_spans: spans.noted.get(),
            jumps: spans.jumps.get(),
        }
    }
}

impl LookupStatistics {
    fn of(counters: &tree::LookupCounters) -> Self {
        let tree::LookupCounters { hits, misses, .. } = counters;
        Self {
            hits: hits.get(),
            misses: misses.get(),
            hit_reads: counters.hit_reads.get(),
            miss_reads: counters.miss_reads.get(),
            hit_false_reads: counters.hit_false_reads.get(),
            miss_false_reads: counters.miss_false_reads.get(),
        }
    }

    /// The difference to an `earlier` reading.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            hits: self.hits.saturating_sub(earlier.hits),
            misses: self.misses.saturating_sub(earlier.misses),
            hit_reads: self.hit_reads.saturating_sub(earlier.hit_reads),
            miss_reads: self.miss_reads.saturating_sub(earlier.miss_reads),
            hit_false_reads: self.hit_false_reads.saturating_sub(earlier.hit_false_reads),
            miss_false_reads: self.miss_false_reads.saturating_sub(earlier.miss_false_reads),
        }
    }
}

/// Sizes of the tables of one level. The remaining piece of a partly merged table is estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStatistics {
    /// The level.
    pub level: u8,
    /// Runs with tables of this level.
    pub runs: usize,
    /// Tables and pieces of tables.
    pub tables: usize,
    /// Their bytes, estimated.
    pub bytes: u64,
    /// Versions in them, and the tombstones among these, estimated.
    pub entries: u64,
    /// See `entries`.
    pub deletes: u64,
}

impl Statistics {
    /// Write amplification: bytes that log, flushes and merges wrote to the device, per acknowledged byte
    /// of keys and values; 0 if nothing was written yet.
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

    /// The statistics of `store` without those of the scrub.
    pub(crate) fn of(store: &Store) -> Self {
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
            log_collection: LogCollection::of(store),
            log_bytes: store.log.bytes(),
            flushes: background.flushes.get(),
            flush_bytes: background.flush_bytes.get(),
            flush_failures: background.flush_failures.get(),
            flush_failing: store.buffers.failure().map(|error| error.to_string()),
            cold: store.cold.as_ref().map(|cold| cold.statistics(&store.manifest)),
            compaction: store.compactor.statistics(),
            #[cfg(feature = "tools")]
            scrub: ScrubStatistics::default(),
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
    /// Bytes that flushes and merges wrote, per byte of acknowledged writes; 0 if nothing was written. The
    /// log is apart, because the keyspaces of a store share it.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        if self.user_bytes == 0 {
            return 0.0;
        }
        (self.flush_bytes + self.merge_bytes) as f64 / self.user_bytes as f64
    }

    /// Entries of the index of a resident keyspace; otherwise versions in tables, those in the cut part of
    /// partly merged tables left out: an estimate.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.levels.iter().map(|level| level.entries).sum::<u64>() + self.index_entries
    }

    fn of(tree: &Tree) -> Self {
        let view = tree.view();
        let writes = tree.writes();
        let files = view.version.files();
        let sum = |of: &dyn Fn(&TableFile) -> u64| files.iter().map(|file| of(file)).sum();
        let resident = view.read_context.resident().map(|it| it.sizes()).unwrap_or_default();
        let values = view.version.value_files();
        let length = |file: &Arc<ValueFile>| file.values().map_or(0, |values| values.file_bytes());
        let live = |file: &TableFile| file.entry().values.iter().map(|(_, bytes)| bytes).sum();
        Self {
            name: tree.name().to_owned(),
            kind: tree.kind().to_string(),
            memtables: view.memtables().count(),
            memtable_bytes: view.memtables().map(|memtable| memtable.bytes()).sum(),
            unflushed_bytes: view.memtables().map(|memtable| memtable.bytes()).sum(),
            tables: files.len(),
            damaged_tables: files.iter().filter(|file| file.is_damaged()).count(),
            table_bytes: sum(&|file| file.entry().file_bytes),
            table_entries: sum(&|file| file.entry().entries),
            value_files: values.len(),
            value_file_bytes: values.iter().map(|file| length(file)).sum(),
            live_value_bytes: sum(&live),
            evicted_entries: tree.evictions.entries.get(),
            evicted_bytes: tree.evictions.bytes.get(),
            retained_bytes: tree.evictions.retained_bytes.get(),
            index_entries: resident.entries,
            index_tombstones: resident.tombstones,
            index_bytes: resident.index_bytes,
            runs: view.version.runs().len(),
            levels: levels(&view.version),
            pinned_bytes: sum(&|file| file.table().map_or(0, |table| table.pinned_bytes())),
            filter_bytes: sum(&|file| file.table().map_or(0, |table| table.pinned_filter_bytes())),
            metadata_bytes: tree::metadata_bytes(tree),
            lookups: LookupStatistics::of(view.read_context.lookups()),
            walks: WalkStatistics::of(&view.read_context),
            user_bytes: writes.user_bytes.get(),
            flush_bytes: writes.flush_bytes.load(Relaxed),
            merge_bytes: writes.merge_bytes.load(Relaxed),
            base_merges: writes.base_merges.load(Relaxed),
            base_cycles: writes.base_cycles(),
            dropped_entries: writes.dropped_entries.load(Relaxed),
        }
    }
}

/// The levels of `version`, level 0 first.
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
