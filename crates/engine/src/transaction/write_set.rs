//! The write set of a transaction: its uncommitted writes, combined by key.
//!
//! The transaction's own reads search it first. At commit it becomes one batch: range deletes first, then
//! the later writes of every key. Iterators keep the set that they were made over: the set is shared, and the
//! next write copies it.
//!
//! Memory is charged before it is allocated (I10), and bounded by the memory limit of a batch.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base::{Account, Charge, Error, Result, Write, broken_invariant, format_bytes, invariant};
use bytes::Bytes;
use tree::{DeletedRanges, Tree};

use super::empty_spans::EmptySpans;
use super::key_set::{KeySet, KeySpan};
use super::read_set::Side;
use crate::EncodedBatch;

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
    /// Range deletes. They are older than every write in `keys`.
    deleted: KeySet,
    keys: BTreeMap<Bytes, Pending>,
    /// Where the transaction sees no value.
    empty: EmptySpans,
}

/// The pending writes of a key: a value or a delete if there was one, then merge operands.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    base: Option<Base>,
    /// Operands after `base`, oldest first.
    operands: Vec<Bytes>,
}

#[derive(Clone, Debug)]
enum Base {
    Delete,
    Put(Bytes),
    PutExpiring { expiry: u64, value: Bytes },
}

impl Pending {
    /// Charged bytes of values and operands.
    fn bytes(&self) -> u64 {
        let base = match &self.base {
            None | Some(Base::Delete) => 0,
            Some(Base::Put(value) | Base::PutExpiring { value, .. }) => value.len(),
        };
        let operands = self.operands.iter().map(|operand| OPERAND_BYTES + operand.len() as u64);
        base as u64 + operands.sum::<u64>()
    }

    /// Whether the key's value depends on the stored value.
    #[must_use]
    pub fn needs_stored(&self) -> bool {
        self.base.is_none()
    }

    /// The value of `key` after these writes to the stored value `stored`.
    ///
    /// # Errors
    /// `Invalid` if the keyspace's merge operator refuses the operands.
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

    /// The operations to log, oldest first.
    fn ops(&self) -> impl Iterator<Item = Write<'_>> {
        let base = self.base.as_ref().map(|base| match base {
            Base::Delete => Write::Delete,
            Base::Put(value) => Write::Put(value),
            Base::PutExpiring { expiry, value } => Write::PutExpiring { expiry: *expiry, value },
        });
        base.into_iter().chain(self.operands.iter().map(|operand| Write::Merge(operand)))
    }
}

/// Memory of a key beyond its bytes and its value's, bytes: handles, map nodes that may be half full, and
/// allocations.
const KEY_BYTES: u64 = 288;

/// Memory of an operand beyond its bytes.
const OPERAND_BYTES: u64 = 96;

impl WriteSet {
    /// An empty set that may charge up to `bytes_max` to `account`.
    #[must_use]
    pub fn new(account: &Account, bytes_max: u64) -> Self {
        let charge = account.empty_charge();
        Self { keyspaces: Vec::new(), len: 0, charge, account: account.clone(), bytes_max }
    }

    /// A copy with a charge of its own.
    ///
    /// # Errors
    /// `Retry` if memory is short.
    pub fn try_clone(&self) -> Result<Self> {
        let charge = self.account.charge(self.charge.bytes())?;
        let (keyspaces, account) = (self.keyspaces.clone(), self.account.clone());
        Ok(Self { keyspaces, len: self.len, charge, account, bytes_max: self.bytes_max })
    }

