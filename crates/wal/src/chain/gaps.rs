//! Losses that a lane by itself does not show: a gap between the lanes' seqnos, and an end before the known
//! one.

use base::{Error, Result, Seqno, invariant};

use super::{Chain, sequence_after_damage};
use crate::loss::Loss;
use crate::options::Recover;
use crate::position::Cut;
use crate::reader::LocatedRecord;

impl Chain {
    /// Notes that `head`, the record read last, does not have the seqno `due` that follows the replayed
    /// records. Either the records between are lost, or `head` itself is given up.
    ///
    /// # Errors
    /// `Corrupt` if recovery is strict.
    pub(crate) fn note_gap(
        &mut self,
        head: &LocatedRecord,
        due: u64,
        recover: Recover,
    ) -> Result<()> {
        let error = Error::corrupt("log record's seqno")
            .at(format_args!("lane {}, lane sequence {}", self.lane, head.sequence))
            .expected(due)
            .got(head.seqno);
        if recover == Recover::Strict {
            return Err(error);
        }
        invariant!(head.seqno != due, "a record at the due seqno leaves no gap");
        let from = Cut { offset: head.offset, sequence: head.sequence, ..self.position() };
        let (to, records, seqnos) = match head.seqno < due {
            true => {
                let behind = Cut { offset: head.end, sequence: self.sequence, ..from };
                (behind, Some(1), (head.seqno, head.next_seqno()))
            }
            false => (from, None, (due, head.seqno)),
        };
        let seqnos = (Seqno::new(seqnos.0), Some(Seqno::new(seqnos.1)));
        self.losses.push(Loss { error, from, to: Some(to), records, seqnos });
        Ok(())
    }

    /// Checks that the lane reaches the end that is known of it from outside the log. Called after replay.
    /// Returns the loss if it does not.
    ///
    /// # Errors
    /// The damage if recovery is strict.
    pub(crate) fn check_end(&mut self) -> Result<Option<Loss>> {
        let from = self.position();
        let Some((error, reached)) = self.source.known.lost_end(&from) else { return Ok(None) };
        if self.source.recover == Recover::Strict {
            return Err(error);
        }
        invariant!(self.sequence < reached.sequence, "a lost end lies before the known one");
        let records = Some(reached.sequence - self.sequence);
        let seqnos = (Seqno::new(self.seqno), None);
        let loss = Loss { error, from, to: None, records, seqnos };
        self.losses.push(loss.clone());
        self.sequence = sequence_after_damage(reached.sequence);
        Ok(Some(loss))
    }
}
