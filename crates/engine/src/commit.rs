//! The commit of writes: admit, log, apply, publish, and sync if asked.
//!
//! I1: a batch is in the log before it is in a memtable, and in the memtable before it is visible. (An
//! unlogged batch only takes its seqnos from the log.) Cached rows of its keys are invalidated after the
//! memtable has them and before they are visible. I2: the [`PublishRing`] makes a batch visible as a whole
//! and in seqno order. A write becomes visible before its sync returns, so that writers that ask for no
//! sync never wait for one; it is acknowledged after the sync (I11).
//!
//! Any thread may commit. A single put allocates nothing in the steady state: it is encoded into a buffer
//! of its thread.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arena::PublishRing;
use base::{
    Counter, Durability, EntryKind, Error, ErrorKind, Result, Seqno, Trailer, Write, WriteSize,
    broken_invariant, decode_ops, invariant, key_hash,
};
use cache::RowCache;
use compact::Horizon;
use read::Curves;
use tree::{SnapshotList, Tree, View};
use wal::{Appended, Batch, Log};

use crate::batch::EncodedBatch;
use crate::buffers::Buffers;

/// Commits writes of any number of threads at once.
#[derive(Debug)]
pub struct Committer {
    pub(crate) log: Arc<Log>,
    pub(crate) ring: Arc<PublishRing>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) snapshots: Arc<SnapshotList>,
    pub(crate) rows: Arc<RowCache>,
    pub(crate) curves: Arc<Curves>,
    /// The highest seqno that the interval sync must make durable.
    pub(crate) interval_target: Arc<AtomicU64>,
    /// User bytes (keys and values) of acknowledged writes.
    pub user_bytes: Counter,
    /// Acknowledged operations.
    pub ops: Counter,
}

