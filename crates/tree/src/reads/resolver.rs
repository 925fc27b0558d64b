//! From the versions of one key to its value: deletes, expiries and merge operands resolved.
//!
//! Every read comes here: lookups and forward walks feed the versions newest first and stop as
//! soon as the value is known, backward walks feed them oldest first. An expired version is a
//! delete (I5). A value that lies apart is read once it is known to count, and only then.
//!
//! Cost: nothing beyond the value's own for a key without operands. Operands are charged in steps
//! before they are kept (I10), and bounded.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Charge, EntryKind, Error, Result, Trailer, expiry};
use bytes::Bytes;
use table::{Pointer, ValueRead};

use crate::{ReadContext, TableFile};

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub bytes: Bytes,
    /// When it is gone, Unix milliseconds; zero: never.
    pub expiry: u64,
}

/// What the versions of a key come to.
pub(super) enum Resolution {
    /// Its value, if it has one.
    Value(Option<Value>),
    /// That which this read ends with, handed to [`Resolver::fetched`].
    Separated(Box<ValueRead>),
}

/// A value under operands, or without any.
#[derive(Debug)]
enum Base {
    Inline(Value),
    /// In a value file of the table.
    Separated(Pointer, Arc<TableFile>),
    /// Being read; with its expiry.
    Fetching(u64),
}

/// What one version says.
enum Decoded {
    Value(Base),
    Tombstone,
    Operand(Bytes),
}

/// The versions of one key, met one by one.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    /// Now, Unix milliseconds, once it was asked for.
    now: Option<u64>,
    /// Under the operands.
    base: Option<Base>,
    operands: Option<Box<Operands>>,
    /// Why operands are too many, where versions are met oldest first: a newer one may say all by itself.
    refused: Option<Error>,
}

/// Operands of one key.
#[derive(Debug, Default)]
struct Operands {
    /// Oldest first.
    list: VecDeque<Bytes>,
    /// What they take, and what of it is charged.
    bytes: u64,
    charge: Option<Charge>,
}

/// What an operand takes beside its bytes.
const OPERAND_BYTES: u64 = size_of::<Bytes>() as u64;

/// Operands are charged in steps of this, bytes; the first step is covered by the fixed overhead.
const CHARGE_STEP: u64 = 64 << 10;

impl Resolver {
    /// For a read at the time `now`, Unix milliseconds; none: the time at which it first matters.
    pub(super) fn new(now: Option<u64>) -> Self {
        Self { now, base: None, operands: None, refused: None }
    }

    /// Forgets the versions met, for the next key.
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

    /// Takes the next older version of `key`, stored in `file` where that is a table. `Some` once
    /// the value is known, if there is one.
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

    /// Takes the next newer version of the key, stored in `file` where that is a table.
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

    /// There are no more versions of `key`: its value, if it has one.
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
                return Err(Error::invalid("value").expected("its read's end"));
            }
        };
        self.merge(read_context, key, base).map(Resolution::Value)
    }

    /// Takes what the read of the value that lies apart ended with: the value of `key`.
    pub(super) fn fetched(
        &mut self,
        read_context: &ReadContext,
        key: &[u8],
        bytes: Bytes,
    ) -> Result<Option<Value>> {
        let Some(Base::Fetching(expiry)) = self.base.take() else {
            return Err(Error::invalid("value").expected("one that was asked for"));
        };
        self.merge(read_context, key, Some(Value { bytes, expiry }))
    }

    /// The operands' value over `base`.
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
        // Where the value under them expires, the operands stand, over nothing.
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
        let steps = bytes / CHARGE_STEP * CHARGE_STEP;
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
