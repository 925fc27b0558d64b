//! ChameleonDB (Zhang et al., EuroSys 2021): a value log per thread, and an index of shards. A shard is a
//! table in DRAM, three levels of tables on the device with a ratio of 4, and one last table; a hash table
//! in DRAM leads past the upper levels.
//!
//! Fewer and smaller shards than the original's 16,384 of 8 KiB, so that a run of some ten thousand puts
//! reaches the last level; the ratios are kept. Who fills a table writes it, and those who put into the same
//! shard meanwhile are not held up, as they would hardly meet with the original's number of shards.

use std::collections::HashMap;

use base::{Result, put_u64};
use media::emulated::AccessKind;

use super::devices::of_thread;
use super::records::Put;
use super::schedule::{Nanos, Schedule};
use super::store::{Step, Store, World};

const SHARDS: u64 = 8;
const RATIO: usize = 4;
const LEVELS: usize = 3;
/// Bytes of an index entry, and of the unit in which the last table is read.
const SLOT_BYTES: usize = 16;
const BUCKET_BYTES: usize = 256;
/// A table is full with this many of its slots in use: three quarters.
const MEMTABLE: usize = 48;

#[derive(Debug, Default)]
struct Shard {
    /// Entries of the table in DRAM: key and offset.
    memtable: Vec<(u64, u64)>,
    /// Tables of each upper level.
    levels: [usize; LEVELS],
    /// The entries of the upper levels.
    upper: HashMap<u64, u64>,
    /// The entries of the last table, and where it begins.
    last: HashMap<u64, u64>,
    last_at: u64,
    last_bytes: usize,
    tail: u64,
}

/// A write of index tables that a put has to do.
#[derive(Clone, Debug)]
struct IndexWrite {
    at: u64,
    image: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    New,
    Logged {
        seqno: u64,
        at: u64,
        len: usize,
    },
    /// The put is durable; index tables are written before it returns.
    Flushing {
        seqno: u64,
        rest: Vec<IndexWrite>,
    },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Chameleon {
    /// By thread: the end of its value log, and its state.
    threads: Vec<(u64, State)>,
    shards: Vec<Shard>,
}

impl Chameleon {
    pub(super) fn new(threads: usize) -> Self {
        let shard = |number: u64| Shard { tail: (1 << 44) + (number << 32), ..Shard::default() };
        Self {
            threads: (0..threads).map(|it| (of_thread(it), State::default())).collect(),
            shards: (0..SHARDS).map(shard).collect(),
        }
    }
}

fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A table with `entries`, three quarters full.
fn table<'a>(entries: impl ExactSizeIterator<Item = (&'a u64, &'a u64)>) -> Vec<u8> {
    let slots = (entries.len() * 4).div_ceil(3) * SLOT_BYTES;
    let mut image = Vec::with_capacity(slots + BUCKET_BYTES);
    for (key, at) in entries {
        put_u64(&mut image, *key);
        put_u64(&mut image, *at);
    }
    image.resize(slots.next_multiple_of(BUCKET_BYTES), 0);
    image
}

impl Shard {
    /// Adds an entry. Returns the index writes that are due, oldest first.
    fn insert(&mut self, key: u64, at: u64) -> Vec<IndexWrite> {
        self.memtable.push((key, at));
        if self.memtable.len() < MEMTABLE {
            return Vec::new();
        }
        let full = std::mem::take(&mut self.memtable);
        let mut writes = vec![self.write(table(full.iter().map(|(key, at)| (key, at))))];
        self.upper.extend(full);
        for level in 0..LEVELS {
            let Some(tables) = self.levels.get_mut(level) else { break };
            *tables += 1;
            if *tables < RATIO {
                return writes;
            }
            // As many tables as the ratio become one of the next level, or part of the last table.
            *tables = 0;
            if level + 1 < LEVELS {
                let entries = MEMTABLE * RATIO.pow(level as u32 + 1);
                let merged = self.upper.iter().take(entries).collect::<Vec<_>>();
                let image = table(merged.into_iter());
                writes.push(self.write(image));
            }
        }
        let upper = std::mem::take(&mut self.upper);
        self.last.extend(upper);
        let image = table(self.last.iter());
        self.last_bytes = image.len();
        let last = self.write(image);
        self.last_at = last.at;
        writes.push(last);
        writes
    }

    fn write(&mut self, image: Vec<u8>) -> IndexWrite {
        let at = self.tail;
        self.tail += image.len() as u64;
        IndexWrite { at, image }
    }
}

impl Store for Chameleon {
    fn step(
        &mut self,
        now: Nanos,
        thread: usize,
        put: Put,
        world: &mut World,
        _schedule: &mut Schedule,
    ) -> Result<Step> {
        let Some((tail, state)) = self.threads.get_mut(thread) else { return Ok(Step::Parked) };
        match std::mem::take(state) {
            State::New => {
                let seqno = world.take_seqnos(1);
                world.count_group(1);
                let (image, _) = world.shape.group(&[put], seqno)?;
                let at = *tail;
                *tail += image.len() as u64;
                *state = State::Logged { seqno, at, len: image.len() };
                Ok(Step::At(world.devices.write(now, thread, AccessKind::Store, at, &image)))
            }
            State::Logged { seqno, at, len } => {
                world.acknowledge(put, seqno, at, len);
                let shard = self.shards.get_mut((hash(put.key) % SHARDS) as usize);
                let rest = shard.map_or_else(Vec::new, |shard| shard.insert(put.key, at));
                if rest.is_empty() {
                    return Ok(Step::Done(seqno));
                }
                *state = State::Flushing { seqno, rest };
                Ok(Step::At(now))
            }
            State::Flushing { seqno, mut rest } => {
                if rest.is_empty() {
                    return Ok(Step::Done(seqno));
                }
                let IndexWrite { at, image } = rest.remove(0);
                let done = world.devices.write(now, thread, AccessKind::Store, at, &image);
                *state = State::Flushing { seqno, rest };
                Ok(Step::At(done))
            }
        }
    }

    fn probes(&self, key: u64) -> Option<(u64, usize)> {
        let shard = self.shards.get((hash(key) % SHARDS) as usize)?;
        let is_above =
            shard.upper.contains_key(&key) || shard.memtable.iter().any(|(other, _)| *other == key);
        if is_above || !shard.last.contains_key(&key) {
            return None;
        }
        let buckets = (shard.last_bytes / BUCKET_BYTES).max(1) as u64;
        Some((shard.last_at + (hash(key) >> 20) % buckets * BUCKET_BYTES as u64, BUCKET_BYTES))
    }
}
