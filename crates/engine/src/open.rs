//! Opening a store: lock, manifest, tables, log, then background work.
//!
//! Order matters. The manifest says which tables exist; tables it does not name are leftovers of
//! unfinished flushes and go. The log is replayed into memtables, which are flushed on the way
//! where they outgrow their memory. Nothing is served before all of it is done.

mod replay;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arena::PublishRing;
use base::{Error, ErrorKind, ReclaimOrder, Result, Seqno, StoreId, TaskHandle};
use compact::Operators;
use media::{Holding, Medium, Metered, Naming};
use parking_lot::Mutex;
use table::{
    Accounts, Dictionaries, Dictionary, Table, file_name, parse_file_name, parse_values_file_name,
};

use crate::Resources;
use crate::background::{Background, FlushTask, LogLimits, LogTask, SegmentTask, SyncTask};
use crate::buffers::Buffers;
use crate::commit::Committer;
use crate::compaction_host::StoreHost;
use crate::event_watch::{Told, WatchTask};
use crate::lost_records::LostRecords;
use crate::pace::Pace;
use crate::settings::{LiveSettings, Settings};
use crate::store::Store;
use crate::transaction::Transactions;
use crate::watchdog::Watchdog;
use manifest::{self, LivePiece, Manifest, ManifestState};
use read::{Curves, PageReader};
pub use replay::missing_log;
use replay::{empty, flush_replayed, replay_log};
use tree::ObsoleteFiles;
use tree::PurgeTask;
use tree::Quarantine;
use tree::RowCompression;
use tree::SnapshotList;
use tree::StoreDictionaries;
use tree::Trees;
use tree::compaction::{CompactTask, Compactor};
use tree::events::Events;
use tree::reads::{QueuePool, Reader, Rows};
use tree::{ClockTask, Timekeeper};
use tree::{Piece, ReadContext, RowRefresh, Tree, TreeContext, ValueFiles, Version};

/// What opening a store found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// True where the store was created.
    pub created: bool,
    /// Write batches replayed from the log, and their bytes.
    pub log_records: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Where the log's tail was cut, if a crash left one: writes that were never acknowledged as
    /// synced.
    pub log_torn: Option<String>,
    /// The first damage in the log; only with `recover_damaged_log`.
    pub log_damage: Option<Error>,
    /// What that damage, and any behind it, costs.
    pub log_lost: Vec<LostRecords>,
    /// Tables that could not be opened: keys in their ranges answer `Corrupt`.
    pub damaged_tables: Vec<Error>,
    /// Tables of which a damaged page was read from its copy: no key of theirs is lost, and merges write
    /// them anew.
    pub read_by_copy: Vec<Error>,
    /// Files of unfinished flushes that were removed.
    pub orphans_removed: usize,
    /// Damaged copies of manifest records whose twin was good.
    pub manifest_repairs: usize,
    /// How long it all took.
    pub elapsed: Duration,
}

/// A log longer than this many write-buffer quotas has its oldest keyspaces flushed.
const LOG_QUOTAS: u64 = 2;

/// The length of a log segment: a part of the write buffers, so that the log of a small store is
/// small, in whole pages.
fn segment_bytes(resources: &Resources) -> u64 {
    (resources.write_buffer_bytes() / 4).clamp(1 << 20, 32 << 20) & !0xf_ffff
}

