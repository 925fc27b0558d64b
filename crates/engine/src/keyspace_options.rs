//! Options of a keyspace.

use base::limits::WINDOW_BYTES_MIN;
use base::{Error, HashKey, HashedPolicy, Result, format_bytes};
use manifest::BASE_FILTER_BITS_MAX;

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
    pub(crate) base_filter_bits: Option<u8>,
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
    /// [`HashedPolicy::Window`] makes it a cache that keeps its newest entries. It has no snapshots, and
    /// takes writes that are not logged:
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// use terracedb::hashed::{Discard, HashedPolicy};
    /// use terracedb::{Durability, KeyspaceOptions, WriteOptions};
    /// let window = HashedPolicy::Window { bytes: 8 << 30, discard: Discard::Fifo };
    /// let seen = db.create_keyspace_opt("seen", &KeyspaceOptions::new().hashed(window))?;
    /// let unlogged = WriteOptions::new().durability(Durability::Unlogged);
    /// seen.put_opt("fingerprint", "chunk 12", &unlogged)?;
    /// assert_eq!(seen.get("fingerprint")?.as_deref(), Some(&b"chunk 12"[..]));
    /// # Ok(()) }
    /// ```
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

    /// Gives the base of a hashed keyspace that keeps everything filters of `bits` bits a key, at most 10; 0,
    /// the default, gives it none. The base holds nearly all keys, and a read of a key that exists reads it
    /// anyway. So filters serve only reads of missing keys: of 2^`bits` such reads, one reads the device.
    /// Each bit takes 0.13 bytes of memory per key. It cannot be changed later.
    #[must_use]
    pub const fn base_filter_bits(mut self, bits: u8) -> Self {
        self.base_filter_bits = Some(bits);
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
        match self.base_filter_bits {
            None | Some(0) => {}
            Some(_) if self.hashed != Some(HashedPolicy::Keep) => {
                return Err(Error::invalid("base-filter-bits")
                    .expected("a hashed keyspace with the policy keep")
                    .got("another one"));
            }
            Some(bits) if bits > BASE_FILTER_BITS_MAX => {
                return Err(Error::invalid("base-filter-bits")
                    .expected(format_args!("0..={BASE_FILTER_BITS_MAX}"))
                    .got(bits));
            }
            Some(_) => {}
        }
        match &self.hashed {
            Some(policy @ HashedPolicy::Window { bytes, .. }) if *bytes < WINDOW_BYTES_MIN => {
                Err(Error::invalid("length of a window")
                    .expected(format_args!("at least {}", format_bytes(WINDOW_BYTES_MIN)))
                    .got(policy))
            }
            Some(HashedPolicy::Keep | HashedPolicy::Resident | HashedPolicy::Window { .. })
            | None => Ok(()),
        }
    }

    pub(crate) fn operator_of_hashed() -> Error {
        Error::invalid("merge operator").expected("an ordered keyspace").got("a hashed one")
    }
}
