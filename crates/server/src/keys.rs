//! [`Keys`]: the store's keys as Redis sees them: databases, types, expiry, exact counts.
//!
//! Three keyspaces hold them. `redis.keys`: database (one byte) and key -> [`Value`]. `redis.expiry`: expiry
//! (Unix milliseconds, big-endian), database and key -> nothing, an index for the sweeper. `redis.counts`:
//! database and one of 64 shards -> the number of keys, a sum of `I64Add` operands, so that counts are exact
//! after a crash. A [`Unit`] stages the writes of one command, or of an EXEC, and commits them as one batch.
//!
//! Callers hold the locks of the keys that they write ([`crate::locks`]). Any thread; calls may wait for the
//! device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use terracedb::operators::I64Add;
use terracedb::{Db, Error, Keyspace, KeyspaceOptions, WriteBatch, WriteOptions};

use crate::reply::Fail;

/// The databases that SELECT chooses from.
pub(crate) const DATABASES: u8 = 16;
/// Shards of a count: a merge reads the operands of one shard only.
const SHARDS: u8 = 64;
/// The stored type of a string.
const STRING: u8 = 0;
const HAS_EXPIRY: u8 = 1;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    /// Unix milliseconds; 0: it does not expire.
    pub(crate) expiry: u64,
    pub(crate) bytes: Bytes,
}

impl Value {
    /// A value that does not expire.
    pub(crate) fn lasting(bytes: impl Into<Bytes>) -> Self {
        Self { expiry: 0, bytes: bytes.into() }
    }

    /// As stored: type, flags, expiry if there is one, bytes.
    fn encode(&self) -> Vec<u8> {
        let mut stored = Vec::with_capacity(10 + self.bytes.len());
        stored.push(STRING);
        stored.push(if self.expiry > 0 { HAS_EXPIRY } else { 0 });
        if self.expiry > 0 {
            stored.extend_from_slice(&self.expiry.to_le_bytes());
        }
        stored.extend_from_slice(&self.bytes);
        stored
    }

    fn decode(stored: &Bytes) -> Result<Self, Fail> {
        let unknown = || Fail::new("ERR the stored value was written by a newer version");
        let (head, rest) = stored.split_first_chunk::<2>().ok_or_else(unknown)?;
        match *head {
            [STRING, 0] => Ok(Self::lasting(stored.slice(2..))),
            [STRING, HAS_EXPIRY] => {
                let (expiry, _) = rest.split_first_chunk::<8>().ok_or_else(unknown)?;
                Ok(Self { expiry: u64::from_le_bytes(*expiry), bytes: stored.slice(10..) })
            }
            _ => Err(unknown()),
        }
    }

    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.expiry > 0 && self.expiry <= now
    }
}

/// Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A key as stored: the database, then the key.
pub(crate) fn stored_key(database: u8, key: &[u8]) -> Vec<u8> {
    [&[database], key].concat()
}

/// Stored keys, and the stored key to go on from.
type Page = (Vec<Vec<u8>>, Option<Vec<u8>>);

/// The store, and the counts of its keys in memory.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) db: Db,
    pub(crate) keys: Keyspace,
    expiry: Keyspace,
    counts: Keyspace,
    /// Keys of each database, those that have expired and were not swept yet included, as in Redis.
    count: Vec<AtomicI64>,
    pub(crate) expired: AtomicU64,
}

