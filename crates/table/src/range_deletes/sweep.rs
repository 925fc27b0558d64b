//! Cuts overlapping range deletes into fragments: a sweep over all starts and ends in key order, which
//! knows the open range deletes at each.

use std::collections::BTreeMap;

use base::{Seqno, invariant};
use bytes::Bytes;

use super::{RangeDelete, RangeDeletes};

/// The seqnos of the open range deletes, and how many range deletes have each.
pub(super) type Active = BTreeMap<Seqno, usize>;

/// The fragments of `deletes`. `pick` appends the open seqnos that a fragment keeps, in descending
/// order. Neighbours that keep the same seqnos become one fragment.
pub(super) fn sweep(
    deletes: impl IntoIterator<Item = RangeDelete>,
    pick: impl Fn(&Active, &mut Vec<Seqno>),
) -> RangeDeletes {
    // Ordered by start, and ordered by end.
    let mut starts: Vec<RangeDelete> =
        deletes.into_iter().filter(|delete| delete.start < delete.end).collect();
    let mut ends: Vec<(Bytes, Seqno)> =
        starts.iter().map(|delete| (delete.end.clone(), delete.seqno)).collect();
    starts.sort_unstable_by(|one, other| one.start.cmp(&other.start));
    ends.sort_unstable();
    let mut starts = starts.into_iter().peekable();
    let mut ends = ends.into_iter().peekable();

    let (mut active, mut next) = (Active::new(), Vec::new());
    let mut fragments = RangeDeletes::default();
    // Start and seqnos of the open fragment; no seqnos if there is none.
    let (mut from, mut kept) = (Bytes::new(), Vec::new());
    // Every range delete ends after it starts, so the ends run out last.
    while let Some((end, _)) = ends.peek() {
        let at = match starts.peek() {
            Some(next) if next.start < *end => next.start.clone(),
            _ => end.clone(),
        };
        while let Some(opened) = starts.next_if(|delete| delete.start == at) {
            *active.entry(opened.seqno).or_default() += 1;
        }
        while let Some((_, seqno)) = ends.next_if(|(end, _)| *end == at) {
            let count = active.get_mut(&seqno);
            invariant!(count.is_some(), "a range delete that ends is open");
            if let Some(count) = count {
                *count -= 1;
                if *count == 0 {
                    active.remove(&seqno);
                }
            }
        }
        next.clear();
        pick(&active, &mut next);
        if next != kept {
            if !kept.is_empty() {
                fragments.push(from, at.clone(), &kept);
            }
            std::mem::swap(&mut kept, &mut next);
            from = at;
        }
    }
    invariant!(active.is_empty() && starts.next().is_none(), "every range delete ends");
    fragments.indexed()
}

/// Picks the open seqnos that some reader can distinguish: all above the last of `readers`, which
/// ascend, and the newest that each reader sees.
pub(super) fn visible(active: &Active, readers: &[Seqno], out: &mut Vec<Seqno>) {
    debug_assert!(readers.is_sorted(), "readers ascend");
    let mut seen = readers.last().copied();
    let to_come = active.iter().rev().map(|(seqno, _)| *seqno);
    out.extend(to_come.take_while(|seqno| seen.is_none_or(|present| *seqno > present)));
    while let Some(newest) = seen.and_then(|reader| active.range(..=reader).next_back()) {
        out.push(*newest.0);
        // The latest reader that does not see this seqno.
        let below = readers.partition_point(|reader| reader < newest.0);
        seen = below.checked_sub(1).and_then(|below| readers.get(below)).copied();
    }
}

/// Picks the newest open seqno.
pub(super) fn newest(active: &Active, out: &mut Vec<Seqno>) {
    out.extend(active.last_key_value().map(|(seqno, _)| *seqno));
}
