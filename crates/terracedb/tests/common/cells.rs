//! A model of a keyspace under every kind of write: the contents of its keys at any time.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::{HashKey, Rng};
use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::operators::Append;
use terracedb::{EntryOptions, Keyspace, KeyspaceOptions, Transaction, WriteBatch};

use super::{Model, key, value};

/// Options of a keyspace that accepts every kind of change.
pub(crate) fn options() -> KeyspaceOptions {
    KeyspaceOptions::new().merge_operator(Append::NAME)
}

/// Options of a hashed keyspace.
pub(crate) fn hashed_options() -> KeyspaceOptions {
    KeyspaceOptions::new().hashed(HashedPolicy::Keep)
}

/// As [`hashed_options`]; the hashes of some seeds have eight bits, or none at all, so that bins are long.
/// The keyspaces of some seeds are windows so long that they evict nothing that a read finds.
pub(crate) fn weakly_hashed_options(seed: u64) -> KeyspaceOptions {
    let window =
        |discard| KeyspaceOptions::new().hashed(HashedPolicy::Window { bytes: 1 << 40, discard });
    let options = match (seed >> 24) % 4 {
        0 => window(Discard::Fifo),
        1 => window(Discard::Clock),
        _ => hashed_options().base_filter_bits((seed >> 16) as u8 % 11),
    };
    match (seed >> 8) % 3 {
        0 => options.hash_key(*HashKey::weak(8).bytes()),
        1 => options.hash_key(*HashKey::weak(0).bytes()),
        // Derived from the seed: the same run is the same on every device.
        _ => options.hash_key((u128::from(seed) << 64 | u128::from(!seed)).to_le_bytes()),
    }
}

/// An expiry in Unix milliseconds as a `SystemTime`.
pub(crate) fn expiry_time(expiry: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(expiry)
}

/// One write operation.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Vec<u8>, Vec<u8>),
    /// Key, value, and expiry in Unix milliseconds.
    PutExpiring(Vec<u8>, Vec<u8>, u64),
    /// Key and operand of the append operator.
    Merge(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

impl Change {
    /// A random change to one of `keys` keys, at the time `now`.
    pub(crate) fn random(rng: &mut Rng, keys: u64, version: u64, now: u64) -> Self {
        let chosen = key(rng.below(keys));
        match rng.below(40) {
            0..18 => {
                let value = value(rng, &chosen, version);
                Self::Put(chosen, value)
            }
            18..24 => {
                let value = value(rng, &chosen, version);
                let expiry = match rng.below(8) {
                    0 => now,
                    1..4 => now + rng.below(100),
                    _ => now + rng.below(20_000),
                };
                Self::PutExpiring(chosen, value, expiry)
            }
            24..30 => Self::Merge(chosen, format!("+{version}").into()),
            30..38 => Self::Delete(chosen),
            _ => {
                // Most ranges are narrow, so that not everything is deleted.
                let near = rng.below(keys);
                let far = near + if rng.one_in(20) { keys } else { rng.below(6) };
                let (start, end) = (key(near), key(far));
                let start = match rng.below(20) {
                    0 => Bound::Unbounded,
                    1..10 => Bound::Included(start),
                    _ => Bound::Excluded(start),
                };
                let is_wide = matches!(start, Bound::Unbounded) && !rng.one_in(20);
                let end = match rng.below(40) {
                    0 if !is_wide => Bound::Unbounded,
                    0..20 => Bound::Included(if is_wide { key(near % 5) } else { end }),
                    _ => Bound::Excluded(if is_wide { key(near % 5) } else { end }),
                };
                Self::DeleteRange(start, end)
            }
        }
    }

    /// The change itself, or for a hashed keyspace, which has neither operands nor ranges, one to the same
    /// key. A range without a start becomes all keys.
    pub(crate) fn fit(self, keyspace: &Keyspace) -> Self {
        if keyspace.hashed_policy().is_none() {
            return self;
        }
        match self {
            Self::Merge(key, operand) => Self::Put(key, operand),
            Self::DeleteRange(Bound::Included(key) | Bound::Excluded(key), _) => Self::Delete(key),
            Self::DeleteRange(Bound::Unbounded, _) => {
                Self::DeleteRange(Bound::Unbounded, Bound::Unbounded)
            }
            other => other,
        }
    }

    pub(crate) fn add_to(&self, transaction: &mut Transaction, keyspace: &Keyspace) {
        match self {
            Self::Put(key, value) => transaction.put(keyspace, key, value),
            Self::PutExpiring(key, value, expiry) => transaction.put_opt(
                keyspace,
                key,
                value,
                &EntryOptions::new().expires_at(expiry_time(*expiry)),
            ),
            Self::Merge(key, operand) => transaction.merge(keyspace, key, operand),
            Self::Delete(key) => transaction.delete(keyspace, key),
            Self::DeleteRange(start, end) => {
                transaction.delete_range(keyspace, (start.clone(), end.clone()))
            }
        }
        .unwrap();
    }

    pub(crate) fn add(&self, batch: &mut WriteBatch, keyspace: &Keyspace) {
        match self {
            Self::Put(key, value) => batch.put(keyspace, key, value),
            Self::PutExpiring(key, value, expiry) => batch.put_opt(
                keyspace,
                key,
                value,
                &EntryOptions::new().expires_at(expiry_time(*expiry)),
            ),
            Self::Merge(key, operand) => batch.merge(keyspace, key, operand),
            Self::Delete(key) => batch.delete(keyspace, key),
            Self::DeleteRange(start, end) => {
                batch.delete_range(keyspace, (start.clone(), end.clone()))
            }
        }
        .unwrap();
    }
}

/// The base value and the operands of one key.
#[derive(Clone, Debug, Default)]
struct Cell {
    /// The value and its expiry in Unix milliseconds; expiry 0 means never.
    base: Option<(Vec<u8>, u64)>,
    operands: Vec<Vec<u8>>,
}

/// The model of one keyspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells(BTreeMap<Vec<u8>, Cell>);

impl Cells {
    pub(crate) fn apply(&mut self, change: &Change) {
        let put = |value: &Vec<u8>, expiry| Cell {
            base: Some((value.clone(), expiry)),
            operands: Vec::new(),
        };
        match change {
            Change::Put(key, value) => drop(self.0.insert(key.clone(), put(value, 0))),
            Change::PutExpiring(key, value, expiry) => {
                self.0.insert(key.clone(), put(value, *expiry));
            }
            Change::Merge(key, operand) => {
                self.0.entry(key.clone()).or_default().operands.push(operand.clone());
            }
            Change::Delete(key) => drop(self.0.remove(key)),
            Change::DeleteRange(start, end) => self.0.retain(|key, _| {
                let after = match start {
                    Bound::Unbounded => true,
                    Bound::Included(start) => key >= start,
                    Bound::Excluded(start) => key > start,
                };
                let before = match end {
                    Bound::Unbounded => true,
                    Bound::Included(end) => key <= end,
                    Bound::Excluded(end) => key < end,
                };
                !(after && before)
            }),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The contents at the time `now`, Unix milliseconds.
    pub(crate) fn at(&self, now: u64) -> Model {
        let value = |cell: &Cell| {
            let base = cell.base.as_ref().filter(|(_, expiry)| *expiry == 0 || *expiry > now);
            let base = base.map(|(value, _)| value.clone());
            if cell.operands.is_empty() {
                return base;
            }
            Some([base.unwrap_or_default(), cell.operands.concat()].concat())
        };
        self.0.iter().filter_map(|(key, cell)| Some((key.clone(), value(cell)?))).collect()
    }
}
