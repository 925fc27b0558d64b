//! What a transaction wrote and did not commit yet: what it comes to, key by key.
//!
//! Its own reads look here first. At commit it becomes one batch: range deletes
//! first, then every key with what was written to it since. Iterators
//! keep the set they were made over: it is shared, and copied by the first write after.
//!
//! Memory is charged before it is taken (I10), and bounded by what a batch may take.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base::{Account, Charge, Error, Result, format_bytes};
use bytes::Bytes;

use super::key_set::{KeySet, KeySpan};
use crate::EncodedBatch;
use base::Write;
use tree::Tree;

/// The writes of one transaction.
#[derive(Debug)]
pub struct WriteSet {
    keyspaces: Vec<(Arc<Tree>, Writes)>,
    len: usize,
    charge: Charge,
    account: Account,
    bytes_max: u64,
}

/// The writes to one keyspace.
#[derive(Clone, Debug, Default)]
struct Writes {
    /// Deleted before all that stands in `keys`.
    deleted: KeySet,
    keys: BTreeMap<Bytes, Pending>,
}

/// What was written to a key: a value or a delete, and operands since.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    base: Option<Base>,
    /// Oldest first.
    operands: Vec<Bytes>,
}

#[derive(Clone, Debug)]
enum Base {
    Delete,
    Put(Bytes),
    PutExpiring { expiry: u64, value: Bytes },
}

impl Pending {
    fn bytes(&self) -> u64 {
        let base = match &self.base {
            None | Some(Base::Delete) => 0,
            Some(Base::Put(value) | Base::PutExpiring { value, .. }) => value.len(),
        };
        let operands = self.operands.iter().map(|operand| OPERAND_BYTES + operand.len() as u64);
        base as u64 + operands.sum::<u64>()
    }

    /// Whether its value depends on what the store has.
    pub fn needs_stored(&self) -> bool {
        self.base.is_none()
    }

    /// The value it leaves of `key`, where the store has `stored`.
    ///
    /// # Errors
    /// `Invalid` where the keyspace's merge operator refuses the operands.
    pub fn value(&self, tree: &Tree, key: &[u8], stored: Option<Bytes>) -> Result<Option<Bytes>> {
        let view = tree.view();
        let base = match &self.base {
            None => stored,
            Some(Base::Delete) => None,
            Some(Base::Put(value)) => Some(value.clone()),
            Some(Base::PutExpiring { expiry, value }) => {
                let is_gone = *expiry <= view.read_context.timekeeper().now();
                Some(value).filter(|_| !is_gone).cloned()
            }
        };
        if self.operands.is_empty() {
            return Ok(base);
        }
        let operator = view.read_context.operator()?;
        let operands: Vec<_> = self.operands.iter().map(|operand| &**operand).collect();
        let merged = operator.merge(key, base.as_deref(), &operands).ok_or_else(|| {
            Error::invalid("merge operands")
                .at(format_args!("key `{}`", key.escape_ascii()))
                .expected(format_args!("operands that `{}` can merge", operator.name()))
        })?;
        Ok(Some(merged.into()))
    }

    /// The operations it comes to.
    fn ops(&self) -> impl Iterator<Item = Write<'_>> {
        let base = self.base.as_ref().map(|base| match base {
            Base::Delete => Write::Delete,
            Base::Put(value) => Write::Put(value),
            Base::PutExpiring { expiry, value } => Write::PutExpiring { expiry: *expiry, value },
        });
        base.into_iter().chain(self.operands.iter().map(|operand| Write::Merge(operand)))
    }
}

/// What a key takes beyond itself and its value, bytes: their handles, a map's node that may be half
/// full, and allocations.
const KEY_BYTES: u64 = 288;

/// What an operand takes beyond itself, bytes.
const OPERAND_BYTES: u64 = 96;

impl WriteSet {
    /// An empty set, that may take `bytes_max` of `account`.
    pub fn new(account: &Account, bytes_max: u64) -> Self {
        let charge = account.empty_charge();
        Self { keyspaces: Vec::new(), len: 0, charge, account: account.clone(), bytes_max }
    }

    /// A copy, charged as the original is.
    ///
    /// # Errors
    /// `Retry` where memory is short.
    pub fn try_clone(&self) -> Result<Self> {
        let charge = self.account.charge(self.charge.bytes())?;
        let (keyspaces, account) = (self.keyspaces.clone(), self.account.clone());
        Ok(Self { keyspaces, len: self.len, charge, account, bytes_max: self.bytes_max })
    }

    /// The keys written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True where nothing was written.
    pub fn is_empty(&self) -> bool {
        self.keyspaces.is_empty()
    }

