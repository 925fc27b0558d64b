//! Replay of the log into memtables at open.
//!
//! Memtables are flushed during replay when they fill half of the write buffers, and at the end if the log
//! has many segments, so that it starts anew. A full device does not keep a store from opening: the
//! replayed writes then stay in memory, which had room for them before the restart.
//!
//! Runs on the opening thread, before there are readers, writers or background tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{
    Account, BatchOp, Error, ErrorKind, KeyspaceId, LOST, Result, SegmentId, Seqno, Trailer,
    decode_moved, decode_ops, invariant, is_moved,
};
use compact::Horizon;
use manifest::{Edit, KeyspaceKind, ManifestState};
use tree::{FlushJob, Memtable, Tree, TreeContext, Trees, View};
use wal::{Appended, Batch, Log, Start};

use crate::Resources;
use crate::background::LogLimits;
use crate::lost_records::lost_records;
use crate::recovery::Recovery;
use crate::resources::Components as _;
use crate::settings::Settings;

/// The components that replay uses.
pub(super) struct Replay<'a> {
    pub context: &'a TreeContext,
    pub resources: &'a Resources,
    pub settings: &'a Settings,
    pub trees: &'a Trees,
    pub state: &'a ManifestState,
}

impl Replay<'_> {
    /// Opens the log and brings every write that is not in tables into memtables or tables.
    ///
    /// # Errors
    /// `Corrupt` for a damaged or missing log, unless the settings recover it; those of the device.
    pub(super) fn run(&self, recovery: &mut Recovery) -> Result<Arc<Log>> {
        let (log, flushed, damaged) = self.open_log(recovery)?;
        for (keyspace, entry) in &self.state.keyspaces {
            if entry.kind.is_resident() {
                log.keep_resident(*keyspace);
            }
        }
        for (keyspace, below) in flushed {
            log.flushed(keyspace, below);
        }
        for tree in self.trees.all() {
            if let Some(resident) = tree.view().read_context.resident() {
                resident.keep_tombstones_below(log.last().plus(1));
            }
        }
        if self.settings.read_only {
            return Ok(log);
        }
        if recovery.log_damage.is_some() || !damaged.is_empty() {
            // A device that reads nothing looks like a damaged log. The manifest's re-read tells them apart.
            manifest::recover(&*self.context.medium, false).map(drop)?;
            // A new segment to append to, so that the damaged one can be removed.
            log.prepare(0)?;
            // The damaged segments are removed with all that could be read of them, now in tables.
            self.empty_log(&log)?;
            self.leave_damaged(&log, &damaged)?;
        } else if self.log_limits(log.statistics().lanes).is_worth_emptying(&log) {
            self.try_empty_log(&log)?;
        }
        self.record_end(&log)?;
        invariant!(
            log.last() >= self.state.floor(),
            "a new write gets a sequence number above those of every table (I2)"
        );
        Ok(log)
    }

    /// Records the segment in which the log goes on, so that its loss is noticed. A full device has no space
    /// for a new manifest; the segment task tries again.
    fn record_end(&self, log: &Log) -> Result<()> {
        let Some(reached) = log.reached() else { return Ok(()) };
        match self.context.manifest.reach_log(reached, true) {
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
            recorded => recorded,
        }
    }

    /// Opens the log and applies its records. Returns the log, the seqno below which each keyspace's
    /// writes are in tables, and the last damaged segment of each lane.
    fn open_log(&self, recovery: &mut Recovery) -> Result<(Arc<Log>, FlushedBelow, Start)> {
        let loaded = self.load_index_checkpoint(recovery)?;
        let flushed_at_open: FlushedBelow =
            self.state.keyspaces.iter().map(|(id, entry)| (*id, entry.flushed_below)).collect();
        let mut apply = Apply {
            replay: self,
            memtables: self.resources.account("memtables"),
            flushed: flushed_at_open.clone(),
            // A reader has no device to flush to.
            is_device_full: self.settings.read_only,
            unknown: BTreeSet::new(),
            is_index_loaded: loaded.is_loaded,
            has_resident: self.state.keyspaces.values().any(|entry| entry.kind.is_resident()),
            has_lost: false,
            damaged: Start::new(),
        };
        let (log, found) = Log::open(
            Arc::clone(&self.context.medium),
            wal::Options { summaries: loaded.summaries, ..self.log_options() },
            &self.resources.account("log"),
            &|id: KeyspaceId| {
                // The log skips records of dropped keyspaces only.
                let unknown = self.is_unknown(id).then_some(Seqno::ZERO);
                flushed_at_open.get(&id).copied().or(unknown)
            },
            &mut |appended: Appended, body: &[u8]| apply.record(appended, body),
        )?;
        recovery.log_records = found.records;
        recovery.log_bytes = found.bytes;
        recovery.log_torn = found.torn.map(|torn| {
            let name = wal::segment_name(torn.lane, torn.segment);
            format!("{name}, byte {}", torn.offset)
        });
        let Apply { mut flushed, unknown, has_lost, mut damaged, .. } = apply;
        if has_lost {
            // A read looks for lost entries in the index, and must not find an older version before.
            self.flush_resident(&log, &mut flushed)?;
        }
        self.give_up(&log, &unknown)?;
        let unknown = unknown.first().map(|keyspace| self.unknown_keyspace(*keyspace));
        recovery.log_damage = found.damage.or(unknown);
        let flushed_below = self.state.flushed_below();
        let losses = found.losses.iter();
        recovery.log_lost = losses.map(|loss| lost_records(loss, flushed_below)).collect();
        for loss in &found.losses {
            // What could not be read again ends with the lane.
            let end = loss.to.map_or(SegmentId(u64::MAX), |to| to.segment);
            damaged.raise(loss.from.lane, end.max(loss.from.segment));
        }
        Ok((Arc::new(log), flushed, damaged))
    }

    /// Brings the writes to resident keyspaces into their indexes.
    fn flush_resident(&self, log: &Log, flushed: &mut FlushedBelow) -> Result<()> {
        let next = log.stored_below();
        for tree in self.trees.all().iter().filter(|tree| tree.kind().is_resident()) {
            let memtable = Memtable::new(&self.resources.account("memtables"), next)?;
            if self.flush_tree(tree, memtable)? {
                flushed.insert(tree.id(), next);
            }
        }
        Ok(())
    }

    /// Gives up the log records of the `unknown` keyspaces, and marks their ids as used: a keyspace that got
    /// such an id later would replay them, and its own records would be taken for dead.
    fn give_up(&self, log: &Log, unknown: &BTreeSet<KeyspaceId>) -> Result<()> {
        unknown.iter().for_each(|keyspace| log.forget(*keyspace));
        // No keyspace has the highest id.
        let Some(&keyspace) = unknown.range(..KeyspaceId(u32::MAX)).next_back() else {
            return Ok(());
        };
        let (kind, name) = (KeyspaceKind::Ordered, format!("\u{0}dropped {keyspace}"));
        let created = Edit::KeyspaceCreated { keyspace, kind, name };
        self.context.manifest.append(vec![created, Edit::KeyspaceDropped { keyspace }])
    }

    /// Whether the manifest never had `keyspace`. It records a keyspace before the log has writes to it, so
    /// such a log record is damage.
    fn is_unknown(&self, keyspace: KeyspaceId) -> bool {
        keyspace != KeyspaceId::NONE && keyspace >= self.state.keyspaces_below
    }

    /// The damage of a log with records of the unknown `keyspace`.
    fn unknown_keyspace(&self, keyspace: KeyspaceId) -> Error {
        Error::corrupt("keyspace of a log record")
            .expected(format_args!("an id below {}", self.state.keyspaces_below))
            .got(keyspace)
    }

    fn log_limits(&self, lanes: u64) -> LogLimits {
        LogLimits::of(self.resources, lanes)
    }

    fn log_options(&self) -> wal::Options {
        let recover = match self.settings.recover_damaged_log {
            true => wal::Recover::PastDamage,
            false => wal::Recover::Strict,
        };
        let known = self.state.known_log();
        let is_fenced = self.state.log_place.is_on_devices();
        let limits = self.log_limits(known.lanes.len() as u64);
        let (segment_bytes, first_segment_bytes) = match self.settings.read_only {
            // In memory, and nothing is appended to it.
            true => (wal::SEGMENT_BYTES_MIN, wal::SEGMENT_BYTES_MIN),
            false => (limits.segment_bytes, limits.first_segment_bytes()),
        };
        wal::Options {
            segment_bytes,
            first_segment_bytes,
            recover,
            floor: self.state.floor(),
            logged: known.logged,
            has_gaps: self.state.keyspaces.values().any(|entry| entry.kind.is_window()),
            // Two memtables: the active one and the sealed one that is being flushed.
            // Tables are on another device than a log on storage-class memory.
            leave_bytes: if is_fenced { 0 } else { 2 * self.resources.memtable_bytes() },
            start: known.start,
            reached: known.reached,
            has_keyspaces: known.has_keyspaces,
            lanes: known.lanes,
            is_fenced,
            ..wal::Options::new(self.context.store)
        }
    }

    /// As [`Replay::empty_log`], but too little space or memory is not an error: the log stays long.
    fn try_empty_log(&self, log: &Log) -> Result<()> {
        match self.empty_log(log) {
            Err(error) if error.kind() == ErrorKind::NoSpace || error.is_retryable() => Ok(()),
            emptied => emptied,
        }
    }

    /// Flushes all replayed writes and removes the log segments that held them.
    fn empty_log(&self, log: &Log) -> Result<()> {
        // Not the next seqno: a flush states that the log reaches it, and if the device was too full for a
        // new segment, the log ends where replay did.
        let next = log.stored_below();
        for tree in self.trees.all() {
            let memtable = Memtable::new(&self.resources.account("memtables"), next)?;
            if self.flush_tree(&tree, memtable)? {
                log.flushed(tree.id(), next);
            }
        }
        log.free(&|start| self.context.manifest.begin_log(start)).map(drop)
    }

    /// Flushes `tree`'s memtables on this thread and makes `next` its active memtable. Returns false if
    /// they held no write.
    fn flush_tree(&self, tree: &Arc<Tree>, next: Arc<Memtable>) -> Result<bool> {
        if !tree.view().active.is_empty() {
            tree.seal(next);
        } else if tree.oldest_sealed().is_none() {
            return Ok(false);
        }
        // There is more than one sealed memtable if the device was full before.
        while let Some((memtable, below)) = tree.oldest_sealed() {
            // There are no readers yet, and later ones read at the end of the log: above all versions here.
            let horizon = Horizon::new(vec![below.before()]);
            let mut job =
                FlushJob::new(self.context, Arc::clone(tree), (memtable, below), horizon)?;
            while job.step(self.context)?.is_none() {}
            let is_flushed = tree.oldest_sealed().is_none_or(|(_, oldest)| below < oldest);
            invariant!(is_flushed, "a flush removes its memtable");
        }
        Ok(true)
    }
}

