//! A store for tests of the drivers: a sorted map that injects one fault.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use base::{Error, Result};

use crate::{Counters, Direction, Hits, ScanVisitor, Store, Traffic};

/// The fault of the store, applied to one key in sixteen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Returns the value of the key before.
    Neighbour,
    /// Keeps the first value that a key ever had.
    Stale,
    /// Loses the write.
    Loses,
    /// Flips the last bit of the value.
    Flips,
    /// Truncates the value by a byte.
    Cuts,
    /// Returns a value for every key, written or not.
    Invents,
    /// Fails the put.
    Fails,
    /// Ignores deletes.
    KeepsDeleted,
    /// Takes 50 ms for the twentieth put.
    PausesOnce,
    /// Refuses the put as invalid.
    Refuses,
}

pub(crate) struct TestStore {
    map: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    fault: Fault,
    puts: AtomicU64,
    synced: AtomicU64,
    asked: Mutex<Vec<Vec<u8>>>,
    written: AtomicU64,
    flushed: AtomicU64,
    settled: AtomicU64,
    compacted: AtomicU64,
}

impl TestStore {
    pub(crate) fn new(fault: Fault) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            map: Mutex::default(),
            fault,
            puts: zero(),
            synced: zero(),
            asked: Mutex::default(),
            written: zero(),
            flushed: zero(),
            settled: zero(),
            compacted: zero(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.map.lock().unwrap().len()
    }

    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.map.lock().unwrap().keys().cloned().collect()
    }

    pub(crate) fn entries(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.map.lock().unwrap().clone()
    }

    /// The keys of all lookups so far.
    pub(crate) fn asked(&self) -> Vec<Vec<u8>> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(SeqCst)
    }

    /// The numbers of flushes, settles and compactions so far.
    pub(crate) fn work(&self) -> [u64; 3] {
        [&self.flushed, &self.settled, &self.compacted].map(|count| count.load(SeqCst))
    }

    /// One key in sixteen, evenly spread.
    pub(crate) fn is_faulty(key: &[u8]) -> bool {
        base::key_hash(key).is_multiple_of(16)
    }

    fn fault_at(&self, key: &[u8]) -> Fault {
        if Self::is_faulty(key) { self.fault } else { Fault::None }
    }

    fn seen(&self, map: &BTreeMap<Vec<u8>, Vec<u8>>, key: &[u8]) -> Option<Vec<u8>> {
        let value = map.get(key).cloned();
        match self.fault_at(key) {
            Fault::Neighbour => {
                let before = map.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key)));
                value.map(|value| before.last().map_or(value, |(_, value)| value.clone()))
            }
            Fault::Flips => value.map(|mut value| {
                *value.last_mut().unwrap() ^= 1;
                value
            }),
            Fault::Cuts => value.map(|mut value| {
                value.pop();
                value
            }),
            Fault::Invents => Some(value.unwrap_or_else(|| {
                let mut invented = Vec::new();
                crate::Values::new(0.5).unwrap().write(key, 1, 100, &mut invented);
                invented
            })),
            _ => value,
        }
    }
}

impl Store for TestStore {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        let mut map = self.map.lock().unwrap();
        let puts = self.puts.fetch_add(1, SeqCst);
        if self.fault == Fault::PausesOnce && puts == 20 {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.synced.fetch_add(u64::from(sync), SeqCst);
        self.written.fetch_add(2 * (key.len() + value.len()) as u64, SeqCst);
        match self.fault_at(key) {
            Fault::Fails => return Err(Error::no_space("test store")),
            Fault::Refuses => return Err(Error::invalid("value length, bytes")),
            Fault::Loses => {}
            Fault::Stale => {
                map.entry(key.to_vec()).or_insert_with(|| value.to_vec());
            }
            _ => {
                map.insert(key.to_vec(), value.to_vec());
            }
        }
        Ok(())
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.asked.lock().unwrap().push(key.to_vec());
        let value = self.seen(&self.map.lock().unwrap(), key);
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(
        &self,
        keys: &[&[u8]],
        depth: usize,
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        assert!(depth > 0);
        // In reverse, because a store may answer in any order.
        for (at, key) in keys.iter().enumerate().rev() {
            self.asked.lock().unwrap().push(key.to_vec());
            let value = self.seen(&self.map.lock().unwrap(), key);
            visit(at, value.as_deref());
        }
        Ok(())
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.synced.fetch_add(u64::from(sync), SeqCst);
        if self.fault_at(key) != Fault::KeepsDeleted {
            self.map.lock().unwrap().remove(key);
        }
        Ok(())
    }

    fn scan(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: &mut ScanVisitor<'_>,
    ) -> Result<usize> {
        let map = self.map.lock().unwrap();
        let all = Bound::Unbounded;
        let mut shown = 0;
        let mut show = |key: &Vec<u8>| {
            let value = self.seen(&map, key).unwrap();
            shown += 1;
            visit(key, &value)
        };
        let _end: ControlFlow<()> = match direction {
            Direction::Forward => map
                .range::<[u8], _>((from.map_or(all, Bound::Included), all))
                .take(limit)
                .try_for_each(|(key, _)| show(key)),
            Direction::Reverse => map
                .range::<[u8], _>((all, from.map_or(all, Bound::Included)))
                .rev()
                .take(limit)
                .try_for_each(|(key, _)| show(key)),
        };
        Ok(shown)
    }

    fn flush(&self) -> Result<()> {
        self.flushed.fetch_add(1, SeqCst);
        // Background work writes every byte once more.
        self.written.fetch_add(self.written.load(SeqCst) / 2, SeqCst);
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.settled.fetch_add(1, SeqCst);
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.compacted.fetch_add(1, SeqCst);
        Ok(())
    }

    fn counters(&self) -> Counters {
        let gets = self.asked.lock().unwrap().len() as u64;
        let log = Traffic {
            write_ops: self.puts.load(SeqCst),
            write_bytes: self.written.load(SeqCst),
            ..Traffic::default()
        };
        let data = Traffic { read_ops: 2 * gets, read_bytes: 8192 * gets, ..Traffic::default() };
        let map = self.map.lock().unwrap();
        let logical = map.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
        Counters {
            pages: None,
            scm: None,
            emulation: None,
            compaction: None,
            device: BTreeMap::from([("log", log), ("data", data)]),
            foreground_read_ops: 2 * gets,
            hits: Hits { row: gets / 2, flash: gets - gets / 2, ..Hits::default() },
            stalls: BTreeMap::from([("test", Duration::from_millis(self.puts.load(SeqCst)))]),
            memory_bytes: 7,
            space_bytes: 3 * logical,
            logical_bytes: Some(logical),
        }
    }
}
