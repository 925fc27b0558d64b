//! The combiner: many callers, one writer at a time, and no queue for the lock.
//!
//! A caller that finds the lane free writes its own record, then every record that others
//! published meanwhile, as one group. A caller that finds it busy copies its record into the open
//! group, spins for a moment, and parks until the group is written, or takes the lane itself.
//!
//! Invariants
//! - Whoever lets the lane go looks into the open group afterwards. A publisher looks at the lane
//!   after it published. So no group waits without someone who will write it.
//! - A group is written whole or fails whole, by one call of [`Writer::write`].
//!
//! Bounds: the open group holds at most `group_bytes` (a caller whose record does not fit waits
//! for the lane as for any mutex), and a caller writes at most [`ROUNDS`] groups of others before
//! it hands the lane to one of them.
//!
//! Lock order: a ticket's outcome, then (by trying only) the writer, then the open group. The
//! holder of the writer takes any ticket's outcome.

use base::{Result, Seqno, crc32c};

use super::sync::{Arc, AtomicBool, Condvar, Mutex, MutexGuard, Ordering, SPINS, spin_loop, wait};
use crate::group::{Group, encoded_bytes};
use crate::options::Batch;

/// How many groups of others a caller writes before it hands the lane over.
const ROUNDS: usize = 8;

/// What writes groups.
pub(crate) trait Writer {
    /// Writes the group's records, the last one's body being continued by `rest`; the first
    /// record's first seqno.
    fn write(&mut self, group: &mut Group, rest: &[u8]) -> Result<Seqno>;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Combiner<W> {
    lane: Mutex<Lane<W>>,
    open: Mutex<Open>,
    group_bytes: usize,
}

/// What the lane's holder has.
#[derive(Debug)]
struct Lane<W> {
    writer: W,
    /// The holder's own record, or the group it writes. Empty while the lane is free.
    group: Group,
}

/// Records published and not yet taken by the lane's holder.
#[derive(Debug, Default)]
struct Open {
    group: Group,
    ticket: Option<Arc<Ticket>>,
}

/// What becomes of one group: its publishers wait on it.
#[derive(Debug, Default)]
struct Ticket {
    /// Set behind `outcome`, so that spinning publishers need no lock. `Release` by the writer
    /// and `Acquire` by the publishers, though the lock that follows orders the outcome anyway.
    decided: AtomicBool,
    /// The group's first seqno.
    outcome: Mutex<Option<Result<Seqno>>>,
    changed: Condvar,
}

impl Ticket {
    fn decide(&self, outcome: Result<Seqno>) {
        *self.outcome.lock() = Some(outcome);
        self.decided.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Makes one parked publisher look at the lane again. Under the lock: a publisher that found
    /// the lane busy is parked before the lock is free.
    fn hand_over(&self) {
        let _outcome = self.outcome.lock();
        self.changed.notify_one();
    }
}

impl<W: Writer> Combiner<W> {
    pub(crate) fn new(writer: W, group_bytes: usize) -> Self {
        let lane = Mutex::new(Lane { writer, group: Group::default() });
        Self { lane, open: Mutex::default(), group_bytes }
    }

    /// Has `batch` written; its first seqno.
    pub(crate) fn append(&self, batch: &Batch<'_>) -> Result<Seqno> {
        let body_crc = crc32c(batch.body);
        if let Some(lane) = self.lane.try_lock() {
            return self.write_own(lane, batch, body_crc);
        }
        let Some((ticket, before)) = self.publish(batch, body_crc) else {
            return self.write_own(self.lane.lock(), batch, body_crc);
        };
        self.outcome(&ticket).map(|first| first.plus(before))
    }

    /// As [`Combiner::append`], if `check` agrees once no other record can come between.
    pub(crate) fn append_if(
        &self,
        batch: &Batch<'_>,
        check: impl FnOnce(&mut W) -> Result<()>,
    ) -> Result<Seqno> {
        let body_crc = crc32c(batch.body);
        let mut lane = self.lane.lock();
        match check(&mut lane.writer) {
            Ok(()) => self.write_own(lane, batch, body_crc),
            Err(error) => {
                self.serve(lane);
                Err(error)
            }
        }
    }

    /// Runs `work` while no record is being written. Every record is wholly before or after it.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut W) -> R) -> R {
        let mut lane = self.lane.lock();
        let result = work(&mut lane.writer);
        self.serve(lane);
        result
    }

    fn write_own<'a>(
        &'a self,
        mut lane: MutexGuard<'a, Lane<W>>,
        batch: &Batch<'_>,
        body_crc: u32,
    ) -> Result<Seqno> {
        let Lane { writer, group } = &mut *lane;
        let result = if encoded_bytes(batch) > self.group_bytes {
            group.push_head(batch, body_crc);
            writer.write(group, batch.body)
        } else {
            group.push(batch, body_crc);
            writer.write(group, &[])
        };
        group.clear();
        self.serve(lane);
        result
    }

    /// Adds the batch to the open group, if it fits: the group's ticket, and how many operations
    /// stand before the batch's.
    fn publish(&self, batch: &Batch<'_>, body_crc: u32) -> Option<(Arc<Ticket>, u64)> {
        let mut open = self.open.lock();
        if open.group.image().len() + encoded_bytes(batch) > self.group_bytes {
            return None;
        }
        let before = open.group.push(batch, body_crc);
        let ticket = Arc::clone(open.ticket.get_or_insert_default());
        Some((ticket, before))
    }

    /// Waits for what becomes of a group, writing it if the lane comes free first.
    fn outcome(&self, ticket: &Ticket) -> Result<Seqno> {
        for _ in 0..SPINS {
            if ticket.decided.load(Ordering::Acquire) {
                break;
            }
            if let Some(lane) = self.lane.try_lock() {
                self.serve(lane);
            } else {
                spin_loop();
            }
        }
        let mut outcome = ticket.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            if let Some(lane) = self.lane.try_lock() {
                drop(outcome);
                self.serve(lane);
                outcome = ticket.outcome.lock();
            } else {
                outcome = wait(&ticket.changed, outcome);
            }
        }
    }

    /// Writes what others published, and lets the lane go.
    fn serve<'a>(&'a self, mut lane: MutexGuard<'a, Lane<W>>) {
        for _ in 0..ROUNDS {
            if let Some(ticket) = self.take_open(&mut lane.group) {
                let Lane { writer, group } = &mut *lane;
                let outcome = writer.write(group, &[]);
                group.clear();
                ticket.decide(outcome);
            }
            drop(lane);
            if self.open.lock().ticket.is_none() {
                return;
            }
            // Someone published after the group was taken. If the lane is busy again, its new
            // holder comes by here.
            match self.lane.try_lock() {
                Some(taken) => lane = taken,
                None => return,
            }
        }
        drop(lane);
        let ticket = self.open.lock().ticket.clone();
        if let Some(ticket) = ticket {
            ticket.hand_over();
        }
    }

    /// Takes the open group in exchange for the empty `group`.
    fn take_open(&self, group: &mut Group) -> Option<Arc<Ticket>> {
        let mut open = self.open.lock();
        let ticket = open.ticket.take()?;
        std::mem::swap(&mut open.group, group);
        Some(ticket)
    }
}
