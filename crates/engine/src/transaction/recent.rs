//! Recently logged writes, recorded while a transaction or an ingest commits.
//!
//! Between a transaction's last look at the memtables and its own place in the log, other threads may log
//! batches. Their writes may not be in the memtables yet, but they are recorded here: the log passes every
//! batch to its [`Observer`] when the batch takes its seqnos. The committing transaction checks the recorded
//! writes while nothing can be appended. While no commit watches, the log has no observer.
//!
//! Lock order: `watchers`, the log's lane, `seen`. At most [`WRITES_MAX`] writes and [`KEY_BYTES_MAX`] bytes
//! of keys are recorded. If there are more, all of them are discarded, and commits that need them fail to
//! find them ([`Watch::check`] returns false). The bounds also limit the time that a commit holds the log.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use base::{
    Account, BatchOp, Charge, EntryKind, Error, KeyspaceId, Result, Seqno, broken_invariant,
    decode_ops, invariant, is_moved,
};
use parking_lot::Mutex;
use tree::Tree;
use wal::{Batch, Log, Observer};

use super::key_set::{KeySet, KeySpan};
use super::validate::conflict;

/// The most writes recorded. Checking all of them takes about 0.1 ms.
const WRITES_MAX: usize = 1024;

/// The most bytes of keys recorded.
const KEY_BYTES_MAX: usize = 64 << 10;

/// Records the writes that are logged while a commit watches.
#[derive(Debug)]
pub(crate) struct RecentWrites {
    watchers: Mutex<Watchers>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Watchers {
    count: usize,
    account: Account,
    /// Memory of `seen`, from the first watcher on.
    charge: Option<Charge>,
}

/// The recorded writes, in seqno order.
#[derive(Debug, Default)]
struct Seen {
    writes: Vec<SeenWrite>,
    /// The keys of all writes, one after the other.
    keys: Vec<u8>,
    /// Every write from this seqno on is recorded. Earlier ones may be missing.
    complete_from: Seqno,
}

#[derive(Debug)]
struct SeenWrite {
    seqno: Seqno,
    keyspace: KeyspaceId,
    /// Position of the key in `Seen::keys`.
    key: Range<usize>,
    /// Position of a range delete's end. `None` for other writes.
    end: Option<Range<usize>>,
}

impl RecentWrites {
    pub(super) fn new(account: Account) -> Arc<Self> {
        let watchers = Mutex::new(Watchers { count: 0, account, charge: None });
        Arc::new(Self { watchers, seen: Mutex::default() })
    }

    /// Records everything that is logged from now on, until the watch is dropped.
    ///
    /// # Errors
    /// `Retry` if there is no memory for it.
    pub(crate) fn watch<'a>(self: &'a Arc<Self>, log: &'a Log) -> Result<Watch<'a>> {
        let mut watchers = self.watchers.lock();
        if watchers.charge.is_none() {
            let bytes = WRITES_MAX * size_of::<SeenWrite>() + KEY_BYTES_MAX;
            watchers.charge = Some(watchers.account.charge(bytes as u64)?);
            let mut seen = self.seen.lock();
            seen.writes.reserve_exact(WRITES_MAX);
            seen.keys.reserve_exact(KEY_BYTES_MAX);
        }
        if watchers.count == 0 {
            let mut seen = self.seen.lock();
            seen.discard();
            seen.complete_from = Seqno::ZERO;
        }
        invariant!(
            watchers.count > 0 || self.seen.lock().writes.is_empty(),
            "the first watcher begins without recorded writes"
        );
        watchers.count += 1;
        let observer = Arc::clone(self) as Arc<dyn Observer>;
        Ok(Watch { recent: self, log, first: log.observe(Some(observer)) })
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watchers.lock().count > 0
    }
}

impl Observer for RecentWrites {
    fn appended(&self, first: Seqno, body: &[u8]) {
        self.seen.lock().record(first, body);
    }
}

impl Seen {
    /// Records a batch. Its first operation has seqno `first`.
    fn record(&mut self, first: Seqno, body: &[u8]) {
        let last = self.writes.last();
        invariant!(
            last.is_none_or(|last| last.seqno < first),
            "batches are observed in the order of their sequence numbers"
        );
        if is_moved(body) {
            // Copies of entries: no new version of any key.
            return;
        }
        if body.is_empty() {
            // The record of an ingest: one seqno, with keys unknown here.
            self.discard();
            self.complete_from = first.plus(1);
            return;
        }
        let mut fits = true;
        let mut next = first;
        for op in decode_ops(body) {
            let Ok(op) = op else {
                // The operations after it are unknown, so no commit may rely on the record. Nothing more is
                // logged after a broken invariant anyway.
                invariant!(false, "a batch that was encoded here decodes");
                self.discard();
                self.complete_from = Seqno::MAX;
                return;
            };
            fits = fits && self.push(next, &op);
            next = next.plus(1);
        }
        if !fits {
            self.discard();
            self.complete_from = next;
        }
    }

