//! Blocking pops: [`Serve`] is a pop, [`Waiters`] are the clients that wait for one.
//!
//! A client that waits holds no thread and no lock. The command that gives a key its value serves the
//! clients that wait for the key, the longest-waiting first, under the locks of that command and before any
//! other command sees the value ([`crate::session::Session`]). So pops are fair, as in Redis. A pop that
//! moves its element needs the lock of the destination as well: [`Waiters::destinations`].

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clients::Client;
use crate::collection::{END, List, Members, Side};
use crate::reply::{Fail, Reply};
use crate::unit::Unit;
use crate::value::Kind;

/// A pop of a list or a sorted set.
#[derive(Clone, Debug)]
pub(crate) enum Serve {
    /// Replies with key and element.
    Pop(Side),
    /// Replies with key and elements, at most this many.
    PopMany(Side, usize),
    /// Replies with the element, which goes to a side of another list.
    Move { from: Side, to: Vec<u8>, side: Side },
    /// Replies with key, member and score.
    PopScore { is_max: bool },
    /// Replies with key and pairs of member and score, at most `count` of them.
    PopScores { is_max: bool, count: usize },
}

/// A command that found nothing to pop.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) serve: Serve,
    /// Milliseconds; 0: for ever.
    pub(crate) timeout_ms: u64,
}

impl Serve {
    /// The type that it pops from.
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Pop(_) | Self::PopMany(..) | Self::Move { .. } => Kind::List,
            Self::PopScore { .. } | Self::PopScores { .. } => Kind::SortedSet,
        }
    }

    /// Pops from the stored key `key` and writes the reply; `false`: the key does not exist.
    ///
    /// # Errors
    /// If the value has another type; those of the store.
    pub(crate) fn serve(
        &self,
        unit: &mut Unit,
        key: &[u8],
        reply: &mut Reply,
    ) -> Result<bool, Fail> {
        if unit.get_kind(key, self.kind())?.is_none() {
            return Ok(false);
        }
        let name = key.get(1..).unwrap_or_default();
        match self {
            Self::Pop(side) => {
                let mut list = List::open(unit, key)?;
                let element = list.pop(unit, *side)?;
                list.save(unit)?;
                reply.array(2);
                reply.bulk(name);
                reply.bulk_or_null(element);
            }
            Self::PopMany(side, count) => {
                let elements = pop_elements(unit, key, *side, *count)?;
                reply.array(2);
                reply.bulk(name);
                reply.bulks(&elements);
            }
            Self::Move { from, to, side } => {
                unit.get_kind(to, Kind::List)?;
                let mut list = List::open(unit, key)?;
                let element = list.pop(unit, *from)?.unwrap_or_default();
                if key == to.as_slice() {
                    list.push(unit, *side, &element)?;
                } else {
                    let mut other = List::open(unit, to)?;
                    other.push(unit, *side, &element)?;
                    other.save(unit)?;
                }
                list.save(unit)?;
                reply.bulk(element);
            }
            Self::PopScore { is_max } => {
                let found = pop_scores(unit, key, *is_max, 1)?;
                reply.array(1 + 2 * found.len());
                reply.bulk(name);
                for (member, score) in found {
                    reply.bulk(member);
                    reply.double(score);
                }
            }
            Self::PopScores { is_max, count } => {
                let found = pop_scores(unit, key, *is_max, *count)?;
                reply.array(2);
                reply.bulk(name);
                reply.array(found.len());
                for (member, score) in found {
                    reply.array(2);
                    reply.bulk(member);
                    reply.double(score);
                }
            }
        }
        reply.check_length()?;
        Ok(true)
    }
}

/// Pops at most `count` elements of a list.
///
/// # Errors
/// Those of the store.
pub(crate) fn pop_elements(
    unit: &mut Unit,
    key: &[u8],
    side: Side,
    count: usize,
) -> Result<Vec<bytes::Bytes>, Fail> {
    let mut list = List::open(unit, key)?;
    let (length, count) = (list.len(), count.min(list.len()));
    let range = if side == Side::Left { 0..count } else { length - count..length };
    let mut elements = list.slice(unit, range)?;
    if side == Side::Right {
        elements.reverse();
    }
    list.cut(unit, side, count)?;
    list.save(unit)?;
    Ok(elements)
}

