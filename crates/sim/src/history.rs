//! The model of a store: its writes in order, and how many of them must survive each kind of crash.

use std::collections::BTreeMap;

use crate::cells::{Cells, Change, Model};

/// A keyspace from its creation to its drop.
pub(crate) type Incarnation = u64;

/// The existing keyspaces.
pub(crate) type Live = BTreeMap<&'static str, Incarnation>;

/// An atomic group of writes: a batch, a transaction or an ingest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Event(pub(crate) Vec<(Incarnation, Change)>);

/// The contents of every keyspace, including dropped ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents(BTreeMap<Incarnation, Cells>);

impl Contents {
    pub(crate) fn apply(&mut self, event: &Event) {
        for (incarnation, change) in &event.0 {
            self.0.entry(*incarnation).or_default().apply(change);
        }
    }

    pub(crate) fn of(&self, incarnation: Incarnation) -> Cells {
        self.0.get(&incarnation).cloned().unwrap_or_default()
    }

    pub(crate) fn get(&self, incarnation: Incarnation, key: &[u8], now: u64) -> Option<Vec<u8>> {
        self.0.get(&incarnation)?.get(key, now)
    }

    pub(crate) fn at(&self, incarnation: Incarnation, now: u64) -> Model {
        self.0.get(&incarnation).map(|cells| cells.at(now)).unwrap_or_default()
    }
}

/// The writes since the store was last opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The contents when the store was opened.
    base: Contents,
    pub(crate) events: Vec<Event>,
    pub(crate) current: Contents,
    pub(crate) live: Live,
    /// Number of events that survive the death of the process, and a power cut.
    acknowledged: usize,
    synced: usize,
    /// Writes that failed as `Poisoned`: they may appear after the last event, or not.
    in_doubt: Vec<Event>,
    /// The keyspaces that may exist instead of `live`.
    alternative: Option<Live>,
    incarnations: u64,
}

/// How the last process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// The process exited or died: every acknowledged write survives.
    Process,
    /// Power was cut, or a sync failed: every synced write survives.
    Power,
}

impl History {
    /// Records an acknowledged event.
    pub(crate) fn wrote(&mut self, event: Event) {
        self.current.apply(&event);
        self.events.push(event);
        self.acknowledged = self.events.len();
    }

    /// Records that all events so far are durable.
    pub(crate) fn synced(&mut self) {
        self.synced = self.events.len();
    }

    /// Records an event that may or may not have been written.
    pub(crate) fn left_in_doubt(&mut self, event: Event) {
        self.in_doubt.push(event);
    }

    pub(crate) fn next_incarnation(&mut self) -> Incarnation {
        self.incarnations += 1;
        self.incarnations
    }

    /// Sets the keyspaces to `live`. If the creation or drop failed (not `certainly`), either set is
    /// possible.
    pub(crate) fn renamed(&mut self, live: Live, certainly: bool) {
        if certainly {
            self.live = live;
        } else {
            self.alternative = Some(live);
        }
    }

    /// Power was cut between `before` and now: promises made since then do not count.
    pub(crate) fn cut_since(&mut self, before: &Self) {
        self.acknowledged = before.acknowledged;
        self.synced = before.synced;
        if self.live != before.live {
            self.alternative = Some(before.live.clone());
        }
    }

    /// The sets of keyspaces that may exist.
    pub(crate) fn lives(&self) -> impl Iterator<Item = &Live> {
        std::iter::once(&self.live).chain(&self.alternative)
    }

    /// Every state that an open may find after the process ended by `left`, the likeliest first.
    pub(crate) fn candidates(&self, left: ProcessEnd) -> Vec<Contents> {
        let least = if left == ProcessEnd::Power { self.synced } else { self.acknowledged };
        let mut state = self.base.clone();
        let mut found = Vec::new();
        for (number, event) in (1..).zip(&self.events) {
            if number > least {
                found.push(state.clone());
            }
            state.apply(event);
        }
        for in_doubt in &self.in_doubt {
            let mut with = state.clone();
            with.apply(in_doubt);
            found.push(with);
        }
        found.push(state);
        found.reverse();
        found
    }

    /// The states that reads may see until the store is opened again.
    pub(crate) fn visible(&self) -> Vec<Contents> {
        let with = |event: &Event| {
            let mut state = self.current.clone();
            state.apply(event);
            state
        };
        std::iter::once(self.current.clone()).chain(self.in_doubt.iter().map(with)).collect()
    }

    /// Records that `state` was found at open: it is durable, and later events follow it.
    pub(crate) fn opened(&mut self, state: Contents, live: Live) {
        let incarnations = self.incarnations;
        let (base, current) = (state.clone(), state);
        *self = Self { base, current, live, incarnations, ..Self::default() };
    }
}
