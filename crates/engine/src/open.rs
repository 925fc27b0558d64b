//! Opening a store: lock, manifest, tables, log, then background tasks.
//!
//! The order matters. The manifest names the tables of the store; tables that it does not name are orphans
//! of unfinished jobs and are removed. The log is replayed into memtables, which are flushed on the way if
//! they outgrow their memory. Reads, writes and background tasks begin after all of that is done.
//!
//! The steps: `files` (lock, manifest, orphans), `trees` (tables), `replay` (log), `tasks` (background).

mod files;
mod index_checkpoint;
mod index_inspection;
mod index_sections;
mod leave_damaged;
mod replay;
mod tasks;
mod trees;

use std::sync::Arc;

use arena::PublishRing;
use base::{Counter, Error, Owner, ReclaimOrder, Result, Seqno, StoreId, invariant};
use compact::Operators;
use manifest::ManifestState;
use media::{Medium, Metered};
use parking_lot::Mutex;
use read::{Curves, PageReader};
use table::{Accounts, StoreDictionaries};
use tree::compaction::Compactor;
use tree::events::Events;
use tree::reads::{QueuePool, Reader, Rows};
use tree::{
    LogSegments, ObsoleteFiles, Quarantine, RowCompression, RowRefresh, SnapshotList, Timekeeper,
    TreeContext, Trees, ValueFiles,
};
use wal::Log;

use crate::background::{Background, IndexCheckpointStatus};
use crate::buffers::Buffers;
use crate::cold::{ColdConfig, ColdStatus};
use crate::commit::Committer;
use crate::compaction_host::StoreHost;
use crate::pace::Pace;
use crate::recovery::Recovery;
use crate::resources::Components as _;
use crate::settings::{LiveSettings, Settings};
use crate::store::Store;
use crate::transaction::Transactions;
use crate::watchdog::Watchdog;
use crate::{LogConfig, Resources};
use files::StoreFiles;
pub use index_checkpoint::{IndexCheck, check_indexes};
pub use index_inspection::{IndexFact, inspect_index};
use replay::Replay;
use tasks::Tasks;
use trees::open_trees;

/// The files that a store is opened with.
#[derive(Clone, Debug)]
pub struct StoreMedia {
    /// The store's directory.
    pub directory: Arc<dyn Medium>,
    /// The object store of its cold tables.
    pub object_store: Option<ColdConfig>,
}

impl From<Arc<dyn Medium>> for StoreMedia {
    fn from(directory: Arc<dyn Medium>) -> Self {
        Self { directory, object_store: None }
    }
}

/// Opens the store on `media`, or creates it with the id `create` if there is none. `log` names the devices
/// of its log.
///
/// # Errors
/// `Invalid` if there is no store and `create` is `None`. `Corrupt` for a damaged manifest or log; a
/// damaged table is reported in [`Recovery`] instead, and a damaged log too if the settings recover it.
/// Those of the lock, the device and the memory limit.
pub fn open(
    media: StoreMedia,
    log: &LogConfig,
    resources: Resources,
    settings: Settings,
    operators: Operators,
    events: Arc<Events>,
    create: Option<StoreId>,
) -> Result<Store> {
    resources.must_be_here()?;
    let start = resources.clock().monotonic();
    let mut recovery = Recovery::default();
    let StoreMedia { directory, object_store } = media;
    let cold = object_store.as_ref();
    let files = StoreFiles::open(directory, log, cold, &resources, create, &mut recovery)?;
    if settings.read_only {
        refuse_resident(&files.state)?;
    }
    files::refuse_too_many(&*files.medium, &files.state)?;
    let entered = resources.enter();
    let operators = Arc::new(operators);
    let live_settings = LiveSettings::new(settings.clone());
    let compression: Arc<RowCompression> = Arc::default();

    let context = replay_context(&files, &resources, &live_settings, &events, &compression);
    let trees = open_trees(&context, &resources, &files.state, &operators, &mut recovery)?;
    let log = Replay {
        context: &context,
        resources: &resources,
        settings: &settings,
        trees: &trees,
        state: &files.state,
    }
    .run(&mut recovery)?;
    let context = Arc::new(serving_context(context, &log));

    let cold = files.cold.clone().map(|cold| ColdStatus { cold, counters: Arc::default() });
    let object_store = object_store.zip(cold.clone());
    let recovered = Recovered {
        object_store: object_store.as_ref(),
        resources: &resources,
        metered: &files.metered,
        operators: &operators,
        context: &context,
        trees: &trees,
        log: &log,
        index_checkpoint: IndexCheckpointStatus {
            bytes: recovery.index_checkpoint_bytes,
            begun: recovery.index_checkpoint_begun,
            log_bytes: recovery.log_bytes,
            log_bytes_due: 0,
        },
    };
    let components = recovered.components(settings.compaction, compression)?;
    let background = match settings.read_only {
        true => {
            components.buffers.make_read_only();
            Background::none()
        }
        false => recovered.start_tasks(&components, &live_settings, &events),
    };
    recovery.elapsed = resources.clock().monotonic().saturating_sub(start);
    let Components { pace, buffers, committer, transactions, reader, compactor, watchdog } =
        components;
    let StoreFiles { id, manifest, medium, holding, metered, lock, cold: _, state: _ } = files;
    Ok(Store {
        owner: Owner::this(),
        background,
        id,
        settings: live_settings,
        events,
        quarantine: Arc::clone(&context.quarantine),
        recovery,
        committer,
        transactions,
        reader,
        queues: QueuePool::default(),
        snapshots: Arc::clone(&context.snapshots),
        ring: Arc::clone(&context.ring),
        segments: Arc::clone(&context.segments),
        trees,
        buffers,
        compactor,
        pace,
        log,
        manifest,
        dictionaries: Arc::clone(&context.dictionaries),
        timekeeper: Arc::clone(&context.timekeeper),
        operators,
        medium,
        holding,
        metered,
        cold,
        object_store: object_store.map(|(config, _)| config),
        watchdog,
        keyspaces: Mutex::new(()),
        _entered: entered,
        resources,
        _lock: lock,
    })
}

