//! Steps that write, create keyspaces and drop keyspaces.

use std::time::Duration;

use terracedb::hashed::HashedPolicy;
use terracedb::operators::Append;
use terracedb::{
    Durability, EntryOptions, ErrorKind, KeyspaceOptions, Result, WriteBatch, WriteOptions,
};

use crate::cells::Change;
use crate::history::Event;
use crate::step_error::{Outcome, ensure};
use crate::world::World;

/// Most bytes of keys and values in a batch.
const BATCH_BYTES_MAX: usize = 8 << 20;

impl World {
    fn durability(&mut self) -> Durability {
        match self.rng.below(10) {
            0..6 => Durability::None,
            6..8 => Durability::Interval,
            _ => Durability::Sync,
        }
    }

    pub(crate) fn change(&mut self) -> Change {
        let (version, now) = (self.version(), self.now());
        let change = Change::random(&mut self.rng, self.keys, version, now);
        if self.is_crowded { change.enlarged(&mut self.rng, self.keys) } else { change }
    }

    pub(crate) fn write(&mut self) -> Outcome {
        if self.rng.one_in(3) {
            return self.write_one();
        }
        let count = match self.rng.below(8) {
            0 => self.rng.below(25),
            1..4 => 1,
            _ => self.rng.below(6),
        };
        let changes = (0..count).map(|_| self.change()).collect();
        self.write_batch(changes)
    }

    /// Writes hundreds of kilobytes in one batch.
    pub(crate) fn write_much(&mut self) -> Outcome {
        let mut changes = Vec::new();
        for _ in 0..30 + self.rng.below(70) {
            let mut value = format!("{}:", self.version()).into_bytes();
            value.resize(8000, 0);
            self.rng.fill(&mut value[20..]);
            changes.push(Change::Put(self.key(), value));
        }
        self.write_batch(changes)
    }

    fn write_batch(&mut self, changes: Vec<Change>) -> Outcome {
        let mut batch = WriteBatch::new();
        let mut event = Event::default();
        let mut bytes = 0;
        for change in changes {
            // A longer batch is refused for good: it exceeds a share of the memory limit.
            bytes += change.bytes();
            if bytes > BATCH_BYTES_MAX {
                break;
            }
            let Some((name, incarnation)) = self.some_keyspace() else { return Ok(()) };
            let change = change.fit(self.is_hashed(incarnation));
            change.add(&mut batch, &self.keyspace(name)?)?;
            event.0.push((incarnation, change));
        }
        let durability = self.durability();
        let written = self.db().write_opt(&batch, &WriteOptions::new().durability(durability));
        self.note(format!("  batch of {}, {durability:?}: {written:?}", batch.len()));
        self.wrote(event, written, durability)
    }

    fn write_one(&mut self) -> Outcome {
        let Some((name, incarnation)) = self.some_keyspace() else { return Ok(()) };
        let keyspace = self.keyspace(name)?;
        let durability = self.durability();
        let mut change = self.change().fit(self.is_hashed(incarnation));
        let options = WriteOptions::new().durability(durability);
        let mut durable = durability;
        let written = match &mut change {
            Change::Put(key, value) => keyspace.put_opt(key, value, &options),
            Change::PutExpiring(key, value, expiry) if self.rng.one_in(2) => {
                // The expiry is relative to the store's own clock.
                let ttl = self.rng.below(5000);
                *expiry = self.now() + ttl;
                durable = Durability::None;
                keyspace.put_opt(key, value, &EntryOptions::new().ttl(Duration::from_millis(ttl)))
            }
            Change::PutExpiring(key, value, expiry) => {
                let moment = crate::cells::system_time(*expiry);
                keyspace.put_opt(key, value, &options.expires_at(moment))
            }
            Change::Merge(key, operand) => keyspace.merge_opt(key, operand, &options),
            Change::Delete(key) => keyspace.delete_opt(key, &options),
            Change::DeleteRange(span) => keyspace.delete_range_opt(span.clone(), &options),
        };
        self.note(format!("  {name}: {}, {durability:?}: {written:?}", brief(&change)));
        self.wrote(Event(vec![(incarnation, change)]), written, durable)
    }

    /// Records the result of a write: acknowledged, refused, or in doubt.
    pub(crate) fn wrote(
        &mut self,
        event: Event,
        written: Result<()>,
        durability: Durability,
    ) -> Outcome {
        self.answered(written.is_ok());
        match written {
            Ok(()) => {
                // A batch without effect is not logged, so it syncs nothing.
                let is_empty = event.0.iter().all(|(_, change)| change.is_nothing());
                self.history.wrote(event);
                if durability == Durability::Sync && !is_empty {
                    self.history.synced();
                }
                Ok(())
            }
            Err(error) => {
                if error.kind() == ErrorKind::Poisoned {
                    self.history.left_in_doubt(event);
                }
                Err(error.into())
            }
        }
    }

    pub(crate) fn create_some(&mut self) -> Outcome {
        let names = self.names();
        let name = names[self.rng.below(names.len() as u64) as usize];
        self.create(name)
    }

    pub(crate) fn create(&mut self, name: &'static str) -> Outcome {
        if self.history.live.contains_key(name) {
            return Ok(());
        }
        let incarnation = self.history.next_incarnation();
        let mut live = self.history.live.clone();
        live.insert(name, incarnation);
        let options = match self.is_hashed(incarnation) {
            false => KeyspaceOptions::new().merge_operator(Append::NAME),
            // The hash key depends on the incarnation, so that scripts repeat.
            true => {
                KeyspaceOptions::new().hashed(HashedPolicy::Keep).hash_key([incarnation as u8; 16])
            }
        };
        let done = self.db().open_or_create_keyspace_opt(name, &options).map(drop);
        self.note(format!("  create {name}: {done:?}"));
        self.renamed(live, done)
    }

    pub(crate) fn drop_some(&mut self) -> Outcome {
        let Some((name, _)) = self.some_keyspace() else { return Ok(()) };
        let mut live = self.history.live.clone();
        live.remove(name);
        let dropped = self.db().drop_keyspace(name);
        self.note(format!("  drop {name}: {dropped:?}"));
        ensure!(!matches!(dropped, Ok(false)), "`{name}` was not there to drop");
        self.renamed(live, dropped.map(drop))
    }

    fn renamed(&mut self, live: crate::history::Live, done: Result<()>) -> Outcome {
        let unknown = done.is_err() && self.db().statistics().poisoned.is_some();
        if done.is_ok() || unknown {
            self.history.renamed(live, done.is_ok());
        }
        Ok(done?)
    }
}

/// A readable form of a change.
pub(crate) fn brief(change: &Change) -> String {
    let show = |bytes: &[u8]| crate::compare::show(bytes);
    match change {
        Change::Put(key, value) => format!("put {} {}", show(key), show(value)),
        Change::PutExpiring(key, value, at) => {
            format!("put {} {} until {at}", show(key), show(value))
        }
        Change::Merge(key, operand) => format!("merge {} {}", show(key), show(operand)),
        Change::Delete(key) => format!("delete {}", show(key)),
        Change::DeleteRange(span) => format!("delete range {}", show_span(span)),
    }
}

/// A readable form of a range.
pub(crate) fn show_span((start, end): &crate::cells::Span) -> String {
    let show = |bound: &std::ops::Bound<Vec<u8>>| match bound {
        std::ops::Bound::Included(key) => format!("={}", crate::compare::show(key)),
        std::ops::Bound::Excluded(key) => format!("!{}", crate::compare::show(key)),
        std::ops::Bound::Unbounded => "-".to_owned(),
    };
    format!("{}..{}", show(start), show(end))
}
