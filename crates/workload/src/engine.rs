//! This engine as a [`Store`] of the drivers: one keyspace of an open store.
//!
//! The `terrace` tool measures it, the comparison harness measures it beside other engines, and tests run the
//! cases of both on it.
//!
//! Concurrency: any number of threads. A mutex guards the list of idle read queues, and is held only while a
//! queue is taken or given back.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use base::{broken_invariant, invariant};
use terracedb::hashed::HashedPolicy;
use terracedb::polling::Completed;
use terracedb::{
    Db, Durability, Keyspace, KeyspaceOptions, ReadQueue, Result, WriteBatch, WriteOptions,
};

use crate::{
    ByKind, CompactionPlaces, Counters, Direction, Emulation, Hits, PageCounts, ScanVisitor,
    ScmCounts, Store, Traffic,
};

/// The keyspace that the drivers use.
const KEYSPACE: &str = "default";

/// The number of tries to settle a store with merges that lack memory, and the pause between them.
const SETTLE_TRIES: usize = 120;
const SETTLE_PAUSE: Duration = Duration::from_millis(500);

/// One keyspace of a store of this engine.
pub struct Engine {
    db: Db,
    keyspace: Keyspace,
    /// Durability of writes without `sync`.
    durability: Durability,
    /// Idle read queues, of several depths. Each call takes a queue for itself.
    queues: Mutex<Vec<ReadQueue>>,
}

impl Engine {
    /// The default keyspace of `db`, created if missing.
    ///
    /// # Errors
    /// Those of the store.
    pub fn new(db: Db) -> Result<Self> {
        let keyspace = db.open_or_create_keyspace(KEYSPACE)?;
        Ok(Self::of(db, keyspace))
    }

    /// As [`Engine::new`], with a hashed keyspace.
    ///
    /// # Errors
    /// Those of the store; `Invalid` if the keyspace exists and is of another kind.
    pub fn hashed(db: Db, policy: HashedPolicy) -> Result<Self> {
        Self::with_options(db, &KeyspaceOptions::new().hashed(policy))
    }

    /// As [`Engine::new`], with options of the keyspace: a new one gets them, an existing one adopts those
    /// that it lacks.
    ///
    /// # Errors
    /// Those of the store; `Invalid` if the keyspace exists and is of another kind.
    pub fn with_options(db: Db, options: &KeyspaceOptions) -> Result<Self> {
        let keyspace = db.open_or_create_keyspace_opt(KEYSPACE, options)?;
        Ok(Self::of(db, keyspace))
    }

    fn of(db: Db, keyspace: Keyspace) -> Self {
        Self { db, keyspace, durability: Durability::None, queues: Mutex::default() }
    }

    /// The name of the keyspace.
    #[must_use]
    pub fn keyspace_name(&self) -> &str {
        self.keyspace.name()
    }

    /// Sets the durability of writes without `sync`. The default is [`Durability::None`].
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    const fn durability_of(&self, sync: bool) -> Durability {
        if sync { Durability::Sync } else { self.durability }
    }

    /// The store.
    #[must_use]
    pub const fn db(&self) -> &Db {
        &self.db
    }

    fn queue(&self, depth: usize) -> Result<ReadQueue> {
        let idle = self.queues.lock().ok().and_then(|mut queues| {
            let at = queues.iter().position(|queue| queue.depth() == depth)?;
            Some(queues.swap_remove(at))
        });
        idle.map_or_else(|| self.db.read_queue(depth), Ok)
    }
}

