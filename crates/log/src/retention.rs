//! Which segments are still needed (I7).
//!
//! A lane's segments are freed oldest first. So a lane's records are one unbroken run, and a
//! segment missing from the middle is damage that recovery sees.

use std::collections::{BTreeMap, HashMap, VecDeque};

use base::{Charge, KeyspaceId, LaneId, Seqno};
use parking_lot::Mutex;

use crate::pins::Pins;

/// A segment that is no longer written.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) name: String,
    /// Written bytes.
    pub(crate) bytes: u64,
    pub(crate) pins: Pins,
    /// Given back when the segment is freed.
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) charge: Charge,
}

/// See the module. Its lock is a leaf: nothing else is taken or done under it.
#[derive(Debug, Default)]
pub(crate) struct Retention(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Per lane, oldest first.
    sealed: BTreeMap<LaneId, VecDeque<Sealed>>,
    /// The seqno below which a keyspace's records are dead.
    below: HashMap<KeyspaceId, Seqno>,
}

impl State {
    fn below(&self, keyspace: KeyspaceId) -> Seqno {
        self.below.get(&keyspace).copied().unwrap_or(Seqno::ZERO)
    }
}

impl Retention {
    /// Adds a lane's newest sealed segment.
    pub(crate) fn seal(&self, lane: LaneId, segment: Sealed) {
        self.0.lock().sealed.entry(lane).or_default().push_back(segment);
    }

    /// The records of `keyspace` below `below` are dead.
    pub(crate) fn flushed(&self, keyspace: KeyspaceId, below: Seqno) {
        let mut state = self.0.lock();
        let old = state.below.entry(keyspace).or_default();
        *old = below.max(*old);
    }

    /// The name of a segment to free next: a lane's oldest, if every record in it is dead.
    /// `keep` says of which lane the newest sealed segment is still needed.
    pub(crate) fn dead(&self, keep: Option<LaneId>) -> Option<(LaneId, String)> {
        let state = self.0.lock();
        state.sealed.iter().find_map(|(lane, segments)| {
            let oldest = segments.front()?;
            let needed = keep == Some(*lane) && segments.len() == 1;
            let alive = oldest.pins.alive(|keyspace| state.below(keyspace)).next().is_some();
            (!needed && !alive).then(|| (*lane, oldest.name.clone()))
        })
    }

    /// The lane's oldest segment is gone.
    pub(crate) fn freed(&self, lane: LaneId) {
        if let Some(segments) = self.0.lock().sealed.get_mut(&lane) {
            segments.pop_front();
        }
    }

    /// What keeps each lane's oldest segment alive, with the seqno to flush below; of `active`
    /// where no segment is sealed.
    pub(crate) fn pinning(&self, active: Option<&Pins>) -> Vec<(KeyspaceId, Seqno)> {
        let state = self.0.lock();
        let oldest = state.sealed.values().filter_map(|segments| Some(&segments.front()?.pins));
        let mut all = Pins::default();
        let none_sealed = state.sealed.values().all(VecDeque::is_empty);
        for pins in oldest.chain(active.filter(|_| none_sealed)) {
            for (keyspace, end) in pins.alive(|keyspace| state.below(keyspace)) {
                all.pin(keyspace, end);
            }
        }
        all.alive(|_| Seqno::ZERO).collect()
    }

    /// How many segments are sealed and not freed, and their written bytes.
    pub(crate) fn sealed(&self) -> (u64, u64) {
        let state = self.0.lock();
        let segments = state.sealed.values().flatten();
        segments.fold((0, 0), |(count, bytes), segment| (count + 1, bytes + segment.bytes))
    }
}
