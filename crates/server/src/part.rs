//! The rows of large collections.

use std::ops::ControlFlow;

use crate::reply::Fail;
use crate::unit::Unit;
use crate::value::Value;

impl Unit {
    /// The bytes of a value and its key as stored, about: the rows of a large collection are averaged over
    /// a hundred.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn stored_bytes(&self, key: &[u8], value: &Value) -> Result<usize, Fail> {
        let own = key.len() + value.bytes.len() + 10;
        let Some(head) = value.head()? else { return Ok(own) };
        let database = key.first().copied().unwrap_or(0);
        let (from, to) = part_range(database, head.id);
        let (mut rows, mut bytes) = (0_usize, 0);
        self.walk(&from, &to, false, |row, element| {
            rows += 1;
            bytes += row.len() + element.len();
            Ok(if rows < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        let count = head.count.saturating_mul(value.kind.rows());
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Ok(own + bytes.saturating_mul(count) / rows.max(1))
    }
}

/// A row of a large collection as stored: the database, the number of the collection, the element.
pub(crate) fn part_row(database: u8, id: u64, element: &[u8]) -> Vec<u8> {
    [&[database], &id.to_be_bytes()[..], element].concat()
}

/// The rows of a large collection: the first possible one, and the first behind them.
pub(crate) fn part_range(database: u8, id: u64) -> (Vec<u8>, Vec<u8>) {
    (part_row(database, id, &[]), part_row(database, id.saturating_add(1), &[]))
}

/// The database and the number of the collection of a row.
pub(crate) fn owner(row: &[u8]) -> Option<(u8, u64)> {
    let (database, rest) = row.split_first()?;
    Some((*database, u64::from_be_bytes(*rest.first_chunk::<8>()?)))
}
