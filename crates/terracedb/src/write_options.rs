//! [`WriteOptions`] and [`PutOptions`]: how one write is made durable, and when its entry expires.
//!
//! The types keep an option from where it has no meaning: a delete takes no expiry, and an operation of a
//! batch or transaction takes no durability of its own.

use std::time::{Duration, SystemTime};

use base::Durability;
use engine::{EntryOptions, Store};

/// Options of one write, which is an operation on a [`Keyspace`](crate::Keyspace), the commit of a
/// [`WriteBatch`](crate::WriteBatch), or that of a [`Transaction`](crate::Transaction).
///
/// With an expiry they become [`PutOptions`], which only a put takes.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terracedb::Db::builder(dir.path()).open()?;
/// use std::time::Duration;
/// use terracedb::{Durability, WriteOptions};
/// let users = db.create_keyspace("users")?;
/// let durable = WriteOptions::new().durability(Durability::Sync);
/// users.put_opt("ada", "London", &durable)?;
/// users.put_opt("guest", "Paris", &durable.ttl(Duration::from_secs(60)))?;
/// users.delete_opt("ada", &durable)?;
/// # Ok(()) }
/// ```
///
/// A delete does not expire, so this does not compile:
///
/// ```compile_fail,E0308
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terracedb::Db::builder(dir.path()).open()?;
/// # let users = db.create_keyspace("users")?;
/// # use {std::time::Duration, terracedb::WriteOptions};
/// users.delete_opt("ada", &WriteOptions::new().ttl(Duration::from_secs(60)))?;
/// # Ok(()) }
/// ```
///
/// Nor does an operation of a batch, which becomes durable as a whole
/// ([`Db::write_opt`](crate::Db::write_opt)):
///
/// ```compile_fail,E0308
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terracedb::Db::builder(dir.path()).open()?;
/// # let users = db.create_keyspace("users")?;
/// # use terracedb::{Durability, WriteBatch, WriteOptions};
/// # let mut batch = WriteBatch::new();
/// batch.put_opt(&users, "ada", "London", &WriteOptions::new().durability(Durability::Sync))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    durability: Option<Durability>,
}

impl WriteOptions {
    /// Options of a write with the store's default durability ([`Settings`](crate::Settings)).
    #[must_use]
    pub const fn new() -> Self {
        Self { durability: None }
    }

    /// The durability with which the call returns.
    #[must_use]
    pub const fn durability(self, durability: Durability) -> Self {
        Self { durability: Some(durability) }
    }

    /// Options of a put with this durability that expires; as [`EntryOptions::ttl`].
    #[must_use]
    pub const fn ttl(self, ttl: Duration) -> PutOptions {
        PutOptions { write: self, entry: EntryOptions::new().ttl(ttl) }
    }

    /// Options of a put with this durability that expires; as [`EntryOptions::expires_at`].
    #[must_use]
    pub const fn expires_at(self, time: SystemTime) -> PutOptions {
        PutOptions { write: self, entry: EntryOptions::new().expires_at(time) }
    }

    /// The durability of a write to `store`.
    pub(crate) fn durability_in(self, store: &Store) -> Durability {
        self.durability.unwrap_or_else(|| store.settings.load().durability)
    }
}

/// The outcome of a write that does not wait ([`Db::try_write`](crate::Db::try_write)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum TryWrite {
    /// The batch is committed.
    Done,
    /// The batch is not committed: flushes or merges are behind. Try again after this time.
    Wait(Duration),
}

/// Options of [`Keyspace::put_opt`](crate::Keyspace::put_opt): the durability of the write and the expiry of
/// the entry. [`WriteOptions`] and [`EntryOptions`] convert to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    pub(crate) write: WriteOptions,
    pub(crate) entry: EntryOptions,
}

impl PutOptions {
    /// Options of a put with the store's default durability that does not expire.
    #[must_use]
    pub const fn new() -> Self {
        Self { write: WriteOptions::new(), entry: EntryOptions::new() }
    }

    /// The durability with which the call returns.
    #[must_use]
    pub const fn durability(self, durability: Durability) -> Self {
        Self { write: self.write.durability(durability), entry: self.entry }
    }

    /// As [`EntryOptions::ttl`].
    #[must_use]
    pub const fn ttl(self, ttl: Duration) -> Self {
        Self { write: self.write, entry: self.entry.ttl(ttl) }
    }

    /// As [`EntryOptions::expires_at`].
    #[must_use]
    pub const fn expires_at(self, time: SystemTime) -> Self {
        Self { write: self.write, entry: self.entry.expires_at(time) }
    }
}

impl From<WriteOptions> for PutOptions {
    fn from(write: WriteOptions) -> Self {
        Self { write, entry: EntryOptions::new() }
    }
}

impl From<EntryOptions> for PutOptions {
    fn from(entry: EntryOptions) -> Self {
        Self { write: WriteOptions::new(), entry }
    }
}