const fn scm_counts(counts: &terracedb::stats::ScmStatistics) -> ScmCounts {
    let refused = &counts.refused;
    let terracedb::stats::Refusals { cold, budget, churn, busy, dead, kind, place, slow } =
        *refused;
    let rows = &counts.rows;
    ScmCounts {
        hits_rows: rows.hits,
        rows_demoted: rows.demoted,
        rows_refused: rows.refused_cold
            + rows.refused_busy
            + rows.refused_budget
            + rows.refused_written
            + rows.refused_place,
        rows_refused_cold: rows.refused_cold,
        rows_refused_busy: rows.refused_busy,
        rows_refused_written: rows.refused_written,
        rows_dropped: rows.evicted + rows.dropped,
        rows_missed: rows.missed,
        pages_missed: rows.missed_pages,
        rows: rows.rows,
        rows_bytes: rows.slots << 12,
        rows_bytes_max: rows.slots_max << 12,
        hits: counts.hits_data + counts.hits_meta,
        hits_meta: counts.hits_meta,
        misses: counts.misses,
        offered: counts.offered.saturating_sub(counts.kept),
        admitted: counts.admitted,
        refused: refused.sum(),
        refused_cold: cold,
        refused_budget: budget,
        refused_churn: churn,
        refused_busy: busy,
        refused_dead: dead,
        refused_kind: kind,
        refused_place: place,
        refused_slow: slow,
        passed: counts.passed,
        dropped: counts.dropped,
        promoted: counts.promoted,
        demoted: counts.demoted,
        carried: counts.carried,
        kept: counts.kept,
        bytes_written: counts.bytes_written,
        resident_bytes: counts.resident << 12,
    }
}

fn compaction_places(compaction: &terracedb::stats::CompactionStatistics) -> CompactionPlaces {
    let workers = &compaction.workers;
    CompactionPlaces {
        local_jobs: compaction.done.saturating_sub(compaction.remote),
        remote_jobs: compaction.remote,
        fallbacks: compaction.fallbacks,
        link_bytes: workers.iter().map(|worker| worker.link_bytes).sum(),
        host_cpu_seconds: 0.0,
        worker_cpu_seconds: workers.iter().map(|worker| worker.cpu.as_secs_f64()).sum(),
    }
}

/// Page lookups by the tier that answered: pages found in neither cache tier came from flash.
fn page_counts(statistics: &terracedb::stats::Statistics) -> PageCounts {
    let below = statistics.scm.as_ref().map(|scm| scm.counts).unwrap_or_default();
    let (data, meta) = (statistics.cache.data, statistics.cache.meta);
    PageCounts {
        dram: ByKind { data: data.hits, meta: meta.hits },
        scm: ByKind { data: below.hits_data, meta: below.hits_meta },
        flash: ByKind {
            data: data.misses.saturating_sub(below.hits_data),
            meta: meta.misses.saturating_sub(below.hits_meta),
        },
    }
}

