//! The write path: admit, log, apply, publish, and sync if asked.
//!
//! I1: a batch is in the log before it is in a memtable, and there before it is visible; in between,
//! the rows of what it writes go. I2: it is published whole and in order by the [`PublishRing`]. A
//! write is visible before its sync returns, so that writers that ask for no sync never wait behind
//! one; it is acknowledged after (I11).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arena::PublishRing;
use base::{
    Counter, Durability, EntryKind, Error, Result, Seqno, Trailer, broken_invariant, invariant,
    key_hash,
};
use cache::RowCache;
use compact::Horizon;
use wal::{Batch, Log};

use base::WriteSize;

use crate::batch::EncodedBatch;
use crate::buffers::Buffers;
use base::{Write, decode_ops};
use read::Curves;
use tree::SnapshotList;
use tree::Tree;

/// Takes writes of any number of threads at once.
#[derive(Debug)]
pub struct Committer {
    log: Arc<Log>,
    ring: Arc<PublishRing>,
    buffers: Arc<Buffers>,
    snapshots: Arc<SnapshotList>,
    rows: Arc<RowCache>,
    curves: Arc<Curves>,
    /// The highest sequence number that the interval sync owes durability.
    pub owed: Arc<AtomicU64>,
    /// User bytes (keys and values) and operations acknowledged.
    pub user_bytes: Counter,
    pub ops: Counter,
}

thread_local! {
    /// Where this thread encodes its next single write.
    static BODY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Scratch memory kept per thread between writes, bytes.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

impl Committer {
    pub fn new(
        log: Arc<Log>,
        ring: Arc<PublishRing>,
        buffers: Arc<Buffers>,
        snapshots: Arc<SnapshotList>,
        rows: Arc<RowCache>,
        curves: Arc<Curves>,
    ) -> Self {
        let owed = Arc::default();
        let (user_bytes, ops) = Default::default();
        Self { log, ring, buffers, snapshots, rows, curves, owed, user_bytes, ops }
    }

    /// Commits one operation, whose key and value were checked.
    pub fn write(
        &self,
        tree: &Tree,
        key: &[u8],
        write: Write<'_>,
        durability: Durability,
    ) -> Result<()> {
        tree.usable()?;
        let size = WriteSize::of(key, write);
        self.rows.prefetch(tree.rows().hash(key_hash(key)));
        self.buffers.admit(tree, size)?;
        let first = BODY.with_borrow_mut(|body| {
            body.clear();
            write.encode(body, tree.id(), key);
            let appended = self.log.append(Batch { keyspaces: &[tree.id()], ops: 1, body });
            let first = appended.inspect_err(|_| {
                body.clear();
                body.shrink_to(SCRATCH_BYTES_MAX);
            })?;
            // An encoded operation ends with its value as stored.
            let start = body.len().checked_sub(write.stored_bytes());
            let value = start.and_then(|start| body.get(start..)).ok_or_else(|| {
                broken_invariant!("an encoded operation ends with its value as stored")
            })?;
            let view = tree.view();
            let trailer = Trailer::new(first, write.kind());
            view.memtable_for(first).insert(key, trailer, value, || self.readers());
            self.invalidate_rows(tree, key, first, write.kind());
            body.shrink_to(SCRATCH_BYTES_MAX);
            Ok::<_, Error>(first)
        })?;
        self.publish(first, 1, size.user_bytes(), durability)
    }

    /// Commits a batch, all or nothing.
    pub fn write_batch(&self, batch: &EncodedBatch, durability: Durability) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.commit(batch, durability, |record| self.log.append(record)).map(drop)
    }

    /// Commits a batch that `append` logs, or refuses; its first sequence number.
    pub fn commit(
        &self,
        batch: &EncodedBatch,
        durability: Durability,
        append: impl FnOnce(Batch<'_>) -> Result<Seqno>,
    ) -> Result<Seqno> {
        self.buffers.check_batch(batch)?;
        let mut bytes = 0;
        for part in batch.parts() {
            part.tree.usable()?;
            self.buffers.admit(&part.tree, part.size)?;
            bytes += part.size.user_bytes();
        }
        let keyspaces: Vec<_> = batch.parts().iter().map(|part| part.tree.id()).collect();
        let ops = batch.ops();
        let first = append(Batch { keyspaces: &keyspaces, ops, body: batch.body() })?;
        self.apply(first, batch)?;
        self.publish(first, u64::from(ops), bytes, durability)?;
        Ok(first)
    }

    /// Puts a logged batch in its memtables (I1: it is in the log, and not visible yet).
    ///
    /// # Errors
    /// Only if an invariant is broken: this process encoded the body, so it decodes, and every operation
    /// is of a keyspace that the batch counted.
    fn apply(&self, first: Seqno, batch: &EncodedBatch) -> Result<()> {
        let mut applied = 0;
        for op in decode_ops(batch.body()) {
            let op = op.map_err(|_| broken_invariant!("a batch that was encoded here decodes"))?;
            let part = batch.parts().iter().find(|part| part.tree.id() == op.keyspace);
            let part = part.ok_or_else(|| {
                broken_invariant!("a batch counts every keyspace that it writes to")
            })?;
            let seqno = first.plus(applied);
            let view = part.tree.view();
            let trailer = Trailer::new(seqno, op.kind);
            view.memtable_for(seqno).insert(op.key, trailer, op.value, || self.readers());
            self.invalidate_rows(&part.tree, op.key, seqno, op.kind);
            applied += 1;
        }
        invariant!(
            applied == u64::from(batch.ops()),
            "a batch has as many operations as sequence numbers"
        );
        Ok(())
    }

    /// Has rows that a write was made to answer no more: after it is in a memtable, before it is visible.
    fn invalidate_rows(&self, tree: &Tree, key: &[u8], seqno: Seqno, kind: EntryKind) {
        match kind {
            EntryKind::DeleteRange => tree.rows().raise_floor(seqno),
            _ => {
                let hash = tree.rows().hash(key_hash(key));
                self.rows.forget(hash);
                // Of what is put, a flush renews the row.
                if !matches!(kind, EntryKind::Put | EntryKind::PutExpiring) {
                    self.curves.invalidate_row(hash);
                }
            }
        }
    }

    /// Who reads, and what is visible.
    fn readers(&self) -> Horizon {
        self.snapshots.horizon(&self.ring)
    }

    fn publish(&self, first: Seqno, ops: u64, bytes: usize, durability: Durability) -> Result<()> {
        self.ring.publish(first, ops);
        let last = first.plus(ops - 1);
        match durability {
            Durability::None => {}
            Durability::Interval => {
                self.owed.fetch_max(last.get(), Ordering::Relaxed);
            }
            Durability::Sync => self.log.sync(last)?,
        }
        self.user_bytes.add(bytes as u64);
        self.ops.add(ops);
        Ok(())
    }
}
