//! Options of a keyspace.

use base::limits::WINDOW_BYTES_MIN;
use base::{Discard, Error, HashKey, HashedPolicy, Result, format_bytes};
use manifest::BASE_FILTER_BITS_MAX;
use tree::Tree;

/// The names of options as text: docs/format/dump.md.
const HASHED: &str = "hashed";
const BASE_FILTER_BITS: &str = "base-filter-bits";
const MERGE_OPERATOR: &str = "merge-operator";

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

    /// The options as names and texts, without those that have their defaults.
    #[must_use]
    pub fn to_pairs(&self) -> Vec<(String, String)> {
        let hashed = self.hashed.as_ref().map(|policy| match policy {
            // In bytes: a size in larger units is rounded.
            HashedPolicy::Window { bytes, discard } => match discard {
                Discard::Fifo => format!("window={bytes}"),
                Discard::Clock => format!("window={bytes},clock"),
                Discard::Priority(name) => format!("window={bytes},priority={name}"),
            },
            HashedPolicy::Keep | HashedPolicy::Resident => policy.to_string(),
        });
        let bits = self.base_filter_bits.filter(|bits| *bits > 0).map(|bits| bits.to_string());
        let all = [
            (HASHED, hashed),
            (BASE_FILTER_BITS, bits),
            (MERGE_OPERATOR, self.merge_operator.clone()),
        ];
        let set = all.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?)));
        set.collect()
    }

    /// The options of [`KeyspaceOptions::to_pairs`].
    ///
    /// # Errors
    /// `Invalid` for an unknown name, and for a text that is not of that option.
    pub fn from_pairs(pairs: &[(String, String)]) -> Result<Self> {
        let mut options = Self::new();
        for (name, text) in pairs {
            match name.as_str() {
                HASHED => options.hashed = Some(text.parse()?),
                MERGE_OPERATOR => options.merge_operator = Some(text.clone()),
                BASE_FILTER_BITS => {
                    let bits = text.parse().map_err(|_| {
                        Error::invalid(BASE_FILTER_BITS)
                            .expected(format_args!("0..={BASE_FILTER_BITS_MAX}"))
                            .got(format_args!("`{}`", text.escape_debug()))
                    })?;
                    options.base_filter_bits = Some(bits);
                }
                _ => {
                    let known = [HASHED, BASE_FILTER_BITS, MERGE_OPERATOR].join(", ");
                    return Err(Error::invalid("option of a keyspace")
                        .expected(format_args!("one of {known}"))
                        .got(format_args!("`{}`", name.escape_debug())));
                }
            }
        }
        options.check()?;
        Ok(options)
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

/// The options to create a keyspace like that of `tree` with. Not a method: [`KeyspaceOptions`] is part of the
/// public API, and trees are not.
#[must_use]
pub fn keyspace_options(tree: &Tree) -> KeyspaceOptions {
    KeyspaceOptions {
        merge_operator: tree.view().read_context.operator_name().map(str::to_owned),
        hashed: tree.kind().policy().cloned(),
        base_filter_bits: Some(tree.kind().base_filter_bits()).filter(|bits| *bits > 0),
        hash_key: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_the_same_after_text() {
        let window =
            |bytes, discard| KeyspaceOptions::new().hashed(HashedPolicy::Window { bytes, discard });
        for options in [
            KeyspaceOptions::new(),
            KeyspaceOptions::new().merge_operator("terrace.i64-add.1"),
            KeyspaceOptions::new().hashed(HashedPolicy::Keep).base_filter_bits(3),
            KeyspaceOptions::new().hashed(HashedPolicy::Resident),
            window(123_456_789_012, Discard::Fifo),
            window(1 << 30, Discard::Clock),
            window(1 << 30, Discard::Priority("terrace.first-byte.1".to_owned())),
        ] {
            assert_eq!(KeyspaceOptions::from_pairs(&options.to_pairs()).unwrap(), options);
        }
    }

    #[test]
    fn unknown_and_wrong_options_are_named() {
        for (name, text, expected) in [
            ("colour", "red", "`colour`"),
            ("hashed", "round", "`round`"),
            ("base-filter-bits", "x", "`x`"),
            ("base-filter-bits", "5", "policy keep"),
        ] {
            let pairs = [(name.to_owned(), text.to_owned())];
            let error = KeyspaceOptions::from_pairs(&pairs).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
