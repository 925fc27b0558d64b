//! The write path: admit, log, apply, publish, and sync if asked.
//!
//! I1: a batch is in the log before it is in a memtable, and there before it is visible. I2: it is
//! published whole and in order by the [`PublishRing`]. A write is visible before its sync returns,
//! so that writers that ask for no sync never wait behind one; it is acknowledged after (I11).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arena::PublishRing;
use base::{Durability, EntryKind, Error, Key, Result, Seqno, Trailer};
use log::{Batch, Log};

use crate::batch::{WriteBatch, decode_ops, encode_op};
use crate::buffers::Buffers;
use crate::counter::Counter;
use crate::ordered::Tree;

/// Takes writes of any number of threads at once.
#[derive(Debug)]
pub(crate) struct Committer {
    log: Arc<Log>,
    ring: Arc<PublishRing>,
    buffers: Arc<Buffers>,
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
    pub(crate) fn new(log: Arc<Log>, ring: Arc<PublishRing>, buffers: Arc<Buffers>) -> Self {
        let owed = Arc::default();
        let (user_bytes, ops) = Default::default();
        Self { log, ring, buffers, owed, user_bytes, ops }
    }

    /// Commits one put, or one delete where there is no value.
    pub(crate) fn write(
        &self,
        tree: &Tree,
        key: Key<'_>,
        value: Option<&[u8]>,
        durability: Durability,
    ) -> Result<()> {
        usable(tree)?;
        let bytes = key.bytes().len() + value.map_or(0, <[u8]>::len);
        self.buffers.admit(tree, 1, bytes)?;
        let first = BODY.with_borrow_mut(|body| {
            body.clear();
            encode_op(body, tree.id(), key, value);
            let first = self.log.append(Batch { keyspaces: &[tree.id()], ops: 1, body });
            body.shrink_to(SCRATCH_BYTES_MAX);
            first
        })?;
        let kind = if value.is_some() { EntryKind::Put } else { EntryKind::Delete };
        let trailer = Trailer::new(first, kind);
        let view = tree.view();
        view.memtable_for(first).map().insert(key.bytes(), trailer, value.unwrap_or_default());
        drop(view);
        self.publish(first, 1, bytes, durability)
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
        for tree in batch.trees() {
            usable(tree)?;
            let ops = decode_ops(batch.body()).filter_map(Result::ok);
            let own = ops.filter(|op| op.keyspace == tree.id());
            let (entries, bytes) =
                own.fold((0, 0), |(n, bytes), op| (n + 1, bytes + op.key.len() + op.value.len()));
            self.buffers.admit(tree, entries, bytes)?;
        }
        let keyspaces: Vec<_> = batch.trees().iter().map(|tree| tree.id()).collect();
        let ops = batch.ops();
        let first = append(Batch { keyspaces: &keyspaces, ops, body: batch.body() })?;
        let bytes = apply(first, batch.body(), batch.trees());
        self.publish(first, u64::from(ops), bytes, durability)?;
        Ok(first)
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

fn usable(tree: &Tree) -> Result<()> {
    if tree.is_dropped() {
        return Err(Error::closed("keyspace").at(format_args!("`{}`", tree.name())));
    }
    Ok(())
}

/// Puts a logged batch in its memtables; the bytes of its keys and values.
///
/// The body was encoded by this process: it decodes.
fn apply(first: Seqno, body: &[u8], trees: &[Arc<Tree>]) -> usize {
    let mut bytes = 0;
    for (number, op) in (0u64..).zip(decode_ops(body).filter_map(Result::ok)) {
        let seqno = first.plus(number);
        bytes += op.key.len() + op.value.len();
        if let Some(tree) = trees.iter().find(|tree| tree.id() == op.keyspace) {
            let view = tree.view();
            let map = view.memtable_for(seqno).map();
            map.insert(op.key, Trailer::new(seqno, op.kind), op.value);
        }
    }
    bytes
}
