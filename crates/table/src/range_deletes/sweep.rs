//! From deletes that overlap to fragments that do not: a sweep over the ends of all of them, in key
//! order, that knows at each which deletes are open.

use std::collections::BTreeMap;

use base::Seqno;
use bytes::Bytes;

use super::{RangeDelete, RangeDeletes};

/// The numbers of the deletes that are open, and how many have each.
pub(super) type Active = BTreeMap<Seqno, usize>;

/// The fragments of `deletes`. `pick` appends those of the open numbers that a fragment keeps, in
/// descending order. Neighbours that keep the same are one fragment.
pub(super) fn sweep(
    deletes: impl IntoIterator<Item = RangeDelete>,
    pick: impl Fn(&Active, &mut Vec<Seqno>),
) -> RangeDeletes {
    // By start, and by end.
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
    // The fragment that is open, and what it keeps; nothing where none is.
    let (mut from, mut kept) = (Bytes::new(), Vec::new());
    // Every delete ends after it starts, so the ends are the last to run out.
    while let Some((end, _)) = ends.peek() {
        let at = match starts.peek() {
            Some(next) if next.start < *end => next.start.clone(),
            _ => end.clone(),
        };
        while let Some(opened) = starts.next_if(|delete| delete.start == at) {
            *active.entry(opened.seqno).or_default() += 1;
        }
        while let Some((_, seqno)) = ends.next_if(|(end, _)| *end == at) {
            if let Some(count) = active.get_mut(&seqno) {
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
    fragments.indexed()
}

/// Of the open numbers those that somebody may tell apart: all above the last of `readers`, which
/// ascend, and the newest that each of them sees.
pub(super) fn visible(active: &Active, readers: &[Seqno], out: &mut Vec<Seqno>) {
    let mut seen = readers.last().copied();
    let to_come = active.iter().rev().map(|(seqno, _)| *seqno);
    out.extend(to_come.take_while(|seqno| seen.is_none_or(|present| *seqno > present)));
    while let Some(newest) = seen.and_then(|reader| active.range(..=reader).next_back()) {
        out.push(*newest.0);
        // The latest reader that does not see it.
        let below = readers.partition_point(|reader| reader < newest.0);
        seen = below.checked_sub(1).and_then(|below| readers.get(below)).copied();
    }
}

/// The newest of the open numbers.
pub(super) fn newest(active: &Active, out: &mut Vec<Seqno>) {
    out.extend(active.last_key_value().map(|(seqno, _)| *seqno));
}
