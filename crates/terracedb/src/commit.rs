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
use base::{Counter, Durability, EntryKind, Error, Result, Seqno, Trailer, key_hash};
use cache::RowCache;
use compact::Horizon;
use log::{Batch, Log};

use crate::batch::{BatchPart, WriteBatch, WriteSize};
use crate::buffers::Buffers;
use crate::op::{Write, decode_ops};
use crate::ordered::Tree;
use crate::read::Curves;
use crate::snapshot_list::SnapshotList;

/// Takes writes of any number of threads at once.
#[derive(Debug)]
pub(crate) struct Committer {
    log: Arc<Log>,
    ring: Arc<PublishRing>,
    buffers: Arc<Buffers>,
    snapshots: Arc<SnapshotList>,
    rows: Arc<RowCache>,
    curves: Arc<Curves>,
    /// The highest sequence number that the interval sync owes durability.
    pub(crate) owed: Arc<AtomicU64>,
    /// User bytes (keys and values) and operations acknowledged.
    pub(crate) user_bytes: Counter,
    pub(crate) ops: Counter,
}

thread_local! {
    /// Where this thread encodes its next single write.
    static BODY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Scratch memory kept per thread between writes, bytes.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

impl Committer {
    pub(crate) fn new(
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
    pub(crate) fn write(
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
            // The value as stored is what the operation ends with.
            let stored = body.len().checked_sub(write.stored_bytes());
            let value = stored.and_then(|from| body.get(from..)).unwrap_or_default();
            let view = tree.view();
            let trailer = Trailer::new(first, write.kind());
            view.memtable_for(first).insert(key, trailer, value, || self.readers());
            self.forget_rows(tree, key, first, write.kind());
            body.shrink_to(SCRATCH_BYTES_MAX);
            Ok::<_, Error>(first)
        })?;
        self.publish(first, 1, size.user_bytes(), durability)
    }

    /// Commits a batch, all or nothing.
    pub(crate) fn write_batch(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.commit(batch, durability, |record| self.log.append(record)).map(drop)
    }

    /// Commits a batch that `append` logs, or refuses; its first sequence number.
    pub(crate) fn commit(
        &self,
        batch: &WriteBatch,
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
        self.apply(first, batch.body(), batch.parts());
        self.publish(first, u64::from(ops), bytes, durability)?;
        Ok(first)
    }

    /// Puts a logged batch in its memtables.
    ///
    /// The body was encoded by this process: it decodes.
    fn apply(&self, first: Seqno, body: &[u8], parts: &[BatchPart]) {
        for (number, op) in (0u64..).zip(decode_ops(body).filter_map(Result::ok)) {
            let seqno = first.plus(number);
            if let Some(part) = parts.iter().find(|part| part.tree.id() == op.keyspace) {
                let view = part.tree.view();
                let trailer = Trailer::new(seqno, op.kind);
                let memtable = view.memtable_for(seqno);
                memtable.insert(op.key, trailer, op.value, || self.readers());
                self.forget_rows(&part.tree, op.key, seqno, op.kind);
            }
        }
    }

    /// Has rows that a write was made to answer no more: after it is in a memtable, before it is visible.
    fn forget_rows(&self, tree: &Tree, key: &[u8], seqno: Seqno, kind: EntryKind) {
        match kind {
            EntryKind::DeleteRange => tree.rows().raise_floor(seqno),
            _ => {
                let hash = tree.rows().hash(key_hash(key));
                self.rows.forget(hash);
                // Of what is put, a flush renews the row.
                if !matches!(kind, EntryKind::Put | EntryKind::PutExpiring) {
                    self.curves.forget_row(hash);
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use base::ErrorKind;
    use media::MemoryMedium;

    use super::*;
    use crate::Db;

    /// Two writes of a memtable each are under way as their keyspace is dropped: the first fills what took
    /// the memtable's place, which is never sealed.
    #[test]
    fn a_write_to_what_was_dropped_meanwhile_ends() {
        let db = Db::on_medium(Arc::new(MemoryMedium::new())).memory(64 << 20).open().unwrap();
        let keyspace = db.keyspace("k").unwrap();
        let (buffers, tree) = (Arc::clone(&keyspace.store().buffers), Arc::clone(keyspace.tree()));
        assert!(db.drop_keyspace("k").unwrap());
        let size = WriteSize { entries: 1, bytes: 3 << 20, ..WriteSize::default() };
        buffers.admit(&tree, size).unwrap();
        let trailer = Trailer::new(Seqno::new(1), EntryKind::Put);
        let readers = || Horizon::new(vec![Seqno::new(1)]);
        tree.view().active.insert(b"key", trailer, &vec![1; 3 << 20], readers);
        let (told, second) = mpsc::channel();
        std::thread::spawn(move || told.send(buffers.admit(&tree, size).map_err(|e| e.kind())));
        // Longer than any machine takes: only a write that never ends fails here.
        let second = second.recv_timeout(Duration::from_secs(300)).expect("a write that ends");
        assert_eq!(second, Err(ErrorKind::Closed));
    }
}
