//! [`Unit`]: the reads and staged writes of one command, or of all commands of an EXEC. They see the staged
//! writes, and [`Unit::commit`] makes them one batch.
//!
//! The caller holds the locks of the keys that it writes ([`crate::locks`]). A unit without locks reads one
//! row, or from one snapshot, so that it sees one state. One thread; calls may wait for the
//! device, except those of [`Unit::at_once`].

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use terracedb::hashed::HashedPolicy;
use terracedb::memory::Charge;
use terracedb::polling::{TryGet, TryWrite};
use terracedb::{Keyspace, Snapshot, WriteBatch, WriteOptions};

use crate::keys::{DATABASES, Keys, SHARDS, now_ms};
use crate::part::{owner, part_range};
use crate::reply::Fail;
use crate::take::check_rows;
use crate::value::{Head, Kind, Value, is_expired};

/// A stored value, without its body.
#[derive(Clone, Copy, Debug)]
struct Old {
    expiry: u64,
    /// The rows of a large collection.
    id: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) keys: Arc<Keys>,
    pub(crate) now: u64,
    /// The caller holds the locks of all keys that are read.
    is_locked: bool,
    snapshot: Option<Snapshot>,
    /// The stored values that were read, expired ones included; `None`: there is none.
    read: BTreeMap<Vec<u8>, Option<Old>>,
    staged: BTreeMap<Vec<u8>, Option<Value>>,
    /// Staged rows of large collections.
    parts: BTreeMap<Vec<u8>, Option<Bytes>>,
    /// Keys that were missing and got a value, in this order.
    created: Vec<Vec<u8>>,
    /// Rows of the expiry index to delete beside those of the staged writes.
    stale: Vec<Vec<u8>>,
    /// The memory of the staged writes and of collected elements.
    charge: Charge,
    collected: Vec<Charge>,
    /// The staged writes since [`Unit::begin`], with those that they replaced.
    journal: Option<Vec<Undo>>,
    /// The state of [`Unit::random`]; 0: not drawn yet.
    random: u64,
    /// The unit may not wait for a device, for flushes or for merges.
    is_at_once: bool,
    /// A unit that may not wait would have to: its caller drops it, and what it did.
    must_wait: Cell<bool>,
}

/// A staged write: the key or row, and the staged write that it replaced.
#[derive(Debug)]
enum Undo {
    Key(Vec<u8>, Option<Option<Value>>),
    Part(Vec<u8>, Option<Option<Bytes>>),
}

/// The keys that a commit changed.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) keys: Vec<Vec<u8>>,
    /// Those that were missing before, in the order of the commands.
    pub(crate) created: Vec<Vec<u8>>,
}

/// The longest request, and the longest stored value, of a command that is executed at once, bytes.
pub(crate) const AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// Memory of one staged row beside its bytes.
const ROW_BYTES: usize = 96;

impl Unit {
    /// A unit of a caller that holds the locks of the keys.
    pub(crate) fn new(keys: &Arc<Keys>) -> Self {
        let charge = keys.account.empty_charge();
        let (read, staged, parts, created, stale, collected) = Default::default();
        Self {
            keys: Arc::clone(keys),
            now: now_ms(),
            is_locked: true,
            snapshot: None,
            read,
            staged,
            parts,
            created,
            stale,
            charge,
            collected,
            journal: None,
            random: 0,
            is_at_once: false,
            must_wait: Cell::new(false),
        }
    }

    /// A unit that only reads, without locks; `is_many`: more than one key.
    pub(crate) fn reading(keys: &Arc<Keys>, is_many: bool) -> Self {
        let snapshot = is_many.then(|| keys.db.snapshot());
        Self { is_locked: false, snapshot, ..Self::new(keys) }
    }

    /// Makes it a unit that may not wait. Then reads and [`Unit::commit`] fail if they would have to, and
    /// [`Unit::must_wait`] tells so.
    pub(crate) fn at_once(mut self) -> Self {
        self.is_at_once = true;
        self
    }

    /// Whether a unit that may not wait would have to.
    pub(crate) const fn must_wait(&self) -> bool {
        self.must_wait.get()
    }

    /// The error of a unit that would have to wait. No client sees it.
    fn would_wait(&self) -> Fail {
        self.must_wait.set(true);
        Fail::new("ERR the command waits for a device")
    }