/// The recovered data of a store, and the parts that its components are made of.
struct Recovered<'a> {
    object_store: Option<&'a (ColdConfig, ColdStatus)>,
    resources: &'a Resources,
    metered: &'a Arc<Metered>,
    operators: &'a Arc<Operators>,
    context: &'a Arc<TreeContext>,
    trees: &'a Arc<Trees>,
    log: &'a Arc<Log>,
    /// The checkpoint of indexes that was read, and the bytes of the log that were.
    index_checkpoint: IndexCheckpointStatus,
}

/// The components that serve reads and writes.
struct Components {
    pace: Arc<Pace>,
    buffers: Arc<Buffers>,
    committer: Committer,
    transactions: Transactions,
    reader: Arc<Reader>,
    compactor: Arc<Compactor>,
    watchdog: Arc<Watchdog>,
}

impl Recovered<'_> {
    fn components(
        &self,
        compaction: compact::plan::Options,
        compression: Arc<RowCompression>,
    ) -> Result<Components> {
        let Self { resources, metered, operators, context, trees, log, .. } = *self;
        let pace = Pace::new();
        let buffers = new_buffers(resources, log, trees, &pace);
        let curves = new_curves(resources);
        let committer = Committer {
            log: Arc::clone(log),
            ring: Arc::clone(&context.ring),
            buffers: Arc::clone(&buffers),
            snapshots: Arc::clone(&context.snapshots),
            rows: Arc::clone(resources.rows()),
            curves: Arc::clone(&curves),
            interval_target: Arc::default(),
            user_bytes: Counter::default(),
            ops: Counter::default(),
        };
        let pages = new_page_reader(resources, &curves, Arc::clone(metered) as _);
        let transactions = Transactions::new(
            Arc::clone(log),
            Arc::clone(&context.ring),
            Arc::clone(&pages),
            resources.account("transactions"),
        );
        let reader = new_reader(resources, pages, curves, compression);
        let compactor = Arc::new(Compactor::new(
            Arc::clone(context),
            Arc::clone(trees),
            Arc::new(StoreHost { resources: resources.clone(), pace: Arc::clone(&pace) }),
            Arc::clone(resources.compaction()),
            Arc::clone(operators),
            compaction,
            Arc::clone(metered),
        )?);
        let watchdog = Arc::new(Watchdog {
            buffers: Arc::clone(&buffers),
            trees: Arc::clone(trees),
            metered: Arc::clone(metered),
        });
        Ok(Components { pace, buffers, committer, transactions, reader, compactor, watchdog })
    }

    fn start_tasks(
        &self,
        components: &Components,
        settings: &Arc<LiveSettings>,
        events: &Arc<Events>,
    ) -> Background {
        Tasks {
            object_store: self.object_store,
            context: self.context,
            resources: self.resources,
            settings,
            events,
            trees: self.trees,
            log: self.log,
            index_checkpoint: self.index_checkpoint,
            buffers: &components.buffers,
            pace: &components.pace,
            compactor: &components.compactor,
            reader: &components.reader,
            watchdog: &components.watchdog,
            interval_target: &components.committer.interval_target,
            stop: Arc::default(),
            counters: Arc::default(),
        }
        .start()
    }
}

