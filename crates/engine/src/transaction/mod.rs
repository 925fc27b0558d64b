//! The state of optimistic transactions, and their commit.
//!
//! A transaction reads at its snapshot's seqno and records the keys that it read ([`ReadSet`]). Its writes
//! are kept in a [`WriteSet`], which its own reads see. [`Transactions::commit`] validates the read set and
//! logs the writes in one step of the log, so the reads still hold at the transaction's own seqno. Hence
//! committed transactions are serializable in the order of their seqnos; a transaction without writes is
//! ordered at its snapshot. No lock is held between the first read and the commit, so there are no
//! deadlocks. (Optimistic concurrency control: Kung and Robinson, 1981.)

mod commit;
mod empty_spans;
mod iter;
mod key_set;
mod read_set;
mod recent;
mod validate;
mod write_set;

pub use commit::Transactions;
pub use iter::TransactionIter;
pub use key_set::{KeySet, KeySpan, successor};
pub use read_set::ReadSet;
pub use write_set::{Pending, WriteSet};
