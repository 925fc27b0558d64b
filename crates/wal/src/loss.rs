//! What damage costs: where records of a lane cannot be read, and how many.

use base::{Error, Seqno};

use crate::chain::Cut;

/// At most so many are told apart; what is lost behind them counts to the last.
const LOSSES_MAX: usize = 1000;

/// A run of a lane's records that cannot be read, though it was durable.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Why the first of them cannot be read.
    pub error: Error,
    /// Where the first of them should be.
    pub from: Cut,
    /// Where replay went on; nowhere, where nothing could be read behind it.
    pub to: Option<Cut>,
    /// How many lane sequences are lost: those of batches, and of what the log notes for itself. `None`
    /// where the log does not say; where replay did not go on, there may be more.
    pub records: Option<u64>,
    /// The batches among them have sequence numbers from the first on and below the second; none are
    /// lost where both are the same. The second is not known where replay did not go on.
    pub seqnos: (Seqno, Option<Seqno>),
}

/// The losses of a lane, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losses(Vec<Loss>);

impl Losses {
    pub(crate) fn push(&mut self, loss: Loss) {
        if self.0.len() < LOSSES_MAX {
            self.0.push(loss);
        } else if let Some(last) = self.0.last_mut() {
            last.to = loss.to;
            last.records = last.records.zip(loss.records).map(|(one, two)| one + two);
            last.seqnos.1 = loss.seqnos.1;
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Loss> {
        self.0.iter()
    }
}