/// Refuses to read a store with a resident keyspace beside its writer, which frees segments of the log that
/// an index of this process would point into.
fn refuse_resident(state: &ManifestState) -> Result<()> {
    match state.keyspaces.values().find(|entry| entry.kind.is_resident()) {
        None => Ok(()),
        Some(entry) => Err(Error::invalid("opening for reading only")
            .expected("a store without resident keyspaces, whose entries are in the log")
            .got(format_args!("the resident keyspace `{}`", entry.name))),
    }
}

/// The context that the store's trees share while the log is replayed: without a log and without readers.
fn replay_context(
    files: &StoreFiles,
    resources: &Resources,
    settings: &Arc<LiveSettings>,
    events: &Arc<Events>,
    compression: &Arc<RowCompression>,
) -> TreeContext {
    let (medium, manifest) = (&files.medium, &files.manifest);
    let obsolete = ObsoleteFiles::new(Arc::clone(medium), Arc::clone(resources.cache()));
    let values = ValueFiles::new(
        files.id,
        Arc::clone(medium),
        Arc::clone(manifest),
        Arc::clone(&obsolete),
        resources.reads_account(),
    );
    let dictionaries =
        StoreDictionaries::new(Arc::clone(medium), files.id, resources.account("dictionaries"));
    let dictionaries = Arc::new(dictionaries);
    let reclaimer = Arc::downgrade(&dictionaries);
    resources.add_reclaimer(ReclaimOrder::Optional, reclaimer);
    let timekeeper = Timekeeper::new(Arc::clone(resources.clock()), files.state.clock_ms);
    TreeContext {
        values: Arc::new(values),
        segments: LogSegments::new(medium, files.id, &resources.account("log segments")),
        obsolete,
        store: files.id,
        medium: Arc::clone(medium),
        manifest: Arc::clone(manifest),
        cache: Arc::clone(resources.cache()),
        row_refresh: Arc::new(RowRefresh::new(
            Arc::clone(resources.rows()),
            Arc::clone(compression),
        )),
        dictionaries,
        snapshots: Arc::default(),
        ring: Arc::new(PublishRing::new(Seqno::ZERO)),
        log: None,
        accounts: Accounts {
            pinned: resources.tables_account(),
            range_deletes: resources.range_deletes_account(),
            values: resources.reads_account(),
            filters: Some(Arc::clone(resources.filters())),
        },
        writer_account: resources.flush_account(),
        events: Arc::clone(events),
        quarantine: Arc::new(Quarantine::new(Arc::clone(manifest), Arc::clone(events))),
        timekeeper: Arc::new(timekeeper),
        sums_entries: resources.offload().is_some(),
        options: Arc::clone(settings) as _,
    }
}

/// The context from the end of replay on: every replayed write is visible.
fn serving_context(context: TreeContext, log: &Arc<Log>) -> TreeContext {
    invariant!(context.ring.visible() == Seqno::ZERO, "nothing is published during replay");
    invariant!(context.snapshots.count() == 0, "nothing reads during replay");
    TreeContext {
        snapshots: Arc::new(SnapshotList::default()),
        ring: Arc::new(PublishRing::new(log.last())),
        log: Some(Arc::clone(log)),
        ..context
    }
}

/// The write buffers, which give memory back when another account needs it.
fn new_buffers(
    resources: &Resources,
    log: &Arc<Log>,
    trees: &Arc<Trees>,
    pace: &Arc<Pace>,
) -> Arc<Buffers> {
    let buffers =
        Buffers::new(resources.clone(), Arc::clone(log), Arc::clone(trees), Arc::clone(pace));
    let buffers = Arc::new(buffers);
    let reclaimer = Arc::downgrade(&buffers);
    resources.add_reclaimer(ReclaimOrder::Buffers, reclaimer);
    buffers
}

/// The miss-ratio curves of this store's reads.
fn new_curves(resources: &Resources) -> Arc<Curves> {
    let account = resources.account("miss-ratio curves");
    let (memory, stores) = (resources.cache_bytes_max(), resources.open_stores());
    Arc::new(Curves::new(&account, memory, stores, resources.has_rows()))
}

fn new_page_reader(
    resources: &Resources,
    curves: &Arc<Curves>,
    medium: Arc<dyn Medium>,
) -> Arc<PageReader> {
    Arc::new(PageReader::new(
        Arc::clone(resources.cache()),
        resources.has_rows().then(|| Arc::clone(resources.balance())),
        Arc::clone(curves),
        resources.reads_account(),
        medium,
    ))
}

fn new_reader(
    resources: &Resources,
    pages: Arc<PageReader>,
    curves: Arc<Curves>,
    compression: Arc<RowCompression>,
) -> Arc<Reader> {
    let rows = Rows::new(
        Arc::clone(resources.rows()),
        Arc::clone(resources.balance()),
        curves,
        compression,
        resources.has_rows(),
    );
    Arc::new(Reader::new(pages, rows))
}
