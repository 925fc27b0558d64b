//! Merges of more range deletes than their memory holds are cut: their end is where it is full.
//!
//! The planner goes by the bytes of files, of which range deletes are few. While they are merged all of them
//! are in memory; what is beyond the cut is planned again.

use std::sync::Arc;

use bytes::Bytes;
use compact::plan::Merge;
use table::{RangeDeletes, Table};

use crate::Version;
use base::KeyRange;

/// How often a merge has a range delete of its inputs in memory: in a list, sorted, cut anew, as far as it
/// survives, and in the output.
const TIMES: u64 = 5;

/// The end of as much of `merge` as has range deletes for `room` bytes of memory, and what these take.
pub(super) fn with_room_for_range_deletes(
    merge: &Merge,
    version: &Version,
    room: u64,
) -> (Option<Bytes>, u64) {
    let range = KeyRange { first: merge.first.clone(), end: merge.end.clone() };
    let runs =
        version.runs().iter().filter(|run| (merge.into..=merge.newest()).contains(&run.id()));
    let pieces = runs.flat_map(|run| run.overlapping(&range));
    let inputs: Vec<(&Arc<Table>, KeyRange)> = pieces
        .filter_map(|piece| Some((piece.table().ok()?, piece.range().intersection(&range))))
        .filter(|(table, _)| !table.range_deletes().is_empty())
        .collect();
    let taken = |end: Option<&Bytes>| -> u64 {
        let until = KeyRange { first: merge.first.clone(), end: end.cloned() };
        let bytes = inputs.iter().map(|(table, range)| {
            let (deletes, range) = (table.range_deletes(), range.intersection(&until));
            // As if all of them were alike.
            deletes.bytes() * deletes.positions(&range.first, range.end.as_deref()).len()
                / deletes.len().max(1)
        });
        TIMES * bytes.sum::<usize>() as u64
    };
    let mut end = merge.end.clone();
    // Each turn fits, or leaves one of the inputs with a single one.
    for _ in 0..=inputs.len() {
        if taken(end.as_ref()) <= room {
            break;
        }
        let until = KeyRange { first: merge.first.clone(), end: end.clone() };
        let own = |(table, range): &(&Arc<Table>, KeyRange)| {
            let range = range.intersection(&until);
            table.range_deletes().positions(&range.first, range.end.as_deref())
        };
        // Between two of the table that has the most.
        let Some(input) = inputs.iter().max_by_key(|input| own(input).len()) else { break };
        let (deletes, own): (&RangeDeletes, _) = (input.0.range_deletes(), own(input));
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
