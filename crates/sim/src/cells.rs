//! The model of a keyspace: the writes of each key, and its value at any time.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, UNIX_EPOCH};

use base::Rng;
use terracedb::{EntryOptions, Keyspace, Result, WriteBatch};

/// Keys and values at one time.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A range of keys.
pub(crate) type Span = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// One write. Every value and operand is unique, so a key's value identifies the write that it came from.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Vec<u8>, Vec<u8>),
    /// Key, value, and expiry in Unix milliseconds.
    PutExpiring(Vec<u8>, Vec<u8>, u64),
    /// Key, and the operand to append.
    Merge(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Span),
}

/// Key number `number`. Its length depends on the number.
pub(crate) fn key(number: u64) -> Vec<u8> {
    let mut key = format!("key{number:05}").into_bytes();
    if number.is_multiple_of(7) {
        key.extend(std::iter::repeat_n(b'x', (number % 200) as usize));
    }
    key
}

/// `key`, or for some keys a longer one that begins with it, up to nearly the longest that a store takes.
pub(crate) fn lengthened(mut key: Vec<u8>) -> Vec<u8> {
    let hash = base::key_hash(&key);
    let length = match hash % 16 {
        0 => hash as usize / 16 % 60_000,
        1..4 => hash as usize / 16 % 2000,
        _ => 0,
    };
    key.resize(key.len().max(length), b'k');
    key
}

/// Whether `key` lies within `span`.
pub(crate) fn contains((start, end): &Span, key: &[u8]) -> bool {
    let after = match start {
        Bound::Unbounded => true,
        Bound::Included(start) => key >= start.as_slice(),
        Bound::Excluded(start) => key > start.as_slice(),
    };
    let before = match end {
        Bound::Unbounded => true,
        Bound::Included(end) => key <= end.as_slice(),
        Bound::Excluded(end) => key < end.as_slice(),
    };
    after && before
}

/// A random range of the first `keys` keys, usually at most `width` keys wide.
pub(crate) fn span(rng: &mut Rng, keys: u64, width: u64) -> Span {
    let first = rng.below(keys);
    let last = key(first + rng.below(width + 1));
    let bound = |key, roll| match roll {
        0 => Bound::Unbounded,
        1..=10 => Bound::Included(key),
        _ => Bound::Excluded(key),
    };
    (bound(key(first), rng.below(20)), bound(last, rng.below(20)))
}

impl Change {
    /// A random write to one of `keys` keys at time `now`; `version` makes its value unique.
    pub(crate) fn random(rng: &mut Rng, keys: u64, version: u64, now: u64) -> Self {
        let chosen = key(rng.below(keys));
        match rng.below(40) {
            0..18 => Self::Put(chosen, value(rng, version)),
            18..24 => Self::expiring(rng, chosen, version, now),
            24..30 => Self::Merge(chosen, format!("+{version}").into()),
            30..38 => Self::Delete(chosen),
            // Most range deletes are narrow; otherwise little would survive.
            _ if rng.one_in(20) => Self::DeleteRange(span(rng, keys, keys)),
            _ => {
                let first = rng.below(keys);
                let end = key(first + rng.below(8));
                Self::DeleteRange((Bound::Included(key(first)), Bound::Excluded(end)))
            }
        }
    }

    /// The change with a longer key, and sometimes a large value or operand, or a range delete instead.
    pub(crate) fn enlarged(self, rng: &mut Rng, keys: u64) -> Self {
        if rng.one_in(8) {
            return Self::DeleteRange(span(rng, keys, 1 + keys / 8));
        }
        let mut grow = |mut bytes: Vec<u8>, most: u64| {
            let length = match rng.below(40) {
                0 => most,
                1..6 => most / 8,
                6..14 => most / 64,
                _ => 0,
            };
            let start = bytes.len();
            bytes.resize(start + if length == 0 { 0 } else { rng.below(length) as usize }, b'.');
            rng.fill(&mut bytes[start..]);
            bytes
        };
        match self {
            Self::Put(key, value) => Self::Put(lengthened(key), grow(value, 4 << 20)),
            Self::PutExpiring(key, value, expiry) => {
                Self::PutExpiring(lengthened(key), grow(value, 1 << 20), expiry)
            }
            Self::Merge(key, operand) => Self::Merge(lengthened(key), grow(operand, 300 << 10)),
            Self::Delete(key) => Self::Delete(lengthened(key)),
            range => range,
        }
    }

    /// The change itself, or in a hashed keyspace, which has neither operands nor ranges, one to the same
    /// key. A range without a start becomes all keys.
    pub(crate) fn fit(self, is_hashed: bool) -> Self {
        match self {
            Self::Merge(key, operand) if is_hashed => Self::Put(key, operand),
            Self::DeleteRange((Bound::Included(key) | Bound::Excluded(key), _)) if is_hashed => {
                Self::Delete(key)
            }
            Self::DeleteRange(_) if is_hashed => {
                Self::DeleteRange((Bound::Unbounded, Bound::Unbounded))
            }
            other => other,
        }
    }

