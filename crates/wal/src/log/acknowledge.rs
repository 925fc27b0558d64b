//! Acknowledgement: an append returns once every earlier record is stored, in whichever lane.
//!
//! Acknowledgements are in seqno order, and a lost record ends them: it refuses every later append and no
//! earlier one (`crate::numbers`).

use base::{Error, LaneId, Result, Seqno, broken_invariant};

use super::Log;
use crate::address::{Appended, RecordAddress, Written};
use crate::options::Batch;

impl Log {
    /// Waits until every record up to the end of `batch`, which is `written`, is stored: a record behind
    /// a gap is not replayed. On flash a store survives the process at once, and there is one lane.
    pub(super) fn acknowledge(
        &self,
        lane: LaneId,
        written: Written,
        batch: &Batch<'_>,
    ) -> Result<Appended> {
        let Written { first, segment, offset } = written;
        self.wait_until_stored(Seqno::new(first.get() + u64::from(batch.ops) - 1))?;
        Ok(Appended { first, address: Some(RecordAddress { lane, segment, offset }) })
    }

    /// Waits until every record up to `upto`, which was assigned, is stored: then its thread acknowledges it.
    /// Costs nothing on flash: a group that fails there takes no seqno.
    ///
    /// # Errors
    /// `Poisoned` if one of them is lost: then no later one counts.
    pub fn wait_until_stored(&self, upto: Seqno) -> Result<()> {
        if !self.is_fenced || self.shared.numbers.wait_until_stored(upto.get()) {
            return Ok(());
        }
        Err(self.loss())
    }

    /// The failure by which a record up to `upto` was lost, so that no later one will ever be acknowledged.
    #[must_use]
    pub fn lost(&self, upto: Seqno) -> Option<Error> {
        let is_lost = self.is_fenced && self.shared.numbers.is_lost(upto.get());
        is_lost.then(|| self.loss())
    }

    #[cold]
    fn loss(&self) -> Error {
        let poison = self.shared.check().err();
        poison.unwrap_or_else(|| broken_invariant!("a lost record poisons the log"))
    }
}