/// Whether the index of a resident keyspace has a newer version than the operation of the record at `first`.
/// The indexed record is verified: the open did not read its segment.
///
/// # Errors
/// `Corrupt` if it is damaged: it may be the newer one.
fn is_older(view: &View, op: &BatchOp<'_>, first: Seqno) -> Result<bool> {
    let Some(resident) = view.read_context.resident() else { return Ok(false) };
    Ok(resident.find(op.key)?.is_some_and(|newest| newest.seqno > first))
}

/// The seqno below which all writes of a keyspace are in tables.
type FlushedBelow = BTreeMap<KeyspaceId, Seqno>;

/// Applies log records to memtables, in seqno order.
struct Apply<'a> {
    replay: &'a Replay<'a>,
    memtables: Account,
    flushed: FlushedBelow,
    /// A flush found no space. No flush is tried after that; sealed memtables wait for the flush task.
    is_device_full: bool,
    /// Keyspaces that the manifest never had. Their records are given up if the settings recover a damaged
    /// log.
    unknown: BTreeSet<KeyspaceId>,
    /// Whether there is a resident keyspace.
    has_resident: bool,
    /// Whether there are lost entries.
    has_lost: bool,
    /// The last segment of each lane with a lost entry that is given up.
    damaged: Start,
    /// Whether indexes have entries of a checkpoint, some of which are newer than records that are replayed.
    is_index_loaded: bool,
}

