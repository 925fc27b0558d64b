//! The range deletes that an open table, or a part of it, keeps in memory, with the charge for them (I10).
//!
//! A merge of a part of a table leaves the rest of the table in use. The range deletes of the merged part are
//! in the outputs then, or dropped. So the rest is copied once it is little enough
//! ([`PinnedRangeDeletes::is_worth_copying`]), and all others are given back: the range deletes of a tree
//! take at most about four thirds of the memory of those that are in use, whatever merges have done.
//!
//! Immutable, shared by reference.

use std::ops::Deref;
use std::sync::Arc;

use base::{Charge, KeyRange, Result, Seqno};
use bytes::Bytes;

use super::range_section;
use crate::bounds::Bounds;
use crate::range_deletes::RangeDeletes;

/// Range deletes in memory, with the charge for them.
#[derive(Debug, Default)]
pub struct PinnedRangeDeletes {
    deletes: RangeDeletes,
    /// `None` for no range deletes.
    charge: Option<Charge>,
}

impl PinnedRangeDeletes {
    /// The range deletes of `section`, which is empty if there are none. `charge` is for them.
    pub(crate) fn decode(section: &Bytes, mut charge: Charge) -> Result<Self> {
        if section.is_empty() {
            return Ok(Self::default());
        }
        // The keys share memory with the section.
        charge.grow(section.len() as u64)?;
        let deletes = range_section::decode(section, &mut charge)?;
        Ok(Self { deletes, charge: Some(charge) })
    }

    /// The same ranges, deleted at `seqno`.
    pub(crate) fn with_seqno(self, seqno: Seqno) -> Self {
        Self { deletes: self.deletes.with_seqno(seqno), charge: self.charge }
    }

    /// The number of fragments that delete keys of `range`.
    #[must_use]
    pub fn count_within(&self, range: &KeyRange) -> usize {
        self.positions(&range.first, range.end.as_deref()).len()
    }

    /// Whether `kept` fragments are so few of all that copies of them save memory.
    #[must_use]
    pub fn is_worth_copying(&self, kept: usize) -> bool {
        !self.is_empty() && 4 * kept <= 3 * self.len()
    }

    /// A copy of those for reads of the keys of `range`.
    #[must_use]
    pub fn copied(self: &Arc<Self>, range: &KeyRange) -> Arc<Self> {
        let Some(charge) = self.charge.as_ref() else { return Arc::clone(self) };
        let clipped = self.clipped(&Bounds::from(range));
        if clipped.is_empty() {
            return Arc::default();
        }
        // Lent: the copied ones are given back once no reader uses them.
        match charge.account().lending().charge(clipped.bytes() as u64) {
            Ok(charge) => Arc::new(Self { deletes: clipped.rehomed(), charge: Some(charge) }),
            Err(_) => Arc::clone(self),
        }
    }

    /// Memory that is charged, bytes.
    #[must_use]
    pub fn charged_bytes(&self) -> u64 {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }
}

impl Deref for PinnedRangeDeletes {
    type Target = RangeDeletes;

    fn deref(&self) -> &RangeDeletes {
        &self.deletes
    }
}

#[cfg(test)]
mod tests {
    use base::Account;

    use super::*;
    use crate::range_deletes::RangeDelete;

    fn key(number: u32) -> Bytes {
        Bytes::from(format!("key{number:04}"))
    }

    fn pinned(account: &Account, count: u32) -> Arc<PinnedRangeDeletes> {
        let delete = |number| {
            let (start, end) = (key(2 * number), key(2 * number + 1 + number % 2));
            RangeDelete { start, end, seqno: Seqno::new(u64::from(number) + 1) }
        };
        let deletes = RangeDeletes::build((0..count).map(delete));
        let charge = Some(account.charge(deletes.bytes() as u64).unwrap());
        Arc::new(PinnedRangeDeletes { deletes, charge })
    }

    #[test] // I10
    fn a_copy_of_a_part_gives_back_the_memory_of_the_rest() {
        let budget = base::Budget::new(1 << 20);
        let account = budget.account("test");
        let all = pinned(&account, 1000);
        let range = |from, to| KeyRange { first: key(from), end: Some(key(to)) };
        assert_eq!(all.count_within(&range(100, 500)), 200);
        assert!(all.is_worth_copying(750) && !all.is_worth_copying(751));
        assert!(!PinnedRangeDeletes::default().is_worth_copying(0));
        let part = all.copied(&range(101, 401));
        for number in 101..401 {
            let newest = |it: &RangeDeletes| it.newest_covering(&key(number), Seqno::MAX);
            assert_eq!(newest(&part), newest(&all), "{number}");
        }
        assert_eq!(part.newest_covering(&key(600), Seqno::MAX), None);
        assert_eq!(account.used(), all.charged_bytes() + part.charged_bytes());
        drop(all);
        assert_eq!(account.used(), part.charged_bytes());
        assert!((part.bytes() as u64..200 * 200).contains(&account.used()), "{}", account.used());
        let none = part.copied(&range(900, 950));
        drop(part);
        assert_eq!((none.len(), account.used()), (0, 0));
    }
}
