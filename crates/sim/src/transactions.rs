//! Steps of transactions of several users at once.
//!
//! A commit must be refused if something that the transaction read has another value by then. It may be
//! refused only if something that the transaction read was written since.

use terracedb::{Durability, EntryOptions, ErrorKind, Retry, WriteOptions};

use crate::cells::{Change, contains};
use crate::compare::{self, show, some_entries, within};
use crate::history::Event;
use crate::step_error::{Outcome, ensure};
use crate::users::PendingTransaction;
use crate::world::World;

impl World {
    pub(crate) fn begin(&mut self) -> Outcome {
        if self.transactions.len() < 4 {
            let current = &self.history.current;
            self.transactions.push(PendingTransaction {
                transaction: self.db().transaction(),
                snapshot: current.clone(),
                begun: self.history.events.len(),
                view: current.clone(),
                own: Vec::new(),
                keys: Vec::new(),
                spans: Vec::new(),
            });
        }
        Ok(())
    }

    /// Continues one of the open transactions. One that fails is dropped.
    pub(crate) fn transact(&mut self) -> Outcome {
        let Some(number) = self.pick(self.transactions.len()) else { return Ok(()) };
        let mut pending = self.transactions.swap_remove(number);
        match self.rng.below(10) {
            0..3 => self.transaction_gets(&mut pending)?,
            3..5 => self.transaction_scans(&mut pending)?,
            _ => self.transaction_writes(&mut pending)?,
        }
        self.transactions.push(pending);
        Ok(())
    }

    fn transaction_gets(&mut self, pending: &mut PendingTransaction) -> Outcome {
        let Some((name, incarnation)) = self.some_keyspace() else { return Ok(()) };
        let keyspace = self.keyspace(name)?;
        let keys: Vec<_> = (0..1 + self.rng.below(3)).map(|_| self.key()).collect();
        let now = self.now();
        let transaction = &pending.transaction;
        let tracked = !self.rng.one_in(6);
        let found = if !tracked {
            keys.iter().map(|key| transaction.get_untracked(&keyspace, key)).collect()
        } else if self.rng.one_in(2) {
            transaction.multi_get(&keyspace, &keys)?
        } else {
            keys.iter().map(|key| transaction.get(&keyspace, key)).collect::<Vec<_>>()
        };
        for (key, got) in keys.into_iter().zip(found) {
            // The transaction holds what it read: a later get is refused for as long.
            let got = match got {
                Err(error) if error.when_to_retry() == Retry::Later => continue,
                got => got?,
            };
            let expected = pending.view.get(incarnation, &key, now);
            ensure!(
                got.as_deref() == expected.as_deref(),
                "transaction gets {} of `{name}`: {:?}, expected {:?}",
                show(&key),
                got.as_deref().map(show),
                expected.as_deref().map(show)
            );
            if tracked && !pending.hides(incarnation, &key) {
                pending.keys.push((incarnation, key));
            }
        }
        Ok(())
    }

    fn transaction_scans(&mut self, pending: &mut PendingTransaction) -> Outcome {
        let Some((name, incarnation)) = self.some_ordered_keyspace() else { return Ok(()) };
        let keyspace = self.keyspace(name)?;
        let span = self.span();
        let now = self.now();
        let iter = pending.transaction.range(&keyspace, span.clone())?;
        let mut expected = within(&pending.view.at(incarnation, now), &span);
        let most = if self.rng.one_in(2) { usize::MAX } else { 1 + self.rng.below(4) as usize };
        let backwards = self.rng.one_in(3);
        let found = some_entries(iter, backwards, most, &mut expected)?;
        compare::same(&found, &expected, &format!("transaction scans `{name}`"))?;
        let mut walked = span.clone();
        if let (Some((last, _)), true) = (found.last(), found.len() == most) {
            let end = std::ops::Bound::Included(last.clone());
            *(if backwards { &mut walked.0 } else { &mut walked.1 }) = end;
        }
        ensure!(found.iter().all(|(key, _)| contains(&walked, key)), "a scan left its range");
        pending.spans.push((incarnation, walked, span));
        Ok(())
    }

    fn transaction_writes(&mut self, pending: &mut PendingTransaction) -> Outcome {
        let Some((name, incarnation)) = self.some_keyspace() else { return Ok(()) };
        let keyspace = self.keyspace(name)?;
        let change = self.change().fit(self.is_hashed(incarnation));
        let transaction = &mut pending.transaction;
        match &change {
            Change::Put(key, value) => transaction.put(&keyspace, key, value)?,
            Change::PutExpiring(key, value, expiry) => {
                transaction.put_opt(
                    &keyspace,
                    key,
                    value,
                    &EntryOptions::new().expires_at(crate::cells::system_time(*expiry)),
                )?;
            }
            Change::Merge(key, operand) => transaction.merge(&keyspace, key, operand)?,
            Change::Delete(key) => transaction.delete(&keyspace, key)?,
            Change::DeleteRange(span) => transaction.delete_range(&keyspace, span.clone())?,
        }
        pending.view.apply(&Event(vec![(incarnation, change.clone())]));
        pending.own.push((incarnation, change));
        Ok(())
    }

    pub(crate) fn commit(&mut self) -> Outcome {
        let Some(number) = self.pick(self.transactions.len()) else { return Ok(()) };
        let pending = self.transactions.swap_remove(number);
        if self.rng.one_in(8) {
            pending.transaction.rollback();
            return Ok(());
        }
        let now = self.now();
        let PendingTransaction { own, keys, spans, .. } = &pending;
        let used = own.iter().map(|own| own.0).chain(keys.iter().map(|key| key.0));
        let mut used = used.chain(spans.iter().map(|span| span.0));
        let is_live = |of| self.history.live.values().any(|live| *live == of);
        let gone = used.any(|of| !is_live(of));
        let (must, may) = pending.conflicts(&self.history.events, &self.history.current, now);
        let empty = pending.transaction.is_empty();
        let durability = if self.rng.one_in(4) { Durability::Sync } else { Durability::None };
        let committed = pending.transaction.commit_opt(&WriteOptions::new().durability(durability));
        self.note(format!("  commit of {}: {committed:?}", pending.own.len()));
        if empty {
            // An empty transaction commits at its snapshot, for which all its reads are valid.
            return Ok(committed?);
        }
        match &committed {
            Ok(()) => {
                ensure!(!gone, "a transaction over a dropped keyspace was committed");
                ensure!(!must, "a transaction was committed over a write to what it read");
            }
            Err(error) => match error.kind() {
                ErrorKind::Conflict => {
                    ensure!(may || gone, "a conflict without a write to what was read: {error}");
                    self.answered("conflict");
                    return Ok(());
                }
                ErrorKind::Closed if gone => return Ok(()),
                _ => {}
            },
        }
        self.wrote(Event(pending.own), committed, durability)
    }
}
