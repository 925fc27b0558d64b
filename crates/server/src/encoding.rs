//! [`Limits`]: when OBJECT ENCODING names the encoding that Redis gives long collections. The settings of
//! Redis, changed by CONFIG SET; they decide a name only, not how the store keeps a collection.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::args;
use crate::value::{Kind, Value};

#[derive(Debug)]
pub(crate) struct Limits {
    values: Vec<AtomicI64>,
}

/// The settings: name, older name, default.
const SETTINGS: [(&str, &str, i64); 7] = [
    ("hash-max-listpack-entries", "hash-max-ziplist-entries", 512),
    ("hash-max-listpack-value", "hash-max-ziplist-value", 64),
    ("set-max-intset-entries", "", 512),
    ("zset-max-listpack-entries", "zset-max-ziplist-entries", 128),
    ("zset-max-listpack-value", "zset-max-ziplist-value", 64),
    ("list-max-listpack-size", "list-max-ziplist-size", -2),
    ("list-compress-depth", "", 0),
];

impl Default for Limits {
    fn default() -> Self {
        Self { values: SETTINGS.iter().map(|(_, _, value)| AtomicI64::new(*value)).collect() }
    }
}

impl Limits {
    /// The settings and their values.
    pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
        let values = || self.values.iter().map(|value| value.load(Ordering::Relaxed).to_string());
        let names = SETTINGS.iter().map(|(name, _, _)| *name).zip(values());
        let older = SETTINGS.iter().map(|(_, name, _)| *name).zip(values());
        names.chain(older.filter(|(name, _)| !name.is_empty())).collect()
    }

    /// The setting called `name`.
    pub(crate) fn find(&self, name: &str) -> Option<&AtomicI64> {
        let at = SETTINGS.iter().position(|(new, old, _)| name == *new || name == *old)?;
        self.values.get(at)
    }

    fn value(&self, name: &str) -> usize {
        let value = self.find(name).map_or(0, |value| value.load(Ordering::Relaxed));
        usize::try_from(value).unwrap_or(0)
    }

    /// Whether a collection counts as long once it has `count` elements, the newest of them with the bytes
    /// `member` and a payload of `payload` bytes.
    pub(crate) fn is_wide(&self, kind: Kind, count: usize, member: &[u8], payload: usize) -> bool {
        match kind {
            Kind::Hash => {
                count > self.value("hash-max-listpack-entries")
                    || member.len().max(payload) > self.value("hash-max-listpack-value")
            }
            Kind::Set => {
                count > self.value("set-max-intset-entries") || args::integer(member).is_err()
            }
            Kind::SortedSet => {
                count > self.value("zset-max-listpack-entries")
                    || member.len() > self.value("zset-max-listpack-value")
            }
            Kind::String | Kind::List => false,
        }
    }
}

/// The name of a value's encoding.
pub(crate) fn name(value: &Value) -> &'static str {
    match (value.kind, value.is_wide) {
        (Kind::String, _) if args::integer(&value.bytes).is_ok() => "int",
        (Kind::String, _) if value.bytes.len() <= 44 => "embstr",
        (Kind::String, _) => "raw",
        (Kind::Hash | Kind::SortedSet, false) => "listpack",
        (Kind::Set, false) => "intset",
        (Kind::Hash | Kind::Set, true) => "hashtable",
        (Kind::SortedSet, true) => "skiplist",
        (Kind::List, _) => "quicklist",
    }
}
