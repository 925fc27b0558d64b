//! Merge operands of one key that are held until the version below them is known.
//!
//! Operands arrive newest first and are merged oldest first, so they are copied and held. The copies are
//! bounded and charged (I10). Operands past the bound are emitted unmerged, which loses nothing. Their memory
//! is released before the result is written, because the writer needs memory too.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use base::{Account, Charge, Result, Trailer, invariant};

use crate::MergeOperator;

/// Most bytes of held operands. Twice that is charged; a flush must have it beside its writers' buffers.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Operands are combined to one of at most this many bytes. A merge has the current entry of each input in
/// memory, and operands are never separated from their keys.
const COMBINED_BYTES_MAX: usize = 32 << 10;

/// Bytes that an operand needs besides its value: its trailer and end, and its slice when it is merged.
const OPERAND_BYTES: usize = size_of::<(Trailer, usize)>() + size_of::<&[u8]>();

/// The charge grows in steps of this many bytes; one step is kept for the next key.
const STEP_BYTES: u64 = 64 << 10;

/// The held operands of one key, newest first. The same reads see all of them.
#[derive(Debug)]
pub(super) struct Operands {
    /// The trailer of each operand and the end of its value in `bytes`.
    ends: Vec<(Trailer, usize)>,
    bytes: Vec<u8>,
    charge: Charge,
    account: Account,
    value_bytes_max: usize,
}

impl Operands {
    /// Operands that are merged to values of at most `value_bytes_max`.
    pub(super) fn new(account: &Account, value_bytes_max: usize) -> Result<Self> {
        let (charge, account) = (account.charge(0)?, account.clone());
        Ok(Self { ends: Vec::new(), bytes: Vec::new(), charge, account, value_bytes_max })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) const fn count(&self) -> usize {
        self.ends.len()
    }

    /// The trailer of the newest operand.
    pub(super) fn newest(&self) -> Option<Trailer> {
        self.ends.first().map(|(trailer, _)| *trailer)
    }

    /// Holds the next older operand. False if it exceeds the bound or memory is short.
    pub(super) fn push(&mut self, trailer: Trailer, operand: &[u8]) -> bool {
        let bytes = self.bytes.len() + operand.len() + (self.ends.len() + 1) * OPERAND_BYTES;
        if bytes > WAITING_BYTES_MAX {
            return false;
        }
        // Twice the bytes, because vectors double when they grow.
        let needed = 2 * bytes as u64;
        if let Some(more) = needed.checked_sub(self.charge.bytes()).filter(|more| *more > 0)
            && self.charge.grow(more.max(STEP_BYTES)).is_err()
        {
            return false;
        }
        invariant!(self.charge.bytes() >= needed, "held operands are charged");
        self.bytes.extend_from_slice(operand);
        self.ends.push((trailer, self.bytes.len()));
        true
    }

    /// Drops all operands. If their charge exceeds one step, it shrinks to `left` bytes, the length of the
    /// merged result.
    pub(super) fn clear(&mut self, left: usize) {
        self.ends.clear();
        self.bytes.clear();
        if self.charge.bytes() > STEP_BYTES {
            (self.ends, self.bytes) = (Vec::new(), Vec::new());
            self.charge.shrink_to(left as u64);
        }
    }

    /// The operands, newest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (Trailer, &[u8])> {
        let start_of = |index: usize| match index.checked_sub(1).and_then(|it| self.ends.get(it)) {
            Some((_, end)) => *end,
            None => 0,
        };
        self.ends.iter().enumerate().map(move |(index, (trailer, end))| {
            let operand = self.bytes.get(start_of(index)..*end);
            invariant!(operand.is_some(), "every held operand has its bytes");
            (*trailer, operand.unwrap_or_default())
        })
    }

    /// The operator's value for `base` and all operands; `None` if the operator refuses them, the value is
    /// too long, or memory for a long one is short.
    pub(super) fn merge(
        &self,
        operator: &dyn MergeOperator,
        key: &[u8],
        base: Option<&[u8]>,
    ) -> Option<Vec<u8>> {
        // A value is about as long as its parts, and the charge of the operands covers a short one.
        let bytes = base.map_or(0, <[u8]>::len) + self.bytes.len();
        let _charge = match bytes > self.bytes.len() + STEP_BYTES as usize {
            true => Some(self.account.try_charge(bytes as u64)?),
            false => None,
        };
        let operands = self.iter().map(|(_, operand)| operand);
        Self::call(operands, self.value_bytes_max, |all| operator.merge(key, base, all))
    }

    /// One operand that replaces all of them; `None` if there are fewer than two, the operator cannot combine
    /// them, or the operand is too long.
    pub(super) fn combine(&self, operator: &dyn MergeOperator, key: &[u8]) -> Option<Vec<u8>> {
        if self.ends.len() < 2 {
            return None;
        }
        let operands = self.iter().map(|(_, operand)| operand);
        Self::call(operands, COMBINED_BYTES_MAX, |all| operator.combine(key, all))
    }

    /// The fewest operands that replace all of them, newest first, and how many each replaces: neighbours are
    /// combined as long as the operator can and the result is short.
    pub(super) fn combined_parts(
        &self,
        operator: &dyn MergeOperator,
        key: &[u8],
    ) -> impl Iterator<Item = (Trailer, Cow<'_, [u8]>, usize)> {
        let mut rest: Vec<(Trailer, &[u8])> = self.iter().rev().collect();
        std::iter::from_fn(move || {
            let (newest, first) = *rest.last()?;
            let mut bytes = 0;
            let fits = |(_, operand): &&(Trailer, &[u8])| {
                bytes += operand.len();
                bytes <= COMBINED_BYTES_MAX
            };
            let count = rest.iter().rev().take_while(fits).count();
            let part = rest.iter().rev().take(count).map(|(_, operand)| *operand);
            let combined = match count {
                0 | 1 => None,
                _ => Self::call(part, COMBINED_BYTES_MAX, |all| operator.combine(key, all)),
            };
            let (value, count) = match combined {
                Some(value) => (Cow::Owned(value), count),
                None => (Cow::Borrowed(first), 1),
            };
            rest.truncate(rest.len() - count);
            Some((newest, value, count))
        })
    }

    /// Calls the user's operator with `operands`, given newest first. A panic counts as a refusal, and so
    /// does a result of more than `most` bytes: the operands are kept unmerged, and neither the job nor the
    /// store fails.
    fn call<'a>(
        operands: impl Iterator<Item = &'a [u8]>,
        most: usize,
        of: impl FnOnce(&[&[u8]]) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let mut operands: Vec<&[u8]> = operands.collect();
        operands.reverse();
        let made = catch_unwind(AssertUnwindSafe(|| of(&operands))).ok().flatten();
        made.filter(|value| value.len() <= most)
    }
}