pub fn open(
    medium: Arc<dyn Medium>,
    resources: Resources,
    settings: Settings,
    operators: Operators,
    events: Arc<Events>,
    create: Option<StoreId>,
) -> Result<Store> {
    let start = resources.clock().monotonic();
    let metered = Arc::new(Metered::new(medium, Arc::clone(resources.clock())));
    let naming = Arc::new(Naming::new(Arc::clone(&metered) as _));
    let holding = Arc::new(Holding::new(naming));
    let medium: Arc<dyn Medium> = Arc::clone(&holding) as _;
    let lock = medium.lock()?;
    let entered = resources.enter();
    let mut recovery = Recovery::default();
    let (id, manifest) = open_manifest(&medium, create, &mut recovery)?;
    let state = manifest.state();
    remove_orphans(&*medium, &state, &mut recovery)?;

    let obsolete = ObsoleteFiles::new(Arc::clone(&medium), Arc::clone(resources.cache()));
    let values = ValueFiles::new(
        id,
        Arc::clone(&medium),
        Arc::clone(&manifest),
        Arc::clone(&obsolete),
        resources.reads_account(),
    );
    let compression: Arc<RowCompression> = Arc::default();
    let live_settings = LiveSettings::new(settings.clone());
    let env = TreeContext {
        values: Arc::new(values),
        obsolete: Arc::clone(&obsolete),
        store: id,
        medium: Arc::clone(&medium),
        manifest: Arc::clone(&manifest),
        cache: Arc::clone(resources.cache()),
        row_refresh: Arc::new(RowRefresh::new(
            Arc::clone(resources.rows()),
            Arc::clone(&compression),
        )),
        dictionaries: Arc::new(StoreDictionaries::new(
            Arc::clone(&medium),
            id,
            resources.account("dictionaries"),
        )),
        snapshots: Arc::default(),
        ring: Arc::new(PublishRing::new(Seqno::ZERO)),
        log: None,
        accounts: Accounts {
            pinned: resources.account("tables"),
            values: resources.reads_account(),
        },
        writer_account: resources.flush_account(),
        events: Arc::clone(&events),
        quarantine: Arc::new(Quarantine::new(Arc::clone(&manifest), Arc::clone(&events))),
        timekeeper: Arc::new(Timekeeper::new(Arc::clone(resources.clock()), state.clock_ms)),
        options: live_settings.tree_options(),
    };
    let weak = Arc::downgrade(&env.dictionaries);
    resources.add_reclaimer(ReclaimOrder::Optional, weak);
    let operators = Arc::new(operators);
    let trees = open_trees(&env, &resources, &state, &operators, &mut recovery)?;
    let (log, flushed) = replay_log(&env, &resources, &settings, &trees, &state, &mut recovery)?;
    for (keyspace, below) in flushed {
        log.flushed(keyspace, below);
    }
    if recovery.log_damage.is_some() {
        // Where the device reads nothing any more, what could not be read is no damage.
        manifest::recover(&*medium, false).map(drop)?;
        // Without a segment to go on in, the damaged one would stay.
        log.prepare(0)?;
        // The damage goes with what could be read beside it, and nothing is written behind it.
        empty(&env, &resources, &trees, &log)?;
    } else if LogLimits::is_worth_emptying(&log) {
        flush_replayed(&env, &resources, &trees, &log)?;
    }

    let ring = Arc::new(PublishRing::new(log.last()));
    let snapshots = Arc::new(SnapshotList::default());
    let pace = Pace::new();
    let buffers =
        Buffers::new(resources.clone(), Arc::clone(&log), Arc::clone(&trees), Arc::clone(&pace));
    let buffers = Arc::new(buffers);
    let weak = Arc::downgrade(&buffers);
    resources.add_reclaimer(ReclaimOrder::Buffers, weak);
    let account = resources.account("miss-ratio curves");
    let (memory, stores) = (resources.cache_bytes_max(), resources.open_stores());
    let curves = Curves::new(&account, memory, stores, resources.has_rows());
    let curves = Arc::new(curves);
    let committer = Committer::new(
        Arc::clone(&log),
        Arc::clone(&ring),
        Arc::clone(&buffers),
        Arc::clone(&snapshots),
        Arc::clone(resources.rows()),
        Arc::clone(&curves),
    );
    let env = TreeContext {
        snapshots: Arc::clone(&snapshots),
        ring: Arc::clone(&ring),
        log: Some(Arc::clone(&log)),
        ..env
    };
    let pages = Arc::new(PageReader::new(
        Arc::clone(resources.cache()),
        resources.has_rows().then(|| Arc::clone(resources.balance())),
        Arc::clone(&curves),
        resources.reads_account(),
    ));
    let rows = Rows::new(
        Arc::clone(resources.rows()),
        Arc::clone(resources.balance()),
        curves,
        compression,
        resources.has_rows(),
    );
    let reader = Arc::new(Reader::new(Arc::clone(&pages), rows));
    let dictionaries = Arc::clone(&env.dictionaries);
    let transactions = Transactions::new(
        Arc::clone(&log),
        Arc::clone(&ring),
        pages,
        resources.account("transactions"),
    );
    let env = Arc::new(env);
    let compactor = Arc::new(Compactor::new(
        Arc::clone(&env),
        Arc::clone(&trees),
        Arc::new(StoreHost { resources: resources.clone(), pace: Arc::clone(&pace) }),
        Arc::clone(resources.compaction()),
        Arc::clone(&operators),
        settings.compaction.clone(),
        Arc::clone(&metered),
    ));
    let (stop, counters) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let timekeeper = Arc::clone(&env.timekeeper);
    let settings = live_settings;
    let quarantine = Arc::clone(&env.quarantine);
    let clock = ClockTask {
        timekeeper: Arc::clone(&timekeeper),
        manifest: Arc::clone(&manifest),
        stop: Arc::clone(&stop),
    };
    let log_limits = LogLimits {
        segment_bytes: segment_bytes(&resources),
        bytes_max: (LOG_QUOTAS * resources.write_buffer_bytes()).max(4 * segment_bytes(&resources)),
    };
    let flush = FlushTask {
        env,
        trees: Arc::clone(&trees),
        buffers: Arc::clone(&buffers),
        compactor: Arc::clone(&compactor),
        log: Arc::clone(&log),
        ring: Arc::clone(&ring),
        log_limits,
        counters: Arc::clone(&counters),
        stop: Arc::clone(&stop),
        job: None,
        began: Duration::ZERO,
    };
    let log_task =
        LogTask { log: Arc::clone(&log), buffers: Arc::clone(&buffers), stop: Arc::clone(&stop) };
    let segments = SegmentTask {
        log: Arc::clone(&log),
        log_limits,
        stop: Arc::clone(&stop),
        seen: log.last(),
    };
    let sync = SyncTask {
        log: Arc::clone(&log),
        owed: Arc::clone(&committer.owed),
        settings: Arc::clone(&settings),
        counters: Arc::clone(&counters),
        stop: Arc::clone(&stop),
    };
    let watchdog = Arc::new(Watchdog {
        buffers: Arc::clone(&buffers),
        trees: Arc::clone(&trees),
        metered: Arc::clone(&metered),
    });
    let watch = WatchTask {
        watchdog: Arc::clone(&watchdog),
        events: Arc::clone(&events),
        resources: resources.clone(),
        trees: Arc::clone(&trees),
        pace: Arc::clone(&pace),
        buffers: Arc::clone(&buffers),
        compactor: Arc::clone(&compactor),
        log: Arc::clone(&log),
        manifest: Arc::clone(&manifest),
        timekeeper: Arc::clone(&timekeeper),
        stop: Arc::clone(&stop),
        told: Told::default(),
    };
    let background = start_background(
        &resources,
        &buffers,
        &compactor,
        flush,
        (log_task, segments),
        (sync, clock, watch),
        PurgeTask { obsolete, stop: Arc::clone(&stop) },
    );
    recovery.elapsed = resources.clock().monotonic().saturating_sub(start);
    Ok(Store {
        background,
        id,
        settings,
        events,
        quarantine,
        recovery,
        committer,
        transactions,
        reader,
        queues: QueuePool::default(),
        snapshots,
        ring,
        trees,
        buffers,
        compactor,
        pace,
        log,
        manifest,
        dictionaries,
        timekeeper,
        operators,
        medium,
        holding,
        metered,
        watchdog,
        keyspaces: Mutex::new(()),
        _entered: entered,
        resources,
        _lock: lock,
    })
}