    /// The number of keys with pending writes, range deletes not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keyspaces.is_empty()
    }

    /// Adds a write to `key`, or a range delete that starts at `key`.
    ///
    /// # Errors
    /// `Invalid` if the set would exceed the memory limit of a batch, `Retry` if memory is short. The set is
    /// unchanged then.
    pub fn write(&mut self, tree: &Arc<Tree>, key: &[u8], write: Write<'_>) -> Result<()> {
        let mut bytes = KEY_BYTES + OPERAND_BYTES + (key.len() + write.stored_bytes()) as u64;
        if let Write::DeleteRange { .. } = write {
            // The commit's memtable needs it: a set that is accepted fits there.
            bytes += DeletedRanges::reserved_bytes(1, 0);
        }
        let taken = self.charge.bytes() + bytes;
        if taken > self.bytes_max {
            return Err(Error::invalid("transaction's write set")
                .expected(format_args!(
                    "at most {}, a share of the memory limit",
                    format_bytes(self.bytes_max)
                ))
                .got(format_bytes(taken)));
        }
        self.charge.grow(bytes)?;
        let number = self.number_of(tree).unwrap_or_else(|| {
            self.keyspaces.push((Arc::clone(tree), Writes::default()));
            self.keyspaces.len() - 1
        });
        let writes = self.keyspaces.get_mut(number).map(|(_, writes)| writes);
        let writes =
            writes.ok_or_else(|| broken_invariant!("a write's keyspace is in the write set"))?;
        let before = writes.keys.len();
        let spare = writes.add(key, write)?;
        self.len = self.len + writes.keys.len() - before;
        invariant!(spare <= self.charge.bytes(), "a write gives back less than was charged");
        self.charge.shrink_to(self.charge.bytes() - spare);
        Ok(())
    }

    fn number_of(&self, tree: &Arc<Tree>) -> Option<usize> {
        self.keyspaces.iter().position(|(known, _)| Arc::ptr_eq(known, tree))
    }

    fn writes(&self, tree: &Arc<Tree>) -> Option<&Writes> {
        self.keyspaces.get(self.number_of(tree)?).map(|(_, writes)| writes)
    }

    /// The pending writes of `key`.
    #[must_use]
    pub fn get(&self, tree: &Arc<Tree>, key: &[u8]) -> Option<&Pending> {
        self.writes(tree)?.keys.get(key)
    }

    /// Whether a range delete of the set hides the stored value of `key`.
    #[must_use]
    pub fn hides(&self, tree: &Arc<Tree>, key: &[u8]) -> bool {
        self.writes(tree).is_some_and(|writes| writes.deleted.contains(key))
    }

    /// The first key in `range` with pending writes.
    #[must_use]
    pub fn first(&self, tree: &Arc<Tree>, range: KeySpan<'_>) -> Option<(&Bytes, &Pending)> {
        self.within(tree, range)?.next()
    }

    /// The last key in `range` with pending writes.
    #[must_use]
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

    /// How far an iterator that is about to step from `side` of `range` may jump, as [`EmptySpans::jump`].
    pub(super) fn jump(
        &self,
        tree: &Arc<Tree>,
        side: Side,
        range: KeySpan<'_>,
    ) -> Option<Option<Vec<u8>>> {
        self.writes(tree)?.empty.jump(side, range)
    }

    /// Notes that an iterator over these writes found no value in `range`.
    pub(super) fn note_empty(&self, tree: &Arc<Tree>, range: KeySpan<'_>) {
        if let Some(writes) = self.writes(tree) {
            writes.empty.note(range, &self.account);
        }
    }

    /// The most bytes of the batch of all writes.
    fn encoded_bytes_max(&self) -> usize {
        self.keyspaces.iter().map(|(_, writes)| writes.encoded_bytes_max()).sum()
    }

    /// The batch of all writes, and the charge for its memory. A caller drops the set before it commits the
    /// batch, so that memtables have room for it.
    ///
    /// # Errors
    /// `Retry` if memory is short; those of [`EncodedBatch::push`].
    pub fn to_batch(&self) -> Result<(EncodedBatch, Charge)> {
        let bytes = self.encoded_bytes_max();
        invariant!(bytes as u64 <= self.charge.bytes(), "a write is encoded within its charge");
        let charge = self.account.charge(bytes as u64)?;
        let mut batch = EncodedBatch::with_capacity(bytes);
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
    /// The most bytes of these writes in a batch.
    fn encoded_bytes_max(&self) -> usize {
        let ranges = self.deleted.iter().map(|KeySpan { start, end }| {
            Write::DeleteRange { end: end.unwrap_or_default() }.encoded_bytes_max(start.len())
        });
        let of_key = |(key, pending): (&Bytes, &Pending)| {
            pending.ops().map(|write| write.encoded_bytes_max(key.len())).sum::<usize>()
        };
        ranges.sum::<usize>() + self.keys.iter().map(of_key).sum::<usize>()
    }

    /// Adds a write that was charged in full. Returns the bytes of all charges that are no longer needed.
    fn add(&mut self, key: &[u8], write: Write<'_>) -> Result<u64> {
        let base = match write {
            Write::DeleteRange { end } => return self.delete_range(key, end),
            Write::Merge(_) => None,
            Write::Delete => Some(Base::Delete),
            Write::Put(value) => Some(Base::Put(Bytes::copy_from_slice(value))),
            Write::PutExpiring { expiry, value } => {
                Some(Base::PutExpiring { expiry, value: Bytes::copy_from_slice(value) })
            }
        };
        if !matches!(write, Write::Delete) {
            self.empty.written(key);
        }
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
        Ok(spare)
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) -> Result<u64> {
        let end = (!end.is_empty()).then_some(end);
        self.deleted.insert(KeySpan { start, end });
        let mut spare = 0;
        let bounds = (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded));
        let deleted: Vec<_> =
            self.keys.range::<[u8], _>(bounds).map(|(key, _)| key.clone()).collect();
        for key in deleted {
            let pending = self.keys.remove(&key);
            let pending = pending.ok_or_else(|| broken_invariant!("a listed key is in the map"))?;
            spare += KEY_BYTES + key.len() as u64 + pending.bytes();
        }
        Ok(spare)
    }
}
