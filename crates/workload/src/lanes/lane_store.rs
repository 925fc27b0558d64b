//! Lanes: the design of the log on storage-class memory. Each lane is written by one leader at a time, in
//! groups of whole units with one fence each; a record is acknowledged once every record with a lower seqno
//! is durable.

use std::collections::VecDeque;

use base::Result;
use media::emulated::AccessKind;

use super::devices::on_device;
use super::records::Put;
use super::schedule::{Nanos, Schedule};
use super::store::{Step, Store, World, gathering};

/// Most bytes of a group.
const GROUP_BYTES: usize = 4096;

/// Lanes that a record tries, its own first.
const TRIED: usize = 4;

/// The unit of devices without a larger one.
const LINE_BYTES: u64 = 64;

/// The first stream of a lane: below are those of threads.
const STREAMS: usize = 1 << 16;

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    New,
    /// Its record waits in a lane, or it leads one.
    Waiting {
        lane: usize,
    },
    /// The leader gathers.
    Gathering {
        lane: usize,
    },
    /// The leader has gathered.
    Storing {
        lane: usize,
    },
    /// The leader waits for its fence.
    Fencing {
        lane: usize,
    },
    Durable {
        seqno: u64,
    },
}

#[derive(Debug)]
struct Lane {
    device: usize,
    tail: u64,
    pending: VecDeque<(usize, Put)>,
    is_led: bool,
    group: Group,
}

/// A group in flight.
#[derive(Debug, Default)]
struct Group {
    members: Vec<(usize, Put)>,
    image: Vec<u8>,
    /// The length of each record.
    lens: Vec<usize>,
    at: u64,
    first: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct LaneStore {
    lanes: Vec<Lane>,
    states: Vec<State>,
    unit: u64,
    record_bytes: usize,
    /// Groups in the order of their seqnos: the first seqno, and the group once it is durable.
    in_flight: VecDeque<(u64, Option<Group>)>,
    /// Added to the way of a record to its leader and of the answer back: a caller on another node.
    hop_ns: Nanos,
}

impl LaneStore {
    pub(super) fn new(
        devices: usize,
        per_device: usize,
        threads: usize,
        unit: u64,
        record_bytes: usize,
        hop_ns: Nanos,
    ) -> Self {
        let lane = |number: usize| Lane {
            device: number % devices,
            tail: ((number / devices) as u64) << 32,
            pending: VecDeque::new(),
            is_led: false,
            group: Group::default(),
        };
        Self {
            lanes: (0..devices * per_device).map(lane).collect(),
            states: vec![State::New; threads],
            unit,
            record_bytes,
            in_flight: VecDeque::new(),
            hop_ns,
        }
    }

    fn set(&mut self, thread: usize, state: State) {
        if let Some(place) = self.states.get_mut(thread) {
            *place = state;
        }
    }

    /// The lane of a record that belongs to lane `own`: an idle one of the next few if its own is busy
    /// and a group of one fills a unit. On a device with a large unit a record waits, and shares the unit.
    fn choose(&self, own: usize) -> usize {
        let tried = if self.unit > LINE_BYTES { 1 } else { TRIED };
        let near = (own..own + tried).map(|lane| lane % self.lanes.len().max(1));
        let is_idle = |lane: &usize| self.lanes.get(*lane).is_some_and(|lane| !lane.is_led);
        near.into_iter().find(is_idle).unwrap_or(own)
    }

    /// The leader of `lane` takes waiting records and seqnos.
    fn gather(&mut self, now: Nanos, lane: usize, world: &mut World) -> Result<Step> {
        let most = (GROUP_BYTES / self.record_bytes).max(1);
        let Some(found) = self.lanes.get_mut(lane) else { return Ok(Step::Parked) };
        let count = found.pending.len().min(most);
        let members: Vec<(usize, Put)> = found.pending.drain(..count).collect();
        let puts: Vec<Put> = members.iter().map(|(_, put)| *put).collect();
        let first = world.take_seqnos(count);
        world.count_group(count);
        let (image, lens) = world.shape.group(&puts, first)?;
        let at = found.tail.next_multiple_of(self.unit);
        found.tail = at + image.len() as u64;
        let took = gathering(count, image.len());
        let at = on_device(found.device, at);
        found.group = Group { members, image, lens, at, first };
        self.in_flight.push_back((first, None));
        Ok(Step::At(now + took))
    }

