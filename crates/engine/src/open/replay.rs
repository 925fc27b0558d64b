//! The log of a store being opened: replayed into memtables, which are flushed on the way where they
//! outgrow their memory, and at the end where the log should start anew. A device too full for that is no
//! reason not to open: what is replayed then stays in memory, which held it before.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, KeyspaceId, Result, Seqno, Trailer};
use compact::Horizon;
use media::Medium;
use wal::Log;

use super::{Recovery, segment_bytes};
use crate::Resources;
use crate::lost_records::LostRecords;
use crate::settings::Settings;
use base::decode_ops;
use manifest::ManifestState;
use tree::Trees;
use tree::{FlushJob, Memtable, Tree, TreeContext};

/// The damage where a store has no log at all.
///
/// A keyspace is made only where there is a log, and from then on there always is one.
pub fn missing_log(medium: &dyn Medium, state: &ManifestState) -> Result<Option<Error>> {
    let is_segment = |name: &str| {
        let parsed = wal::parse_segment_name(name);
        parsed.is_some_and(|(lane, segment)| segment >= state.log_start.of(lane))
    };
    if state.keyspaces_below == KeyspaceId::default()
        || medium.list()?.iter().any(|listing| is_segment(&listing.name))
    {
        return Ok(None);
    }
    Ok(Some(Error::corrupt("commit log").expected("a segment").got("none")))
}

pub(super) type FlushedBelow = BTreeMap<KeyspaceId, Seqno>;

pub(super) fn replay_log(
    env: &TreeContext,
    resources: &Resources,
    settings: &Settings,
    trees: &Trees,
    state: &ManifestState,
    recovery: &mut Recovery,
) -> Result<(Arc<Log>, FlushedBelow)> {
    let mut flushed: FlushedBelow =
        state.keyspaces.iter().map(|(id, entry)| (*id, entry.flushed_below)).collect();
    let known = flushed.clone();
    let account = resources.account("log");
    let memtables = resources.account("memtables");
    let options = wal::Options {
        segment_bytes: segment_bytes(resources),
        recover: if settings.recover_damaged_log {
            wal::Recover::PastDamage
        } else {
            wal::Recover::Strict
        },
        floor: state.floor(),
        // Two memtables: the one that fills up, and the one before it that is flushed.
        leave_bytes: 2 * resources.memtable_bytes(),
        start: state.log_start.clone(),
        ..wal::Options::new(env.store)
    };
    let mut is_device_full = false;
    let replay = &mut |first: Seqno, body: &[u8]| {
        let mut next = first;
        for op in decode_ops(body) {
            let op = op?;
            let seqno = next;
            next = Seqno::try_from(next.get() + 1)?;
            let Some(tree) = trees.get(op.keyspace) else { continue };
            if flushed.get(&op.keyspace).is_some_and(|below| seqno < *below) {
                continue;
            }
            let view = tree.view();
            view.active.reserve(op.size())?;
            // Nobody reads yet.
            let trailer = Trailer::new(seqno, op.kind);
            view.active.insert(op.key, trailer, op.value, Horizon::default);
        }
        let buffered: u64 = trees.all().iter().map(|tree| tree.view().active.filled_bytes()).sum();
        if is_device_full || buffered <= resources.write_buffer_bytes() / 2 {
            return Ok(());
        }
        for tree in trees.all() {
            let next_memtable = Memtable::new(&memtables, next)?;
            match flush_now(env, &tree, next_memtable) {
                Ok(true) => drop(flushed.insert(tree.id(), next)),
                Ok(false) => {}
                // What was sealed for it waits for the flush task.
                Err(error) if error.kind() == ErrorKind::NoSpace => is_device_full = true,
                Err(error) => return Err(error),
            }
            if is_device_full {
                break;
            }
        }
        Ok(())
    };
    let missing = missing_log(&*env.medium, state)?;
    if let Some(error) = missing.clone().filter(|_| !settings.recover_damaged_log) {
        return Err(error);
    }
    let from = |id: KeyspaceId| known.get(&id).copied();
    let (log, found) = Log::open(Arc::clone(&env.medium), options, &account, &from, replay)?;
    recovery.log_records = found.records;
    recovery.log_bytes = found.bytes;
    recovery.log_torn = found.torn.map(|torn| {
        let name = wal::segment_name(torn.lane, torn.segment);
        format!("{name}, byte {}", torn.offset)
    });
    recovery.log_damage = missing.or(found.damage);
    recovery.log_lost = {
        let flushed = state.flushed_below();
        found.losses.iter().map(|loss| LostRecords::of(loss, flushed)).collect()
    };
    Ok((Arc::new(log), flushed))
}

/// As [`empty`]. A device too full for that, or too little memory, is no reason not to open.
pub(super) fn flush_replayed(
    env: &TreeContext,
    resources: &Resources,
    trees: &Trees,
    log: &Log,
) -> Result<()> {
    match empty(env, resources, trees, log) {
        Err(error) if error.kind() == ErrorKind::NoSpace || error.is_retryable() => Ok(()),
        emptied => emptied,
    }
}

/// Flushes what was replayed and frees the log that held it.
pub(super) fn empty(
    env: &TreeContext,
    resources: &Resources,
    trees: &Trees,
    log: &Log,
) -> Result<()> {
    let next = log.last().plus(1);
    for tree in trees.all() {
        let memtable = Memtable::new(&resources.account("memtables"), next)?;
        if flush_now(env, &tree, memtable)? {
            log.flushed(tree.id(), next);
        }
    }
    log.free(&|start| env.manifest.begin_log(start)).map(drop)
}

/// Flushes `tree`'s memtables on this thread, putting `next` in the place of the active one; whether
/// they held anything.
fn flush_now(env: &TreeContext, tree: &Arc<Tree>, next: Arc<Memtable>) -> Result<bool> {
    if !tree.view().active.is_empty() {
        tree.seal(next);
    } else if tree.oldest_sealed().is_none() {
        return Ok(false);
    }
    // More than one where the device was too full for it before.
    while let Some((memtable, below)) = tree.oldest_sealed() {
        // Nobody reads yet, and who will, stands where the log ends: above all of it.
        let horizon = Horizon::new(vec![below.before()]);
        let mut job = FlushJob::new(env, Arc::clone(tree), (memtable, below), horizon)?;
        while job.step(env)?.is_none() {}
    }
    Ok(true)
}