/// The least number of merges that may run at once; with more threads, as many.
const MERGES_MIN: usize = 2;

fn start_background(
    resources: &Resources,
    buffers: &Buffers,
    compactor: &Arc<Compactor>,
    flush: FlushTask,
    (log, segments): (LogTask, SegmentTask),
    (sync, clock, watch): (SyncTask, ClockTask, WatchTask),
    purge: PurgeTask,
) -> Background {
    let executor = resources.executor();
    let (stop, counters) = (Arc::clone(&flush.stop), Arc::clone(&flush.counters));
    let flusher = executor.spawn("flush", Box::new(flush));
    buffers.set_flusher(flusher.clone());
    let growing = Arc::clone(&log.log);
    let log = resources.urgent().spawn("log", Box::new(log));
    let segments = executor.spawn("segments", Box::new(segments));
    let wakers = [log.clone(), segments.clone()];
    growing.on_growth(Box::new(move || wakers.iter().for_each(TaskHandle::wake)));
    let syncer = executor.spawn("interval sync", Box::new(sync));
    let clock = executor.spawn("clock", Box::new(clock));
    let obsolete = Arc::clone(&purge.obsolete);
    let purger = executor.spawn("purge", Box::new(purge));
    obsolete.set_purger(purger.clone());
    let watch =
        watch.events.has_listeners().then(|| resources.watch().spawn("watch", Box::new(watch)));
    let merge = |number: usize| {
        let (compactor, stop, job) = (Arc::clone(compactor), Arc::clone(&stop), None);
        executor.spawn("merge", Box::new(CompactTask { compactor, first: number == 0, stop, job }))
    };
    let merges: Vec<_> = (0..resources.background_threads().max(MERGES_MIN)).map(merge).collect();
    compactor.set_tasks(merges.clone());
    let tasks = [flusher, log, segments, syncer, clock, purger]
        .into_iter()
        .chain(merges)
        .chain(watch)
        .collect();
    Background { stop, tasks: Mutex::new(tasks), counters }
}

