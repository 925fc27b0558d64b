//! [`Keys`]: the store's keys as Redis sees them: databases, types, expiry, exact counts.
//!
//! Four keyspaces hold them. `redis.keys`: database (one byte) and key -> [`Value`]; a hashed database `N`
//! has `redis.keys.N` instead ([`crate::space`]). `redis.parts`: database,
//! number of a large collection and element -> its value. `redis.expiry`: expiry (Unix milliseconds,
//! big-endian), database and key -> nothing, an index for the sweeper. `redis.counts`: database and one of 64
//! shards -> the number of keys, a sum of `I64Add` operands, so that counts are exact after a crash. A
//! [`crate::unit::Unit`] stages the writes of one command, or of an EXEC, and commits them as one batch.
//!
//! Callers hold the locks of the keys that they write ([`crate::locks`]). Any thread; calls may wait for the
//! device.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use terracedb::memory::Account;
use terracedb::operators::I64Add;
use terracedb::{Db, Error, Keyspace, KeyspaceOptions, WriteBatch, WriteOptions};

use crate::encoding::Limits;
use crate::reply::Fail;
use crate::space::{self, DatabaseKind, Space};
use crate::value::{Kind, NUMBER_MAX, Value};

/// The databases that SELECT chooses from.
pub const DATABASES: u8 = 16;
/// Shards of a count: a merge reads the operands of one shard only.
pub(crate) const SHARDS: u8 = 64;
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
    spaces: Vec<Space>,
    pub(crate) parts: Keyspace,
    pub(crate) expiry: Keyspace,
    pub(crate) counts: Keyspace,
    /// The buffers of clients, staged writes and collected elements.
    pub(crate) account: Account,
    /// When OBJECT ENCODING names the encoding of long collections.
    pub(crate) limits: Limits,
    /// Keys of each database, those that have expired and were not swept yet included, as in Redis.
    pub(crate) count: Vec<AtomicI64>,
    next_id: AtomicU64,
    pub(crate) expired: AtomicU64,
}

impl Keys {
    /// Opens the keyspaces, and sums up the counts. `kinds`: those of databases that are not ordered.
    ///
    /// # Errors
    /// Those of the store; `Invalid` if a database has another kind already.
    pub(crate) fn open(db: Db, kinds: &[(u8, DatabaseKind)]) -> terracedb::Result<Self> {
        let spaces = space::open(&db, kinds)?;
        let parts = db.open_or_create_keyspace("redis.parts")?;
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
        let next_id = AtomicU64::new(next_id(&parts)?);
        let (expired, limits) = Default::default();
        let account = terracedb::memory::account(db.resources(), "network");
        Ok(Self { db, spaces, parts, expiry, counts, account, limits, count, next_id, expired })
    }

    /// A number for a new large collection.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The keyspace of the values of a database.
    pub(crate) fn space(&self, database: u8) -> Result<&Space, Fail> {
        self.spaces
            .get(usize::from(database))
            .ok_or_else(|| Fail::new("ERR DB index is out of range"))
    }

    /// The keyspace of the value of a stored key.
    pub(crate) fn space_of(&self, key: &[u8]) -> Result<&Space, Fail> {
        self.space(key.first().copied().unwrap_or(0))
    }

    /// The keyspaces of the databases, in order.
    pub(crate) fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// The number of keys of `database`. Evictions are not told, so the entries of a window are counted,
    /// those of a long one by its tables.
    pub(crate) fn count(&self, database: u8) -> i64 {
        if let Some(space) =
            self.spaces.get(usize::from(database)).filter(|space| space.is_window())
        {
            return space.entries(&self.db);
        }
        self.count.get(usize::from(database)).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Stored keys from `start` on, of the database of `start`, that exist at `now`, of the type
    /// `kind` if it is given: at most `most`, and at
    /// most [`PAGE_BYTES`] bytes of keys and one more key, after looking at no more than `most` entries.
    /// Returns them and the stored key to go on from.
    pub(crate) fn page(
        &self,
        start: &[u8],
        most: usize,
        now: u64,
        kind: Option<Kind>,
    ) -> Result<Page, Fail> {
        let database = start.first().copied().unwrap_or(0);
        let end = [database.saturating_add(1)];
        let (mut found, mut bytes) = (Vec::new(), 0);
        let space = self.space(database)?;
        space.check_order(database)?;
        for (seen, entry) in space.keyspace.range(start..&end[..])?.enumerate() {
            let (key, stored) = entry?;
            if seen == most || bytes > PAGE_BYTES {
                return Ok((found, Some(key.to_vec())));
            }
            bytes += key.len();
            let value = Value::decode(&stored)?;
            if !value.is_expired(now) && kind.is_none_or(|kind| kind == value.kind) {
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
            let space = self.space(database)?;
            match space.is_ordered() {
                true => batch.delete_range(&space.keyspace, &start[..]..&end[..])?,
                false => batch.delete_range::<&[u8]>(&space.keyspace, ..)?,
            }
            batch.delete_range(&self.parts, &start[..]..&end[..])?;
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

/// The number above those of all stored collections. Those that were deleted may be given again.
fn next_id(parts: &Keyspace) -> terracedb::Result<u64> {
    let mut next = 1;
    for database in 0..DATABASES {
        let (start, end) = ([database], [database + 1]);
        let last = parts.range(&start[..]..&end[..])?.next_back().transpose()?;
        let Some((row, _)) = last else { continue };
        let Some(id) = row.get(1..).and_then(|rest| rest.first_chunk::<8>()) else {
            return Err(Error::corrupt("row of a collection").expected("9 bytes or more"));
        };
        let id = u64::from_be_bytes(*id);
        if id >= NUMBER_MAX {
            return Err(Error::corrupt("number of a collection").expected("at most 2^60").got(id));
        }
        next = next.max(id + 1);
    }
    Ok(next)
}