    /// Charges `bytes` to the memory limit until the unit ends.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), Fail> {
        match self.charge.try_grow(bytes as u64) {
            true => Ok(()),
            false => Err(Fail::no_memory()),
        }
    }

    /// Keeps the memory of collected elements charged until the unit ends.
    pub(crate) fn keep(&mut self, collected: Charge) {
        self.collected.push(collected);
    }

    /// A number that clients cannot predict.
    pub(crate) fn random(&mut self) -> u64 {
        if self.random == 0 {
            self.random = RandomState::new().hash_one(self.now);
        }
        self.random = mix(self.random);
        self.random
    }

    fn row(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Bytes>, Fail> {
        if self.is_at_once {
            return match keyspace.try_get(key)? {
                // A long value takes long to copy.
                TryGet::Done(row)
                    if row.as_ref().is_none_or(|it| it.len() <= AT_ONCE_BYTES_MAX) =>
                {
                    Ok(row)
                }
                TryGet::Done(_) | TryGet::Wait => Err(self.would_wait()),
            };
        }
        // A window has no snapshots: of several keys of one, each is read by itself.
        let is_kept = !matches!(keyspace.hashed_policy(), Some(HashedPolicy::Window { .. }));
        Ok(match self.snapshot.as_ref().filter(|_| is_kept) {
            Some(snapshot) => snapshot.get(keyspace, key)?,
            None => keyspace.get(key)?,
        })
    }

    /// The value of a stored key; `None` if it does not exist or has expired.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Value>, Fail> {
        let value = match self.staged.get(key) {
            Some(staged) => staged.clone(),
            None => self.stored(key)?,
        };
        Ok(value.filter(|value| !value.is_expired(self.now)))
    }

    /// As [`Unit::get`], of a value that must have the type `kind`.
    ///
    /// # Errors
    /// As [`Unit::get`]; that the type is another.
    pub(crate) fn get_kind(&mut self, key: &[u8], kind: Kind) -> Result<Option<Value>, Fail> {
        let value = self.get(key)?;
        match value.as_ref().is_none_or(|value| value.kind == kind) {
            true => Ok(value),
            false => Err(Fail::wrong_type()),
        }
    }

    fn stored(&mut self, key: &[u8]) -> Result<Option<Value>, Fail> {
        // A second read of a key finds the same: the caller holds the locks of the keys that it changes.
        let keyspace = &self.keys.space_of(key)?.keyspace;
        let mut value = self.row(keyspace, key)?.as_ref().map(Value::decode).transpose()?;
        let is_torn = |value: &Value| value.is_large && !self.is_locked && self.snapshot.is_none();
        if value.as_ref().is_some_and(is_torn) {
            if self.is_at_once {
                return Err(self.would_wait());
            }
            // The value and its rows must be of one state.
            self.snapshot = Some(self.keys.db.snapshot());
            value = self.row(keyspace, key)?.as_ref().map(Value::decode).transpose()?;
        }
        let old = value.as_ref().map(|value| {
            let id = value.head()?.map(|head| head.id);
            Ok::<_, Fail>(Old { expiry: value.expiry, id })
        });
        self.read.insert(key.to_vec(), old.transpose()?);
        Ok(value)
    }

    /// Stages a value, or a delete. A value that has expired already is a delete.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn set(&mut self, key: &[u8], value: Option<Value>) -> Result<(), Fail> {
        let now = self.now;
        let is_missing = match (self.staged.get(key), self.read.get(key)) {
            (Some(staged), _) => staged.as_ref().is_none_or(|value| value.is_expired(now)),
            // Most commands have read the key.
            (None, Some(old)) => old.is_none_or(|old| is_expired(old.expiry, now)),
            (None, None) => self.get(key)?.is_none(),
        };
        let value = value.filter(|value| !value.is_expired(now));
        if value.as_ref().is_some_and(|value| value.is_large)
            && self.keys.space_of(key)?.is_window()
        {
            return Err(Fail::new(
                "ERR a collection in a window database has at most 128 elements and 4 KiB",
            ));
        }
        self.take(key.len() + value.as_ref().map_or(0, |value| value.bytes.len()) + ROW_BYTES)?;
        if is_missing && value.is_some() {
            self.created.push(key.to_vec());
        }
        let old = self.staged.insert(key.to_vec(), value);
        if let Some(journal) = &mut self.journal {
            journal.push(Undo::Key(key.to_vec(), old));
        }
        Ok(())
    }

    /// Begins a command that [`Unit::roll_back`] may undo.
    pub(crate) fn begin(&mut self) {
        self.journal = Some(Vec::new());
    }

    /// Takes back the writes staged since [`Unit::begin`].
    pub(crate) fn roll_back(&mut self) {
        for undo in self.journal.take().into_iter().flatten().rev() {
            match undo {
                Undo::Key(key, Some(old)) => drop(self.staged.insert(key, old)),
                Undo::Key(key, None) => drop(self.staged.remove(&key)),
                Undo::Part(row, Some(old)) => drop(self.parts.insert(row, old)),
                Undo::Part(row, None) => drop(self.parts.remove(&row)),
            }
        }
    }

    /// Stages the delete of an expired key, which then is missing for commands with an earlier time too.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn expire(&mut self, key: &[u8]) -> Result<(), Fail> {
        if self.stored(key)?.is_some_and(|value| value.is_expired(self.now)) {
            self.staged.insert(key.to_vec(), None);
            self.keys.expired.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the key has a value that has expired.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn has_expired(&mut self, key: &[u8]) -> Result<bool, Fail> {
        Ok(self.stored(key)?.is_some_and(|value| value.is_expired(self.now)))
    }

    /// For the sweeper: stages the delete of a key that expired at `row`, a time of the index. A row that is
    /// not the key's expiry was left by a flush of its database, and goes.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn sweep(&mut self, row: u64, key: &[u8]) -> Result<(), Fail> {
        let stored = self.stored(key)?;
        if stored.as_ref().map_or(0, |value| value.expiry) != row {
            self.stale.push([&row.to_be_bytes(), key].concat());
            return Ok(());
        }
        self.expire(key)
    }

    /// A row of a large collection.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn part(&self, row: &[u8]) -> Result<Option<Bytes>, Fail> {
        match self.parts.get(row) {
            Some(staged) => Ok(staged.clone()),
            None => self.row(&self.keys.parts, row),
        }
    }

    /// Stages a row of a large collection, or its delete.
    ///
    /// # Errors
    /// Too little memory, or more rows than one command can change.
    pub(crate) fn set_part(&mut self, row: Vec<u8>, value: Option<Bytes>) -> Result<(), Fail> {
        check_rows(self.parts.len() as u64 + 1)?;
        self.take(row.len() + value.as_ref().map_or(0, Bytes::len) + ROW_BYTES)?;
        match &mut self.journal {
            Some(journal) => {
                let old = self.parts.insert(row.clone(), value);
                journal.push(Undo::Part(row, old));
            }
            None => drop(self.parts.insert(row, value)),
        }
        Ok(())
    }

    /// Calls `visit` with the rows from `from` up to, and without, `to`, in order or in reverse, until it
    /// breaks.
    ///
    /// # Errors
    /// Those of the store and of `visit`.
    pub(crate) fn walk(
        &self,
        from: &[u8],
        to: &[u8],
        is_reverse: bool,
        mut visit: impl FnMut(&[u8], &Bytes) -> Result<ControlFlow<()>, Fail>,
    ) -> Result<(), Fail> {
        if from >= to {
            return Ok(());
        }
        if self.is_at_once {
            return Err(self.would_wait());
        }
        let mut stored = match &self.snapshot {
            Some(snapshot) => snapshot.range(&self.keys.parts, from..to)?,
            None => self.keys.parts.range(from..to)?,
        };
        let mut staged = self
            .parts
            .range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(to)));
        let mut next_stored = || if is_reverse { stored.next_back() } else { stored.next() };
        let mut next_staged = || if is_reverse { staged.next_back() } else { staged.next() };
        let (mut below, mut above) = (next_stored().transpose()?, next_staged());
        loop {
            let order = match (&below, &above) {
                (None, None) => return Ok(()),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some((stored, _)), Some((staged, _))) => {
                    let order = stored.as_ref().cmp(staged.as_slice());
                    if is_reverse { order.reverse() } else { order }
                }
            };
            let step = match order {
                std::cmp::Ordering::Less => match &below {
                    Some((row, value)) => visit(row, value)?,
                    None => ControlFlow::Continue(()),
                },
                _ => match &above {
                    Some((row, Some(value))) => visit(row, value)?,
                    _ => ControlFlow::Continue(()),
                },
            };
            if step.is_break() {
                return Ok(());
            }
            if order.is_le() {
                below = next_stored().transpose()?;
            }
            if order.is_ge() {
                above = next_staged();
            }
        }
    }

    /// Commits the staged writes, and returns the stored keys that changed. Writes to windows alone have the
    /// options `unlogged`.
    ///
    /// # Errors
    /// Those of the store: nothing was written.
    pub(crate) fn commit(
        &mut self,
        [options, unlogged]: &[WriteOptions; 2],
    ) -> Result<Written, Fail> {
        if self.staged.is_empty() && self.stale.is_empty() {
            return Ok(Written::default());
        }
        let keys = Arc::clone(&self.keys);
        let (mut batch, mut changes) = (WriteBatch::new(), [0_i64; DATABASES as usize]);
        let (mut written, mut is_logged) = (Vec::new(), !self.stale.is_empty());
        let mut counts = BTreeMap::<[u8; 2], i64>::new();
        let row = |expiry: u64, key: &[u8]| [&expiry.to_be_bytes(), key].concat();
        // Rows belong to a value by their number; a rename moves the number to another key.
        let (mut old_ids, mut new_ids) = (BTreeSet::new(), BTreeSet::new());
        for (key, value) in &self.staged {
            let old = self.read.get(key).copied().flatten();
            let database = key.first().copied().unwrap_or(0);
            old_ids.extend(old.and_then(|old| old.id).map(|id| (database, id)));
            if let Some(Head { id, .. }) = value.as_ref().map(Value::head).transpose()?.flatten() {
                new_ids.insert((database, id));
            }
            let space = keys.space(database)?;
            is_logged |= !space.is_window();
            let old_expiry = old.map_or(0, |old| old.expiry);
            let expiry = value.as_ref().map_or(0, |value| value.expiry);
            if old_expiry != expiry && !space.is_window() {
                if old_expiry > 0 {
                    batch.delete(&keys.expiry, row(old_expiry, key))?;
                }
                if expiry > 0 {
                    batch.put(&keys.expiry, row(expiry, key), "")?;
                }
            }
            if old.is_some() || value.is_some() {
                written.push(key.clone());
            }
            let change = i64::from(value.is_some()) - i64::from(old.is_some());
            if change != 0 && !space.is_window() {
                let shard =
                    key.iter().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte))
                        % SHARDS;
                *counts.entry([database, shard]).or_insert(0) += change;
                if let Some(total) = changes.get_mut(usize::from(database)) {
                    *total += change;
                }
            }
            match value {
                Some(value) => batch.put(&space.keyspace, key, value.encode())?,
                None if old.is_some() => batch.delete(&space.keyspace, key)?,
                None => {}
            }
        }
        for (count, change) in counts.into_iter().filter(|(_, change)| *change != 0) {
            batch.merge(&keys.counts, count, change.to_le_bytes())?;
        }
        for &(database, id) in old_ids.difference(&new_ids) {
            let (from, to) = part_range(database, id);
            batch.delete_range(&keys.parts, from..to)?;
        }
        for (row, value) in &self.parts {
            // Rows of a collection that was made and deleted again are left out.
            let is_live = owner(row).is_some_and(|owner| new_ids.contains(&owner));
            match value {
                Some(value) if is_live => batch.put(&keys.parts, row, value)?,
                None if is_live => batch.delete(&keys.parts, row)?,
                _ => {}
            }
        }
        for row in &self.stale {
            batch.delete(&keys.expiry, row)?;
        }
        let options = if is_logged { options } else { unlogged };
        match self.is_at_once {
            true => match keys.db.try_write(&batch, options)? {
                TryWrite::Done => {}
                TryWrite::Wait(_) => return Err(self.would_wait()),
            },
            false => keys.db.write_opt(&batch, options)?,
        }
        for (count, change) in keys.count.iter().zip(changes) {
            count.fetch_add(change, Ordering::Relaxed);
        }
        let mut created = std::mem::take(&mut self.created);
        created.retain(|key| self.staged.get(key).is_some_and(Option::is_some));
        self.read.clear();
        self.stale.clear();
        self.staged.clear();
        self.parts.clear();
        self.journal = None;
        self.charge.shrink_to(0);
        Ok(Written { keys: written, created })
    }
}

/// The next number of a random sequence (splitmix64).
pub(crate) fn mix(state: u64) -> u64 {
    let mut next = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    next = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    next = (next ^ (next >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    next ^ (next >> 31)
}
