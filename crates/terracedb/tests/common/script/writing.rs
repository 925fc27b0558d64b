//! The writes of a script: batches, transactions and ingests, each whole or absent.
//!
//! Batches and transactions write their number to the keyspace `journal`; an ingest adds its number to the
//! keyspace it writes.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::limits::VALUE_APART_BYTES;
use base::{Durability, ErrorKind, Result};
use terracedb::{EntryOptions, WriteBatch, WriteOptions};

use super::super::journal::{Batch, Incarnation, JOURNAL, LAST};
use super::super::{Change, expiry_time, key, show, value};
use super::{KEYS, Script};

/// A write that is not acknowledged yet.
struct Draft {
    number: usize,
    attempt: u64,
    changes: Vec<(&'static str, Incarnation, Change)>,
}

impl Script {
    pub(crate) fn write(&mut self) -> Result<()> {
        let durability = self.durability();
        let ops = match self.rng.below(8) {
            0 => self.rng.below(20),
            1..4 => 1,
            _ => self.rng.below(5),
        };
        self.write_ops(ops, durability)
    }

    fn durability(&mut self) -> Durability {
        match self.rng.below(10) {
            0..6 => Durability::None,
            6..8 => Durability::Interval,
            _ => Durability::Sync,
        }
    }

    /// Writes a batch of about `bytes`, spread over all keyspaces.
    pub(crate) fn write_large(&mut self, bytes: usize, durability: Durability) -> Result<()> {
        let changes = (0..bytes / 4000).map(|_| self.put_noise(4000)).collect();
        self.write_all(changes, durability)
    }

    /// Writes values that a flush separates into value files.
    pub(crate) fn write_long(&mut self) -> Result<()> {
        let changes = (0..3).map(|_| {
            let more = self.rng.below(8000) as usize;
            self.put_noise(VALUE_APART_BYTES + more)
        });
        let changes = changes.collect();
        let durability = self.durability();
        self.write_all(changes, durability)
    }

    fn put_noise(&mut self, bytes: usize) -> Change {
        let mut value = vec![0; bytes];
        self.rng.fill(&mut value);
        Change::Put(key(self.rng.below(KEYS)), value)
    }

    /// Deletes a narrow range in each of some keyspaces.
    pub(crate) fn delete_ranges(&mut self) -> Result<()> {
        let changes = (0..2).map(|_| {
            let from = self.rng.below(KEYS);
            let (from, to) = (key(from), key(from + 1 + self.rng.below(10)));
            Change::DeleteRange(Bound::Included(from), Bound::Excluded(to))
        });
        let changes = changes.collect();
        let durability = self.durability();
        self.write_all(changes, durability)
    }

    pub(super) fn write_ops(&mut self, count: u64, durability: Durability) -> Result<()> {
        let changes = self.random_changes(count);
        self.write_all(changes, durability)
    }

    fn random_changes(&mut self, count: u64) -> Vec<Change> {
        let (version, now) = (self.attempts, self.stepped.now());
        (0..count).map(|_| Change::random(&mut self.rng, KEYS, version, now)).collect()
    }

    /// Writes `changes` as one batch, each to a random keyspace.
    fn write_all(&mut self, changes: Vec<Change>, durability: Durability) -> Result<()> {
        let draft = self.draft(changes);
        self.write_draft(draft, durability)
    }

    fn write_draft(&mut self, draft: Draft, durability: Durability) -> Result<()> {
        let mut batch = WriteBatch::new();
        for (name, _, change) in &draft.changes {
            change.add(&mut batch, &self.keyspace(name));
        }
        let written = self.db().write_opt(&batch, &WriteOptions::new().durability(durability));
        self.wrote(draft, durability, written)
    }

    /// Makes the next write of `changes`, each to a random keyspace.
    fn draft(&mut self, changes: Vec<Change>) -> Draft {
        let live = self.live_names();
        let spread = changes.into_iter().map(|change| {
            let (name, incarnation) = live[self.rng.below(live.len() as u64) as usize];
            (name, incarnation, change)
        });
        let spread: Vec<_> = spread.collect();
        let fitting = |(name, incarnation, change): (&'static str, Incarnation, Change)| {
            (name, incarnation, change.fit(&self.keyspace(name)))
        };
        let spread = spread.into_iter().map(fitting);
        // Deletes and ranges must not remove the journal's own entries.
        let keeps = |(name, _, change): &(&str, Incarnation, Change)| {
            *name != JOURNAL || !matches!(change, Change::DeleteRange(..))
        };
        let spread = spread.filter(keeps).collect();
        self.draft_of(spread)
    }

