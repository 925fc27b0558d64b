//! Losses: the durable records of a lane that damage made unreadable.

use base::{Error, Seqno, invariant};

use crate::position::Cut;

/// Losses that are listed per lane; later ones are added to the last.
const LOSSES_MAX: usize = 1000;

/// Consecutive durable records of a lane that cannot be read.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Why the first of them cannot be read.
    pub error: Error,
    /// Position of the first of them.
    pub from: Cut,
    /// Position at which replay resumed; `None` if no later record could be read.
    pub to: Option<Cut>,
    /// Number of lane sequences lost: batches, Marks and Begins. `None` if the log does not say. If
    /// replay did not resume, the true number may be larger.
    pub records: Option<u64>,
    /// The lost batches have seqnos from the first of these on and below the second. No batch is lost if
    /// both are equal. The second is `None` if replay did not resume.
    pub seqnos: (Seqno, Option<Seqno>),
}

/// The losses of a lane, in log order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losses(Vec<Loss>);

impl Losses {
    pub(crate) fn push(&mut self, loss: Loss) {
        invariant!(
            loss.to.is_none_or(|to| loss.from.sequence <= to.sequence),
            "a loss ends at or after the lane sequence at which it begins"
        );
        invariant!(
            loss.seqnos.1.is_none_or(|end| loss.seqnos.0 <= end),
            "a loss ends at or after the seqno at which it begins"
        );
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
