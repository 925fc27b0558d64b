//! Read operations that a queue runs.

use base::Result;
use bytes::Bytes;

use crate::{Depth, ReadOp};

/// A read operation that a [`Queue`](crate::Queue) can run.
pub trait QueuedRead: ReadOp {
    /// The state that each read of a queue needs when it ends. The queue holds one for all of them.
    type Shared;

    /// Whether the read is a caller's, and so counts as a lookup.
    fn is_counted(&self) -> bool;

    /// Ends the read, which needed pages from tiers as far as `depth`. Returns the value, if there is one.
    ///
    /// # Errors
    /// The read's.
    fn end(
        self,
        shared: &Self::Shared,
        output: Result<Self::Output>,
        depth: Depth,
    ) -> Result<Option<Bytes>>;
}