    fn draft_of(&mut self, spread: Vec<(&'static str, Incarnation, Change)>) -> Draft {
        self.attempts += 1;
        let (number, attempt) = (self.batches.len() + 1, self.attempts);
        let journal = |entry: String, value: Vec<u8>| {
            (JOURNAL, self.live[JOURNAL], Change::Put(entry.into(), value))
        };
        let mut changes = vec![journal(format!("batch {number:06}"), vec![b'b'; 8])];
        changes.extend(spread);
        changes.push(journal(LAST.to_owned(), format!("{number} {attempt}").into()));
        Draft { number, attempt, changes }
    }

    /// Records the result of a write.
    fn wrote(&mut self, draft: Draft, durability: Durability, written: Result<()>) -> Result<()> {
        let ops = draft.changes.into_iter().map(|(_, incarnation, change)| (incarnation, change));
        let batch = Batch { attempt: draft.attempt, ops: ops.collect() };
        match &written {
            Ok(()) => {
                self.batches.push(batch);
                if !self.device.is_frozen() {
                    self.acknowledged = draft.number;
                    if durability == Durability::Sync {
                        self.synced = draft.number;
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::Poisoned => self.doubtful.push(batch),
            Err(_) => {}
        }
        written
    }

    /// Commits a transaction that has read some keys. Sometimes another write comes first, and the commit
    /// must conflict.
    pub(crate) fn transact(&mut self) -> Result<()> {
        let mut transaction = self.db().transaction();
        let live = self.live_names();
        let mut read = Vec::new();
        for _ in 0..1 + self.rng.below(4) {
            let (name, incarnation) = live[self.rng.below(live.len() as u64) as usize];
            let probe = key(self.rng.below(KEYS));
            let got = transaction.get(&self.keyspace(name), &probe)?;
            let right = self
                .answers(incarnation)
                .iter()
                .any(|model| model.get(&probe).map(Vec::as_slice) == got.as_deref());
            assert!(right, "{}: a transaction gets {}", self.context, show(&probe));
            read.push((name, incarnation, probe));
        }
        let is_overtaken = self.rng.one_in(4);
        if is_overtaken {
            let (name, incarnation, key) = read.swap_remove(0);
            let value = format!("quicker {}", self.attempts).into();
            let draft = self.draft_of(vec![(name, incarnation, Change::Put(key, value))]);
            self.write_draft(draft, Durability::None)?;
        }
        let count = 1 + self.rng.below(5);
        let changes = self.random_changes(count);
        let draft = self.draft(changes);
        for (name, _, change) in &draft.changes {
            change.add_to(&mut transaction, &self.keyspace(name));
        }
        let durability = self.durability();
        let committed = transaction.commit_opt(&WriteOptions::new().durability(durability));
        if !is_overtaken {
            return self.wrote(draft, durability, committed);
        }
        match committed {
            Ok(()) => panic!("{}: committed over another's write", self.context),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ingests some keys into a random ordered keyspace, long values too.
    pub(crate) fn ingest(&mut self) -> Result<()> {
        let mut live = self.live_names();
        // A hashed keyspace takes no ingest.
        live.retain(|(name, _)| !self.is_hashed(name));
        if live.is_empty() {
            return Ok(());
        }
        let (name, incarnation) = live[self.rng.below(live.len() as u64) as usize];
        self.attempts += 1;
        let (number, attempt) = (self.batches.len() + 1, self.attempts);
        let now = self.stepped.now();
        let mut entries = BTreeMap::new();
        for _ in 0..1 + self.rng.below(12) {
            let key = key(self.rng.below(KEYS));
            let mut value = value(&mut self.rng, &key, attempt);
            if self.rng.one_in(4) {
                value.resize(VALUE_APART_BYTES + self.rng.below(8000) as usize, b'i');
            }
            let expiry = if self.rng.one_in(4) { now + self.rng.below(20_000) } else { 0 };
            entries.insert(key, (value, expiry));
        }
        if name == JOURNAL {
            entries.insert(format!("batch {number:06}").into(), (vec![b'b'; 8], 0));
        }
        entries.insert(LAST.into(), (format!("{number} {attempt}").into(), 0));
        let mut ingest = self.keyspace(name).ingest()?;
        let mut changes = Vec::new();
        for (key, (value, expiry)) in entries {
            let change = match expiry {
                0 => ingest.put(&key, &value).map(|()| Change::Put(key, value)),
                at => ingest
                    .put_opt(&key, &value, &EntryOptions::new().expires_at(expiry_time(at)))
                    .map(|()| Change::PutExpiring(key, value, at)),
            };
            changes.push((name, incarnation, change?));
        }
        let ingested = ingest.finish().map(drop);
        self.wrote(Draft { number, attempt, changes }, Durability::Sync, ingested)
    }
}
