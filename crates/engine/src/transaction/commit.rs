//! The commit of a transaction: validate, take a place in the log, apply, publish.
//!
//! Claim: nobody wrote to what a transaction read between its snapshot S and its own first number
//! C. The writes between have numbers in (S, C), and each is looked at in one of two places.
//!
//! - Up to V, a number that was visible when the memtables and tables were looked through: every
//!   batch up to V was applied before it was visible (I1), so its writes were there.
//! - From W on, the first number given out after the log was told to let [`RecentWrites`] see every
//!   batch. They are looked at inside [`Log::append_if`]: the log calls the check with its lane
//!   held, and the transaction takes C before the lane is let go. A batch takes its numbers with
//!   the lane held too, and is seen before that is let go. So every batch in [W, C) was seen.
//!
//! No number lies between V and W: the transaction waits until W - 1 is visible, takes that for V,
//! and only then validates. The wait ends: whoever took a number below W needs neither the lane nor
//! this transaction to apply and publish its batch.
//!
//! Mostly nothing was appended since V, which the log tells by the next number alone; then there is
//! no watching. Device reads, waiting for memory and waiting for writers happen outside the log's
//! lane; in it are searches of an ordered set, one for each recent write.
//!
//! A writer that appends more than can be remembered while a transaction looks through memtables
//! makes it look through them again, for what is new; where that happens [`ROUNDS_MAX`] times, the
//! transaction is in conflict.

use std::sync::Arc;

use arena::PublishRing;
use base::{Account, Counter, Durability, Error, Result, Seqno};
use wal::{Batch, Log};

use super::key_set::KeySet;
use super::recent::RecentWrites;
use super::validate::{Span, validate};
use crate::EncodedBatch;
use crate::commit::Committer;
use read::PageReader;
use tree::Tree;

/// How often a transaction follows writers that outrun it.
const ROUNDS_MAX: usize = 16;

/// Commits transactions, any number at once.
#[derive(Debug)]
pub struct Transactions {
    log: Arc<Log>,
    ring: Arc<PublishRing>,
    reader: Arc<PageReader>,
    recent: Arc<RecentWrites>,
    /// What transactions read and wrote is charged to it.
    pub account: Account,
    /// Runs of `Db::transact` that were in conflict.
    pub reruns: Counter,
    pub committed: Counter,
    pub conflicts: Counter,
}

impl Transactions {
    pub fn new(
        log: Arc<Log>,
        ring: Arc<PublishRing>,
        reader: Arc<PageReader>,
        account: Account,
    ) -> Self {
        let recent = RecentWrites::new(account.clone());
        let (reruns, committed, conflicts) = Default::default();
        Self { log, ring, reader, recent, account, reruns, committed, conflicts }
    }

    /// What is appended to the log meanwhile.
    pub fn recent(&self) -> &Arc<RecentWrites> {
        &self.recent
    }

    /// Whether a commit watches what others append now, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.recent.is_watched()
    }

    /// Commits `batch` unless someone wrote to `reads` after `since`; its first number.
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
        let result = validate(&self.reader, reads, Span { since, upto }).and_then(|()| {
            let append = |record: Batch<'_>| self.append(record, reads, upto);
            committer.commit(batch, durability, append)
        });
        match &result {
            Ok(_) => self.committed.add(1),
            Err(error) if error.is_conflict() => self.conflicts.add(1),
            Err(_) => {}
        }
        result
    }

    /// Appends `record` unless someone wrote to `reads`, which are validated up to `validated`.
    fn append(
        &self,
        record: Batch<'_>,
        reads: &[(Arc<Tree>, KeySet)],
        mut validated: Seqno,
    ) -> Result<Seqno> {
        let attempt = |check: &mut dyn FnMut(Seqno) -> Result<bool>| {
            let mut is_complete = true;
            let appended = self.log.append_if(record, &mut |next| {
                is_complete = check(next)?;
                if is_complete { Ok(()) } else { Err(outrun()) }
            });
            if is_complete { appended.map(Some) } else { Ok(None) }
        };
        if let Some(first) = attempt(&mut |next| Ok(next.before() <= validated))? {
            return Ok(first);
        }
        for _ in 0..ROUNDS_MAX {
            let watch = self.recent.watch(&self.log)?;
            let upto = watch.first().before();
            self.ring.wait_until_visible(upto);
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
        .expected("to keep up with other writers")
        .got(format_args!("{ROUNDS_MAX} rounds"))
}