/// Pops at most `count` members of a sorted set, the first or the last ones.
///
/// # Errors
/// Those of the store.
pub(crate) fn pop_scores(
    unit: &mut Unit,
    key: &[u8],
    is_max: bool,
    count: usize,
) -> Result<Vec<(Vec<u8>, f64)>, Fail> {
    let mut set = Members::open(unit, key, Kind::SortedSet)?;
    let mut found = Vec::new();
    if count > 0 {
        let mut taken = crate::take::Take::new(unit);
        set.walk_scores(unit, &[], &END, is_max, |member, score| {
            taken.add(member.len())?;
            found.push((member.to_vec(), score));
            Ok(if found.len() >= count {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        taken.keep(unit);
    }
    if !found.is_empty() && found.len() == set.len() {
        // A pop of all members is one range delete, because the set may be large.
        Members::empty(key, Kind::SortedSet).replace(unit)?;
    } else {
        for (member, _) in &found {
            set.remove(unit, member)?;
        }
        set.save(unit)?;
    }
    Ok(found)
}

/// How far a waiting client is.
#[derive(Debug)]
pub(crate) enum State {
    Waiting,
    /// A command serves it now.
    Serving,
    /// Its reply.
    Served(Vec<u8>),
    /// The client waits no more.
    Ended,
}

/// A client that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) client: Arc<Client>,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) serve: Serve,
    pub(crate) is_resp3: bool,
    pub(crate) state: Mutex<State>,
    pub(crate) done: Notify,
}

impl Waiter {
    /// Ends the wait with `reply`, unless it is being served. Returns whether it did.
    pub(crate) fn end(&self, reply: State) -> bool {
        let mut state = self.state.lock();
        let is_waiting = matches!(*state, State::Waiting);
        if is_waiting {
            *state = reply;
            self.done.notify_one();
        }
        is_waiting
    }

    /// Begins to serve it; `false`: it waits no more, or another command serves it.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.state.lock();
        let is_waiting = matches!(*state, State::Waiting);
        if is_waiting {
            *state = State::Serving;
        }
        is_waiting
    }

    /// Goes on waiting: there was nothing for it. Its deadline may have passed while it was being served,
    /// so its connection looks again.
    pub(crate) fn give_back(&self) {
        *self.state.lock() = State::Waiting;
        self.done.notify_one();
    }

    /// Ends the wait of a client that is being served.
    pub(crate) fn reply(&self, reply: Vec<u8>) {
        *self.state.lock() = State::Served(reply);
        self.done.notify_one();
    }

    /// The reply, once.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Ended) {
            State::Served(reply) => Some(reply),
            other => {
                *state = other;
                None
            }
        }
    }
}

/// The clients that wait, by key, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_key: Mutex<HashMap<Vec<u8>, VecDeque<Arc<Waiter>>>>,
    count: AtomicUsize,
}

impl Waiters {
    /// The clients that wait.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Adds a client. The caller holds the locks of its keys.
    pub(crate) fn add(&self, waiter: &Arc<Waiter>) {
        let mut by_key = self.by_key.lock();
        let keys: BTreeSet<_> = waiter.keys.iter().collect();
        for key in keys {
            by_key.entry(key.clone()).or_default().push_back(Arc::clone(waiter));
        }
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn remove(&self, waiter: &Arc<Waiter>) {
        let mut by_key = self.by_key.lock();
        let mut was_known = false;
        for key in &waiter.keys {
            let Some(waiters) = by_key.get_mut(key) else { continue };
            let before = waiters.len();
            waiters.retain(|known| !Arc::ptr_eq(known, waiter));
            was_known |= waiters.len() < before;
            if waiters.is_empty() {
                by_key.remove(key);
            }
        }
        if was_known {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Those that wait for `key`.
    pub(crate) fn of(&self, key: &[u8]) -> Vec<Arc<Waiter>> {
        if self.count() == 0 {
            return Vec::new();
        }
        self.by_key.lock().get(key).into_iter().flatten().map(Arc::clone).collect()
    }

    /// The client `id`, if it waits.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Waiter>> {
        let by_key = self.by_key.lock();
        by_key.values().flatten().find(|waiter| waiter.client.id == id).map(Arc::clone)
    }

    /// The keys that elements may move to if `keys` get values, beside `keys` themselves.
    pub(crate) fn destinations(&self, keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
        if self.count() == 0 {
            return Vec::new();
        }
        let by_key = self.by_key.lock();
        let mut known: BTreeSet<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut left: Vec<&[u8]> = known.iter().copied().collect();
        let mut found = Vec::new();
        while let Some(key) = left.pop() {
            for waiter in by_key.get(key).into_iter().flatten() {
                if let Serve::Move { to, .. } = &waiter.serve
                    && known.insert(to)
                {
                    found.push(to.clone());
                    left.push(to);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Waker};
    use std::time::Instant;

    use terracedb::memory::Account;

    use super::*;

    #[test]
    fn a_client_that_got_nothing_looks_at_its_deadline_again() {
        let client = Client {
            id: 1,
            address: String::new(),
            local: String::new(),
            since: Instant::now(),
            info: Mutex::default(),
            messages: Mutex::new(crate::clients::Messages::new(&Account::unlimited("test"))),
            has_message: Notify::new(),
            is_killed: AtomicBool::new(false),
            output_bytes_max: 0,
        };
        let waiter = Waiter {
            client: Arc::new(client),
            keys: Vec::new(),
            serve: Serve::Pop(Side::Left),
            is_resp3: false,
            state: Mutex::new(State::Waiting),
            done: Notify::new(),
        };
        assert!(waiter.begin());
        assert!(!waiter.begin(), "one command serves it");
        assert!(!waiter.end(State::Ended), "its deadline passes meanwhile");
        waiter.give_back();
        let mut notified = std::pin::pin!(waiter.done.notified());
        assert!(notified.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert!(waiter.end(State::Ended), "and now it ends");
    }
}
