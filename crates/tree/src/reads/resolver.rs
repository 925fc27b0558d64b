//! Resolves the versions of one key to its value: tombstones, expiries and merge operands.
//!
//! Every read uses it. Lookups and forward walks add the versions newest first and stop as soon as the value
//! is known; backward walks add them oldest first. An expired version counts as a tombstone (I5). A separated
//! value is read only after it is known to be part of the result.
//!
//! Cost: nothing beyond the value itself for a key without operands. Operands are charged in steps before
//! they are kept (I10), and bounded.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Charge, EntryKind, Error, Result, Trailer, broken_invariant, expiry};
use bytes::Bytes;
use table::{CHARGED_BYTES_MIN, Pointer, ValueRead};

use crate::{ReadContext, TableFile};

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value's bytes.
    pub bytes: Bytes,
    /// When it expires, Unix milliseconds; 0: never.
    pub expiry: u64,
}

/// The result for one key.
pub(super) enum Resolution {
    /// The key's value, if it has one.
    Value(Option<Value>),
    /// The value must be read from a value file; the read's result goes to [`Resolver::fetched`].
    Separated(Box<ValueRead>),
}

/// The value below the operands, or the whole value.
#[derive(Debug)]
enum Base {
    Inline(Value),
    /// In a value file of the table.
    Separated(Pointer, Arc<TableFile>),
    /// Being read; with its expiry, Unix milliseconds.
    Fetching(u64),
}

/// A decoded version. A deleted or expired one is a tombstone.
enum Decoded {
    Value(Base),
    Tombstone,
    Operand(Bytes),
}

/// Collects the versions of one key, one at a time.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    /// The time that expiries are compared with, Unix milliseconds; `None` until it is needed.
    now: Option<u64>,
    /// The value below the operands.
    base: Option<Base>,
    operands: Option<Box<Operands>>,
    /// The error of too many operands, when the oldest version comes first. A newer put or delete replaces
    /// all operands, and the error with them.
    refused: Option<Error>,
}

/// The merge operands of one key.
#[derive(Debug, Default)]
struct Operands {
    /// Oldest first.
    list: VecDeque<Bytes>,
    /// Memory of the operands, bytes.
    bytes: u64,
    /// The part of `bytes` that `charge` covers.
    short_bytes: u64,
    charge: Option<Charge>,
}

/// Memory of an operand besides its bytes.
const OPERAND_BYTES: u64 = size_of::<Bytes>() as u64;

/// Operands are charged in steps of this many bytes. The fixed overhead of a read covers the first step.
const CHARGE_STEP: u64 = 64 << 10;

impl Resolver {
    /// For a read at the time `now`, Unix milliseconds; `None` means the time when it is first needed.
    pub(super) fn new(now: Option<u64>) -> Self {
        Self { now, base: None, operands: None, refused: None }
    }

    /// Forgets all versions, for the next key.
    pub(super) fn clear(&mut self) {
        (self.base, self.operands, self.refused) = (None, None, None);
    }

    fn decode(
        &mut self,
        read_context: &ReadContext,
        trailer: Trailer,
        stored: Bytes,
        file: Option<&Arc<TableFile>>,
    ) -> Result<Decoded> {
        Ok(match trailer.kind()? {
            EntryKind::Put => Decoded::Value(Base::Inline(Value { bytes: stored, expiry: 0 })),
            EntryKind::Delete => Decoded::Tombstone,
            EntryKind::PutExpiring => {
                let (expiry, value) = expiry::split(&stored)?;
                if self.is_expired(read_context, expiry) {
                    Decoded::Tombstone
                } else {
                    Decoded::Value(Base::Inline(Value { bytes: stored.slice_ref(value), expiry }))
                }
            }
            EntryKind::PutPointer => {
                let pointer = Pointer::decode(&stored)?;
                let file = file.ok_or_else(|| {
                    Error::corrupt("entry kind").expected("no pointer outside a table")
                })?;
                if pointer.expiry > 0 && self.is_expired(read_context, pointer.expiry) {
                    Decoded::Tombstone
                } else {
                    Decoded::Value(Base::Separated(pointer, Arc::clone(file)))
                }
            }
            EntryKind::Merge => Decoded::Operand(stored),
            EntryKind::DeleteRange => {
                return Err(Error::corrupt("entry kind").got("a range delete among versions"));
            }
        })
    }

    fn is_expired(&mut self, read_context: &ReadContext, expiry: u64) -> bool {
        expiry <= *self.now.get_or_insert_with(|| read_context.timekeeper().now())
    }

