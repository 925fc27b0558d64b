//! Checkpoints of the indexes of resident keyspaces: written in steps beside the store's other work.
//!
//! A step of the flush task, between two flushes. Shards are copied one after the other, while flushes and
//! moves go on between the steps; no segment is forgotten meanwhile, so that places keep their meaning.
//! The older checkpoint is removed once the new one is durable.
//!
//! A checkpoint is due once the log grew by several times its length, so that what an open reads is bounded
//! by a multiple of the indexes. None is written while an index has lost entries: a slot does not tell them
//! from others, and a replay of the log does.

use std::sync::Arc;

use base::{Charge, Error, KeyspaceId, Result, Seqno, invariant};
use media::{Access, File, Purpose};
use tree::checkpoint::{HEADER_BYTES, Header, Section};
use tree::{Resident, TreeContext, Trees};
use wal::{Log, SegmentSummary};

use super::collector::flushed_end;
use super::counters::{BackgroundCounters, IndexCheckpointStatus};

/// The log grows by this many segments between two checkpoints, at least.
const SEGMENTS_MIN: u64 = 8;

/// The log grows by this many times the length of a checkpoint between two, at least.
const GROWTH: u64 = 4;

/// Bytes of a checkpoint that a step writes, about.
const STEP_BYTES: usize = 512 << 10;

/// Memory of a checkpoint that is being written: a step's bytes, and the copy of a shard.
const MEMORY: u64 = 4 * STEP_BYTES as u64;

/// See the module.
pub(crate) struct IndexCheckpoints {
    log: Arc<Log>,
    counters: Arc<BackgroundCounters>,
    segment_bytes: u64,
    /// Bytes that the log had written when the last checkpoint was begun; those that the open read count as
    /// written after it.
    begun_at: u64,
    read_at_open: u64,
    /// The newest whole checkpoint, and what the log had written when it was begun.
    newest: IndexCheckpointStatus,
    newest_at: u64,
    current: Option<Writing>,
}

/// A checkpoint that is being written.
struct Writing {
    header: Header,
    file: Arc<dyn File>,
    at: u64,
    bytes: Vec<u8>,
    keyspaces: Vec<(KeyspaceId, Arc<Resident>)>,
    /// The keyspace and the shard that are copied next.
    next: (usize, usize),
    full: Vec<SegmentSummary>,
    _charge: Charge,
}

impl Writing {
    fn name(&self) -> String {
        Header::file_name(self.header.number)
    }

    fn store(&mut self) -> Result<()> {
        invariant!(self.at >= HEADER_BYTES as u64, "sections lie behind the header");
        self.file.store(self.at, &self.bytes, Purpose::Manifest)?;
        self.at += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }

    fn add(&mut self, section: &Section) -> Result<()> {
        section.encode(&mut self.bytes);
        if self.bytes.len() >= STEP_BYTES { self.store() } else { Ok(()) }
    }

    /// Copies some shards. Returns false if none is left.
    fn copy(&mut self) -> Result<bool> {
        let begin = self.at;
        while self.at == begin {
            let (keyspace, shard) = self.next;
            let Some((id, resident)) = self.keyspaces.get(keyspace).cloned() else {
                return Ok(false);
            };
            invariant!(shard < Resident::SHARDS, "a keyspace's shards are copied once");
            for section in resident.checkpoint_shard(shard) {
                self.add(&section)?;
            }
            self.next = (keyspace, shard + 1);
            if shard + 1 == Resident::SHARDS {
                self.add(&Section::Tombstones(id, resident.sizes().tombstones))?;
                self.next = (keyspace + 1, 0);
            }
        }
        Ok(true)
    }

    /// Writes the rest, and makes the checkpoint durable.
    fn finish(&mut self, context: &TreeContext) -> Result<u64> {
        invariant!(self.next.0 == self.keyspaces.len(), "a whole checkpoint has every shard");
        for part in context.segments.parts() {
            self.add(&Section::Segment(part))?;
        }
        for full in std::mem::take(&mut self.full) {
            self.add(&Section::Full(full))?;
        }
        self.store()?;
        self.file.sync(Purpose::Manifest)?;
        // Last: a file with a whole header is whole.
        self.header.length = self.at;
        self.file.store(0, &self.header.encode(), Purpose::Manifest)?;
        self.file.sync(Purpose::Manifest)?;
        let name = self.name();
        context.medium.sync_names(&[&name])?;
        Ok(self.at)
    }
}

/// The indexes of the resident keyspaces.
fn resident(trees: &Trees) -> Vec<(KeyspaceId, Arc<Resident>)> {
    let trees = trees.all().into_iter().filter(|tree| !tree.is_dropped());
    trees
        .filter_map(|tree| Some((tree.id(), tree.view().read_context.resident()?.clone())))
        .collect()
}

/// Whether an index has lost entries, which only a replay of the log finds.
fn has_lost(keyspaces: &[(KeyspaceId, Arc<Resident>)]) -> bool {
    keyspaces.iter().any(|(_, resident)| resident.has_lost())
}

