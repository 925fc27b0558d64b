//! The inputs of a merge, from the version of the tables that it merges.

use std::sync::Arc;

use base::{Error, KeyRange, Result, RunId};
use compact::job::{Input, InputRun};
use compact::{Horizon, OpenInput};

use super::super::summary::entries_within;
use crate::{Piece, Rectangle, Version};

/// The inputs for the job, and the pieces that they come from.
pub(super) type Inputs = (Vec<InputRun>, Vec<(RunId, Arc<Piece>)>);

/// Everything of `version` within `rectangle`, newest run first; `None` if that is nothing.
///
/// # Errors
/// `Corrupt` if a piece is damaged.
pub(super) fn inputs_of(version: &Version, rectangle: &Rectangle) -> Result<Option<Inputs>> {
    let mut runs = Vec::new();
    let mut pieces = Vec::new();
    for run in version.runs().iter().filter(|run| rectangle.holds(run.id())) {
        let mut tables = Vec::new();
        for piece in run.overlapping(&rectangle.range) {
            if piece.file().is_damaged() {
                let error = Error::corrupt("table of a merge").at(piece.entry().id);
                return Err(error.expected("one without damage"));
            }
            let entry = piece.entry();
            tables.push(Input {
                id: entry.id,
                file_bytes: entry.file_bytes,
                digest: piece.table()?.footer().digest,
                bounds: piece.range().intersection(&rectangle.range),
                seqno: entry.seqno,
            });
            pieces.push((run.id(), Arc::clone(piece)));
        }
        if !tables.is_empty() {
            runs.push(InputRun { tables });
        }
    }
    Ok((!runs.is_empty()).then_some((runs, pieces)))
}

/// The tables of `pieces`, which the merge need not open a second time.
pub(super) fn open_inputs(pieces: &[(RunId, Arc<Piece>)]) -> Result<Vec<OpenInput>> {
    let open = |(_, piece): &(RunId, Arc<Piece>)| {
        Ok(OpenInput {
            range: piece.range().clone(),
            table: Arc::clone(piece.table()?),
            range_deletes: Arc::clone(piece.range_deletes()),
        })
    };
    pieces.iter().map(open).collect()
}

/// The keys within `rectangle` that older tables may contain.
pub(super) fn below(version: &Version, rectangle: &Rectangle) -> Vec<KeyRange> {
    let older = version.runs().iter().filter(|run| run.id() < rectangle.oldest);
    let pieces = older.flat_map(|run| run.overlapping(&rectangle.range));
    pieces.map(|piece| piece.range().intersection(&rectangle.range)).collect()
}

/// Prepares the inputs of which a merge of `rectangle` leaves a part. Returns the bytes of the entries that
/// it takes from newer runs and from the oldest run: before, those of short tables are not known.
pub(super) fn prepare_cuts(
    inputs: &[(RunId, Arc<Piece>)],
    rectangle: &Rectangle,
    readers: &Horizon,
) -> (u64, u64) {
    let (mut newer, mut oldest) = (0, 0);
    for (run, piece) in inputs {
        if !rectangle.range.covers(piece.range()) {
            piece.file().prepare_cuts();
        }
        *(if *run == rectangle.oldest { &mut oldest } else { &mut newer }) +=
            entries_within(piece, &rectangle.range, readers);
    }
    (newer, oldest)
}
