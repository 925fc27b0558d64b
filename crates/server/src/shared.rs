//! [`Shared`]: the state that all connections share.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use terracedb::{Durability, WriteOptions};
use tokio::sync::Notify;

use crate::acl::Users;
use crate::blocking::Waiters;
use crate::clients::Clients;
use crate::config::{AppendFsync, Config};
use crate::keys::{Keys, now_ms};
use crate::latency::Latency;
use crate::locks::Locks;
use crate::reply::Fail;
use crate::watch::Watches;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) keys: Arc<Keys>,
    pub(crate) locks: Locks,
    pub(crate) watches: Watches,
    pub(crate) waiters: Waiters,
    pub(crate) clients: Clients,
    pub(crate) users: Users,
    pub(crate) cursors: Mutex<Cursors>,
    pub(crate) slow: Mutex<SlowLog>,
    /// Commands that take this long are slow, microseconds; -1: none is.
    pub(crate) slow_threshold_us: AtomicI64,
    pub(crate) counts: Counts,
    pub(crate) started: Instant,
    pub(crate) last_save: AtomicU64,
    /// Set once the server ends.
    pub(crate) is_stopping: AtomicBool,
    pub(crate) stop: Notify,
    hasher: RandomState,
    draws: AtomicU64,
}

/// Counters of INFO and of the metrics.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) input_bytes: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
    pub(crate) cut_off: AtomicU64,
    pub(crate) latency: Latency,
}

impl Shared {
    pub(crate) fn new(config: Config, keys: Keys, users: Users) -> Self {
        let (watches, waiters, clients, cursors, slow, counts) = Default::default();
        Self {
            config,
            keys: Arc::new(keys),
            locks: Locks::new(),
            watches,
            waiters,
            clients,
            users,
            cursors,
            slow,
            slow_threshold_us: AtomicI64::new(10_000),
            counts,
            started: Instant::now(),
            last_save: AtomicU64::new(now_ms() / 1000),
            is_stopping: AtomicBool::new(false),
            stop: Notify::new(),
            hasher: RandomState::new(),
            draws: AtomicU64::new(0),
        }
    }

    /// The options of a commit, and those of one to windows alone, which needs no log with `no`. With
    /// `always`, the session syncs before it sends replies, once for all of them.
    pub(crate) fn write_options(&self) -> [WriteOptions; 2] {
        let logged = WriteOptions::new().durability(match self.config.append_fsync {
            AppendFsync::Always | AppendFsync::No => Durability::None,
            AppendFsync::EverySecond => Durability::Interval,
        });
        let unlogged = match self.config.append_fsync {
            AppendFsync::No => WriteOptions::new().durability(Durability::Unlogged),
            _ => logged,
        };
        [logged, unlogged]
    }

    /// Locks the stored keys `keys` for a write. Clients that wait for one of them may move its element to
    /// other keys: these are locked, too, and added to `keys`.
    pub(crate) fn lock_for_writing(&self, keys: &mut Vec<Vec<u8>>) -> crate::locks::Held<'_> {
        // Clients begin to wait under the locks of their keys, so the second look mostly finds no other ones.
        for _ in 0..8 {
            keys.extend(self.waiters.destinations(keys));
            let held = self.locks.lock(keys.iter());
            if self.waiters.destinations(keys).is_empty() {
                return held;
            }
        }
        self.locks.lock_all()
    }

    /// As [`Shared::lock_for_writing`] without waiting: `None` if a key is locked, or a client waits for one.
    pub(crate) fn try_lock_for_writing(&self, keys: &[Vec<u8>]) -> Option<crate::locks::Held<'_>> {
        let held = self.locks.try_lock(keys.iter())?;
        // Clients begin to wait under the locks of their keys.
        keys.iter().all(|key| self.waiters.of(key).is_empty()).then_some(held)
    }

    /// A number that clients cannot predict.
    pub(crate) fn random(&self) -> u64 {
        self.hasher.hash_one(self.draws.fetch_add(1, Ordering::Relaxed))
    }

    /// Ends the server.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.stop.notify_waiters();
        self.stop.notify_one();
    }

    /// Deletes keys that have expired, a bounded number. Returns whether more may be due.
    ///
    /// # Errors
    /// The error of the last key that could not be deleted. The sweep goes on after it, so that one damaged
    /// key does not keep the others alive.
    pub(crate) fn sweep(&self) -> Result<bool, Fail> {
        const MOST: usize = 200;
        let due = self.keys.due(now_ms(), MOST)?;
        let mut outcome = Ok(due.len() == MOST);
        for (row, key) in &due {
            if let Err(fail) = self.sweep_key(*row, key) {
                outcome = Err(fail);
            }
        }
        outcome
    }

    fn sweep_key(&self, row: u64, key: &Vec<u8>) -> Result<(), Fail> {
        let _held = self.locks.lock(std::iter::once(key));
        let mut unit = crate::unit::Unit::new(&self.keys);
        unit.sweep(row, key)?;
        let written = unit.commit(&self.write_options())?;
        self.watches.written(&written.keys);
        Ok(())
    }
}

/// The cursors of SCAN: each is a number for the stored key at which the scan continues. A cursor that was
/// dropped restarts its scan, which keeps SCAN's promise to return every key at least once.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    starts: HashMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
    last: u64,
}

/// Known cursors; with keys of 64 KiB they take 64 MiB at worst.
const CURSORS_MAX: usize = 1024;

impl Cursors {
    pub(crate) fn start(&self, database: u8, cursor: u64) -> Vec<u8> {
        let known = self.starts.get(&cursor).filter(|start| start.first() == Some(&database));
        known.cloned().unwrap_or_else(|| vec![database])
    }

    pub(crate) fn add(&mut self, start: Vec<u8>) -> u64 {
        if self.order.len() == CURSORS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.starts.remove(&oldest);
        }
        if self.last == 0 {
            // A cursor of an earlier process is not known, rather than another scan's.
            self.last = RandomState::new().hash_one(0_u8) >> 1;
        }
        self.last += 1;
        self.starts.insert(self.last, start);
        self.order.push_back(self.last);
        self.last
    }
}

/// One slow command.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    pub(crate) id: u64,
    pub(crate) unix_s: u64,
    pub(crate) took: Duration,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) address: String,
    pub(crate) name: Vec<u8>,
}

/// The commands that took long, newest first.
#[derive(Debug)]
pub(crate) struct SlowLog {
    pub(crate) entries: VecDeque<Slow>,
    next: u64,
    pub(crate) entries_max: usize,
}

impl Default for SlowLog {
    fn default() -> Self {
        Self { entries: VecDeque::new(), next: 0, entries_max: 128 }
    }
}

impl SlowLog {
    /// Changes the number of commands that are kept.
    pub(crate) fn limit(&mut self, entries_max: usize) {
        self.entries_max = entries_max;
        self.entries.truncate(entries_max);
    }

    pub(crate) fn add(&mut self, slow: Slow) {
        self.entries.push_front(Slow { id: self.next, ..slow });
        self.next += 1;
        self.entries.truncate(self.entries_max);
    }
}
