//! What was written, in order, and how much of it was promised to survive what.

use std::collections::BTreeMap;

use crate::cells::{Cells, Change, Model};

/// A keyspace from its creation to its drop.
pub(crate) type Incarnation = u64;

/// The keyspaces there are.
pub(crate) type Live = BTreeMap<&'static str, Incarnation>;

/// What is whole or absent: a batch, a transaction, an ingest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Event(pub(crate) Vec<(Incarnation, Change)>);

/// Every keyspace's content, dropped ones' too.
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
    /// As of the opening.
    base: Contents,
    pub(crate) events: Vec<Event>,
    pub(crate) current: Contents,
    pub(crate) live: Live,
    /// How many events survive the death of the process, and the loss of power.
    acknowledged: usize,
    synced: usize,
    /// What was refused as `Poisoned`: it may come after the last event, or not.
    in_doubt: Vec<Event>,
    /// What the keyspaces may be instead.
    alternative: Option<Live>,
    incarnations: u64,
}

/// How a store was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// The process ended or died: everything acknowledged is there.
    Process,
    /// The power went, or a sync failed: everything synced is there.
    Power,
}

impl History {
    /// `event` was acknowledged.
    pub(crate) fn wrote(&mut self, event: Event) {
        self.current.apply(&event);
        self.events.push(event);
        self.acknowledged = self.events.len();
    }

    /// Everything so far is durable.
    pub(crate) fn synced(&mut self) {
        self.synced = self.events.len();
    }

    /// Nobody knows whether `event` was written.
    pub(crate) fn left_in_doubt(&mut self, event: Event) {
        self.in_doubt.push(event);
    }

    pub(crate) fn next_incarnation(&mut self) -> Incarnation {
        self.incarnations += 1;
        self.incarnations
    }

    /// The keyspaces are now `live`, or, where a creation or a drop failed, perhaps.
    pub(crate) fn renamed(&mut self, live: Live, certainly: bool) {
        if certainly {
            self.live = live;
        } else {
            self.alternative = Some(live);
        }
    }

    /// The power went somewhere between `before` and now: what was promised since does not count.
    pub(crate) fn cut_since(&mut self, before: &Self) {
        self.acknowledged = before.acknowledged;
        self.synced = before.synced;
        if self.live != before.live {
            self.alternative = Some(before.live.clone());
        }
    }

    /// The keyspaces there may be.
    pub(crate) fn lives(&self) -> impl Iterator<Item = &Live> {
        std::iter::once(&self.live).chain(&self.alternative)
    }

    /// Every state that may be found after the store was left so, the likeliest first.
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

    /// What readers may see before the store is opened again.
    pub(crate) fn visible(&self) -> Vec<Contents> {
        let with = |event: &Event| {
            let mut state = self.current.clone();
            state.apply(event);
            state
        };
        std::iter::once(self.current.clone()).chain(self.in_doubt.iter().map(with)).collect()
    }

    /// `state` is what was found: it is durable, and everything from now on comes after it.
    pub(crate) fn opened(&mut self, state: Contents, live: Live) {
        let incarnations = self.incarnations;
        let (base, current) = (state.clone(), state);
        *self = Self { base, current, live, incarnations, ..Self::default() };
    }
}