thread_local! {
    /// Buffer in which this thread encodes a single write.
    static BODY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Capacity of the encoding buffer that a thread keeps between writes, bytes.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

impl Committer {
    /// Commits one operation. The caller has checked key and value.
    ///
    /// # Errors
    /// `Closed` if the keyspace was dropped; those of [`Buffers::admit`], [`Log::append`] and
    /// [`Log::sync`]. After an error of the sync the write is visible and may or may not be durable.
    pub fn write(
        &self,
        tree: &Tree,
        key: &[u8],
        write: Write<'_>,
        durability: Durability,
    ) -> Result<()> {
        tree.usable()?;
        let is_unlogged = durability == Durability::Unlogged;
        if is_unlogged {
            check_unlogged(tree)?;
        }
        let size = WriteSize::of(key, write);
        self.rows.prefetch(tree.rows().hash(key_hash(key)));
        let deletes = matches!(write, Write::Delete | Write::DeleteRange { .. });
        self.buffers.admit(tree, size, deletes)?;
        self.admit_resident(tree, key, write.kind())?;
        let (first, noted) = BODY.with_borrow_mut(|body| {
            body.clear();
            write.encode(body, tree.id(), key);
            // Before the append, because a seqno that was taken must be published: every later writer waits
            // for it.
            let start = body.len().checked_sub(write.stored_bytes());
            let value = start.and_then(|start| body.get(start..)).ok_or_else(|| {
                broken_invariant!("an encoded operation ends with its value as stored")
            })?;
            debug_assert!(
                decode_ops(body).next().is_some_and(|op| {
                    op.is_ok_and(|op| op.key == key && op.value == value && op.kind == write.kind())
                }),
                "an encoded operation reads back, so that replay applies what is applied here (I1)"
            );
            let batch = Batch { keyspaces: &[tree.id()], ops: 1, body };
            let appended = match self.append(batch, durability, deletes) {
                Ok(appended) => appended,
                Err(error) => {
                    body.clear();
                    body.shrink_to(SCRATCH_BYTES_MAX);
                    return Err(error);
                }
            };
            let first = appended.first;
            let view = tree.view();
            let trailer = Trailer::new(first, write.kind());
            let memtable = view.memtable_for(first);
            let noted = note_places(&view, appended, &batch);
            if is_unlogged {
                memtable.note_unlogged();
            }
            memtable.insert(key, trailer, value, || self.horizon());
            view.read_context.dead_spans().written(key, write.kind());
            self.invalidate_rows(tree, key, first, write.kind());
            body.shrink_to(SCRATCH_BYTES_MAX);
            Ok::<_, Error>((first, noted))
        })?;
        tree.writes().user_bytes.add(size.user_bytes() as u64);
        // Also if noting its place in the log failed: every later writer waits for its seqno.
        let published = self.publish(first, 1, size.user_bytes(), durability);
        noted.and(published)
    }

    /// Commits a batch, all or nothing. An empty batch succeeds without a seqno; if it is to be synced, it
    /// syncs every earlier write.
    ///
    /// # Errors
    /// As [`Committer::write`]; `Invalid` if the batch needs more memory than the write buffers have, or is
    /// unlogged and writes to a keyspace that is no window.
    pub fn write_batch(&self, batch: &EncodedBatch, durability: Durability) -> Result<()> {
        if batch.is_empty() {
            return match durability {
                Durability::Sync => self.log.sync(self.log.last()),
                _ => Ok(()),
            };
        }
        let append = |record: Batch<'_>| self.append(record, durability, batch.only_deletes());
        self.commit(batch, durability, append).map(drop)
    }

    /// Logs `record`, or assigns its seqnos if it is unlogged. `deletes` says whether it only deletes.
    fn append(&self, record: Batch<'_>, durability: Durability, deletes: bool) -> Result<Appended> {
        match durability {
            Durability::Unlogged => {
                let first = self.log.assign(record)?;
                Ok(Appended { first, address: None })
            }
            _ if deletes => self.log.append_deletes(record),
            _ => self.log.append_at(record),
        }
    }

    /// As [`Committer::write_batch`], but never waits for flushes, merges or a sync: returns the time after
    /// which to try again if the batch cannot be admitted now. Nothing was written then.
    ///
    /// # Errors
    /// As [`Committer::write_batch`]; `Invalid` if `durability` is [`Durability::Sync`].
    pub fn try_write_batch(
        &self,
        batch: &EncodedBatch,
        durability: Durability,
    ) -> Result<Option<Duration>> {
        if durability == Durability::Sync {
            return Err(Error::invalid("durability of a write that does not wait")
                .expected("unlogged, none or interval, and a sync by another thread")
                .got("sync"));
        }
        if batch.is_empty() {
            return Ok(None);
        }
        self.buffers.check_batch(batch)?;
        check_parts(batch, durability)?;
        let bytes = batch.parts().iter().map(|part| part.size.bytes).sum();
        match self.buffers.wait_before() {
            // A full device takes deletes.
            Err(error) if batch.only_deletes() && error.kind() == ErrorKind::NoSpace => {}
            Ok(None) => {}
            waits => return waits,
        }
        for part in batch.parts() {
            if let Some(wait) =
                self.buffers.admit_now(&part.tree, part.size, batch.only_deletes())?
            {
                return Ok(Some(wait));
            }
        }
        self.admit_residents(batch)?;
        self.buffers.note_admitted(bytes);
        let append = |record: Batch<'_>| self.append(record, durability, batch.only_deletes());
        self.commit_admitted(batch, durability, append)?;
        Ok(None)
    }

    /// Commits a batch through `append`, which logs it or refuses, or assigns its seqnos if it is unlogged.
    /// Returns the batch's first seqno.
    ///
    /// # Errors
    /// As [`Committer::write_batch`]; the error of `append`, after which nothing is visible.
    pub fn commit(
        &self,
        batch: &EncodedBatch,
        durability: Durability,
        append: impl FnOnce(Batch<'_>) -> Result<Appended>,
    ) -> Result<Seqno> {
        self.buffers.check_batch(batch)?;
        check_parts(batch, durability)?;
        self.buffers.admit_batch(batch)?;
        self.admit_residents(batch)?;
        self.commit_admitted(batch, durability, append)
    }

    /// As [`Committer::commit`], of a batch with memory reserved.
    fn commit_admitted(
        &self,
        batch: &EncodedBatch,
        durability: Durability,
        append: impl FnOnce(Batch<'_>) -> Result<Appended>,
    ) -> Result<Seqno> {
        let bytes = batch.parts().iter().map(|part| part.size.user_bytes()).sum();
        let keyspaces: Vec<_> = batch.parts().iter().map(|part| part.tree.id()).collect();
        let ops = batch.ops();
        let record = Batch { keyspaces: &keyspaces, ops, body: batch.body() };
        let appended = append(record)?;
        let first = appended.first;
        debug_assert!(
            keyspaces
                .iter()
                .enumerate()
                .all(|(at, id)| !keyspaces.iter().skip(at + 1).any(|it| it == id)),
            "a batch lists each keyspace once"
        );
        let noted = batch.parts().iter().try_for_each(|part| {
            let view = part.tree.view();
            note_places(&view, appended, &record)
        });
        let applied = noted.and_then(|()| self.apply(first, batch, durability));
        for part in batch.parts() {
            part.tree.writes().user_bytes.add(part.size.user_bytes() as u64);
        }
        // A batch that was not applied as a whole is published too: every later writer waits for its seqnos.
        let published = self.publish(first, u64::from(ops), bytes, durability);
        applied.and(published).map(|()| first)
    }

    /// Inserts a batch into its memtables (I1: the batch is in the log, unless it is unlogged, and not
    /// visible yet).
    ///
    /// # Errors
    /// Only if an invariant is broken: this process encoded the body, so the body decodes, and the batch
    /// lists the keyspace of every operation.
    fn apply(&self, first: Seqno, batch: &EncodedBatch, durability: Durability) -> Result<()> {
        let mut applied = 0;
        for op in decode_ops(batch.body()) {
            let op = op.map_err(|_| broken_invariant!("a batch that was encoded here decodes"))?;
            let part = batch.parts().iter().find(|part| part.tree.id() == op.keyspace);
            let part = part.ok_or_else(|| {
                broken_invariant!("a batch lists every keyspace that it writes to")
            })?;
            let seqno = first.plus(applied);
            let view = part.tree.view();
            let trailer = Trailer::new(seqno, op.kind);
            let memtable = view.memtable_for(seqno);
            if durability == Durability::Unlogged {
                memtable.note_unlogged();
            }
            memtable.insert(op.key, trailer, op.value, || self.horizon());
            view.read_context.dead_spans().written(op.key, op.kind);
            self.invalidate_rows(&part.tree, op.key, seqno, op.kind);
            applied += 1;
        }
        invariant!(
            applied == u64::from(batch.ops()),
            "a batch has as many operations as sequence numbers"
        );
        Ok(())
    }

    /// Makes cached rows of a written key stale. Called after the write is in a memtable and before it is
    /// visible: a reader that misses the row then finds the write.
    fn invalidate_rows(&self, tree: &Tree, key: &[u8], seqno: Seqno, kind: EntryKind) {
        match kind {
            EntryKind::DeleteRange => tree.rows().raise_floor(seqno),
            _ => {
                let hash = tree.rows().hash(key_hash(key));
                self.rows.invalidate(hash);
                // The flush of a put renews its row, so the miss-ratio curve keeps the key.
                if !matches!(kind, EntryKind::Put | EntryKind::PutExpiring) {
                    self.curves.invalidate_row(hash);
                }
            }
        }
    }

    /// Makes room in the index of a resident keyspace for a write to `key`.
    fn admit_resident(&self, tree: &Tree, key: &[u8], kind: EntryKind) -> Result<()> {
        if !tree.kind().is_resident() {
            return Ok(());
        }
        let view = tree.view();
        let Some(resident) = view.read_context.resident() else { return Ok(()) };
        let memtables: Vec<_> = view.memtables().collect();
        let admitted = resident.admit(&memtables, (key, kind), self.buffers.index_bytes_max());
        admitted.map_err(|error| error.at(format_args!("keyspace `{}`", tree.name())))
    }

    /// As [`Committer::admit_resident`], for the operations of a batch.
    fn admit_residents(&self, batch: &EncodedBatch) -> Result<()> {
        if batch.parts().iter().all(|part| !part.tree.kind().is_resident()) {
            return Ok(());
        }
        for op in decode_ops(batch.body()) {
            let op = op.map_err(|_| broken_invariant!("a batch that was encoded here decodes"))?;
            let part = batch.parts().iter().find(|part| part.tree.id() == op.keyspace);
            if let Some(part) = part {
                self.admit_resident(&part.tree, op.key, op.kind)?;
            }
        }
        Ok(())
    }

    /// The snapshots and the visible seqno: versions that none of them sees may be dropped.
    fn horizon(&self) -> Horizon {
        self.snapshots.horizon(&self.ring)
    }

    /// Makes `ops` seqnos from `first` on visible, and durable if asked. `bytes` are user bytes.
    fn publish(&self, first: Seqno, ops: u64, bytes: usize, durability: Durability) -> Result<()> {
        invariant!(ops > 0, "a logged batch has a sequence number");
        debug_assert!(self.ring.visible() < first, "a batch is not visible before it is published");
        self.ring.publish(first, ops);
        let last = first.plus(ops - 1);
        match durability {
            Durability::None | Durability::Unlogged => {}
            Durability::Interval => {
                // Release: the sync task that sees the target also sees the log's last seqno.
                self.interval_target.fetch_max(last.get(), Ordering::Release);
            }
            Durability::Sync => self.log.sync(last)?,
        }
        self.user_bytes.add(bytes as u64);
        self.ops.add(ops);
        Ok(())
    }
}

/// Notes where the log has the writes of a batch to a resident keyspace, before they are in its memtables.
fn note_places(view: &View, appended: Appended, batch: &Batch<'_>) -> Result<()> {
    match view.read_context.resident() {
        Some(resident) => resident.note(appended, batch, |seqno| Some(&**view.memtable_for(seqno))),
        None => Ok(()),
    }
}

/// Refuses a batch with a dropped keyspace, or an unlogged one with a keyspace that takes none.
fn check_parts(batch: &EncodedBatch, durability: Durability) -> Result<()> {
    for part in batch.parts() {
        part.tree.usable()?;
        if durability == Durability::Unlogged {
            check_unlogged(&part.tree)?;
        }
    }
    Ok(())
}

/// Refuses an unlogged write to a keyspace that promises to keep its entries.
fn check_unlogged(tree: &Tree) -> Result<()> {
    if tree.kind().is_window() {
        return Ok(());
    }
    Err(Error::invalid("unlogged write")
        .at(format_args!("`{}`", tree.name()))
        .expected("a window, the only kind of keyspace that takes one; another durability here")
        .got(tree.kind()))
}
