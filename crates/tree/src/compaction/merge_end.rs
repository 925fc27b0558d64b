//! Shortens a merge with range deletes that do not fit its memory.
//!
//! The planner goes by the bytes of files, to which range deletes contribute little; but a merge has all of
//! its range deletes in memory. The rest of the rectangle is planned again.

use base::KeyRange;
use bytes::Bytes;
use compact::plan::Merge;
use table::PinnedRangeDeletes;

use crate::Version;

/// Copies of a range delete that a merge has in memory: in a list, sorted, cut into fragments, after
/// retention, and in the output.
const TIMES: u64 = 5;

/// The end of the part of `merge` with range deletes that fit `room` bytes of memory, and the bytes that they
/// need.
pub(super) fn with_room_for_range_deletes(
    merge: &Merge,
    version: &Version,
    room: u64,
) -> (Option<Bytes>, u64) {
    let range = KeyRange { first: merge.first.clone(), end: merge.end.clone() };
    let runs =
        version.runs().iter().filter(|run| (merge.into..=merge.newest()).contains(&run.id()));
    let pieces = runs.flat_map(|run| run.overlapping(&range));
    let inputs: Vec<(&PinnedRangeDeletes, KeyRange)> = pieces
        .map(|piece| (&**piece.range_deletes(), piece.range().intersection(&range)))
        .filter(|(deletes, _)| !deletes.is_empty())
        .collect();
    let taken = |end: Option<&Bytes>| -> u64 {
        let until = KeyRange { first: merge.first.clone(), end: end.cloned() };
        let bytes = inputs.iter().map(|(deletes, range)| {
            let range = range.intersection(&until);
            // As if all had the same size.
            deletes.bytes() * deletes.positions(&range.first, range.end.as_deref()).len()
                / deletes.len().max(1)
        });
        TIMES * bytes.sum::<usize>() as u64
    };
    let mut end = merge.end.clone();
    // Each repetition ends the loop, or leaves one of the inputs with a single range delete.
    for _ in 0..=inputs.len() {
        if taken(end.as_ref()) <= room {
            break;
        }
        let until = KeyRange { first: merge.first.clone(), end: end.clone() };
        let own = |(deletes, range): &(&PinnedRangeDeletes, KeyRange)| {
            let range = range.intersection(&until);
            deletes.positions(&range.first, range.end.as_deref())
        };
        // Cut between two range deletes of the table that has the most.
        let Some(input) = inputs.iter().max_by_key(|input| own(input).len()) else { break };
        let (deletes, own) = (input.0, own(input));
        let (mut fits, mut beyond) = (own.start + 1, own.end);
        while fits + 1 < beyond {
            let middle = fits.midpoint(beyond);
            match taken(deletes.start(middle)) <= room {
                true => fits = middle,
                false => beyond = middle,
            }
        }
        let Some(cut) = deletes.start(fits).filter(|_| fits < own.end) else { break };
        end = Some(cut.clone());
    }
    let taken = taken(end.as_ref());
    (end, taken)
}