    /// A put that expires within seconds after `now`.
    pub(crate) fn expiring(rng: &mut Rng, key: Vec<u8>, version: u64, now: u64) -> Self {
        let expiry = match rng.below(8) {
            0 => now,
            1..4 => now + rng.below(100),
            _ => now + rng.below(20_000),
        };
        Self::PutExpiring(key, value(rng, version), expiry)
    }

    /// Appends the write to a batch.
    pub(crate) fn add(&self, batch: &mut WriteBatch, keyspace: &Keyspace) -> Result<()> {
        match self {
            Self::Put(key, value) => batch.put(keyspace, key, value),
            Self::PutExpiring(key, value, expiry) => batch.put_opt(
                keyspace,
                key,
                value,
                &EntryOptions::new().expires_at(system_time(*expiry)),
            ),
            Self::Merge(key, operand) => batch.merge(keyspace, key, operand),
            Self::Delete(key) => batch.delete(keyspace, key),
            Self::DeleteRange(span) => batch.delete_range(keyspace, span.clone()),
        }
    }

    /// The bytes of its key and value.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Put(key, value) | Self::PutExpiring(key, value, _) | Self::Merge(key, value) => {
                key.len() + value.len()
            }
            Self::Delete(key) => key.len(),
            Self::DeleteRange((start, end)) => [start, end]
                .map(|bound| match bound {
                    Bound::Included(key) | Bound::Excluded(key) => key.len(),
                    Bound::Unbounded => 0,
                })
                .iter()
                .sum(),
        }
    }

    /// Whether this is a delete of an empty range.
    pub(crate) fn is_nothing(&self) -> bool {
        let Self::DeleteRange(span) = self else { return false };
        match span {
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (
                Bound::Included(start) | Bound::Excluded(start),
                Bound::Included(end) | Bound::Excluded(end),
            ) => start >= end,
            _ => false,
        }
    }

    /// Whether the write affects `key`.
    pub(crate) fn touches(&self, key: &[u8]) -> bool {
        match self {
            Self::Put(own, _)
            | Self::PutExpiring(own, ..)
            | Self::Merge(own, _)
            | Self::Delete(own) => own == key,
            Self::DeleteRange(span) => contains(span, key),
        }
    }

    /// Whether the write may affect a key within `span`.
    pub(crate) fn touches_span(&self, span: &Span) -> bool {
        match self {
            Self::Put(own, _)
            | Self::PutExpiring(own, ..)
            | Self::Merge(own, _)
            | Self::Delete(own) => contains(span, own),
            // An approximation: it is used only to decide whether a conflict is permitted.
            Self::DeleteRange(_) => true,
        }
    }
}

pub(crate) fn system_time(unix_ms: u64) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_millis(unix_ms)
}

/// A value that begins with its version; half of the rest is random.
pub(crate) fn value(rng: &mut Rng, version: u64) -> Vec<u8> {
    let mut value = format!("{version}:").into_bytes();
    let length = match rng.below(100) {
        0 => 9000 + rng.below(30_000) as usize,
        1..8 => 1000 + rng.below(4000) as usize,
        8..20 => 0,
        _ => rng.below(300) as usize,
    };
    let start = value.len();
    value.resize(start + length, b'.');
    rng.fill(&mut value[start + length / 2..]);
    value
}

/// The writes of one key since its last put or delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cell {
    /// The value and its expiry; 0: it never expires.
    base: Option<(Vec<u8>, u64)>,
    operands: Vec<Vec<u8>>,
}

impl Cell {
    fn at(&self, now: u64) -> Option<Vec<u8>> {
        let base = self.base.as_ref().filter(|(_, expiry)| *expiry == 0 || *expiry > now);
        let base = base.map(|(value, _)| value.clone());
        if self.operands.is_empty() {
            return base;
        }
        Some([base.unwrap_or_default(), self.operands.concat()].concat())
    }
}

/// The model of a keyspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells(BTreeMap<Vec<u8>, Cell>);

impl Cells {
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(key, value) => self.put(key, value, 0),
            Change::PutExpiring(key, value, expiry) => self.put(key, value, *expiry),
            Change::Merge(key, operand) => {
                self.0.entry(key.clone()).or_default().operands.push(operand.clone());
            }
            Change::Delete(key) => drop(self.0.remove(key)),
            Change::DeleteRange(span) => self.0.retain(|key, _| !contains(span, key)),
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8], expiry: u64) {
        let base = Some((value.to_vec(), expiry));
        self.0.insert(key.to_vec(), Cell { base, operands: Vec::new() });
    }

    /// All keys and values at time `now`, Unix milliseconds.
    pub(crate) fn at(&self, now: u64) -> Model {
        self.0.iter().filter_map(|(key, cell)| Some((key.clone(), cell.at(now)?))).collect()
    }

    /// The value of `key` at time `now`.
    pub(crate) fn get(&self, key: &[u8], now: u64) -> Option<Vec<u8>> {
        self.0.get(key)?.at(now)
    }

    /// Expiry of `key` at time `now`, 0 if it never expires; `None` if the key has no value or has operands.
    pub(crate) fn expiry(&self, key: &[u8], now: u64) -> Option<u64> {
        let cell = self.0.get(key)?;
        let (_, expiry) = cell.base.as_ref().filter(|_| cell.operands.is_empty())?;
        (*expiry == 0 || *expiry > now).then_some(*expiry)
    }
}
