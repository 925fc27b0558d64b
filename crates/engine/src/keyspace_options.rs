//! Options of a keyspace.

use base::limits::WINDOW_BYTES_MIN;
use std::str::FromStr;

use base::{Codec, Discard, Error, HashKey, HashedPolicy, Result, format_bytes};
use manifest::{BASE_FILTER_BITS_MAX, TableOptions};
use table::FILTER_BITS_MAX;
use tree::Tree;

use crate::settings::check_level;

/// The names of options as text: docs/format/dump.md.
const HASHED: &str = "hashed";
const BASE_FILTER_BITS: &str = "base-filter-bits";
const MERGE_OPERATOR: &str = "merge-operator";
const CODEC: &str = "codec";
const LEVEL: &str = "level";
const FILTER_BITS: &str = "filter-bits";

/// The names of codecs as text.
const CODECS: [(&str, Codec); 4] = [
    ("none", Codec::None),
    ("lz4", Codec::Lz4),
    ("zstd", Codec::Zstd),
    ("deflate", Codec::Deflate),
];

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
    pub(crate) tables: TableOptions,
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

    /// Compresses new tables of the keyspace with `codec`, whatever the setting of the store is. Unlike its
    /// kind it may be changed, by `terracedb::Db::open_or_create_keyspace_opt`: then flushes and merges write
    /// tables with the new codec, and tables that exist stay as they are until they are merged.
    ///
    /// ```
    /// # fn main() -> terracedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terracedb::Db::builder(dir.path()).open()?;
    /// use terracedb::{Codec, KeyspaceOptions};
    /// let small = KeyspaceOptions::new().codec(Codec::Zstd).level(19);
    /// let texts = db.create_keyspace_opt("texts", &small)?;
    /// assert_eq!(texts.options(), small);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub const fn codec(mut self, codec: Codec) -> Self {
        self.tables.codec = Some(codec);
        self
    }

    /// The level of [`KeyspaceOptions::codec`]: -7 to 22 of Zstandard, 1 to 9 of DEFLATE. By default the
    /// setting of the store.
    #[must_use]
    pub const fn level(mut self, level: i8) -> Self {
        self.tables.level = Some(level);
        self
    }

    /// Filter bits per key in new tables of an ordered keyspace, 0 to 16: by default 8 to 12, as the age of
    /// the table has it. More bits save device reads of missing keys and take memory; 0 saves the memory of
    /// filters in a keyspace whose keys are never asked for in vain. It may be changed, as the codec.
    #[must_use]
    pub const fn filter_bits(mut self, bits: u8) -> Self {
        self.tables.filter_bits = Some(bits);
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
            (CODEC, self.tables.codec.map(|codec| codec_name(codec).to_owned())),
            (LEVEL, self.tables.level.map(|level| level.to_string())),
            (FILTER_BITS, self.tables.filter_bits.map(|bits| bits.to_string())),
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
                    options.base_filter_bits = Some(number(BASE_FILTER_BITS, text)?);
                }
                CODEC => options.tables.codec = Some(codec_of(text)?),
                LEVEL => options.tables.level = Some(number(LEVEL, text)?),
                FILTER_BITS => options.tables.filter_bits = Some(number(FILTER_BITS, text)?),
                _ => {
                    let known =
                        [HASHED, BASE_FILTER_BITS, MERGE_OPERATOR, CODEC, LEVEL, FILTER_BITS];
                    let known = known.join(", ");
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
        self.check_tables()?;
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

    /// Refuses a codec of another build, a level without its codec, and too many filter bits.
    fn check_tables(&self) -> Result<()> {
        let TableOptions { codec, level, filter_bits } = self.tables;
        if let Some(codec) = codec {
            table::check_codec(codec).map_err(|error| error.at(CODEC))?;
        }
        match (codec, level) {
            (Some(codec), Some(level)) => check_level(LEVEL, codec, level.into())?,
            (None, Some(level)) => {
                return Err(Error::invalid(LEVEL).expected("a codec with it").got(level));
            }
            (_, None) => {}
        }
        match filter_bits {
            Some(_) if self.hashed.is_some() => Err(Self::filters_of_hashed()),
            Some(bits) if bits > FILTER_BITS_MAX => Err(Error::invalid(FILTER_BITS)
                .expected(format_args!("0..={FILTER_BITS_MAX}"))
                .got(bits)),
            _ => Ok(()),
        }
    }

    /// The table options that the manifest has, unless this build cannot write such tables.
    pub(crate) fn stored_tables(tables: TableOptions) -> Result<TableOptions> {
        Self { tables, ..Self::default() }.check_tables().map(|()| tables)
    }

    pub(crate) fn filters_of_hashed() -> Error {
        let expected = "an ordered keyspace; a hashed one has base-filter-bits";
        Error::invalid(FILTER_BITS).expected(expected).got("a hashed one")
    }

    pub(crate) fn operator_of_hashed() -> Error {
        Error::invalid("merge operator").expected("an ordered keyspace").got("a hashed one")
    }
}

fn codec_name(codec: Codec) -> &'static str {
    match codec {
        Codec::None => "none",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
        Codec::Deflate => "deflate",
    }
}

fn codec_of(text: &str) -> Result<Codec> {
    CODECS.iter().find(|(name, _)| *name == text).map(|(_, codec)| *codec).ok_or_else(|| {
        Error::invalid(CODEC)
            .expected(format_args!("one of {}", CODECS.map(|(name, _)| name).join(", ")))
            .got(format_args!("`{}`", text.escape_debug()))
    })
}

fn number<T: FromStr>(option: &'static str, text: &str) -> Result<T> {
    text.parse().map_err(|_| {
        Error::invalid(option).expected("a number").got(format_args!("`{}`", text.escape_debug()))
    })
}

/// The options to create a keyspace like that of `tree` with. Not a method: [`KeyspaceOptions`] is part of
/// the public API, and trees are not.
#[must_use]
pub fn keyspace_options(tree: &Tree) -> KeyspaceOptions {
    KeyspaceOptions {
        merge_operator: tree.view().read_context.operator_name().map(str::to_owned),
        hashed: tree.kind().policy().cloned(),
        base_filter_bits: Some(tree.kind().base_filter_bits()).filter(|bits| *bits > 0),
        tables: tree.table_options(),
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
            KeyspaceOptions::new().codec(Codec::Zstd).level(-7).filter_bits(0),
            KeyspaceOptions::new().codec(Codec::None).hashed(HashedPolicy::Keep),
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
            ("codec", "lzma", "zstd, deflate"),
            ("level", "3", "a codec with it"),
            ("filter-bits", "200", "200"),
        ] {
            let pairs = [(name.to_owned(), text.to_owned())];
            let error = KeyspaceOptions::from_pairs(&pairs).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