impl Keys {
    /// Opens the keyspaces, and sums up the counts.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn open(db: Db) -> terracedb::Result<Self> {
        let keys = db.open_or_create_keyspace("redis.keys")?;
        let expiry = db.open_or_create_keyspace("redis.expiry")?;
        let summed = KeyspaceOptions::new().merge_operator(I64Add::NAME);
        let counts = db.open_or_create_keyspace_opt("redis.counts", &summed)?;
        let count: Vec<_> = (0..DATABASES).map(|_| AtomicI64::new(0)).collect();
        for entry in counts.iter()? {
            let (key, value) = entry?;
            let database = key.first().and_then(|database| count.get(usize::from(*database)));
            let (Some(total), Some((part, _))) = (database, value.split_first_chunk::<8>()) else {
                return Err(Error::corrupt("count of keys").expected("a database and 8 bytes"));
            };
            total.fetch_add(i64::from_le_bytes(*part), Ordering::Relaxed);
        }
        Ok(Self { db, keys, expiry, counts, count, expired: AtomicU64::new(0) })
    }

    /// The number of keys of `database`.
    pub(crate) fn count(&self, database: u8) -> i64 {
        self.count.get(usize::from(database)).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// The stored value of a stored key, expired or not.
    fn read(&self, key: &[u8]) -> Result<Option<Value>, Fail> {
        self.keys.get(key)?.as_ref().map(Value::decode).transpose()
    }

    /// Stored keys from `start` on, of the database of `start`, that exist at `now`: at most `most`, and at
    /// most [`PAGE_BYTES`] bytes of keys and one more key, after looking at no more than `most` entries.
    /// Returns them and the stored key to go on from.
    pub(crate) fn page(&self, start: &[u8], most: usize, now: u64) -> Result<Page, Fail> {
        let database = start.first().copied().unwrap_or(0);
        let end = [database.saturating_add(1)];
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (seen, entry) in self.keys.range(start..&end[..])?.enumerate() {
            let (key, stored) = entry?;
            if seen == most || bytes > PAGE_BYTES {
                return Ok((found, Some(key.to_vec())));
            }
            bytes += key.len();
            if !Value::decode(&stored)?.is_expired(now) {
                found.push(key.to_vec());
            }
        }
        Ok((found, None))
    }

    /// The rows of the expiry index that are due: times and stored keys, at most `most`.
    pub(crate) fn due(&self, now: u64, most: usize) -> Result<Vec<(u64, Vec<u8>)>, Fail> {
        let end = now.saturating_add(1).to_be_bytes();
        let mut due = Vec::new();
        for entry in self.expiry.range(..&end[..])?.take(most) {
            let (row, _) = entry?;
            if let Some((at, key)) = row.split_first_chunk::<8>() {
                due.push((u64::from_be_bytes(*at), key.to_vec()));
            }
        }
        Ok(due)
    }

    /// Deletes every key of `databases`. The caller holds the locks of all keys.
    pub(crate) fn flush(&self, databases: &[u8], options: &WriteOptions) -> Result<(), Fail> {
        let mut batch = WriteBatch::new();
        for &database in databases {
            let (start, end) = ([database], [database + 1]);
            batch.delete_range(&self.keys, &start[..]..&end[..])?;
            batch.delete_range(&self.counts, &start[..]..&end[..])?;
        }
        if databases.len() == usize::from(DATABASES) {
            batch.delete_range::<&[u8]>(&self.expiry, ..)?;
        }
        // Rows of the expiry index of one database go when they are due: the sweeper finds no key for them.
        self.db.write_opt(&batch, options)?;
        for database in databases {
            if let Some(count) = self.count.get(usize::from(*database)) {
                count.store(0, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Most bytes of keys of one page of a scan.
const PAGE_BYTES: usize = 1 << 20;

/// Reads and staged writes of one command, or of all commands of an EXEC.
#[derive(Debug)]
pub(crate) struct Unit {
    keys: Arc<Keys>,
    pub(crate) now: u64,
    /// The expiry of each stored value that was read, expired ones included; `None`: there is no value. The
    /// values themselves may be long.
    read: BTreeMap<Vec<u8>, Option<u64>>,
    staged: BTreeMap<Vec<u8>, Option<Value>>,
    /// Rows of the expiry index to delete beside those of the staged writes.
    stale: Vec<Vec<u8>>,
}

impl Unit {
    pub(crate) fn new(keys: &Arc<Keys>) -> Self {
        let (read, staged, stale) = Default::default();
        Self { keys: Arc::clone(keys), now: now_ms(), read, staged, stale }
    }

    /// The value of a stored key; `None` if it does not exist or has expired.
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Value>, Fail> {
        let value = match self.staged.get(key) {
            Some(staged) => staged.clone(),
            None => self.stored(key)?,
        };
        Ok(value.filter(|value| !value.is_expired(self.now)))
    }

    fn stored(&mut self, key: &[u8]) -> Result<Option<Value>, Fail> {
        // A second read of a key finds the same: the caller holds the locks of the keys that it changes.
        let value = self.keys.read(key)?;
        self.read.insert(key.to_vec(), value.as_ref().map(|value| value.expiry));
        Ok(value)
    }

    /// Stages a value, or a delete. A value that has expired already is a delete.
    pub(crate) fn set(&mut self, key: &[u8], value: Option<Value>) -> Result<(), Fail> {
        if !self.read.contains_key(key) {
            self.stored(key)?;
        }
        let now = self.now;
        self.staged.insert(key.to_vec(), value.filter(|value| !value.is_expired(now)));
        Ok(())
    }

    /// For the sweeper: stages the delete of a key that expired at `row`, a time of the index. A row that is
    /// not the key's expiry was left by a flush of its database, and goes.
    pub(crate) fn sweep(&mut self, row: u64, key: &[u8]) -> Result<(), Fail> {
        let stored = self.stored(key)?;
        if stored.as_ref().map_or(0, |value| value.expiry) != row {
            self.stale.push([&row.to_be_bytes(), key].concat());
        } else if stored.is_some_and(|value| value.is_expired(self.now)) {
            self.staged.insert(key.to_vec(), None);
            self.keys.expired.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Commits the staged writes, and returns the stored keys that changed.
    pub(crate) fn commit(&mut self, options: &WriteOptions) -> Result<Vec<Vec<u8>>, Fail> {
        if self.staged.is_empty() && self.stale.is_empty() {
            return Ok(Vec::new());
        }
        let keys = &self.keys;
        let (mut batch, mut changes) = (WriteBatch::new(), [0_i64; DATABASES as usize]);
        let mut written = Vec::new();
        let row = |expiry: u64, key: &[u8]| [&expiry.to_be_bytes(), key].concat();
        for (key, value) in &self.staged {
            let old = self.read.get(key).copied().flatten();
            let old_expiry = old.unwrap_or(0);
            let expiry = value.as_ref().map_or(0, |value| value.expiry);
            if old_expiry != expiry {
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
            let database = key.first().copied().unwrap_or(0);
            if change != 0 {
                let shard =
                    key.iter().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte))
                        % SHARDS;
                batch.merge(&keys.counts, [database, shard], change.to_le_bytes())?;
                if let Some(total) = changes.get_mut(usize::from(database)) {
                    *total += change;
                }
            }
            match value {
                Some(value) => batch.put(&keys.keys, key, value.encode())?,
                None if old.is_some() => batch.delete(&keys.keys, key)?,
                None => {}
            }
        }
        for row in &self.stale {
            batch.delete(&keys.expiry, row)?;
        }
        keys.db.write_opt(&batch, options)?;
        for (count, change) in keys.count.iter().zip(changes) {
            count.fetch_add(change, Ordering::Relaxed);
        }
        self.read.clear();
        self.stale.clear();
        self.staged.clear();
        Ok(written)
    }
}
