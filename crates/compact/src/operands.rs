//! Merge operands that wait for what lies under them.
//!
//! Operands of one key come newest first and are merged oldest first, so they are copied and wait.
//! The wait is bounded and charged (I10): operands that do not fit go on unmerged, which loses
//! nothing. What they took is given back before their result goes on: writing that takes memory, too.

use std::panic::{AssertUnwindSafe, catch_unwind};

use base::limits::VALUE_BYTES_MAX;
use base::{Account, Charge, Result, Trailer};

use crate::MergeOperator;

/// What operands that wait come to at most, bytes. They are charged twice that, which a flush must have
/// beside the buffers of its writers.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// What one of them takes besides its bytes: itself, and its slice when it is merged.
const OPERAND_BYTES: usize = size_of::<(Trailer, usize)>() + size_of::<&[u8]>();

/// The charge grows in steps of this; up to one of them is kept for the next key.
const STEP_BYTES: u64 = 64 << 10;

/// The operands of one key that the same readers see, newest first.
#[derive(Debug)]
pub(super) struct Operands {
    /// Each operand's trailer, and where its bytes end.
    ends: Vec<(Trailer, usize)>,
    bytes: Vec<u8>,
    charge: Charge,
}

impl Operands {
    pub(super) fn new(account: &Account) -> Result<Self> {
        Ok(Self { ends: Vec::new(), bytes: Vec::new(), charge: account.charge(0)? })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) const fn count(&self) -> usize {
        self.ends.len()
    }

    /// The newest operand's trailer.
    pub(super) fn newest(&self) -> Option<Trailer> {
        self.ends.first().map(|(trailer, _)| *trailer)
    }

    /// Takes in the next older operand. False where there is no room or no memory for it.
    pub(super) fn push(&mut self, trailer: Trailer, operand: &[u8]) -> bool {
        let bytes = self.bytes.len() + operand.len() + (self.ends.len() + 1) * OPERAND_BYTES;
        if bytes > WAITING_BYTES_MAX {
            return false;
        }
        // Twice the bytes: vectors double as they grow.
        let needed = 2 * bytes as u64;
        if let Some(more) = needed.checked_sub(self.charge.bytes()).filter(|more| *more > 0)
            && self.charge.grow(more.max(STEP_BYTES)).is_err()
        {
            return false;
        }
        self.bytes.extend_from_slice(operand);
        self.ends.push((trailer, self.bytes.len()));
        true
    }

    /// Forgets them all. Where they took much, that is given back but for `left` bytes.
    pub(super) fn clear(&mut self, left: usize) {
        self.ends.clear();
        self.bytes.clear();
        if self.charge.bytes() > STEP_BYTES {
            (self.ends, self.bytes) = (Vec::new(), Vec::new());
            self.charge.shrink_to(left as u64);
        }
    }

    /// Each operand, newest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (Trailer, &[u8])> {
        let start_of = |index: usize| match index.checked_sub(1).and_then(|it| self.ends.get(it)) {
            Some((_, end)) => *end,
            None => 0,
        };
        self.ends.iter().enumerate().map(move |(index, (trailer, end))| {
            (*trailer, self.bytes.get(start_of(index)..*end).unwrap_or_default())
        })
    }

    /// The value that the operands make of `base`; `None` where they do not fit.
    pub(super) fn merge(
        &self,
        operator: &dyn MergeOperator,
        key: &[u8],
        base: Option<&[u8]>,
    ) -> Option<Vec<u8>> {
        self.call(|operands| operator.merge(key, base, operands))
    }

    /// One operand in place of all; `None` where there is none.
    pub(super) fn combine(&self, operator: &dyn MergeOperator, key: &[u8]) -> Option<Vec<u8>> {
        if self.ends.len() < 2 {
            return None;
        }
        self.call(|operands| operator.combine(key, operands))
    }

    /// Calls the user's code. A panic there is as good as an operator that cannot: nothing is lost,
    /// and neither the job nor the store goes down with it.
    fn call(&self, of: impl FnOnce(&[&[u8]]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        let operands: Vec<&[u8]> = self.iter().rev().map(|(_, operand)| operand).collect();
        let made = catch_unwind(AssertUnwindSafe(|| of(&operands))).ok().flatten();
        made.filter(|value| value.len() <= VALUE_BYTES_MAX)
    }
}
