//! Options of one stored entry: its expiry.

use std::time::{Duration, SystemTime};

use base::Write;
use tree::Tree;

use crate::expiry::unix_millis;

/// Options of one entry: when it expires. For the puts of a `terracedb::WriteBatch`, `terracedb::Transaction`
/// or [`Ingest`](crate::Ingest), which has one durability as a whole.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terracedb::Db::builder(dir.path()).open()?;
/// use std::time::Duration;
/// use terracedb::{EntryOptions, WriteBatch};
/// let sessions = db.create_keyspace("sessions")?;
/// let mut batch = WriteBatch::new();
/// batch.put(&sessions, "root", "stays")?;
/// batch.put_opt(&sessions, "ada", "an hour", &EntryOptions::new().ttl(Duration::from_secs(3600)))?;
/// db.write(&batch)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryOptions {
    expiry: ExpiryOption,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ExpiryOption {
    #[default]
    Never,
    After(Duration),
    At(SystemTime),
}

impl EntryOptions {
    /// Options of an entry that does not expire.
    #[must_use]
    pub const fn new() -> Self {
        Self { expiry: ExpiryOption::Never }
    }

    /// The entry expires this long after the call that takes the options. From then on, every kind of read
    /// finds no value.
    ///
    /// Time is that of the wall clock, but it never runs backwards within a process. Across a restart it may
    /// run backwards by at most a minute.
    #[must_use]
    pub const fn ttl(self, ttl: Duration) -> Self {
        Self { expiry: ExpiryOption::After(ttl) }
    }

    /// The entry has expired from `time` on, in whole milliseconds; otherwise as [`EntryOptions::ttl`].
    #[must_use]
    pub const fn expires_at(self, time: SystemTime) -> Self {
        Self { expiry: ExpiryOption::At(time) }
    }
}

/// The put of `value` to `tree` with `options`, now. Not a method: [`EntryOptions`] is part of the public
/// API, and trees are not.
#[must_use]
pub fn entry_put<'a>(options: &EntryOptions, tree: &Tree, value: &'a [u8]) -> Write<'a> {
    match options.expiry {
        ExpiryOption::Never => Write::Put(value),
        ExpiryOption::After(ttl) => {
            let expiry = tree.view().read_context.timekeeper().expiry_after(ttl);
            Write::PutExpiring { expiry, value }
        }
        ExpiryOption::At(time) => Write::PutExpiring { expiry: unix_millis(time), value },
    }
}
