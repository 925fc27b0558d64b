//! From the versions of one key to its value: deletes, expiries and merge operands resolved.
//!
//! Every read comes here: lookups and forward walks feed the versions newest first and stop as
//! soon as the value is known, backward walks feed them oldest first. An expired version is a
//! delete (I5).
//!
//! Cost: nothing beyond the value's own for a key without operands. Operands are charged in steps
//! before they are kept (I10), and bounded.

use std::collections::VecDeque;

use base::{Charge, EntryKind, Error, Result, Trailer, expiry};
use bytes::Bytes;

use crate::ordered::Semantics;

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) bytes: Bytes,
    /// When it is gone, Unix milliseconds; zero: never.
    pub(crate) expiry: u64,
}

/// What one version says.
enum Said {
    Value(Value),
    Nothing,
    Operand(Bytes),
}

/// The versions of one key, met one by one.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    /// Now, Unix milliseconds, once it was asked for.
    now: Option<u64>,
    /// Under the operands.
    base: Option<Value>,
    operands: Option<Box<Operands>>,
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
    pub(crate) fn new(now: Option<u64>) -> Self {
        Self { now, base: None, operands: None }
    }

    /// Forgets the versions met, for the next key.
    pub(crate) fn clear(&mut self) {
        self.base = None;
        self.operands = None;
    }

    fn interpret(
        &mut self,
        semantics: &Semantics,
        trailer: Trailer,
        stored: Bytes,
    ) -> Result<Said> {
        Ok(match trailer.kind()? {
            EntryKind::Put => Said::Value(Value { bytes: stored, expiry: 0 }),
            EntryKind::Delete => Said::Nothing,
            EntryKind::PutExpiring => {
                let (expiry, value) = expiry::split(&stored)?;
                let now = *self.now.get_or_insert_with(|| semantics.timekeeper().now());
                if expiry <= now {
                    Said::Nothing
                } else {
                    Said::Value(Value { bytes: stored.slice_ref(value), expiry })
                }
            }
            EntryKind::Merge => Said::Operand(stored),
            other @ (EntryKind::PutPointer | EntryKind::DeleteRange) => {
                return Err(Error::invalid("entry kind")
                    .expected("one that this version reads; a newer TerraceDB may have written it")
                    .got(format_args!("{other:?}")));
            }
        })
    }

    /// Takes the next older version of `key`. `Some` once the value is known, if there is one.
    pub(crate) fn older(
        &mut self,
        semantics: &Semantics,
        key: &[u8],
        trailer: Trailer,
        stored: Bytes,
    ) -> Result<Option<Option<Value>>> {
        match self.interpret(semantics, trailer, stored)? {
            Said::Operand(operand) => {
                self.operands.get_or_insert_default().add(
                    semantics,
                    operand,
                    VecDeque::push_front,
                )?;
                return Ok(None);
            }
            Said::Value(value) if self.operands.is_none() => return Ok(Some(Some(value))),
            Said::Value(value) => self.base = Some(value),
            Said::Nothing => {}
        }
        self.end(semantics, key).map(Some)
    }

    /// Takes the next newer version of the key.
    pub(crate) fn newer(
        &mut self,
        semantics: &Semantics,
        trailer: Trailer,
        stored: Bytes,
    ) -> Result<()> {
        let base = match self.interpret(semantics, trailer, stored)? {
            Said::Operand(operand) => {
                let operands = self.operands.get_or_insert_default();
                return operands.add(semantics, operand, VecDeque::push_back);
            }
            Said::Value(value) => Some(value),
            Said::Nothing => None,
        };
        (self.base, self.operands) = (base, None);
        Ok(())
    }

    /// There are no more versions of `key`: its value, if it has one.
    pub(crate) fn end(&mut self, semantics: &Semantics, key: &[u8]) -> Result<Option<Value>> {
        let base = self.base.take();
        let Some(mut operands) = self.operands.take() else { return Ok(base) };
        let operator = semantics.operator()?;
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
        semantics: &Semantics,
        operand: Bytes,
        push: impl FnOnce(&mut VecDeque<Bytes>, Bytes),
    ) -> Result<()> {
        let bytes = self.bytes + OPERAND_BYTES + operand.len() as u64;
        let max = semantics.operand_bytes_max();
        if bytes > max {
            return Err(Error::invalid("merge operands of one key, bytes")
                .expected(format_args!("at most {max}, as the longest value may have"))
                .got(bytes));
        }
        let steps = bytes / CHARGE_STEP * CHARGE_STEP;
        match &mut self.charge {
            None if steps > 0 => self.charge = Some(semantics.account().charge(steps)?),
            Some(charge) if charge.bytes() < steps => charge.grow(steps - charge.bytes())?,
            _ => {}
        }
        self.bytes = bytes;
        push(&mut self.list, operand);
        Ok(())
    }
}