    /// Adds a write to `key`, or a delete of the keys from it on.
    ///
    /// # Errors
    /// `Invalid` where the set grows past what a batch may take, `Retry` where memory is short;
    /// the set stays as it was.
    pub fn write(&mut self, tree: &Arc<Tree>, key: &[u8], write: Write<'_>) -> Result<()> {
        let bytes = KEY_BYTES + OPERAND_BYTES + (key.len() + write.stored_bytes()) as u64;
        let taken = self.charge.bytes() + bytes;
        if taken > self.bytes_max {
            return Err(Error::invalid("transaction's write set")
                .expected(format_args!(
                    "at most {}, a part of the memory number",
                    format_bytes(self.bytes_max)
                ))
                .got(format_bytes(taken)));
        }
        self.charge.grow(bytes)?;
        let number = self.number_of(tree).unwrap_or_else(|| {
            self.keyspaces.push((Arc::clone(tree), Writes::default()));
            self.keyspaces.len() - 1
        });
        let Some((_, writes)) = self.keyspaces.get_mut(number) else { return Ok(()) };
        let before = writes.keys.len();
        let spare = writes.add(key, write);
        self.len = self.len + writes.keys.len() - before;
        self.charge.shrink_to(self.charge.bytes() - spare);
        Ok(())
    }

    fn number_of(&self, tree: &Arc<Tree>) -> Option<usize> {
        self.keyspaces.iter().position(|(known, _)| Arc::ptr_eq(known, tree))
    }

    fn writes(&self, tree: &Arc<Tree>) -> Option<&Writes> {
        self.keyspaces.get(self.number_of(tree)?).map(|(_, writes)| writes)
    }

    /// What was written to `key`.
    pub fn get(&self, tree: &Arc<Tree>, key: &[u8]) -> Option<&Pending> {
        self.writes(tree)?.keys.get(key)
    }

    /// Whether what the store has of `key` was deleted by a range delete.
    pub fn hides(&self, tree: &Arc<Tree>, key: &[u8]) -> bool {
        self.writes(tree).is_some_and(|writes| writes.deleted.contains(key))
    }

    /// The first write within `range`.
    pub fn first(&self, tree: &Arc<Tree>, range: KeySpan<'_>) -> Option<(&Bytes, &Pending)> {
        self.within(tree, range)?.next()
    }

    /// The last write within `range`.
    pub fn last(&self, tree: &Arc<Tree>, range: KeySpan<'_>) -> Option<(&Bytes, &Pending)> {
        self.within(tree, range)?.next_back()
    }

    fn within(
        &self,
        tree: &Arc<Tree>,
        range: KeySpan<'_>,
    ) -> Option<impl DoubleEndedIterator<Item = (&Bytes, &Pending)>> {
        if range.is_empty() {
            return None;
        }
        let end = range.end.map_or(Bound::Unbounded, Bound::Excluded);
        Some(self.writes(tree)?.keys.range::<[u8], _>((Bound::Included(range.start), end)))
    }

    /// The batch that does it all.
    ///
    /// # Errors
    /// `Retry` where memory is short; those of [`EncodedBatch::push`].
    pub fn to_batch(&self) -> Result<(EncodedBatch, Charge)> {
        // An operation takes a few bytes beyond key and value; the vector may be half empty.
        let charge = self.account.charge(2 * self.charge.bytes())?;
        let mut batch = EncodedBatch::default();
        for (tree, writes) in &self.keyspaces {
            for KeySpan { start, end } in writes.deleted.iter() {
                batch.push(tree, start, Write::DeleteRange { end: end.unwrap_or_default() })?;
            }
            for (key, pending) in &writes.keys {
                pending.ops().try_for_each(|write| batch.push(tree, key, write))?;
            }
        }
        Ok((batch, charge))
    }
}

impl Writes {
    /// Adds a write for which its whole length was charged; what of all charges is not needed.
    fn add(&mut self, key: &[u8], write: Write<'_>) -> u64 {
        let base = match write {
            Write::DeleteRange { end } => return self.delete_range(key, end),
            Write::Merge(_) => None,
            Write::Delete => Some(Base::Delete),
            Write::Put(value) => Some(Base::Put(Bytes::copy_from_slice(value))),
            Write::PutExpiring { expiry, value } => {
                Some(Base::PutExpiring { expiry, value: Bytes::copy_from_slice(value) })
            }
        };
        let mut spare = 0;
        let pending = match self.keys.get_mut(key) {
            Some(pending) => {
                spare += KEY_BYTES + key.len() as u64;
                pending
            }
            None => self.keys.entry(Bytes::copy_from_slice(key)).or_default(),
        };
        match (base, write) {
            (None, Write::Merge(operand)) => {
                pending.operands.push(Bytes::copy_from_slice(operand));
            }
            (base, _) => {
                spare += OPERAND_BYTES + pending.bytes();
                *pending = Pending { base, operands: Vec::new() };
            }
        }
        spare
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) -> u64 {
        let end = (!end.is_empty()).then_some(end);
        self.deleted.insert(KeySpan { start, end });
        let mut spare = 0;
        let bounds = (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded));
        let gone: Vec<_> = self.keys.range::<[u8], _>(bounds).map(|(key, _)| key.clone()).collect();
        for key in gone {
            let pending = self.keys.remove(&key).unwrap_or_default();
            spare += KEY_BYTES + key.len() as u64 + pending.bytes();
        }
        spare
    }
}