    /// Adds the next older version of `key`, stored in `file` if it is in a table. `Some` once the result is
    /// known.
    pub(super) fn older(
        &mut self,
        read_context: &ReadContext,
        key: &[u8],
        trailer: Trailer,
        stored: Bytes,
        file: Option<&Arc<TableFile>>,
    ) -> Result<Option<Resolution>> {
        match self.decode(read_context, trailer, stored, file)? {
            Decoded::Operand(operand) => {
                self.operands.get_or_insert_default().add(
                    read_context,
                    operand,
                    VecDeque::push_front,
                )?;
                return Ok(None);
            }
            Decoded::Value(Base::Inline(value)) if self.operands.is_none() => {
                return Ok(Some(Resolution::Value(Some(value))));
            }
            Decoded::Value(value) => self.base = Some(value),
            Decoded::Tombstone => {}
        }
        self.end(read_context, key).map(Some)
    }

    /// Adds the next newer version of the key, stored in `file` if it is in a table.
    pub(super) fn newer(
        &mut self,
        read_context: &ReadContext,
        trailer: Trailer,
        stored: Bytes,
        file: Option<&Arc<TableFile>>,
    ) -> Result<()> {
        let base = match self.decode(read_context, trailer, stored, file)? {
            Decoded::Operand(_) if self.refused.is_some() => return Ok(()),
            Decoded::Operand(operand) => {
                let operands = self.operands.get_or_insert_default();
                if let Err(error) = operands.add(read_context, operand, VecDeque::push_back) {
                    (self.operands, self.refused) = (None, Some(error));
                }
                return Ok(());
            }
            Decoded::Value(value) => Some(value),
            Decoded::Tombstone => None,
        };
        (self.base, self.operands, self.refused) = (base, None, None);
        Ok(())
    }

    /// The result, after all versions of `key` were added.
    pub(super) fn end(&mut self, read_context: &ReadContext, key: &[u8]) -> Result<Resolution> {
        if let Some(error) = self.refused.take() {
            self.clear();
            return Err(error);
        }
        let base = match self.base.take() {
            None => None,
            Some(Base::Inline(value)) => Some(value),
            Some(Base::Separated(pointer, file)) => {
                let read = file.read_value(pointer)?;
                self.base = Some(Base::Fetching(pointer.expiry));
                return Ok(Resolution::Separated(Box::new(read)));
            }
            Some(Base::Fetching(_)) => {
                return Err(broken_invariant!("a key ends before its separated value is read"));
            }
        };
        self.merge(read_context, key, base).map(Resolution::Value)
    }

    /// The value of `key`, after its separated value was read.
    pub(super) fn fetched(
        &mut self,
        read_context: &ReadContext,
        key: &[u8],
        bytes: Bytes,
    ) -> Result<Option<Value>> {
        let Some(Base::Fetching(expiry)) = self.base.take() else {
            return Err(broken_invariant!("a separated value that was read was asked for"));
        };
        self.merge(read_context, key, Some(Value { bytes, expiry }))
    }

    /// Applies the operands to `base`.
    fn merge(
        &mut self,
        read_context: &ReadContext,
        key: &[u8],
        base: Option<Value>,
    ) -> Result<Option<Value>> {
        let Some(mut operands) = self.operands.take() else { return Ok(base) };
        let operator = read_context.operator()?;
        let list: Vec<&[u8]> = operands.list.make_contiguous().iter().map(|op| &**op).collect();
        let under = base.as_ref().map(|base| &*base.bytes);
        let merged = operator.merge(key, under, &list).ok_or_else(|| {
            Error::invalid("merge operands")
                .at(format_args!("key `{}`", key.escape_ascii()))
                .expected(format_args!("operands that `{}` can merge", operator.name()))
        })?;
        // When the base value expires, the operands remain, without a base.
        Ok(Some(Value { bytes: merged.into(), expiry: 0 }))
    }
}

impl Operands {
    fn add(
        &mut self,
        read_context: &ReadContext,
        operand: Bytes,
        push: impl FnOnce(&mut VecDeque<Bytes>, Bytes),
    ) -> Result<()> {
        let bytes = self.bytes + OPERAND_BYTES + operand.len() as u64;
        let max = read_context.operand_bytes_max();
        if bytes > max {
            return Err(Error::invalid("merge operands of one key, bytes")
                .expected(format_args!("at most {max}, as the longest value may have"))
                .got(bytes));
        }
        // A long one in a table has the charge of its block, and one in a memtable that of the memtable.
        if operand.len() <= CHARGED_BYTES_MIN {
            self.short_bytes += OPERAND_BYTES + operand.len() as u64;
        }
        let steps = self.short_bytes / CHARGE_STEP * CHARGE_STEP;
        match &mut self.charge {
            None if steps > 0 => self.charge = Some(read_context.account().charge(steps)?),
            Some(charge) if charge.bytes() < steps => charge.grow(steps - charge.bytes())?,
            _ => {}
        }
        self.bytes = bytes;
        push(&mut self.list, operand);
        Ok(())
    }
}