impl Store for Engine {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.keyspace.put_opt(key, value, &WriteOptions::new().durability(self.durability_of(sync)))
    }

    fn put_batch(&self, entries: &[(&[u8], &[u8])], sync: bool) -> Result<()> {
        let mut batch = WriteBatch::new();
        for (key, value) in entries {
            batch.put(&self.keyspace, key, value)?;
        }
        self.db.write_opt(&batch, &WriteOptions::new().durability(self.durability_of(sync)))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(
        &self,
        keys: &[&[u8]],
        depth: usize,
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut queue = self.queue(depth)?;
        let mut done: Vec<Completed> = Vec::new();
        let mut left = keys.len();
        let mut next = 0;
        while left > 0 {
            let rest = keys.get(next..).unwrap_or_default();
            next += self.keyspace.submit_many(&mut queue, rest, next as u64)?;
            queue.wait(1, &mut done)?;
            invariant!(done.len() <= left, "a read queue completes each get once");
            left = left.saturating_sub(done.len());
            for completed in done.drain(..) {
                visit(completed.token as usize, completed.result?.as_deref());
            }
        }
        if let Ok(mut queues) = self.queues.lock() {
            queues.push(queue);
        }
        Ok(())
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.keyspace.delete_opt(key, &WriteOptions::new().durability(self.durability_of(sync)))
    }

    fn scan(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: &mut ScanVisitor<'_>,
    ) -> Result<usize> {
        let mut cursor = self.keyspace.cursor()?;
        let mut valid = match (direction, from) {
            (Direction::Forward, None) => cursor.seek_to_first()?,
            (Direction::Forward, Some(key)) => cursor.seek(key)?,
            (Direction::Reverse, None) => cursor.seek_to_last()?,
            (Direction::Reverse, Some(key)) => {
                (cursor.seek(key)? && cursor.key() == Some(key)) || cursor.seek_before(key)?
            }
        };
        let mut shown = 0;
        while valid && shown < limit {
            let (Some(key), Some(value)) = (cursor.key(), cursor.value()) else {
                return Err(broken_invariant!("a valid cursor is at an entry"));
            };
            shown += 1;
            if visit(key, value) == ControlFlow::Break(()) || shown == limit {
                break;
            }
            valid = match direction {
                Direction::Forward => cursor.next()?,
                Direction::Reverse => cursor.prev()?,
            };
        }
        Ok(shown)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()
    }

    /// The store retries a merge that lacked memory later. The time to settle includes that, so this waits
    /// for it.
    fn settle(&self) -> Result<()> {
        for _ in 0..SETTLE_TRIES {
            match self.db.wait_until_settled() {
                Err(error) if error.is_retryable() => thread::sleep(SETTLE_PAUSE),
                outcome => return outcome,
            }
        }
        self.db.wait_until_settled()
    }

    fn compact(&self) -> Result<()> {
        self.db.compact()
    }

    fn is_ordered(&self) -> bool {
        self.keyspace.hashed_policy().is_none()
    }

    fn may_drop(&self) -> bool {
        matches!(self.keyspace.hashed_policy(), Some(HashedPolicy::Window { .. }))
    }

    fn index_bytes(&self) -> Option<u64> {
        let keyspaces = self.db.statistics().keyspaces;
        Some(keyspaces.iter().map(|keyspace| keyspace.metadata_bytes + keyspace.index_bytes).sum())
    }

    fn counters(&self) -> Counters {
        let statistics = self.db.statistics();
        let mut device = BTreeMap::new();
        let mut foreground_read_ops = 0;
        for (purpose, counts) in statistics.device.by_purpose() {
            let media::Counts { read_ops, read_bytes, write_ops, write_bytes, .. } = counts;
            device.insert(purpose.name(), Traffic { read_ops, read_bytes, write_ops, write_bytes });
            if media::Class::of(purpose) == media::Class::Read && purpose != media::Purpose::Replay
            {
                foreground_read_ops += read_ops;
            }
        }
        let terracedb::stats::Hits { memtable, row, page, scm, flash, .. } = statistics.hits;
        let held = |keyspace: &terracedb::stats::KeyspaceStatistics| {
            keyspace.table_bytes + keyspace.value_file_bytes
        };
        let held: u64 = statistics.keyspaces.iter().map(held).sum();
        Counters {
            device,
            foreground_read_ops,
            hits: Hits { row: memtable + row, page, scm, flash },
            stalls: BTreeMap::from([
                ("memory", statistics.stalled),
                ("buffers", statistics.delays.buffers),
                ("runs", statistics.delays.runs),
                ("space", statistics.delays.space),
            ]),
            pages: Some(page_counts(&statistics)),
            scm: statistics.scm.as_ref().map(|scm| scm_counts(&scm.counts)),
            emulation: statistics.scm.as_ref().and_then(|scm| {
                let wait_cpu_seconds = scm.wait_cpu_seconds;
                scm.emulated.map(|profile| Emulation { profile, wait_cpu_seconds })
            }),
            compaction: Some(compaction_places(&statistics.compaction)),
            memory_bytes: statistics.memory.used,
            space_bytes: held + statistics.log_bytes,
            logical_bytes: None,
        }
    }
}