fn open_manifest(
    medium: &Arc<dyn Medium>,
    create: Option<StoreId>,
    recovery: &mut Recovery,
) -> Result<(StoreId, Arc<Manifest>)> {
    let listed = medium.list()?;
    let others = listed.iter().find(|file| {
        parse_file_name(&file.name).is_some()
            || parse_values_file_name(&file.name).is_some()
            || wal::parse_segment_name(&file.name).is_some()
    });
    let (id, state, number, found) = match manifest::recover(&**medium, others.is_none())? {
        Ok(found) => {
            recovery.manifest_repairs = found.repaired;
            (found.store, found.state.clone(), found.number, Some(found))
        }
        Err(number) => {
            if let Some(file) = others {
                return Err(Error::corrupt("store")
                    .expected("a manifest")
                    .got(format_args!("none, beside `{}`", file.name)));
            }
            let Some(id) = create else {
                return Err(Error::invalid("store").expected("one to exist").got("none"));
            };
            recovery.created = true;
            (id, ManifestState::default(), number, None)
        }
    };
    let next = number
        .checked_add(1)
        .ok_or_else(|| Error::corrupt("manifest number").expected("one below").got(number))?;
    let started = Manifest::start(Arc::clone(medium), id, state, next);
    let manifest = match (started, found) {
        (Err(error), Some(found)) if error.kind() == ErrorKind::NoSpace => {
            Manifest::resume(Arc::clone(medium), found)?
        }
        (started, _) => started?,
    };
    Ok((id, Arc::new(manifest)))
}

/// Removes tables, value files and dictionaries that the manifest does not name.
fn remove_orphans(
    medium: &dyn Medium,
    state: &ManifestState,
    recovery: &mut Recovery,
) -> Result<()> {
    for listing in medium.list()? {
        let name = &listing.name;
        let orphan = parse_file_name(name).is_some_and(|id| !state.has_table(id))
            || parse_values_file_name(name).is_some_and(|id| !state.has_values(id))
            || Dictionary::parse_file_name(name).is_some_and(|id| !state.has_dictionary(id));
        if orphan {
            medium.remove(name)?;
            recovery.orphans_removed += 1;
        }
    }
    Ok(())
}

fn open_trees(
    env: &TreeContext,
    resources: &Resources,
    state: &ManifestState,
    operators: &Operators,
    recovery: &mut Recovery,
) -> Result<Arc<Trees>> {
    let trees = Arc::new(Trees::default());
    let memtables = resources.account("memtables");
    for (id, entry) in &state.keyspaces {
        let mut pieces = Vec::with_capacity(entry.tables.len());
        for table in entry.tables.values() {
            let id = table.entry.id;
            let opened = Table::open(
                &*env.medium,
                env.store,
                id,
                Some(table.entry.file_bytes),
                table.entry.seqno,
                Arc::clone(&env.dictionaries) as Arc<dyn Dictionaries>,
                &env.accounts,
            );
            let opened = opened.or_else(|error| damage(&*env.medium, id, error));
            if let Err(error) = &opened {
                // A newer format, or a shortage, is no damage: refuse rather than serve less.
                if error.kind() != ErrorKind::Corrupt {
                    return Err(error.clone());
                }
                recovery.damaged_tables.push(error.clone());
            }
            let told = opened.as_ref().ok().and_then(|table| table.tail_damage().cloned());
            recovery.read_by_copy.extend(told);
            let file = env.table_file(opened, Arc::clone(&table.entry));
            if table.damaged {
                file.mark_damaged();
            }
            let piece = |piece: &LivePiece| {
                let LivePiece { range, run, level } = piece.clone();
                (run, Piece::new(Arc::clone(&file), range, level))
            };
            pieces.extend(table.pieces.iter().map(piece));
        }
        let version = Version::from_pieces(pieces)?;
        let (name, read_context) = (entry.name.clone(), read_context(resources, &env.timekeeper));
        if let Some(name) = entry.operator.clone() {
            let operator = operators.get(&name).cloned();
            read_context.set_operator(name, operator);
        }
        trees.insert(Tree::new(*id, name, version, read_context, &memtables, Seqno::ZERO)?);
    }
    Ok(trees)
}

/// How a keyspace's versions are read.
pub(crate) fn read_context(
    resources: &Resources,
    timekeeper: &Arc<Timekeeper>,
) -> Arc<ReadContext> {
    let max = resources.value_bytes_max();
    let rows = resources.rows().owner();
    ReadContext::new(Arc::clone(timekeeper), resources.account("reads"), max, rows)
}

/// Why `table` could not be opened: damage, where its file is missing.
fn damage<T>(medium: &dyn Medium, table: base::TableId, error: Error) -> Result<T> {
    let name = file_name(table);
    if medium.list()?.iter().any(|listing| listing.name == name) {
        return Err(error.at(name));
    }
    Err(Error::corrupt("table file").at(name).expected("one to exist").got("none"))
}
