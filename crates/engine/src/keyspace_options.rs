//! Options of a keyspace.

use base::{Error, HashKey, HashedPolicy, Result};

/// Options of a keyspace, for `terracedb::Db::create_keyspace_opt`.
///
/// ```
/// # fn main() -> terracedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terracedb::Db::builder(dir.path()).open()?;
/// use terracedb::{KeyspaceOptions, operators::I64Add};
/// let options = KeyspaceOptions::new().merge_operator(I64Add::NAME);
/// let visits = db.create_keyspace_opt("visits", &options)?;
/// visits.merge("home", 1i64.to_le_bytes())?;
/// visits.merge("home", 2i64.to_le_bytes())?;
/// assert_eq!(visits.get("home")?.as_deref(), Some(&3i64.to_le_bytes()[..]));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceOptions {
    pub(crate) merge_operator: Option<String>,
    pub(crate) hashed: Option<HashedPolicy>,
    pub(crate) hash_key: Option<HashKey>,
}

impl KeyspaceOptions {
    /// The options of `terracedb::Db::create_keyspace`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the merge operator of the keyspace by name: one of `terracedb::operators`, or one given to
    /// `terracedb::Builder::merge_operator`. The store keeps the name; it cannot be changed later.
    #[must_use]
    pub fn merge_operator(mut self, name: impl Into<String>) -> Self {
        self.merge_operator = Some(name.into());
        self
    }

    /// Makes the keyspace a hashed one: its keys are stored in the order of a keyed hash. It answers point
    /// reads with less memory a key, and has no order: iteration over ranges is refused. The kind of a
    /// keyspace cannot be changed later.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// use terracedb::KeyspaceOptions;
    /// use terracedb::hashed::HashedPolicy;
    /// let photos = db.create_keyspace_opt("photos", &KeyspaceOptions::new().hashed(HashedPolicy::Keep))?;
    /// photos.put("sunset.jpg", "block 77")?;
    /// assert_eq!(photos.get("sunset.jpg")?.as_deref(), Some(&b"block 77"[..]));
    /// assert!(photos.range("a".."z").is_err());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn hashed(mut self, policy: HashedPolicy) -> Self {
        self.hashed = Some(policy);
        self
    }

    /// Sets the secret of a hashed keyspace's hash, for tests that must repeat. By default it is random.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn hash_key(mut self, bytes: [u8; HashKey::BYTES]) -> Self {
        self.hash_key = Some(HashKey::new(bytes));
        self
    }

    /// Refuses options that contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        if self.hashed.is_some() && self.merge_operator.is_some() {
            return Err(Self::operator_of_hashed());
        }
        match &self.hashed {
            Some(HashedPolicy::Window { .. }) => Err(Error::invalid("policy of a hashed keyspace")
                .expected("keep: this version has no windows")
                .got("window")),
            Some(HashedPolicy::Keep) | None => Ok(()),
        }
    }

    pub(crate) fn operator_of_hashed() -> Error {
        Error::invalid("merge operator").expected("an ordered keyspace").got("a hashed one")
    }
}
