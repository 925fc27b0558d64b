//! Empty spans: key ranges in which a transaction sees no value, noted by its iterators as they step over
//! deleted keys, so that the next iterator jumps. Without them, a transaction that takes the first key again
//! and again would step over all keys that it took before: its cost would be quadratic.
//!
//! A transaction reads at its snapshot, so only its own writes give a key in a span a value. The spans are a
//! part of the write set, and a copy of it has a copy of them. So an iterator, which keeps the write set that
//! it was made over, reads and notes spans that are valid for just these writes.
//!
//! Memory: at most [`SPANS_MAX`] spans of short keys, charged once (I10). Without memory nothing is noted.

use base::{Account, Charge};
use parking_lot::Mutex;

use super::key_set::{KeySet, KeySpan};
use super::read_set::Side;

/// Most spans of a keyspace.
const SPANS_MAX: usize = 64;

/// Most bytes of the two keys of a span.
const SPAN_KEYS_MAX: usize = 1024;

/// Memory of a span beside its keys, bytes.
const SPAN_BYTES: usize = 128;

/// Memory of all spans, bytes.
const SPANS_BYTES: u64 = (SPANS_MAX * (2 * SPAN_KEYS_MAX + SPAN_BYTES)) as u64;

/// The empty spans of one keyspace. See the module.
#[derive(Debug, Default)]
pub(super) struct EmptySpans(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    spans: KeySet,
    charge: Option<Charge>,
}

impl Clone for EmptySpans {
    /// Empty if there is no memory for a copy.
    fn clone(&self) -> Self {
        let noted = self.0.lock();
        let charge = noted.charge.as_ref();
        let charge = charge.and_then(|charge| charge.account().try_charge(SPANS_BYTES));
        let spans = charge.as_ref().map(|_| noted.spans.clone()).unwrap_or_default();
        Self(Mutex::new(Noted { spans, charge }))
    }
}

impl EmptySpans {
    /// The end of the span that holds the first key from `side` of `range`: the keys before it have no
    /// value. `None` if no span holds that key; the inner `None` if the span has no such end.
    pub(super) fn jump(&self, side: Side, range: KeySpan<'_>) -> Option<Option<Vec<u8>>> {
        let noted = self.0.lock();
        let span = match side {
            Side::Front => noted.spans.span_of(range.start),
            Side::Back => noted.spans.last_before(range.end),
        }?;
        Some(match side {
            Side::Front => span.end.map(<[u8]>::to_vec),
            Side::Back => Some(span.start.to_vec()),
        })
    }

    /// Notes that no key in `range` has a value.
    pub(super) fn note(&self, range: KeySpan<'_>, account: &Account) {
        if range.is_empty() || range.start.len() + range.end.map_or(0, <[u8]>::len) > SPAN_KEYS_MAX
        {
            return;
        }
        let mut noted = self.0.lock();
        if noted.charge.is_none() {
            let Some(charge) = account.try_charge(SPANS_BYTES) else { return };
            noted.charge = Some(charge);
        }
        if noted.spans.count() == SPANS_MAX && !noted.spans.overlaps(range) {
            // Walks note the spans anew that they meet again.
            noted.spans = KeySet::default();
        }
        noted.spans.insert(range);
    }

    /// The transaction wrote `key`, and may have given it a value.
    pub(super) fn written(&mut self, key: &[u8]) {
        let noted = self.0.get_mut();
        noted.spans.remove_key(key);
        if noted.spans.count() > SPANS_MAX {
            noted.spans = KeySet::default();
        }
    }
}