    fn store(&mut self, now: Nanos, lane: usize, world: &mut World) -> Step {
        let unit = self.unit as usize;
        let Some(found) = self.lanes.get_mut(lane) else { return Step::Parked };
        // The rest of the last unit is written with it, as zeros: a unit is never written twice.
        let whole = found.group.image.len().next_multiple_of(unit);
        found.group.image.resize(whole, 0);
        let (image, at) = (&found.group.image, found.group.at);
        Step::At(world.devices.write(now, STREAMS + lane, AccessKind::Store, at, image))
    }

    /// The group of `lane` is durable: acknowledges what that permits, and hands the lane on.
    fn finish(&mut self, now: Nanos, lane: usize, world: &mut World, schedule: &mut Schedule) {
        let Some(found) = self.lanes.get_mut(lane) else { return };
        let group = std::mem::take(&mut found.group);
        let next = found.pending.front().map(|(thread, _)| *thread);
        found.is_led = next.is_some();
        if let Some(next) = next {
            self.set(next, State::Gathering { lane });
            schedule.give(next, now);
        }
        if let Some(entry) = self.in_flight.iter_mut().find(|entry| entry.0 == group.first) {
            entry.1 = Some(group);
        }
        while let Some(group) = self.in_flight.front_mut().and_then(|entry| entry.1.take()) {
            self.in_flight.pop_front();
            let (mut at, mut seqno) = (group.at, group.first);
            for ((thread, put), len) in group.members.into_iter().zip(group.lens) {
                world.acknowledge(put, seqno, at, len);
                self.set(thread, State::Durable { seqno });
                schedule.give(thread, now + self.hop_ns);
                at += len as u64;
                seqno += 1;
            }
        }
    }
}

const fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        >> 32
}

impl Store for LaneStore {
    fn step(
        &mut self,
        now: Nanos,
        thread: usize,
        put: Put,
        world: &mut World,
        schedule: &mut Schedule,
    ) -> Result<Step> {
        let state = self.states.get(thread).copied().unwrap_or_default();
        Ok(match state {
            State::New => {
                // Where records share a unit, by the key's hash: threads that advance together would form
                // equal groups for ever, of a length that wastes part of a unit. Otherwise by thread, so that
                // a thread mostly finds its lane idle.
                let own = if self.unit > LINE_BYTES { hash(put.key) as usize } else { thread };
                let lane = own % self.lanes.len().max(1);
                self.set(thread, State::Waiting { lane });
                Step::At(now + self.hop_ns)
            }
            State::Waiting { lane } => {
                let lane = self.choose(lane);
                let Some(found) = self.lanes.get_mut(lane) else { return Ok(Step::Parked) };
                found.pending.push_back((thread, put));
                if std::mem::replace(&mut found.is_led, true) {
                    return Ok(Step::Parked);
                }
                self.set(thread, State::Gathering { lane });
                Step::At(now)
            }
            State::Gathering { lane } => {
                self.set(thread, State::Storing { lane });
                self.gather(now, lane, world)?
            }
            State::Storing { lane } => {
                self.set(thread, State::Fencing { lane });
                self.store(now, lane, world)
            }
            State::Fencing { lane } => {
                // Its own turn to go on comes with the acknowledgement.
                self.finish(now, lane, world, schedule);
                Step::Parked
            }
            State::Durable { seqno } => {
                self.set(thread, State::New);
                Step::Done(seqno)
            }
        })
    }
}
