//! [`ReadOptions`]: what one read leaves in the caches; [`TryGet`]: the outcome of a read that does not wait.

use bytes::Bytes;

/// Options of gets ([`Keyspace::get_opt`](crate::Keyspace::get_opt),
/// [`Keyspace::multi_get_opt`](crate::Keyspace::multi_get_opt)).
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terracedb::Db::builder(dir.path()).open()?;
/// use terracedb::ReadOptions;
/// let users = db.create_keyspace("users")?;
/// users.put("ada", "London")?;
/// // A job that reads each key once, and need not evict rows that others read often.
/// let once = ReadOptions::new().fill_row_cache(false);
/// assert_eq!(users.get_opt("ada", &once)?.as_deref(), Some(&b"London"[..]));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    pub(crate) fill_row_cache: bool,
}

impl ReadOptions {
    /// The options of a plain get.
    #[must_use]
    pub const fn new() -> Self {
        Self { fill_row_cache: true }
    }

    /// Whether the row cache may keep the value that is read; true by default. A row that is there already is
    /// used in any case.
    #[must_use]
    pub const fn fill_row_cache(self, fill: bool) -> Self {
        Self { fill_row_cache: fill }
    }
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The outcome of a get that does not wait ([`Keyspace::try_get`](crate::Keyspace::try_get)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum TryGet {
    /// The value; `None` if the key has none.
    Done(Option<Bytes>),
    /// A page that is needed is on a device.
    Wait,
}
