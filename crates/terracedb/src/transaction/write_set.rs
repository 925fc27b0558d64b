//! What a transaction wrote and did not commit yet: the last write to every key.
//!
//! Its own reads look here first. At commit it becomes one batch, each key written once. Iterators
//! keep the set they were made over: it is shared, and copied by the first write after.
//!
//! Memory is charged before it is taken (I10), and bounded by what a batch may take.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base::{Account, Charge, Error, Key, Result, format_bytes};
use bytes::Bytes;

use super::key_set::KeySpan;
use crate::ordered::Tree;
use crate::{Keyspace, WriteBatch};

/// The writes of one transaction.
#[derive(Debug)]
pub(crate) struct WriteSet {
    keyspaces: Vec<(Keyspace, Writes)>,
    len: usize,
    charge: Charge,
    account: Account,
    bytes_max: u64,
}

/// The writes to one keyspace, by key.
pub(crate) type Writes = BTreeMap<Bytes, Write>;

/// The last write to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Delete,
    Put(Bytes),
}

impl Write {
    fn len(&self) -> usize {
        match self {
            Self::Delete => 0,
            Self::Put(value) => value.len(),
        }
    }

    /// The value it leaves.
    pub(crate) fn value(&self) -> Option<Bytes> {
        match self {
            Self::Delete => None,
            Self::Put(value) => Some(value.clone()),
        }
    }
}

/// What a write takes beyond its key and value, bytes: their handles, a map's node that may be half
/// full, and two allocations.
const WRITE_BYTES: u64 = 224;

impl WriteSet {
    /// An empty set, that may take `bytes_max` of `account`.
    pub(crate) fn new(account: &Account, bytes_max: u64) -> Self {
        let charge = account.empty_charge();
        Self { keyspaces: Vec::new(), len: 0, charge, account: account.clone(), bytes_max }
    }

    /// A copy, charged as the original is.
    ///
    /// # Errors
    /// `Retry` where memory is short.
    pub(crate) fn try_clone(&self) -> Result<Self> {
        let charge = self.account.charge(self.charge.bytes())?;
        let (keyspaces, account) = (self.keyspaces.clone(), self.account.clone());
        Ok(Self { keyspaces, len: self.len, charge, account, bytes_max: self.bytes_max })
    }

    /// The keys written.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sets what is written to `key`; `None` deletes it.
    ///
    /// # Errors
    /// `Invalid` where the set grows past what a batch may take, `Retry` where memory is short;
    /// the set stays as it was.
    pub(crate) fn write(
        &mut self,
        keyspace: &Keyspace,
        key: Key<'_>,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let bytes = (key.bytes().len() + value.map_or(0, <[u8]>::len)) as u64;
        let taken = self.charge.bytes() + WRITE_BYTES + bytes;
        if taken > self.bytes_max {
            return Err(Error::invalid("transaction's write set")
                .expected(format_args!(
                    "at most {}, a part of the memory number",
                    format_bytes(self.bytes_max)
                ))
                .got(format_bytes(taken)));
        }
        self.charge.grow(WRITE_BYTES + bytes)?;
        let write = match value {
            Some(value) => Write::Put(Bytes::copy_from_slice(value)),
            None => Write::Delete,
        };
        let number = self.number_of(keyspace.tree()).unwrap_or_else(|| {
            self.keyspaces.push((keyspace.clone(), Writes::new()));
            self.keyspaces.len() - 1
        });
        let Some((_, writes)) = self.keyspaces.get_mut(number) else { return Ok(()) };
        let old = match writes.get_mut(key.bytes()) {
            Some(old) => Some(std::mem::replace(old, write)),
            None => writes.insert(Bytes::copy_from_slice(key.bytes()), write),
        };
        match old {
            Some(old) => {
                let spare = WRITE_BYTES + (key.bytes().len() + old.len()) as u64;
                self.charge.shrink_to(self.charge.bytes() - spare);
            }
            None => self.len += 1,
        }
        Ok(())
    }

    fn number_of(&self, tree: &Arc<Tree>) -> Option<usize> {
        self.keyspaces.iter().position(|(known, _)| Arc::ptr_eq(known.tree(), tree))
    }

    fn writes(&self, tree: &Arc<Tree>) -> Option<&Writes> {
        self.keyspaces.get(self.number_of(tree)?).map(|(_, writes)| writes)
    }

    /// What was written to `key`.
    pub(crate) fn get(&self, tree: &Arc<Tree>, key: &[u8]) -> Option<&Write> {
        self.writes(tree)?.get(key)
    }

    /// The first write within `range`.
    pub(crate) fn first(&self, tree: &Arc<Tree>, range: KeySpan<'_>) -> Option<(&Bytes, &Write)> {
        self.within(tree, range)?.next()
    }

    /// The last write within `range`.
    pub(crate) fn last(&self, tree: &Arc<Tree>, range: KeySpan<'_>) -> Option<(&Bytes, &Write)> {
        self.within(tree, range)?.next_back()
    }

    fn within(
        &self,
        tree: &Arc<Tree>,
        range: KeySpan<'_>,
    ) -> Option<impl DoubleEndedIterator<Item = (&Bytes, &Write)>> {
        if range.is_empty() {
            return None;
        }
        let end = range.end.map_or(Bound::Unbounded, Bound::Excluded);
        Some(self.writes(tree)?.range::<[u8], _>((Bound::Included(range.start), end)))
    }

    /// The batch that does it all.
    ///
    /// # Errors
    /// `Retry` where memory is short; those of [`WriteBatch::put`].
    pub(crate) fn to_batch(&self) -> Result<(WriteBatch, Charge)> {
        // An operation takes a few bytes beyond key and value; the vector may be half empty.
        let charge = self.account.charge(2 * self.charge.bytes())?;
        let mut batch = WriteBatch::new();
        for (keyspace, writes) in &self.keyspaces {
            for (key, write) in writes {
                match write {
                    Write::Delete => batch.delete(keyspace, key)?,
                    Write::Put(value) => batch.put(keyspace, key, value)?,
                }
            }
        }
        Ok((batch, charge))
    }
}