impl IndexCheckpoints {
    pub(crate) fn new(
        log: &Arc<Log>,
        segment_bytes: u64,
        newest: IndexCheckpointStatus,
        counters: &Arc<BackgroundCounters>,
        trees: &Trees,
    ) -> Self {
        let (log, counters) = (Arc::clone(log), Arc::clone(counters));
        let read_at_open = newest.log_bytes;
        let (begun_at, newest_at, current) = (0, 0, None);
        let it = Self {
            log,
            counters,
            segment_bytes,
            begun_at,
            read_at_open,
            newest,
            newest_at,
            current,
        };
        it.publish(it.due(&resident(trees)));
        it
    }

    /// The growth of the log at which a checkpoint of these indexes is begun, bytes.
    fn due(&self, keyspaces: &[(KeyspaceId, Arc<Resident>)]) -> u64 {
        let entries: u64 = keyspaces.iter().map(|(_, it)| it.sizes().entries).sum();
        (SEGMENTS_MIN * self.segment_bytes).max(GROWTH * entries * size_of::<u64>() as u64)
    }

    /// Tells statistics how far the log grew.
    fn publish(&self, log_bytes_due: u64) {
        let log_bytes = self.newest.log_bytes + self.written().saturating_sub(self.newest_at);
        *self.counters.index_checkpoint.lock() =
            IndexCheckpointStatus { log_bytes, log_bytes_due, ..self.newest };
    }

    /// Whether places must keep their meaning.
    pub(crate) fn is_writing(&self) -> bool {
        self.current.is_some()
    }

    /// Does a step of work. Returns whether there is more.
    pub(crate) fn step(&mut self, context: &TreeContext, trees: &Trees) -> bool {
        let stepped = match self.current.take() {
            Some(mut writing) => match self.go_on(&mut writing, context) {
                Ok(true) => {
                    self.current = Some(writing);
                    Ok(true)
                }
                Ok(false) => Ok(false),
                Err(error) => {
                    // One that stays is not whole, and the next one replaces it.
                    let _ = context.medium.remove(&writing.name());
                    Err(error)
                }
            },
            None => self.begin(context, trees),
        };
        stepped.unwrap_or_else(|_| {
            // An open reads the whole log, or begins with an older checkpoint.
            self.counters.index_checkpoint_failures.add(1);
            false
        })
    }

    fn go_on(&mut self, writing: &mut Writing, context: &TreeContext) -> Result<bool> {
        if has_lost(&writing.keyspaces) {
            context.medium.remove(&writing.name())?;
            return Ok(false);
        }
        if writing.copy()? {
            return Ok(true);
        }
        let bytes = writing.finish(context)?;
        self.counters.index_checkpoints.add(1);
        self.counters.index_checkpoint_bytes.add(bytes);
        let Header { number, begun, .. } = writing.header;
        self.newest = IndexCheckpointStatus { bytes, begun, ..IndexCheckpointStatus::default() };
        self.newest_at = self.begun_at;
        for file in context.medium.list()? {
            if Header::parse_file_name(&file.name).is_some_and(|older| older < number) {
                context.medium.remove(&file.name)?;
            }
        }
        Ok(false)
    }

    /// Bytes that the log wrote since the open.
    fn written(&self) -> u64 {
        let statistics = self.log.statistics();
        statistics.record_bytes + statistics.padding_bytes
    }

    /// Begins a checkpoint if one is due.
    fn begin(&mut self, context: &TreeContext, trees: &Trees) -> Result<bool> {
        let keyspaces = resident(trees);
        let written = self.written();
        let grown = written.saturating_sub(self.begun_at) + self.read_at_open;
        let due = self.due(&keyspaces);
        self.publish(due);
        let is_possible = self.log.is_fenced() && !keyspaces.is_empty() && !has_lost(&keyspaces);
        if !is_possible || grown < due {
            return Ok(false);
        }
        (self.begun_at, self.read_at_open) = (written, 0);
        // First: records behind it may be in the summaries, and then count as not indexed.
        let full = self.log.summaries();
        let end = flushed_end(context, trees);
        let charge = context.segments.account().charge(MEMORY)?;
        let listed = context.medium.list()?;
        let newest = listed.iter().filter_map(|file| Header::parse_file_name(&file.name)).max();
        let number = newest.unwrap_or(0).checked_add(1).ok_or_else(|| {
            Error::corrupt("number of an index checkpoint").expected("one that can grow")
        })?;
        invariant!(end > Seqno::ZERO, "a log that grew has writes");
        let begun = u32::try_from(context.timekeeper.trusted_now() / 1000).unwrap_or(0);
        let header = Header { begun, store: context.store, number, end, length: 0 };
        let name = Header::file_name(number);
        let file = context.medium.create(&name, Access::Bytes, 0)?;
        let (at, bytes) = (HEADER_BYTES as u64, Vec::with_capacity(2 * STEP_BYTES));
        self.current = Some(Writing {
            header,
            file,
            at,
            bytes,
            keyspaces,
            next: (0, 0),
            full,
            _charge: charge,
        });
        Ok(true)
    }
}
