//! The union of two sets of fragments, in one pass without sorting.

use base::Seqno;
use bytes::Bytes;

use super::{Fragment, RangeDeletes};

/// The rest of a fragment: its start, its end, and its newest seqno.
type Part = (Bytes, Bytes, Option<Seqno>);

impl RangeDeletes {
    /// The fragments of both sets, each with its newest seqno only. Linear in their number.
    #[must_use]
    pub fn overlay(one: &Self, other: &Self) -> Self {
        let part =
            |it: Fragment<'_>| (it.start.clone(), it.end.clone(), it.seqnos.first().copied());
        let (mut ones, mut others) = (one.iter().map(part), other.iter().map(part));
        let (mut a, mut b) = (ones.next(), others.next());
        let mut out = Self::default();
        loop {
            let (x, y) = match (a.take(), b.take()) {
                (None, None) => return out.indexed(),
                (Some(last), None) => {
                    out.add(last);
                    a = ones.next();
                    continue;
                }
                (None, Some(last)) => {
                    out.add(last);
                    b = others.next();
                    continue;
                }
                (Some(x), Some(y)) => (x, y),
            };
            let ((x_start, x_end, x_newest), (y_start, y_end, y_newest)) = (&x, &y);
            // The range ends at the next fragment boundary.
            let (start, end, newest) = match x_start.cmp(y_start) {
                std::cmp::Ordering::Less => (x_start, x_end.min(y_start), *x_newest),
                std::cmp::Ordering::Greater => (y_start, y_end.min(x_start), *y_newest),
                std::cmp::Ordering::Equal => (x_start, x_end.min(y_end), *x_newest.max(y_newest)),
            };
            let end = end.clone();
            out.add((start.clone(), end.clone(), newest));
            a = rest(x, &end).or_else(|| ones.next());
            b = rest(y, &end).or_else(|| others.next());
        }
    }

    /// Appends a fragment. A fragment that starts at the end of the last one and has the same seqno
    /// extends it.
    fn add(&mut self, (start, end, newest): Part) {
        if let Some(last) = self.fragments.last_mut()
            && last.end == start
            && self.seqnos.last().copied() == newest
        {
            self.key_bytes = self.key_bytes + end.len() - last.end.len();
            last.end = end;
            return;
        }
        self.push(start, end, newest.as_slice());
    }
}

/// The rest of `part` from `start` on.
fn rest((first, end, newest): Part, start: &Bytes) -> Option<Part> {
    (*start < end).then(|| (first.max(start.clone()), end, newest))
}
