//! What was appended to the log lately, kept while some transaction is being committed.
//!
//! Between a transaction's last look at the memtables and its own place in the log, others may
//! append; what they wrote need not be in the memtables yet, but is here. The log tells of every
//! batch at the moment it takes its numbers ([`Observer`]), and the committing transaction looks at
//! them while nothing can be appended. While nobody commits a transaction, the log has no observer.
//!
//! Lock order: `watchers`, the log's lane, `seen`. Bounds: [`WRITES_MAX`] writes, [`KEY_BYTES_MAX`]
//! of keys; where there is more, all of it is forgotten and whoever needed it is told so. They also
//! bound the time that a transaction holds the log.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use base::{Account, Charge, EntryKind, Error, KeyspaceId, Result, Seqno};
use parking_lot::Mutex;
use wal::{Batch, Log, Observer};

use super::key_set::{KeySet, KeySpan};
use super::validate::conflict;
use base::{BatchOp, decode_ops};
use tree::Tree;

/// The most writes remembered: looking at all of them takes about 0.1 ms.
const WRITES_MAX: usize = 1024;

/// The most bytes of keys remembered.
const KEY_BYTES_MAX: usize = 64 << 10;

/// Sees what is appended while it is watched.
#[derive(Debug)]
pub struct RecentWrites {
    watchers: Mutex<Watchers>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Watchers {
    count: usize,
    account: Account,
    /// What `seen` may take, from the first watcher on.
    charge: Option<Charge>,
}

#[derive(Debug, Default)]
struct Seen {
    writes: Vec<SeenWrite>,
    keys: Vec<u8>,
    /// Writes below this one may be missing.
    complete_from: Seqno,
}

#[derive(Debug)]
struct SeenWrite {
    seqno: Seqno,
    keyspace: KeyspaceId,
    /// Where in `keys` the key is, and for a range delete its end.
    key: Range<usize>,
    end: Option<Range<usize>>,
}

impl RecentWrites {
    pub fn new(account: Account) -> Arc<Self> {
        let watchers = Mutex::new(Watchers { count: 0, account, charge: None });
        Arc::new(Self { watchers, seen: Mutex::default() })
    }

    /// Has everything appended from now on remembered, until the watch is dropped.
    ///
    /// # Errors
    /// `Retry` where there is no memory for it.
    pub fn watch<'a>(self: &'a Arc<Self>, log: &'a Log) -> Result<Watch<'a>> {
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
            seen.clear();
            seen.complete_from = Seqno::ZERO;
        }
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
        let mut seen = self.seen.lock();
        // The body was encoded by this process: it decodes.
        let mut fits = true;
        let mut next = first;
        if body.is_empty() {
            // It took one number, and what happened at it is not told here.
            (fits, next) = (false, first.plus(1));
        }
        for op in decode_ops(body).filter_map(Result::ok) {
            fits = fits && seen.push(next, &op);
            next = next.plus(1);
        }
        if !fits {
            seen.clear();
            seen.complete_from = next;
        }
    }
}

impl Seen {
    /// Remembers a write, if there is room.
    fn push(&mut self, seqno: Seqno, op: &BatchOp<'_>) -> bool {
        let end = (op.kind == EntryKind::DeleteRange).then_some(op.value);
        let bytes = op.key.len() + end.map_or(0, <[u8]>::len);
        if self.writes.len() == WRITES_MAX || self.keys.len() + bytes > KEY_BYTES_MAX {
            return false;
        }
        let mut keep = |key: &[u8]| {
            let start = self.keys.len();
            self.keys.extend_from_slice(key);
            start..self.keys.len()
        };
        let (key, end) = (keep(op.key), end.map(keep));
        self.writes.push(SeenWrite { seqno, keyspace: op.keyspace, key, end });
        true
    }

    fn is_to(&self, write: &SeenWrite, ranges: &KeySet) -> bool {
        let key = |at: &Range<usize>| self.keys.get(at.clone()).unwrap_or_default();
        match &write.end {
            None => ranges.contains(key(&write.key)),
            Some(end) => {
                // An empty end is none.
                let end = Some(key(end)).filter(|end| !end.is_empty());
                ranges.overlaps(KeySpan { start: key(&write.key), end })
            }
        }
    }

    fn clear(&mut self) {
        self.writes.clear();
        self.keys.clear();
    }
}

/// Everything appended from `first` on is remembered while this lives.
pub struct Watch<'a> {
    recent: &'a Arc<RecentWrites>,
    log: &'a Log,
    first: Seqno,
}

impl Watch<'_> {
    /// The number of the first write it sees.
    pub fn first(&self) -> Seqno {
        self.first
    }

    /// Appends `record` where nothing it saw is a write to `keys`, and all it should have seen is
    /// remembered; the record's first number.
    pub fn append_unless_written(
        &self,
        record: Batch<'_>,
        keys: &[(Arc<Tree>, KeySet)],
    ) -> Result<Option<Seqno>> {
        let appended = self.log.append_if(record, &mut |_| match self.check(keys)? {
            true => Ok(()),
            false => Err(Error::conflict("recent writes").expected("all of them remembered")),
        });
        match appended {
            Err(error) if error.is_conflict() => Ok(None),
            appended => appended.map(Some),
        }
    }

    /// Whether all it should have seen is remembered.
    ///
    /// # Errors
    /// `Conflict` where one of the writes it saw is to what was read.
    pub fn check(&self, reads: &[(Arc<Tree>, KeySet)]) -> Result<bool> {
        let seen = self.recent.seen.lock();
        if seen.complete_from > self.first {
            return Ok(false);
        }
        for write in seen.writes.iter().filter(|write| write.seqno >= self.first) {
            let read = reads.iter().find(|(tree, _)| tree.id() == write.keyspace);
            if let Some((tree, _)) = read.filter(|(_, ranges)| seen.is_to(write, ranges)) {
                let key = seen.keys.get(write.key.clone()).unwrap_or_default();
                return Err(conflict(tree, key, write.seqno));
            }
        }
        Ok(true)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut watchers = self.recent.watchers.lock();
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