    /// Records a write. Returns false if there is no room for it.
    fn push(&mut self, seqno: Seqno, op: &BatchOp<'_>) -> bool {
        let end = (op.kind == EntryKind::DeleteRange).then_some(op.value);
        let bytes = op.key.len() + end.map_or(0, <[u8]>::len);
        if self.writes.len() == WRITES_MAX || self.keys.len() + bytes > KEY_BYTES_MAX {
            return false;
        }
        let mut append = |key: &[u8]| {
            let start = self.keys.len();
            self.keys.extend_from_slice(key);
            start..self.keys.len()
        };
        let (key, end) = (append(op.key), end.map(append));
        invariant!(
            self.writes.len() < self.writes.capacity() || self.writes.capacity() == 0,
            "recorded writes stay within their charge (I10)"
        );
        self.writes.push(SeenWrite { seqno, keyspace: op.keyspace, key, end });
        true
    }

    /// The key at `position`.
    ///
    /// # Errors
    /// Only if an invariant is broken: keys are discarded only together with their writes.
    fn key(&self, position: &Range<usize>) -> Result<&[u8]> {
        self.keys
            .get(position.clone())
            .ok_or_else(|| broken_invariant!("the key of a recorded write is recorded"))
    }

    /// Whether `write` is to a key in `keys`.
    fn is_to(&self, write: &SeenWrite, keys: &KeySet) -> Result<bool> {
        let start = self.key(&write.key)?;
        Ok(match &write.end {
            None => keys.contains(start),
            Some(end) => {
                // An empty end means that the range delete has no end.
                let end = Some(self.key(end)?).filter(|end| !end.is_empty());
                keys.overlaps(KeySpan { start, end })
            }
        })
    }

    fn discard(&mut self) {
        self.writes.clear();
        self.keys.clear();
    }
}

/// A commit's watch: everything logged from `first` on is recorded while this lives.
pub(crate) struct Watch<'a> {
    recent: &'a Arc<RecentWrites>,
    log: &'a Log,
    first: Seqno,
}

impl Watch<'_> {
    /// The seqno of the first write that it records.
    pub(crate) fn first(&self) -> Seqno {
        self.first
    }

    /// Appends `record` if every write since the watch began is recorded and none is to `keys`. Returns the
    /// record's first seqno, or `None` if nothing was appended for one of these reasons.
    ///
    /// # Errors
    /// Those of [`Log::append`].
    pub(crate) fn append_unless_written(
        &self,
        record: Batch<'_>,
        keys: &[(Arc<Tree>, KeySet)],
    ) -> Result<Option<Seqno>> {
        let appended = self.log.append_if(record, &mut |_| match self.check(keys)? {
            true => Ok(()),
            false => Err(Error::conflict("recent writes").expected("a complete record of them")),
        });
        match appended {
            Err(error) if error.is_conflict() => Ok(None),
            appended => appended.map(|appended| Some(appended.first)),
        }
    }

    /// Returns whether every write since the watch began is recorded.
    ///
    /// # Errors
    /// `Conflict` if one of them is to a key in `reads`.
    pub(super) fn check(&self, reads: &[(Arc<Tree>, KeySet)]) -> Result<bool> {
        let seen = self.recent.seen.lock();
        if seen.complete_from > self.first {
            return Ok(false);
        }
        for write in seen.writes.iter().filter(|write| write.seqno >= self.first) {
            let read = reads.iter().find(|(tree, _)| tree.id() == write.keyspace);
            if let Some((tree, keys)) = read
                && seen.is_to(write, keys)?
            {
                return Err(conflict(tree, seen.key(&write.key)?, write.seqno));
            }
        }
        Ok(true)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut watchers = self.recent.watchers.lock();
        invariant!(watchers.count > 0, "a watch that ends was counted");
        watchers.count -= 1;
        if watchers.count == 0 {
            self.log.observe(None);
        }
    }
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch(from {})", self.first)
    }
}

#[cfg(test)]
mod tests {
    use base::{Budget, Write};

    use super::*;

    fn recent() -> Arc<RecentWrites> {
        RecentWrites::new(Budget::new(1 << 20).account("transactions"))
    }

    fn body(keys: &[&[u8]]) -> Vec<u8> {
        let mut body = Vec::new();
        keys.iter().for_each(|key| Write::Put(b"v").encode(&mut body, KeyspaceId(1), key));
        body
    }

    #[test]
    fn more_writes_than_fit_are_discarded_and_the_record_says_so() {
        let recent = recent();
        recent.appended(Seqno::new(1), &body(&[b"a", b"b"]));
        assert_eq!(recent.seen.lock().writes.len(), 2);
        let long = vec![b'k'; KEY_BYTES_MAX];
        recent.appended(Seqno::new(3), &body(&[&long, b"c"]));
        let seen = recent.seen.lock();
        assert!(seen.writes.is_empty());
        assert_eq!(seen.complete_from, Seqno::new(5), "two writes were missed");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a batch that was encoded here decodes")]
    fn a_batch_that_does_not_decode_breaks_an_invariant() {
        let mut damaged = body(&[b"a", b"b"]);
        damaged.truncate(damaged.len() - 1);
        recent().appended(Seqno::new(1), &damaged);
    }
}
