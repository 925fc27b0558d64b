//! FlatStore (Chen et al., ASPLOS 2020): an operation log per thread with pipelined horizontal batching. A
//! thread posts its entry; the thread that gets the group's lock takes all waiting entries, gives the lock
//! back, and persists them in its own log with one fence.
//!
//! Values are inline in the entries, or apart: then the record is persisted first, in a block of its size
//! class, and the entry has 16 bytes. (Sources disagree on which sizes the original keeps inline.)

use std::collections::VecDeque;

use base::{Result, put_u64};
use media::emulated::AccessKind;

use super::devices::of_thread;
use super::records::Put;
use super::schedule::{Nanos, Schedule};
use super::store::{Step, Store, World, gathering};

/// Bytes of an entry with its value apart.
const ENTRY_BYTES: usize = 16;

/// Entries of a batch: sixteen short ones fill a unit.
const BATCH: usize = 16;

/// Batches begin at a cache line: no two share one.
const LINE_BYTES: u64 = 64;

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    New,
    ValueWritten,
    Posted,
    Gathering,
    Persisting,
    Durable {
        seqno: u64,
    },
}

/// An entry that waits: its thread, its put, and its record if that is apart.
#[derive(Clone, Copy, Debug)]
struct Entry {
    thread: usize,
    put: Put,
    /// Seqno, offset and length.
    apart: Option<(u64, u64, usize)>,
}

#[derive(Debug, Default)]
struct Core {
    state: State,
    value_tail: u64,
    log_tail: u64,
    apart: Option<(u64, u64, usize)>,
    batch: Vec<Entry>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FlatStore {
    cores: Vec<Core>,
    is_inline: bool,
    block_bytes: u64,
    pool: VecDeque<Entry>,
    is_locked: bool,
}

impl FlatStore {
    pub(super) fn new(threads: usize, record_bytes: usize, is_inline: bool) -> Self {
        let core = |thread: usize| {
            let base = of_thread(thread);
            Core { value_tail: base, log_tail: base + (1 << 31), ..Core::default() }
        };
        Self {
            cores: (0..threads).map(core).collect(),
            is_inline,
            block_bytes: (record_bytes as u64).next_power_of_two(),
            pool: VecDeque::new(),
            is_locked: false,
        }
    }

    fn core(&mut self, thread: usize) -> Result<&mut Core> {
        let broken = || base::broken_invariant!("every thread of the experiment has a core");
        self.cores.get_mut(thread).ok_or_else(broken)
    }

    fn write_value(
        &mut self,
        now: Nanos,
        thread: usize,
        put: Put,
        world: &mut World,
    ) -> Result<Step> {
        let block = self.block_bytes;
        let core = self.core(thread)?;
        let seqno = world.take_seqnos(1);
        let (image, _) = world.shape.group(&[put], seqno)?;
        let at = core.value_tail;
        core.value_tail += block;
        core.apart = Some((seqno, at, image.len()));
        core.state = State::ValueWritten;
        Ok(Step::At(world.devices.write(now, thread, AccessKind::Store, at, &image)))
    }

    /// Posts the entry of `thread`. If the lock is free it leads.
    fn post(&mut self, now: Nanos, thread: usize, put: Put) -> Result<Step> {
        let apart = self.core(thread)?.apart.take();
        self.pool.push_back(Entry { thread, put, apart });
        let leads = !std::mem::replace(&mut self.is_locked, true);
        self.core(thread)?.state = if leads { State::Gathering } else { State::Posted };
        Ok(if leads { self.gather(now, thread)? } else { Step::Parked })
    }

    /// The leader takes the waiting entries.
    fn gather(&mut self, now: Nanos, thread: usize) -> Result<Step> {
        let batch: Vec<Entry> = self.pool.drain(..self.pool.len().min(BATCH)).collect();
        let bytes = if self.is_inline { self.block_bytes as usize / 2 } else { ENTRY_BYTES };
        let took = gathering(batch.len(), batch.len() * bytes);
        self.core(thread)?.batch = batch;
        Ok(Step::At(now + took))
    }

    /// Gives the lock back before the batch is persisted, so that the next batch overlaps with it.
    fn release(&mut self, now: Nanos, schedule: &mut Schedule) -> Result<()> {
        self.is_locked = false;
        if let Some(next) = self.pool.front().map(|entry| entry.thread) {
            self.is_locked = true;
            self.core(next)?.state = State::Gathering;
            schedule.give(next, now);
        }
        Ok(())
    }

    fn persist(&mut self, now: Nanos, thread: usize, world: &mut World) -> Result<Step> {
        let is_inline = self.is_inline;
        let core = self.core(thread)?;
        world.count_group(core.batch.len());
        let at = core.log_tail.next_multiple_of(LINE_BYTES);
        let image = if is_inline {
            let puts: Vec<Put> = core.batch.iter().map(|entry| entry.put).collect();
            let first = world.take_seqnos(puts.len());
            let (image, lens) = world.shape.group(&puts, first)?;
            let mut place = at;
            for (seqno, (entry, len)) in (first..).zip(core.batch.iter_mut().zip(lens)) {
                entry.apart = Some((seqno, place, len));
                place += len as u64;
            }
            image
        } else {
            let mut image = Vec::with_capacity(core.batch.len() * ENTRY_BYTES);
            for entry in &core.batch {
                put_u64(&mut image, entry.put.key);
                put_u64(&mut image, entry.apart.map_or(0, |(_, at, _)| at));
            }
            image
        };
        core.log_tail = at + image.len() as u64;
        core.state = State::Persisting;
        Ok(Step::At(world.devices.write(now, thread, AccessKind::Store, at, &image)))
    }

    fn finish(
        &mut self,
        now: Nanos,
        thread: usize,
        world: &mut World,
        schedule: &mut Schedule,
    ) -> Result<Step> {
        for entry in std::mem::take(&mut self.core(thread)?.batch) {
            let Some((seqno, at, len)) = entry.apart else { continue };
            world.acknowledge(entry.put, seqno, at, len);
            self.core(entry.thread)?.state = State::Durable { seqno };
            schedule.give(entry.thread, now);
        }
        Ok(Step::Parked)
    }
}

impl Store for FlatStore {
    fn step(
        &mut self,
        now: Nanos,
        thread: usize,
        put: Put,
        world: &mut World,
        schedule: &mut Schedule,
    ) -> Result<Step> {
        let core = self.core(thread)?;
        let (state, has_batch) = (core.state, !core.batch.is_empty());
        match state {
            State::New if self.is_inline => self.post(now, thread, put),
            State::New => self.write_value(now, thread, put, world),
            State::ValueWritten => self.post(now, thread, put),
            State::Posted => Ok(Step::Parked),
            State::Gathering if !has_batch => self.gather(now, thread),
            State::Gathering => {
                self.release(now, schedule)?;
                self.persist(now, thread, world)
            }
            State::Persisting => self.finish(now, thread, world, schedule),
            State::Durable { seqno } => {
                self.core(thread)?.state = State::New;
                Ok(Step::Done(seqno))
            }
        }
    }
}
