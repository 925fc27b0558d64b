//! The first phase of a seek: every source moves to the target. No source waits for another.

use base::{Result, Seqno, Trailer};
use read::ReadOp;

use super::{MergingIter, Phase, Start};
use crate::reads::source::{Seek, Source};

impl MergingIter {
    /// Seeks with source `number` to the start of the move, past keys there that newer sources have deleted.
    pub(super) fn position(&mut self, number: usize) -> Result<()> {
        let newest = Trailer::seek(Seqno::MAX);
        let left = match self.start {
            Start::First | Start::AtOrAfter => {
                self.range_deletes.first_undeleted(number, &self.target)
            }
            Start::Last | Start::Before => None,
        };
        if left.is_some() {
            self.dead.leave_gap();
        }
        let Some(source) = self.sources.get_mut(number) else { return Ok(()) };
        source.start(match (self.start, &left) {
            (Start::First | Start::AtOrAfter, Some(left)) => Seek::AtOrAfter(left, newest),
            (Start::First, None) => Seek::First,
            (Start::Last, _) => Seek::Last,
            (Start::AtOrAfter, None) => Seek::AtOrAfter(&self.target, newest),
            (Start::Before, _) => Seek::Before(&self.target, newest),
        })
    }

    /// The moves that a seek has left, from that of the pending run on, all of them started: the caller runs
    /// them to their ends. None, and nothing happens, unless a run follows the pending one.
    pub(super) fn unpositioned(&mut self) -> Result<Vec<&mut dyn ReadOp<Output = ()>>> {
        let (Phase::Position(next), Some(pending)) = (self.phase, self.pending) else {
            return Ok(Vec::new());
        };
        if next >= self.sources.len() {
            return Ok(Vec::new());
        }
        base::invariant!(pending + 1 == next, "a seek positions its sources in order");
        for number in next..self.sources.len() {
            self.position(number)?;
        }
        self.phase = Phase::Position(self.sources.len());
        let runs = self.sources.iter_mut().skip(pending).filter_map(Source::run_cursor);
        Ok(runs.map(|run| run as _).collect())
    }
}