impl Apply<'_> {
    /// Applies the record that was `appended`.
    fn record(&mut self, appended: Appended, body: &[u8]) -> Result<()> {
        if is_moved(body) {
            return self.moved(appended, body);
        }
        let (mut next, mut older) = (appended.first, BTreeSet::new());
        for op in decode_ops(body) {
            let op = op?;
            let seqno = next;
            next = Seqno::try_from(next.get() + 1)?;
            let Some(tree) = self.replay.trees.get(op.keyspace) else {
                self.check_dropped(seqno, op.keyspace)?;
                continue;
            };
            if self.flushed.get(&op.keyspace).is_some_and(|below| seqno < *below) {
                continue;
            }
            invariant!(
                tree.view().active.first() <= seqno,
                "a record is replayed into a memtable that begins before it"
            );
            let view = tree.view();
            if self.is_index_loaded && is_older(&view, &op, appended.first)? {
                older.insert(seqno);
                continue;
            }
            let reserved = view.active.reserve(op.size());
            reserved.map_err(|error| match self.replay.settings.read_only {
                true => {
                    error.at("the log, which a store that is open for reading only keeps in memory")
                }
                false => error,
            })?;
            let trailer = Trailer::new(seqno, op.kind);
            // There is no reader yet, so no version must be kept for one.
            view.active.insert(op.key, trailer, op.value, Horizon::default);
        }
        self.note_places(appended, body, &older)?;
        self.flush_if_large(next)
    }

    /// Applies a record of moved entries: those of which no newer version is known. The copies of an entry
    /// and its first record are one version, so the last one counts.
    fn moved(&mut self, appended: Appended, body: &[u8]) -> Result<()> {
        let (mut keyspaces, mut ops) = (BTreeSet::new(), 0);
        for moved in decode_moved(body) {
            keyspaces.insert(moved?.1.op.keyspace);
            ops += 1;
        }
        let ids: Vec<_> = keyspaces.into_iter().collect();
        let batch = Batch { keyspaces: &ids, ops, body };
        let mut next = appended.first;
        for moved in decode_moved(body) {
            let (at, moved) = moved?;
            let (seqno, op) = (next, moved.op);
            next = next.plus(1);
            let Some(tree) = self.replay.trees.get(op.keyspace) else {
                self.check_dropped(seqno, op.keyspace)?;
                continue;
            };
            let view = tree.view();
            let Some(resident) = view.read_context.resident() else {
                return Err(Error::corrupt("log record of moved entries")
                    .at(format_args!("sequence number {seqno}"))
                    .expected("a resident keyspace")
                    .got(format_args!("`{}`", tree.name())));
            };
            let length = op.key.len() + op.value.len();
            if op.kind == LOST {
                // A repair gives it up.
                if !self.replay.settings.recover_damaged_log {
                    self.has_lost = true;
                    resident.add_lost(appended, &batch, (at, length), op.key)?;
                } else if let Some(address) = appended.address {
                    self.damaged.raise(address.lane, address.segment);
                }
                continue;
            }
            let memtables: Vec<_> = view.memtables().collect();
            if resident.origin(&memtables, op.key)?.is_some_and(|newest| newest > moved.first) {
                continue;
            }
            view.active.reserve(op.size())?;
            resident.note_moved(appended, &batch, (at, length), seqno, &view.active)?;
            view.active.insert(op.key, Trailer::new(seqno, op.kind), op.value, Horizon::default);
        }
        self.flush_if_large(next)
    }

    /// Notes where the log has the operations of resident keyspaces, for which memory was reserved: those
    /// whose seqnos are not in `older`.
    fn note_places(&self, appended: Appended, body: &[u8], older: &BTreeSet<Seqno>) -> Result<()> {
        if !self.has_resident {
            return Ok(());
        }
        debug_assert!(appended.address.is_some(), "a record that is replayed has an address");
        let mut keyspaces = BTreeSet::new();
        let mut ops = 0;
        for op in decode_ops(body) {
            keyspaces.insert(op?.keyspace);
            ops += 1;
        }
        let ids: Vec<_> = keyspaces.into_iter().collect();
        let batch = Batch { keyspaces: &ids, ops, body };
        for id in &ids {
            let Some(tree) = self.replay.trees.get(*id) else { continue };
            let view = tree.view();
            if let Some(resident) = view.read_context.resident() {
                let memtable_for = |seqno| (!older.contains(&seqno)).then_some(&*view.active);
                resident.note(appended, &batch, memtable_for)?;
            }
        }
        Ok(())
    }

    /// Operations of a dropped keyspace are skipped.
    ///
    /// # Errors
    /// `Corrupt` if the manifest never had the keyspace, unless the settings recover a damaged log.
    fn check_dropped(&mut self, seqno: Seqno, keyspace: KeyspaceId) -> Result<()> {
        if !self.replay.is_unknown(keyspace) {
            return Ok(());
        }
        if self.replay.settings.recover_damaged_log {
            self.unknown.insert(keyspace);
            return Ok(());
        }
        let error = self.replay.unknown_keyspace(keyspace);
        Err(error.at(format_args!("sequence number {seqno}")))
    }

    /// Flushes every tree if the active memtables fill half of the write buffers. `next` is the seqno after
    /// the last applied write.
    fn flush_if_large(&mut self, next: Seqno) -> Result<()> {
        let Replay { resources, trees, .. } = *self.replay;
        let filled: u64 = trees.all().iter().map(|tree| tree.view().active.bytes()).sum();
        if self.is_device_full || filled <= resources.write_buffer_bytes() / 2 {
            return Ok(());
        }
        for tree in trees.all() {
            let next_memtable = Memtable::new(&self.memtables, next)?;
            match self.replay.flush_tree(&tree, next_memtable) {
                Ok(true) => {
                    let before = self.flushed.insert(tree.id(), next);
                    invariant!(before.is_none_or(|it| it <= next), "flushes go forward in the log");
                }
                Ok(false) => {}
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    self.is_device_full = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
