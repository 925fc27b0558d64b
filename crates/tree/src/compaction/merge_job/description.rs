//! The answers of a merge job to the compactor that runs it and reports it.

use std::time::Duration;

use super::MergeJob;
use super::offloaded::Postponed;
use crate::Rectangle;

impl MergeJob {
    /// Time at which the first step was due.
    pub(crate) const fn began(&self) -> Duration {
        self.began
    }

    /// Whether the job had too little memory to run in this process after workers failed.
    pub(crate) const fn lacked_memory_here(&self) -> bool {
        matches!(self.postponed, Some(Postponed::ForMemory))
    }

    /// The runs and keys of the merge, for error messages.
    pub(crate) fn describe(&self) -> String {
        let Rectangle { oldest, newest, range, .. } = &self.rectangle;
        format!("merge of runs {oldest} to {newest} of `{}`, keys {range}", self.tree.name())
    }
}
