//! Single hot rows: keys and values of a few hundred bytes that would each cost a page otherwise.
//!
//! [`RowCache`] is the whole of it: an index of tags ([`arena::TagBuckets`]) over a log of rows
//! (`RowLog`) that is cleaned in the order of `policy`.

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
pub use statistics::{Refusal, RowStatistics};

#[cfg(test)]
mod demotion_tests;
