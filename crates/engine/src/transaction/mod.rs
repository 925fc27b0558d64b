//! The state of optimistic transactions and their commit.
//!
//! A transaction reads at its snapshot's sequence number and remembers what it read ([`ReadSet`]); its
//! writes wait in a [`WriteSet`], which its own reads see. [`Transactions::commit`] validates the read set
//! and logs the writes in one step of the log, so that what the transaction read still holds at its own
//! sequence number. Hence committed transactions are serializable, in the order of their sequence numbers;
//! one that wrote nothing stands at its snapshot's. No lock is held between the first read and the commit,
//! so there are no deadlocks.

mod commit;
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
