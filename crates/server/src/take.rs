//! [`Take`]: the memory of elements that a command collects, charged before it is used; and the most that
//! one command changes, so that a copy which cannot be committed is refused before a row of it is staged.

use terracedb::memory::Charge;

use crate::reply::{Done, Fail};
use crate::unit::Unit;
use crate::value::Kind;

/// The most rows of large collections that one command changes, or all commands of an EXEC: a batch of the
/// store has at most 2^20 operations, and the rows of the keys are among them.
pub(crate) const ROWS_MAX: u64 = 1_000_000;

/// Memory for elements that are collected while the unit is read.
#[derive(Debug)]
pub(crate) struct Take {
    charge: Charge,
    bytes: u64,
    /// Of elements that will be stored.
    change: Option<Change>,
}

/// The rows that elements will be stored in.
#[derive(Debug)]
struct Change {
    /// The rows of one element.
    each: u64,
    rows: u64,
    bytes: u64,
    /// The most memory of a batch, bytes.
    bytes_max: u64,
}

/// Memory of one element beside its bytes, and of one row in a memtable, bytes.
const BESIDE: u64 = 64;

impl Take {
    pub(crate) fn new(unit: &Unit) -> Self {
        Self { charge: unit.keys.account.empty_charge(), bytes: 0, change: None }
    }

    /// For elements that become a collection of the type `kind`, at least `least` of them.
    ///
    /// # Errors
    /// `ERR the change is too large` if one command cannot change that many rows.
    pub(crate) fn to_store(unit: &Unit, kind: Kind, least: usize) -> Result<Self, Fail> {
        let each = kind.rows();
        check_rows((least as u64).saturating_mul(each))?;
        let bytes_max = unit.keys.db.resources().batch_bytes_max();
        Ok(Self { change: Some(Change { each, rows: 0, bytes: 0, bytes_max }), ..Self::new(unit) })
    }

    /// Charges an element of `bytes`.
    ///
    /// # Errors
    /// If there is no memory; that the elements are more than one command can store.
    pub(crate) fn add(&mut self, bytes: usize) -> Done {
        let bytes = bytes as u64 + BESIDE;
        if let Some(change) = &mut self.change {
            change.rows += change.each;
            check_rows(change.rows)?;
            change.bytes += change.each * bytes;
            if change.bytes > change.bytes_max {
                return Err(too_large(&terracedb::stats::format_bytes(change.bytes_max)));
            }
        }
        self.charge(bytes)
    }

    /// Charges `bytes` beside those of elements.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn charge(&mut self, bytes: u64) -> Done {
        self.bytes += bytes;
        let missing = self.bytes.saturating_sub(self.charge.bytes());
        // In steps, because most elements are short.
        let step = (self.bytes / 4).clamp(16 << 10, 1 << 20);
        match missing == 0 || self.charge.try_grow(missing + step) {
            true => Ok(()),
            false => Err(Fail::no_memory()),
        }
    }

    /// Keeps the memory charged until `unit` ends.
    pub(crate) fn keep(self, unit: &mut Unit) {
        unit.keep(self.charge);
    }
}

/// Checks that one command can change this many rows of large collections.
///
/// # Errors
/// `ERR the change is too large` if it cannot.
pub(crate) fn check_rows(rows: u64) -> Done {
    match rows <= ROWS_MAX {
        true => Ok(()),
        false => Err(too_large(&format!("{ROWS_MAX} elements"))),
    }
}

fn too_large(most: &str) -> Fail {
    Fail::new(format!("ERR the change is too large: one command stores at most {most}"))
}
