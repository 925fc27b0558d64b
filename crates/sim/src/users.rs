//! Operations that users keep open over several steps: cursors, iterators, transactions, ingests.

use std::collections::VecDeque;
use std::fmt;

use terracedb::{Cursor, Ingest, Iter, Transaction};

use crate::cells::{Change, Model, Span};
use crate::compare::{show, within};
use crate::history::{Contents, Event, Incarnation};

/// An open cursor or iterator and the entries that it must yield.
pub(crate) enum OpenRead {
    Cursor { cursor: Box<Cursor>, model: Model, at: Option<Vec<u8>> },
    Iter { iter: Box<Iter>, remaining: VecDeque<(Vec<u8>, Vec<u8>)> },
}

impl fmt::Debug for OpenRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cursor { at, .. } => write!(f, "cursor at {:?}", at.as_deref().map(show)),
            Self::Iter { remaining, .. } => write!(f, "iterator with {} left", remaining.len()),
        }
    }
}

/// An open transaction and the model's view of it.
pub(crate) struct PendingTransaction {
    pub(crate) transaction: Transaction,
    /// The contents at its snapshot, without its own writes, and the number of events before it.
    pub(crate) snapshot: Contents,
    pub(crate) begun: usize,
    /// The contents that it sees, including its own writes.
    pub(crate) view: Contents,
    pub(crate) own: Vec<(Incarnation, Change)>,
    /// Keys that it read and did not write itself.
    pub(crate) keys: Vec<(Incarnation, Vec<u8>)>,
    /// Ranges that it scanned: the part that must be validated, and the part that may be.
    pub(crate) spans: Vec<(Incarnation, Span, Span)>,
}

impl PendingTransaction {
    /// Whether its own writes determine the value of `key`.
    pub(crate) fn hides(&self, incarnation: Incarnation, key: &[u8]) -> bool {
        let sets = |change: &Change| !matches!(change, Change::Merge(..)) && change.touches(key);
        self.own.iter().any(|(of, change)| *of == incarnation && sets(change))
    }

    /// Whether its commit must be refused, and whether it may be.
    pub(crate) fn conflicts(&self, events: &[Event], current: &Contents, now: u64) -> (bool, bool) {
        let since = || events.iter().skip(self.begun).flat_map(|event| &event.0);
        let touched = |incarnation, key: &[u8]| {
            since().any(|(of, change)| *of == incarnation && change.touches(key))
        };
        let must_key = self
            .keys
            .iter()
            .any(|(of, key)| self.snapshot.get(*of, key, now) != current.get(*of, key, now));
        let must_span = self.spans.iter().any(|(of, span, _)| {
            let entries = |state: &Contents| {
                let mut entries = within(&state.at(*of, now), span);
                entries.retain(|(key, _)| !self.hides(*of, key));
                entries
            };
            entries(&self.snapshot) != entries(current)
        });
        let may_key = self.keys.iter().any(|(of, key)| touched(*of, key));
        let may_span = self.spans.iter().any(|(of, _, span)| {
            since().any(|(other, change)| other == of && change.touches_span(span))
        });
        (must_key || must_span, may_key || may_span)
    }
}

/// An open bulk ingest.
pub(crate) struct PendingIngest {
    pub(crate) ingest: Ingest,
    /// Number of device faults when it began.
    pub(crate) struck: u64,
    pub(crate) incarnation: Incarnation,
    /// The number of the next key.
    pub(crate) next: u64,
    pub(crate) added: Vec<Change>,
}
