//! The commit of a transaction: validate, take a place in the log, apply, publish.
//!
//! Claim: no thread wrote to a key that the transaction read between its snapshot S and its own first seqno
//! C. The writes in between have seqnos in (S, C), and each is checked in one of two places.
//!
//! - Up to V, a seqno that was visible when the memtables and tables were searched: every batch up to V was
//!   applied before it became visible (I1), so the search found its writes.
//! - From W on, the first seqno assigned after [`RecentWrites`] began to observe the log. These batches are
//!   checked inside [`Log::append_if`]: the log calls the check while it holds its lane, and the transaction
//!   takes C before the lane is released. A batch takes its seqnos while it holds the lane too, and is
//!   observed before it releases it. So every batch in [W, C) was observed.
//!
//! No seqno lies between V and W: the transaction waits until W - 1 is visible, uses that as V, and only then
//! validates. The wait ends: a thread that took a seqno below W needs neither the lane nor this transaction
//! to apply and publish its batch.
//!
//! Usually nothing was appended since V, which the log's next seqno alone proves; then nothing is watched.
//! Device reads, waits for memory and waits for writers happen outside the log's lane. Inside it there is one
//! search of an ordered set for each recent write.
//!
//! If writers append more than can be recorded while a transaction searches the memtables, the transaction
//! searches them again for the new writes. After [`ROUNDS_MAX`] such rounds it fails with a conflict.

use std::sync::Arc;

use arena::PublishRing;
use base::{Account, Counter, Durability, Error, Result, Seqno, invariant};
use read::PageReader;
use tree::Tree;
use wal::{Appended, Batch, Log};

use super::key_set::KeySet;
use super::recent::RecentWrites;
use super::validate::{Span, validate};
use crate::EncodedBatch;
use crate::commit::Committer;

/// Most validations of one commit. Another one is needed if writes came while the last one ran.
const ROUNDS_MAX: usize = 16;

/// Commits transactions, any number at once.
#[derive(Debug)]
pub struct Transactions {
    log: Arc<Log>,
    ring: Arc<PublishRing>,
    reader: Arc<PageReader>,
    recent: Arc<RecentWrites>,
    /// Charged for the read and write sets of transactions.
    pub account: Account,
    /// Attempts of `Db::transact` that ended in a conflict, and were repeated or given up.
    pub reruns: Counter,
    /// Commits that succeeded.
    pub committed: Counter,
    /// Commits that ended in a conflict.
    pub conflicts: Counter,
}

impl Transactions {
    /// Commits to `log`; `reader` reads tables for validation.
    pub(crate) fn new(
        log: Arc<Log>,
        ring: Arc<PublishRing>,
        reader: Arc<PageReader>,
        account: Account,
    ) -> Self {
        let recent = RecentWrites::new(account.clone());
        let (reruns, committed, conflicts) = Default::default();
        Self { log, ring, reader, recent, account, reruns, committed, conflicts }
    }

    /// The recently logged writes.
    pub(crate) fn recent(&self) -> &Arc<RecentWrites> {
        &self.recent
    }

    /// Whether a commit watches the log now, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.recent.is_watched()
    }

    /// Commits `batch` unless a key in `reads` was written after `since`. Returns the batch's first seqno.
    ///
    /// # Errors
    /// `Conflict` if there was such a write, or if writers outran the validation; those of
    /// [`Committer::commit`] and of reads.
    pub fn commit(
        &self,
        committer: &Committer,
        reads: &[(Arc<Tree>, KeySet)],
        since: Seqno,
        batch: &EncodedBatch,
        durability: Durability,
    ) -> Result<Seqno> {
        // Before memory is reserved: most conflicts are found here.
        let upto = self.ring.visible();
        invariant!(since <= upto, "a snapshot reads what is visible");
        let result = validate(&self.reader, reads, Span { since, upto }).and_then(|()| {
            let append = |record: Batch<'_>| self.append(record, reads, upto, durability);
            committer.commit(batch, durability, append)
        });
        match &result {
            Ok(first) => {
                invariant!(since < *first, "a transaction commits after its snapshot");
                self.committed.add(1);
            }
            Err(error) if error.is_conflict() => self.conflicts.add(1),
            Err(_) => {}
        }
        result
    }

    /// Appends `record` unless a key in `reads` was written after `validated`.
    fn append(
        &self,
        record: Batch<'_>,
        reads: &[(Arc<Tree>, KeySet)],
        mut validated: Seqno,
        durability: Durability,
    ) -> Result<Appended> {
        let attempt = |check: &mut dyn FnMut(Seqno) -> Result<bool>| {
            let mut is_complete = true;
            let mut check = |next| {
                is_complete = check(next)?;
                if is_complete { Ok(()) } else { Err(outrun()) }
            };
            let appended = match durability {
                Durability::Unlogged => {
                    let assigned = self.log.assign_if(record, &mut check);
                    assigned.map(|first| Appended { first, address: None })
                }
                _ => self.log.append_if(record, &mut check),
            };
            if is_complete { appended.map(Some) } else { Ok(None) }
        };
        if let Some(first) = attempt(&mut |next| Ok(next.before() <= validated))? {
            return Ok(first);
        }
        for _ in 0..ROUNDS_MAX {
            let watch = self.recent.watch(&self.log)?;
            let upto = watch.first().before();
            invariant!(upto >= validated, "the log is at or after every visible write");
            // A record that is lost never becomes visible.
            self.log.wait_until_stored(upto)?;
            self.ring.wait_until_visible(upto);
            debug_assert!(self.ring.visible() >= upto, "a validation sees every write of its span");
            validate(&self.reader, reads, Span { since: validated, upto })?;
            validated = upto;
            if let Some(first) = attempt(&mut |_| watch.check(reads))? {
                return Ok(first);
            }
        }
        Err(outrun())
    }
}

fn outrun() -> Error {
    Error::conflict("transaction")
        .expected("fewer concurrent writes")
        .got(format_args!("too many in {ROUNDS_MAX} validations"))
}
