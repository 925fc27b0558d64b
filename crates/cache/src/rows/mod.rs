//! Cached rows: single hot keys with values of a few hundred bytes, each of which would cost a page of DRAM
//! otherwise.
//!
//! [`RowCache`] is the entry point: an index of hash tags ([`arena::TagBuckets`]) over a log of rows
//! (`RowLog`) that evicts by `policy`.

mod evicted_rows;
mod ghost;
mod log;
mod owner;
pub mod policy;
mod row;
mod row_cache;
mod segments;
mod statistics;

pub use ghost::Ghost;
pub use owner::RowOwner;
pub(crate) use row::RowRef;
pub use row::{ROW_BYTES_MAX, Row, RowFrom, RowHit, row_bytes};
pub use row_cache::{RowCache, Vacancy};
pub use statistics::{Refusal, RowRefusals, RowStatistics};

#[cfg(test)]
mod demotion_tests;
